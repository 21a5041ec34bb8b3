"""The measured buffers: ours, those of other libraries, and plain NumPy calls as the upper bound.

`buffer` contains the interface, our buffer, cpprb's and the ceiling. `libraries`, `plain_python` and
`episodes` contain the others, and `lineup` lists all of them. `helper` starts a process that runs
`helper_program`, for `tables` and for Reverb's rows, with `helper_our_tables` or `helper_reverb`.
"""
