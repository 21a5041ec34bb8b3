"""The versions that lead to the package's own buffers; each fixes one flaw of its predecessor.

Each version is one file that can be read, imported and copied on its own. The package does not import them.
"""
