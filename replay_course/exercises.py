"""Errors of exercises and checks, hints, and the comparison of a guess with a measurement."""

import dis
from types import FunctionType
from typing import Any

EMPTY_BODY = {"RESUME", "NOP", "LOAD_CONST", "POP_TOP", "RETURN_VALUE", "RETURN_CONST"}  # of `...` or `pass`


class CheckFailed(AssertionError):
    """A failed check, which a notebook shows in one line, without the traceback."""

    def _render_traceback_(self) -> list[str]:
        return [f"{type(self).__name__}: {self}"]


class NotYet(CheckFailed):
    """An exercise that isn't solved yet; the message states what was expected and found, with a hint."""


def expect(condition: Any, message: str) -> None:
    """Raise CheckFailed unless the condition holds."""
    if not condition:
        raise CheckFailed(message)


class Hints:
    """Hints for a skeleton; each call prints the next one.

    Example:
        >>> hint = Hints("The newest row is in slot (added - 1) % capacity.", "Increase added last.")
        >>> hint()
        Hint 1 of 2: The newest row is in slot (added - 1) % capacity.
    """

    def __init__(self, *hints: str) -> None:
        self.hints = hints
        self.shown = 0

    def __call__(self) -> None:
        """Print the next hint, or the last one again."""
        self.shown = min(self.shown + 1, len(self.hints))
        print(f"Hint {self.shown} of {len(self.hints)}: {self.hints[self.shown - 1]}")


def expect_written(written: Any) -> None:
    """Raise NotYet if a function, or a method of a class or of its bases, is still empty."""
    for function in [written] if isinstance(written, FunctionType) else methods_of(written):
        if is_empty(function):
            raise NotYet(
                f"{function.__qualname__} is still empty. Write it, or read on: no later cell needs it."
            )


def methods_of(kind: type) -> list[FunctionType]:
    """Return the methods of a class and of its bases from the same module, the inherited ones first.

    A base of another module, such as `gymnasium.Env`, may have empty methods on purpose.
    """
    own = [base for base in reversed(kind.__mro__) if base.__module__ == kind.__module__]
    names = dict.fromkeys(name for base in own for name in vars(base))
    found = [getattr(kind, name, None) for name in names]
    return [method for method in found if isinstance(method, FunctionType)]


def is_empty(function: FunctionType) -> bool:
    """Return whether a function consists of nothing but a docstring and `...`."""
    return all(instruction.opname in EMPTY_BODY for instruction in dis.get_instructions(function))


def compare(guess: Any, measured: float, unit: str = "") -> None:
    """Print a guess next to the measured value.

    Args:
        guess: A number, or `...` if the reader entered none.
        measured: The measured value.
        unit: Unit of both.
    """
    text = f"measured: {figure(measured)} {unit}".rstrip()
    if guess is ...:
        print(f"your guess: –, {text}")
        return
    if min(guess, measured) <= 0:  # such as a difference, which has no ratio to the guess
        verdict = f"off by {figure(abs(guess - measured))}"
    else:
        times = max(guess, measured) / min(guess, measured)
        verdict = "good guess" if times < 1.5 else f"off by a factor of {figure(times)}"
    print(f"your guess: {figure(guess)} {unit}".rstrip() + f", {text}: {verdict}")


def figure(value: float) -> str:
    """Format a number with three significant digits; from 100 on, as an integer."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
