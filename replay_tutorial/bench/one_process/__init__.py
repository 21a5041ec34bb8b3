"""Benchmarks of a buffer in one process."""
