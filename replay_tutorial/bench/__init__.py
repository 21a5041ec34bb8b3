"""Measures the buffers beside other libraries, in one run and with a ceiling.

Reading order: `timing` (how a figure is taken), `peers` (who is measured), `buffers` (what is measured),
`report` (how it is written down), `command` (the command line). Beside other libraries: `plain_python`, `frameworks`,
`reverb`, `contenders`, `article`, `charts`. Of the shared buffers: `explorers` and `shared` (how fast they are),
`checked_rows`, `storm` and `crash` (whether they outlive those who write to them). What it costs: `ceiling`, `scale`,
`memory`, `startup`. All of it: `report_all`.
"""
