"""Benchmarks: the buffers compared with other libraries, their memory and start-up time, and training runs.

A module is a benchmark, run as `python -m replay_tutorial bench NAME`, if `command` lists it. `cases` has the
operations that `buffers` and `article` time. `cluster` measures runs as `throughput` does. `comparison`
contains the common part of `sb3` and `cleanrl`, and the statistics over seeds, which `learning` also uses.
`report` runs the benchmarks. Timing and output are in `replay_tutorial.measuring`.

`peers/` wraps our buffers, other libraries and the ceiling as calls to time. `conformance/` is a command of
its own, with its own adapters of the libraries: they return single rows to check, and run without Numba.
"""
