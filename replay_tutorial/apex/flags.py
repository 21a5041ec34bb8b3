"""Reading settings: the options of `train`, a settings file, and the `config.json` of a run.

Options override the TOML file that `--config` names, and the file overrides the preset of the environment.
TOML and JSON files use the names of `Config`'s fields; both are checked for unknown names and wrong types.
"""

import argparse
import math
import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from types import UnionType
from typing import Any, Literal, NoReturn, Union, cast, get_args, get_origin, get_type_hints

import tyro

from replay_tutorial.apex.config import Config, preset

PROGRAM = "python -m replay_tutorial train"
DESCRIPTION = (
    "Train Ape-X, then evaluate the selected policy and plot the learning curve. "
    "--config FILE reads settings from a TOML file; its keys are the option names below, with _ instead "
    "of -. Options override the file. --cluster ADDRESS runs the actors on a Ray cluster: auto, host:port, "
    "or local to start one on this machine. --gateways N then sets the number of processes that receive the "
    "actors' rows, and --cpus-per-actor sets the share of a core per actor."
)


def read_config(arguments: Sequence[str]) -> Config:
    """Return the configuration that the arguments of `train` specify, including `--config FILE`.

    Raises:
        SystemExit: If the arguments can't be parsed, with status 2; the reason has been printed.
    """
    parser = argparse.ArgumentParser(prog=PROGRAM, add_help=False, allow_abbrev=False)
    parser.add_argument("--config", type=Path)
    known, flags = parser.parse_known_args(list(arguments))
    settings: dict[str, Any] = {}
    if known.config is not None:
        try:
            settings = parse_settings(tomllib.loads(known.config.read_text(encoding="utf-8")))
        except (OSError, TypeError, ValueError) as error:
            exit_with_error(f"can't read the settings in {known.config}: {error}")
    # First parse only the environment, because its preset provides the defaults of all other options.
    named = settings.pop("environment", Config().environment)
    environment = parse(flags, Config(named)).environment
    try:
        default = replace(preset(environment), **settings)
    except ValueError as error:
        exit_with_error(f"{known.config}: {error}")
    return parse(flags, default)


def parse(flags: Sequence[str], default: Config) -> Config:
    """Override settings with command-line options."""
    return tyro.cli(Config, prog=PROGRAM, description=DESCRIPTION, args=flags, default=default)


def parse_settings(contents: Mapping[str, Any]) -> dict[str, Any]:
    """Return the contents of a settings file as arguments of `Config`.

    Raises:
        TypeError: If a value has the wrong type.
        ValueError: If a setting is unknown.
    """
    hints = get_type_hints(Config)
    if unknown := sorted(contents.keys() - hints.keys()):
        raise ValueError(
            f"unknown settings: {', '.join(unknown)}. They may belong to a newer version; see `train --help`"
        )
    read: dict[str, Any] = {}
    for name, value in contents.items():
        value = with_tuples(value)
        if name == "runs" and isinstance(value, str):
            value = Path(value)
        elif value in ("inf", "-inf") and is_of_type(0.0, hints[name]):
            value = float(value)
        if not is_of_type(value, hints[name]):
            raise TypeError(f"{name} is {value!r}; expected a value like {getattr(Config(), name)!r}")
        read[name] = value
    return read


def with_tuples(value: Any) -> Any:
    """Convert lists to tuples, recursively."""
    return tuple(map(with_tuples, cast(list[Any], value))) if isinstance(value, list) else value


def is_of_type(value: Any, hint: Any) -> bool:
    """Return whether a value has the type of a setting: an int is also a float; a bool is not a number."""
    if get_origin(hint) is Literal:
        return value in get_args(hint)
    if get_origin(hint) in (Union, UnionType):
        return any(is_of_type(value, part) for part in get_args(hint))
    if get_origin(hint) is tuple:
        kinds, parts = get_args(hint), cast(tuple[Any, ...], value if isinstance(value, tuple) else ())
        fits = len(parts) == len(kinds) or kinds[-1] is ...
        return isinstance(value, tuple) and fits and all(is_of_type(part, kinds[0]) for part in parts)
    if hint is float and isinstance(value, int) and abs(value) > sys.float_info.max:
        return False
    kinds = (int, float) if hint is float else (hint,)
    return isinstance(value, kinds) and (hint is bool or not isinstance(value, bool))


def settings_as_json(config: Config) -> dict[str, Any]:
    """Return settings as JSON values; infinity, which JSON lacks, becomes text."""
    settings = {**asdict(config), "runs": str(config.runs)}
    return {name: str(value) if value in (math.inf, -math.inf) else value for name, value in settings.items()}


def exit_with_error(reason: str) -> NoReturn:
    """Print `reason` to stderr and exit with status 2, as for an unknown option."""
    print(f"{PROGRAM}: {reason}", file=sys.stderr)
    raise SystemExit(2)
