"""The benchmarks: the buffers beside other libraries, what they cost, and what whole training runs reach.

A file here is a benchmark, by its name on the command line, or what two of them need (`cases`, `routes`,
`scores`); `peers/` is who is measured beside us. How a figure is measured and written down is `measuring/`,
outside of this folder. `command` is the command line, and `report` runs the benchmarks one after the other.
"""
