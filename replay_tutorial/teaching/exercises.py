"""Errors of exercises and checks, and the comparison of a guess with a measurement."""

from typing import Any


class CheckFailed(AssertionError):
    """A failed check, which a notebook shows in one line, without the traceback."""

    def _render_traceback_(self) -> list[str]:
        return [f"{type(self).__name__}: {self}"]


class NotYet(CheckFailed):
    """An exercise that isn't solved yet; the message states what was expected and found, with a hint."""


def compare(guess: Any, measured: float, unit: str = "") -> None:
    """Print a guess next to the measured value.

    Args:
        guess: A number, or `...` if the reader entered none.
        measured: The measured value.
        unit: Unit of both.
    """
    text = f"measured: {figure(measured)} {unit}".rstrip()
    if guess is ...:
        print(f"{text}  (no guess entered)")
        return
    times = max(guess, measured) / max(min(guess, measured), 1e-12)
    verdict = "good guess" if times < 1.5 else f"off by a factor of {figure(times)}"
    print(f"your guess: {figure(guess)} {unit}".rstrip() + f", {text}: {verdict}")


def figure(value: float) -> str:
    """Format a number with three significant digits; from 100 on, as an integer."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
