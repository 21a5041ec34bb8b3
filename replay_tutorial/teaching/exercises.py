"""What exercises and checks share: errors that say in one line what is wrong, and guesses compared.

Left out: the exercises themselves (`exercises_…`).
"""

from typing import Any


class OneLine(AssertionError):
    """What a check found wrong, which a notebook shows in one line: a traceback would hide it."""

    def _render_traceback_(self) -> list[str]:
        return [f"{type(self).__name__}: {self}"]


class NotYet(OneLine):
    """An exercise that is not solved yet: what was expected, what came, and a hint."""


def compare(guess: Any, measured: float, unit: str = "") -> None:
    """Print a guess beside what was measured.

    Args:
        guess: A number; `...` for a guess that was not written down.
        measured: What came out.
        unit: Of both.
    """
    text = f"measured: {figure(measured)} {unit}".rstrip()
    if guess is ...:
        print(f"{text}  (no guess was written down)")
        return
    times = max(guess, measured) / max(min(guess, measured), 1e-12)
    verdict = "well guessed" if times < 1.5 else f"{figure(times)} times apart"
    print(f"your guess: {figure(guess)} {unit}".rstrip() + f", {text}: {verdict}")


def figure(value: float) -> str:
    """Write three significant digits."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
