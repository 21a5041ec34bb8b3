"""The benchmarks: the buffers beside other libraries, what they cost, and what whole training runs reach.

`peers/` is who is measured beside us. The benchmarks themselves are in `one_process/`, `many_processes/`,
`training/`, `tables/` and `cluster/`. How a figure is measured and written down is `measuring/`, outside of
this folder. `command` is the command line, and `report` runs the benchmarks one after the other.
"""
