"""Ape-X as processes of this machine, which meet in shared memory."""
