"""Flags: how presets, a settings file and the command line become one configuration.

The preset of the environment comes first, a file given by `--config` overrides it, and flags override both.
The file is read as if its lines were flags, so that the same rules check it: an unknown name is refused, and
so is text where a number belongs.
"""

import argparse
import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, NoReturn, cast

import tyro

from replay_tutorial.apex.config import Config, preset

PROGRAM = "python -m replay_tutorial train"
DESCRIPTION = (
    "Train Ape-X, then evaluate the selected policy and draw the learning curve. "
    "--config FILE reads settings from a TOML file, by the names below with _ for -; flags override it. "
    "--cluster ADDRESS runs the actors on a Ray cluster: auto, host:port, or local to start one here; with "
    "--gateways N processes that take in their rows, and --cpus-per-actor SHARE of a core for each."
)


def read_config(arguments: Sequence[str]) -> Config:
    """Return the configuration that the arguments of `train` ask for, possibly with `--config FILE`.

    Raises:
        SystemExit: With status 2, if they can't be parsed; the reason has been printed.
    """
    path, flags = without_config_file(arguments)
    settings = {} if path is None else read_file(path)
    # First for the environment alone: all else overrides its preset.
    named = str(settings.pop("environment", Config().environment))
    environment = parse(flags, replace(Config(), environment=named)).environment
    default = preset(environment)
    if settings:
        try:
            default = parse(as_flags(settings), default)
        except SystemExit:
            refuse(f"the error above is in {path}")
    return parse(flags, default)


def parse(flags: Sequence[str], default: Config) -> Config:
    """Override some settings by flags."""
    return tyro.cli(Config, prog=PROGRAM, description=DESCRIPTION, args=flags, default=default)


def without_config_file(arguments: Sequence[str]) -> tuple[Path | None, list[str]]:
    """Split the arguments into the file of `--config FILE` and the flags."""
    parser = argparse.ArgumentParser(prog=PROGRAM, add_help=False, allow_abbrev=False)
    parser.add_argument("--config", type=Path)
    known, others = parser.parse_known_args(list(arguments))
    return known.config, others


def read_file(path: Path) -> dict[str, Any]:
    """Read a settings file; refuse names and types that `Config` doesn't have."""
    try:
        settings = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        refuse(f"can't read the settings in {path}: {error}")
    if unknown := sorted(set(settings) - {field.name for field in fields(Config)}):
        refuse(f"{path} has unknown settings: {', '.join(unknown)}. See --help for all settings.")
    for name, value in settings.items():
        default = getattr(Config(), name)
        # As flags, a bool or a list in the wrong place would be read as something else.
        is_bool, is_list = isinstance(default, bool), isinstance(default, tuple)
        fits = (isinstance(value, bool), isinstance(value, list)) == (is_bool, is_list)
        if not fits or isinstance(value, dict):
            refuse(f"{path}: {name} is {value!r}; expected e.g. {default!r}.")
    return settings


def as_flags(settings: Mapping[str, Any]) -> list[str]:
    """Return settings as flags."""
    flags: list[str] = []
    for name, value in settings.items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            flags.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            values = cast(list[Any], value) if isinstance(value, list) else [value]
            flags += [f"--{flag}", *map(str, values)]
    return flags


def refuse(reason: str) -> NoReturn:
    """End the program in the way that an unknown flag does."""
    print(f"{PROGRAM}: {reason}", file=sys.stderr)
    raise SystemExit(2)
