"""Check one library in this interpreter: `python -m benchmarks.conformance.check ADAPTER`.

It needs NumPy, the library and this clone. With `--json`, the last line of the output is the result as JSON.
If a check raises, its verdict is "not checked", because the adapter may call the library wrongly.
"""

import argparse
import importlib
import importlib.util
import json
import sys
import warnings
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from benchmarks.conformance.library import Library, NotChecked, NotOffered
from benchmarks.conformance.properties import PROPERTIES

YES, NO, NOT_OFFERED, NOT_CHECKED = "yes", "no", "not offered", "not checked"
ADAPTERS = Path(__file__).parent / "adapters"


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


def load(adapter: str) -> Library:
    """Return the library of an adapter: a name in `adapters/`, a Python file, or a module.

    Raises:
        ImportError: If there is no such adapter, or the library isn't installed.
    """
    if (ADAPTERS / f"{adapter}.py").is_file():
        return importlib.import_module(f"benchmarks.conformance.adapters.{adapter}").library
    if not adapter.endswith(".py"):
        return importlib.import_module(adapter).library
    spec = importlib.util.spec_from_file_location(Path(adapter).stem, adapter)
    if spec is None or spec.loader is None or not Path(adapter).is_file():
        raise ImportError(f"there is no file {adapter}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # so that its dataclasses and pickles find it
    spec.loader.exec_module(module)
    return module.library


def lines_of(verdicts: dict[str, dict[str, str]]) -> list[str]:
    """Return a table of the verdicts by group, the reasons of "no" and "not checked", and the counts."""
    lines: list[str] = []
    for name, found in verdicts.items():
        group, sentence, *_ = PROPERTIES[name]
        lines += [group] if group not in lines else []
        shown = "NO" if found["verdict"] == NO else found["verdict"]
        lines.append(f"  {shown:11}  {sentence}")
        lines += [f"{'':15}{found['reason']}"] if found["verdict"] in (NO, NOT_CHECKED) else []
    counts = Counter(found["verdict"] for found in verdicts.values())
    return [*lines, ", ".join(f"{counts[kind]} {kind}" for kind in (YES, NO, NOT_OFFERED, NOT_CHECKED))]


def main(argv: Sequence[str]) -> int:
    """Check a library and print the verdicts; return 1 if it lacks a property that it offers, else 0."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.conformance.check",
        description="Check properties of correct replay in the buffers of one library.",
    )
    what = "the library's adapter: a name in benchmarks/conformance/adapters/, a Python file, or a module"
    parser.add_argument("adapter", help=what)
    parser.add_argument("--json", action="store_true", help="print one line of JSON instead of a table")
    arguments = parser.parse_args(argv)
    warnings.simplefilter("ignore")
    try:
        library = load(arguments.adapter)
    except ImportError as error:
        if arguments.json:
            print("\n" + json.dumps({"skipped": str(error)}))
            return 0
        parser.error(str(error))
    verdicts = {name: verdict(library, name) for name in PROPERTIES}
    if arguments.json:
        print("\n" + json.dumps({"versions": library.versions(), "verdicts": verdicts}))
        return 0
    print("\n".join(lines_of(verdicts)))
    return int(any(found["verdict"] == NO for found in verdicts.values()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
