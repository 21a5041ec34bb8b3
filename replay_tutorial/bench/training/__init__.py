"""Benchmarks of whole training runs."""
