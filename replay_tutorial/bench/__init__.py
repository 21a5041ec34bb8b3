"""Benchmarks: the buffers compared with other libraries, their memory and start-up time, and training runs.

Each module is one benchmark, run as `python -m replay_tutorial bench NAME`, except `cases` and `scores`,
which several benchmarks share. `peers/` wraps the other libraries, `command` is the command line, and
`report` runs all benchmarks. Timing and output are in `replay_tutorial.measuring`.
"""
