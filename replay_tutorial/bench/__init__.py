"""Measures the buffers beside other libraries, in one run and with a ceiling.

Reading order: `timing` (how a figure is taken), `peers` (who is measured), `buffers` (what is measured),
`report` (how it is written down), `command` (the command line).
"""
