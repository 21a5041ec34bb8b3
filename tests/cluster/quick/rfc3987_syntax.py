"""In place of a package that JupyterLab brings: `import ray` would compile its grammar, 2 s a process.

jsonschema, by which Ray reads its schemas, does without.
"""

raise ImportError("Ray needs no check of international addresses.")
