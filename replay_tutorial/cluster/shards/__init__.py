"""A replay in several shards: Ray actors with a part of the rows each, anywhere in the cluster."""
