"""One module per library, imported only when it is checked. Each offers only its `library`."""
