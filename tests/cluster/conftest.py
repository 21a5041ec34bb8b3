"""What all tests with Ray share: its processes start in a third of the time."""

import os
import sys
from pathlib import Path

QUICK = str(Path(__file__).parent / "quick")
sys.path.insert(0, QUICK)
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [QUICK, os.environ.get("PYTHONPATH")]))
