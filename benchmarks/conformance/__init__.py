"""Which replay is right? Properties of correct replay, checked on our buffers and on other libraries.

`cases.json` contains the steps, the cases, the right rows and the reasons. `world` reads it, `properties`
checks samples, and `adapters/` calls each library as its documentation shows; `your_buffer` is one to copy.
`check`, `world`, `properties` and `library` import nothing but the standard library, NumPy of any version and
each other, so that they run in interpreters without Numba.
`command` runs everything and writes the table.
"""
