"""Ape-X on several hosts, with Ray: the learner's host works as in `local`; actors run on any host."""

import os
import sys
from pathlib import Path

TOKEN = Path("~/.ray/auth_token")  # Ray's default, unless one of these two variables is set
has_token = {"RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"} & os.environ.keys() or TOKEN.expanduser().exists()

# Ray reads these variables once, when it is imported, and its processes inherit them. If Ray has already been
# imported, its user has set them.
if "ray" not in sys.modules:
    # As `ray start` does: by default, Ray would join a cluster that requires a token without sending it.
    os.environ.setdefault("RAY_AUTH_MODE", "token" if has_token else "disabled")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_worker_niceness", "0")  # Ray's default is 15
