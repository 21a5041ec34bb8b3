"""Benchmarks of a buffer that many processes share."""
