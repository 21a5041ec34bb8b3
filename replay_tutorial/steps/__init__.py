"""The progressive modules: every rung before the package's own version, each better in exactly one way.

A rung is a file that can be read, imported and copied by itself. Nothing in the package imports one.
"""
