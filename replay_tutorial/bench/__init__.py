"""The benchmarks: the buffers beside other libraries, what they cost, and what whole training runs reach.

`method/` is how a figure is measured and written down, `peers/` who is measured beside us. The benchmarks
themselves are in `one_process/`, `many_processes/`, `training/` and `cluster/`, which use those two and never
each other. `command` is the command line, and `report` runs the benchmarks one after the other.
"""
