"""A run from its settings to its result, and what it leaves on the disk."""
