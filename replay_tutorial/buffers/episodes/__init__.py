"""Episodes: a ring that stores each observation once, and samples of steps, sequences and new goals."""
