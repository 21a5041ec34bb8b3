"""Check one library in this interpreter: `python -m benchmarks.conformance.check NAME`.

The last line of the output is the result as JSON. If a check raises, its verdict is "not checked", because
the adapter may call the library wrongly.
"""

import importlib
import json
import sys
import warnings
from typing import Any

from benchmarks.conformance.library import Library, NotChecked, NotOffered
from benchmarks.conformance.properties import PROPERTIES

YES, NO, NOT_OFFERED, NOT_CHECKED = "yes", "no", "not offered", "not checked"


def verdict(library: Library, name: str) -> dict[str, str]:
    """Return the verdict on a property, and the reason unless it is yes."""
    library.seed(0)
    if reason := library.without.get(name):
        return {"verdict": NOT_OFFERED, "reason": reason}
    try:
        fault = PROPERTIES[name].check(library)
    except NotOffered as error:
        return {"verdict": NOT_OFFERED, "reason": str(error)}
    except NotChecked as error:
        return {"verdict": NOT_CHECKED, "reason": str(error)}
    except Exception as error:  # noqa: BLE001
        return {"verdict": NOT_CHECKED, "reason": f"{type(error).__name__}: {error}".partition("\n")[0]}
    return {"verdict": YES} if fault is None else {"verdict": NO, "reason": fault}


def check(adapter: str) -> dict[str, Any]:
    """Return a library's versions and verdicts, or why it is skipped."""
    try:
        module = importlib.import_module(f"benchmarks.conformance.adapters.{adapter}")
    except ImportError as error:
        return {"skipped": str(error)}
    library: Library = module.library
    return {"versions": library.versions(), "verdicts": {name: verdict(library, name) for name in PROPERTIES}}


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    result = check(sys.argv[1])
    print("\n" + json.dumps(result))
