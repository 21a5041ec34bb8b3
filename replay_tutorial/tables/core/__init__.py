"""Tables by themselves: cells, items, selectors, limiters, and how a message becomes items."""
