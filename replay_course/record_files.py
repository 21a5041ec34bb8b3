"""The records that chapters load: results of runs that take too long for a notebook.

The programs in `chapters/records/` and the benchmarks write them. The wheel contains those that chapters
load, so that a chapter that was downloaded without the repository finds them.
"""

import json
from pathlib import Path
from typing import Any

CLONE = Path(__file__).parents[1]
# In a wheel, the first folder contains all records; in a clone, it doesn't exist.
FOLDERS = (Path(__file__).parent / "records", CLONE / "chapters" / "records", CLONE / "docs" / "measurements")


def load_record(name: str) -> Any:
    """Return the contents of a record, for example `load_record("why_replay")`.

    Raises:
        FileNotFoundError: If there is no record of this name.
    """
    files = [folder / f"{name}.json" for folder in FOLDERS]
    file = next(filter(Path.is_file, files), files[0])
    return json.loads(file.read_text(encoding="utf-8"))
