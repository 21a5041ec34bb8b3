"""Before a run: looking at a cluster, and the files that start one."""
