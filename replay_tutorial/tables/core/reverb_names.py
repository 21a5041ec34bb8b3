"""Errors for calls in the form that they have in Reverb: each names the form that they have here.

Left out: calls that are the same in both.
"""

from collections.abc import Callable, Mapping
from functools import wraps
from typing import ClassVar, NoReturn, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def explain_reverb_arguments(**remedies: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
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


class ExplainsReverbNames:
    """A class that some names of Reverb's class are looked up in."""

    _reverb_names: ClassVar[Mapping[str, str]]  # of each such name, what to write instead

    def __getattr__(self, name: str) -> NoReturn:
        remedy = self._reverb_names.get(name)
        raise AttributeError(
            f"A {type(self).__name__} has no {name!r}{f': {remedy}' if remedy else '.'}", name=name, obj=self
        )
