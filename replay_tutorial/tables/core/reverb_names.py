"""Hints for users of Reverb: its names and arguments raise an error that names the equivalent here."""

from collections.abc import Callable, Mapping
from functools import wraps
from typing import ClassVar, NoReturn, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def explain_reverb_arguments(**remedies: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return a decorator that raises TypeError with a hint for keyword arguments of Reverb's call."""

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
    """Base class that raises AttributeError with a hint for attributes of Reverb's class."""

    _reverb_names: ClassVar[Mapping[str, str]]  # Reverb's name → hint

    def __getattr__(self, name: str) -> NoReturn:
        remedy = self._reverb_names.get(name)
        raise AttributeError(
            f"A {type(self).__name__} has no {name!r}{f': {remedy}' if remedy else '.'}", name=name, obj=self
        )
