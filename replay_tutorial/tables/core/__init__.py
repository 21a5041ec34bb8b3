"""The parts of a table: cells, items, selectors, rate limiters, hooks, and its state."""
