"""Timing, statistics and output of measurements, for the benchmarks and the chapters."""
