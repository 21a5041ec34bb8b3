"""Solutions to the exercises of chapter 05b."""

# 1. Bytes 0 to 4, 8 to 11, 16 to 23 and 24; the record ends at byte 25, and is padded to 32.
my_starts = [0, 8, 16, 24]
my_size = 32

# 2. Before anything changes: the first lines of `Ring.append` are also run for a batch that is split.
my_ring_edits = {
    "if count == 1:": """
        if self.stored + count > self.capacity:
            raise ValueError(f"{count} rows don't fit: {self.capacity - self.stored} slots are free")
        if count == 1:
    """
}

# 3. The mass of a priority, and its inverse.
my_mass_edits = {
    "return power(priority + eps, alpha)": "return power(priority, alpha) + eps",
    "return mass ** (1.0 / alpha) - eps": "return (mass - eps) ** (1.0 / alpha)",
}
