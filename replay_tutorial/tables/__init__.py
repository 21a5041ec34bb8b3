"""Named tables of trajectories, as Reverb has them, in one process with threads.

A *step* is stored once, in *cells*: one for each *column* that it has a value for. An *item* is a list of
cells under a *key* that is never used again. A *table* is a set of items, with two *selectors* (who is sampled
next, who is evicted next) and a limit of how often its items are sampled. One `Server` holds the tables and
the cells; whoever writes hands it a `Message`.
"""
