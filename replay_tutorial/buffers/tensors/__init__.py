"""Batches of tensors for PyTorch and JAX."""
