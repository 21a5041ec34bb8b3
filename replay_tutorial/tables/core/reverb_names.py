"""Errors for calls in the form that they have in Reverb: each names the form that they have here.

Left out: calls that are the same in both.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from typing import Any, ClassVar, NoReturn, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def explains(**remedies: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Refuse keyword arguments that only Reverb's call has, each with what to write instead."""

    def decorate(call: Callable[P, R]) -> Callable[P, R]:
        @wraps(call)
        def explaining(*args: P.args, **kwargs: P.kwargs) -> R:
            for name in kwargs.keys() & remedies.keys():
                where = call.__qualname__.removesuffix(".__init__")
                raise TypeError(f"{where}() has no argument {name!r}: {remedies[name]}")
            return call(*args, **kwargs)

        return explaining

    return decorate


class ExplainsNames:
    """A class that some names of Reverb's class are looked up in."""

    instead: ClassVar[Mapping[str, str]]  # of each such name, what to write instead

    def __getattr__(self, name: str) -> NoReturn:
        remedy = self.instead.get(name)
        raise AttributeError(
            f"A {type(self).__name__} has no {name!r}{f': {remedy}' if remedy else '.'}", name=name, obj=self
        )


def check_named(data: Any, columns: Iterable[str]) -> None:
    """Refuse the values of a step that come without the names of their columns.

    Raises:
        TypeError: If they are not in a dict.
    """
    if type(data) is not dict and not isinstance(data, Mapping):
        named = ", ".join(f"{name!r}: ..." for name in columns)
        raise TypeError(f"Values are passed by column, as {{{named}}}, not as {type(data).__name__}.")
