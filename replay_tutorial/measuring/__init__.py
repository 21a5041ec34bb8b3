"""How a figure is measured, and how it is written down: for the benchmarks and the chapters."""
