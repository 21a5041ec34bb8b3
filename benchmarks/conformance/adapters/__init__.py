"""One module per library, imported only when it is checked. Each offers only its `library`.

`cpprb_api` contains the calls that `cpprb` and `ours` share.
"""
