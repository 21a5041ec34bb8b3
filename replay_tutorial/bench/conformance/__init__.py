"""Which replay is right? Properties of correct replay, checked on our buffers and on other libraries.

`world` makes steps that identify themselves, `properties` checks samples against plain lists, and `adapters/`
calls each library as its documentation shows. Nothing here imports our package, except the adapter `ours`:
`check` also runs in interpreters that don't have it. `command` runs everything and writes the table.
"""
