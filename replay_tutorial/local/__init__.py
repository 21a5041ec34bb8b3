"""Ape-X on one machine: actors, learner and evaluator are processes that use shared memory."""
