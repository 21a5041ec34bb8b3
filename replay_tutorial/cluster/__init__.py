"""Ape-X on many machines, on Ray: the learner's host is as in `local`, the actors are anywhere."""

import os
import sys
from pathlib import Path

TOKEN = Path("~/.ray/auth_token")  # where Ray looks for it, unless one of these two variables is set
has_token = {"RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"} & os.environ.keys() or TOKEN.expanduser().exists()

# Ray reads them once, when it is imported, and its processes inherit them. After that they are its user's.
if "ray" not in sys.modules:
    # As `ray start` does. Ray itself would join a cluster that asks for the token without sending it.
    os.environ.setdefault("RAY_AUTH_MODE", "token" if has_token else "disabled")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_worker_niceness", "0")  # or actors would wait for all others
