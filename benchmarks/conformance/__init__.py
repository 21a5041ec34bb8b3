"""Which replay is right? Properties of correct replay, checked on our buffers and on other libraries.

`world` makes steps that identify themselves, `properties` checks samples against plain lists, and `adapters/`
calls each library as its documentation shows. `check`, `world`, `properties` and `library` import nothing
but the standard library, NumPy of any version and each other, so that they run in interpreters without Numba.
`command` runs everything and writes the table.
"""
