"""The command `python -m benchmarks conformance`: check all libraries, and write the table.

Each library is checked in a new process, by the interpreter `benchmarks/.venv/ADAPTER/bin/python` if there is
one, such as `benchmarks/.venv/torchrl/bin/python`, otherwise by this one. A fault counts as "no" only
if a program of at most ten lines that uses this library alone shows it, too; otherwise the property is
reported as not checked. A fault of our own buffers counts without a program.
"""

import argparse
import ast
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.conformance import check
from benchmarks.conformance.check import NO, NOT_CHECKED, NOT_OFFERED, YES
from benchmarks.conformance.properties import PROPERTIES
from benchmarks.measuring.fresh import QUIET_ON_CPU, SOURCE, python_of, run_fresh, run_python
from benchmarks.measuring.output import add_outputs, write_results
from benchmarks.measuring.provenance import Provenance
from replay_course.number_tables import table

ADAPTERS = {  # name → name in the table
    "ours": "replay_tutorial",
    "cpprb": "cpprb",
    "stable_baselines3": "Stable-Baselines3",
    "cleanrl": "CleanRL",
    "tianshou": "tianshou",
    "torchrl": "TorchRL",
    "flashbax": "flashbax",
    "reverb": "Reverb",
    "d3rlpy": "d3rlpy",
}
PROGRAMS = SOURCE / "docs" / "measurements" / "conformance"
CHECK = "benchmarks.conformance.check"
OURS = ADAPTERS["ours"]
CELLS = {YES: "yes", NO: "**no**", NOT_OFFERED: "–", NOT_CHECKED: "?"}


def checked(adapter: str) -> dict[str, Any]:
    """Return the result of a library, in which a program has confirmed each "no", except ours."""
    options: Any = {"python": python_of(adapter), "environment": QUIET_ON_CPU}
    try:
        result = run_fresh("-m", CHECK, "--json", adapter, **options)
    except RuntimeError as error:
        return {"skipped": str(error)}
    if "skipped" in result:
        return result
    for name, verdict in result["verdicts"].items():
        if verdict["verdict"] == NO and adapter != "ours":
            program = PROGRAMS / f"{adapter}_{name}.py"
            if program.is_file() and fails(program, options):
                verdict["program"] = program.name
            else:
                verdict |= {"verdict": NOT_CHECKED, "reason": f"not confirmed: {verdict['reason']}"}
    return {"name": ADAPTERS[adapter], **result}


def fails(program: Path, options: Mapping[str, Any]) -> bool:
    """Return whether a program ends with a failed `assert`."""
    try:
        return "AssertionError" in run_python(str(program), **options).stderr
    except RuntimeError:  # it took too long
        return False


def lines_of(results: Sequence[dict[str, Any]]) -> list[str]:
    """Return the lines of the table and of the lists below it."""
    rows: list[list[str]] = []
    groups: set[str] = set()
    for name, (group, sentence, *_) in PROPERTIES.items():
        if group not in groups:
            groups.add(group)
            rows.append([f"**{group}**", *("" for _ in results)])
        rows.append([sentence, *(CELLS[result["verdicts"][name]["verdict"]] for result in results)])
    heads = ["property", *("ours" if result["name"] == OURS else result["name"] for result in results)]
    lines = table(heads, rows, words=len(heads))
    faults: list[str] = []
    unchecked: list[str] = []
    for result in results:
        for name, verdict in result["verdicts"].items():
            where = f"- {result['name']}, *{PROPERTIES[name].sentence}*: "
            if "program" in verdict:
                path = PROGRAMS / verdict["program"]
                shown = " ".join(
                    (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").split()
                )
                faults.append(f"{where}{shown} [{path.name}]({PROGRAMS.name}/{path.name})")
            elif verdict["verdict"] == NO:
                faults.append(f"{where}{verdict['reason']}")
            elif verdict["verdict"] == NOT_CHECKED:
                unchecked.append(f"{where}{verdict['reason']}")
    for heading, items in (
        ("Each **no**, and the program that shows it:", faults),
        ("Not checked:", unchecked),
    ):
        lines += ["", heading, "", *items] if items else []
    return lines


def versions_of(result: dict[str, Any]) -> str:
    """Return the versions that a library was checked with."""
    (_, own), *others = result["versions"].items()
    with_others = f" with {', '.join(map(' '.join, others))}" if others else ""
    return f"{result['name']} {own}{with_others} ({result['date']})"


def kept(path: Path | None) -> dict[str, dict[str, Any]]:
    """Return the results of a record, by library.

    Raises:
        ValueError: If the record has other properties.
    """
    if path is None or not path.is_file():
        return {}
    record = json.loads(path.read_text(encoding="utf-8"))
    for result in record["libraries"]:
        if other := sorted(result["verdicts"].keys() ^ PROPERTIES.keys()):
            raise ValueError(
                f"{path} has other properties: {result['name']} differs in {', '.join(other)}; check all "
                "libraries, without --only"
            )
    return {result["name"]: {"date": record["date"], **result} for result in record["libraries"]}


def main(argv: Sequence[str]) -> int:
    """Run the command; return 1 if our buffers fail or are skipped, or the table isn't written, else 0."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks conformance",
        description="Check properties of correct replay in our buffers and in other libraries.",
    )
    which = f"libraries, of {', '.join(ADAPTERS)} (default: all); a record keeps the results of the others"
    parser.add_argument("--only", nargs="+", choices=ADAPTERS, metavar="NAME", help=which)
    one = "check only this adapter, a Python file or a module, in this process; see the page on conformance"
    parser.add_argument("--adapter", metavar="FILE", help=one)
    add_outputs(parser, "conformance")
    arguments = parser.parse_args(argv)
    if arguments.adapter:
        return check.main([arguments.adapter])
    provenance = Provenance.of_command(["python", "-m", "benchmarks", "conformance", *argv])
    found: dict[str, dict[str, Any]] = {}
    if arguments.only:
        try:
            found = kept(arguments.json)
        except ValueError as error:
            parser.error(str(error))
        if arguments.markdown and not found:
            parser.error("--only with --markdown requires --json and a record of the other libraries")
    failed = False
    for adapter in arguments.only or ADAPTERS:
        result = checked(adapter)
        if "skipped" in result:
            print(f"{adapter} is skipped: {result['skipped']}", file=sys.stderr)
            failed = failed or adapter == "ours"
            continue
        found[result["name"]] = {"date": provenance.date, **result}
    results = [found[name] for name in ADAPTERS.values() if name in found]
    ours = next((result["verdicts"] for result in results if result["name"] == OURS), {})
    for name, verdict in ours.items():
        if verdict["verdict"] != YES:
            failed = True
            print(f"{OURS} fails {name}: {verdict['reason']}", file=sys.stderr)
    properties = {name: list(found[:2]) for name, found in PROPERTIES.items()}
    body = {"properties": properties, "libraries": results}
    versions = [versions_of(result) for result in results if result["name"] != OURS]
    about = f"–: not offered by the library; ?: not checked. Checked: {'; '.join(versions)}."
    if arguments.only:
        about += f" The following command checked {', '.join(arguments.only)} only."
    status = write_results(arguments, "conformance", provenance, body, lines_of(results), about)
    return status or int(failed)
