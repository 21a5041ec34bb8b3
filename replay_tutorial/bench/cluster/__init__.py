"""Benchmarks and faults of a run on many hosts, all of them on one machine."""
