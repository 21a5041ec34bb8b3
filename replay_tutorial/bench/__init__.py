"""Benchmarks: the buffers compared with other libraries, their memory and start-up time, and training runs.

A module is a benchmark, run as `python -m replay_tutorial bench NAME`, if `command` lists it. `cases` has the
operations of `buffers`; `article` times its own in the same way. `cluster` measures runs as `throughput`
does. `comparison` contains the common part of `sb3` and `cleanrl`, and the statistics over seeds, which
`learning` also uses. `peers/` wraps the other libraries, and `report` runs the benchmarks. `conformance/` is
a command of its own. Timing and output are in `replay_tutorial.measuring`.
"""
