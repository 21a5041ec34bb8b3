"""The lab: the buffers compared with other libraries, their memory and start-up time, and training runs.

`__main__` lists the commands, each a module here. `cases` has the operations that `buffers` and `article`
time. `cluster` measures runs as `throughput` does. `comparison` contains the common part of `sb3` and
`cleanrl`, and the statistics over seeds, which `learning` also uses. `report` runs the benchmarks.

`peers/` wraps our buffers, other libraries and the ceiling as calls to time. `conformance/` has its own
adapters of the libraries: they return single rows to check, and run without Numba. `measuring/` contains
output and provenance; the timing is `replay_course.timing`, because the chapters measure with it,
too.
"""
