"""Ape-X on many machines, on Ray: the learner's host is as in `local`, the actors are anywhere."""

import os
import sys

# Ray reads them once, when it is imported, and its processes inherit them. After that they are its user's.
if "ray" not in sys.modules:
    os.environ.setdefault("RAY_AUTH_MODE", "token")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_worker_niceness", "0")  # or actors would wait for all others
