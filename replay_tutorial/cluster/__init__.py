"""Ape-X on many machines, on Ray: the actors run everywhere, learner and replay stay on one host."""
