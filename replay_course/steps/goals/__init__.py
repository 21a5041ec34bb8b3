"""Hindsight experience replay: relabel steps when their episode ends, then when they are sampled."""
