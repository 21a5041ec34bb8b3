"""Before a run: what a cluster is, and the files that start one."""
