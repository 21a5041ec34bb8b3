"""Flags: how the command line, a file of settings and the presets become one configuration.

The preset of the environment comes first, a file given by `--config` changes it, and flags change both. The file is
read as if its lines were flags, so that it is checked by the same rules: a misspelt name is refused by its name, and so
is text where a number belongs.
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
    "Train Ape-X, then evaluate the policy that was chosen and draw the learning curve. "
    "--config FILE reads settings from a TOML file, by the names below with _ for -; flags stand above it."
)


def read_config(arguments: Sequence[str]) -> Config:
    """Return the configuration that the arguments of `train` ask for.

    Args:
        arguments: The flags, `--config FILE` among them, maybe.

    Raises:
        SystemExit: With status 2, if they can't be understood; the reason has been printed.
    """
    path, flags = without_config_file(arguments)
    settings = {} if path is None else read_file(path)
    # Once for the environment alone: its preset is what all else changes.
    named = str(settings.pop("environment", Config().environment))
    environment = parse(flags, replace(Config(), environment=named)).environment
    default = preset(environment)
    if settings:
        try:
            default = parse(as_flags(settings), default)
        except SystemExit:
            refuse(f"that was in {path}")
    return parse(flags, default)


def parse(flags: Sequence[str], default: Config) -> Config:
    """Change some settings by flags."""
    return tyro.cli(Config, prog=PROGRAM, description=DESCRIPTION, args=flags, default=default)


def without_config_file(arguments: Sequence[str]) -> tuple[Path | None, list[str]]:
    """Take `--config FILE` out of the arguments."""
    parser = argparse.ArgumentParser(prog=PROGRAM, add_help=False, allow_abbrev=False)
    parser.add_argument("--config", type=Path)
    known, others = parser.parse_known_args(list(arguments))
    return known.config, others


def read_file(path: Path) -> dict[str, Any]:
    """Read a file of settings."""
    try:
        settings = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        refuse(f"can't read the settings in {path}: {error}")
    if unknown := sorted(set(settings) - {field.name for field in fields(Config)}):
        refuse(
            f"{path} has settings that there aren't: {', '.join(unknown)}. See --help for those there are."
        )
    for name, value in settings.items():
        default = getattr(Config(), name)
        # What is no flag with a value can't be checked by reading it as one.
        alike = (isinstance(value, bool), isinstance(value, list)) == (
            isinstance(default, bool),
            isinstance(default, tuple),
        )
        if not alike or isinstance(value, dict):
            refuse(f"{path}: {name} is {value!r}; {default!r} would do.")
    return settings


def as_flags(settings: Mapping[str, Any]) -> list[str]:
    """Write settings down as flags."""
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
    """End the program as a misspelt flag does."""
    print(f"{PROGRAM}: {reason}", file=sys.stderr)
    raise SystemExit(2)
