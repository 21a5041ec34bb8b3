"""Datasets: iterators over sampled trajectories or single steps."""
