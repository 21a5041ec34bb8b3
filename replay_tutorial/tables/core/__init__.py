"""The parts of a table: its cells, items, selectors, rate limiter, hooks, state and saved form."""
