"""Ape-X on one machine: actors in processes of their own, one learner, one prioritized replay between them.

Needs the extra `train`: `pip install "replay_tutorial[train]"`.

Paper: Horgan et al. 2018, "Distributed Prioritized Experience Replay".
"""
