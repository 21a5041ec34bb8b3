"""The key that the tables' server and its clients have in common: who knows it may call.

It is the text of the environment variable REPLAY_TUTORIAL_KEY, or else lies in the file
`.replay_tutorial_key` of the user's home folder, which only the user can read. The first server makes it.
"""

import os
import secrets
import sys
from pathlib import Path

VARIABLE = "REPLAY_TUTORIAL_KEY"
LEAST = 16  # characters


def key_path() -> Path:
    """Return where the key lies, unless the environment names one."""
    return Path.home() / ".replay_tutorial_key"


def make_key() -> bytes:
    """Return the key; make one if there is none.

    Raises:
        OSError: If it can't be read or written.
        ValueError: If it is too short, or others can read it.
    """
    if VARIABLE not in os.environ:
        try:
            file = os.open(key_path(), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            pass
        else:
            with open(file, "w", encoding="ascii") as text:
                text.write(secrets.token_hex(32))
    return read_key()


def read_key() -> bytes:
    """Return the key.

    Raises:
        OSError: If there is none.
        ValueError: If it is too short, or others can read it.
    """
    given, place = os.environ.get(VARIABLE), key_path()
    if given is None:
        try:
            mode = place.stat().st_mode
        except FileNotFoundError:
            raise FileNotFoundError(
                f"There is no key: neither {VARIABLE} in the environment, nor {place}. The server makes it; "
                "start that first, as the same user."
            ) from None
        if mode & 0o077 and sys.platform != "win32":
            raise ValueError(f"Others can read the key in {place}. Allow it to yourself only: chmod 600.")
        given = place.read_text(encoding="ascii")
    if len(given) < LEAST:
        where = (
            f"in {place}; delete the file" if VARIABLE not in os.environ else f"{VARIABLE} of the environment"
        )
        raise ValueError(f"The key has {len(given)} characters, of at least {LEAST}: {where}.")
    return given.encode()
