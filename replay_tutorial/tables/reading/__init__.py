"""Datasets: iterators over what is sampled, as whole items or step by step."""
