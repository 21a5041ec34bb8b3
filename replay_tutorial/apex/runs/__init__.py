"""A run from its settings to its result, and the files that it writes."""
