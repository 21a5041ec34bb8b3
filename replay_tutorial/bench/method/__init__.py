"""How a figure is taken, and how it is written down."""
