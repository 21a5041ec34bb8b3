"""Replay buffers for a single process."""
