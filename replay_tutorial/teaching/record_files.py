"""The records that chapters load: results of runs that take too long for a notebook.

The programs in `chapters/records/` write them. They are part of the package, so that a chapter that was
downloaded without the repository finds them.
"""

import json
from pathlib import Path
from typing import Any

RECORDS = Path(__file__).parent / "records"
# The records of measurements on the site; the wheel contains those of the chapters in RECORDS.
MEASUREMENTS = Path(__file__).parents[2] / "docs" / "measurements"


def load_record(name: str) -> Any:
    """Return the contents of a record, for example `load_record("why_replay")`.

    Raises:
        FileNotFoundError: If there is no record of this name.
    """
    file = RECORDS / f"{name}.json"
    return json.loads((file if file.exists() else MEASUREMENTS / file.name).read_text(encoding="utf-8"))
