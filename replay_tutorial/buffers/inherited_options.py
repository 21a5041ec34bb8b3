"""Constructors that pass options on to another constructor, and show them all in `help()`.

An option is declared and documented once, in the constructor that uses it. A subclass accepts `**options`,
and a decorator adds them to the signature and the docstring that `help` shows.
"""

import inspect
import re
from collections.abc import Callable
from typing import Any, TypeVar

Constructor = TypeVar("Constructor", bound=Callable[..., None])

# The description of an argument in a docstring: a line "    name: …" and the more indented lines after it,
# which may be separated by blank lines.
DESCRIPTION = re.compile(r"^    (\**\w+):.*(?:\n*\n     .*)*\n", re.MULTILINE)


def accepts_options_of(parent: Callable[..., None]) -> Callable[[Constructor], Constructor]:
    """Return a decorator of a constructor that passes `**options` to the constructor `parent`.

    Example:
        >>> def create(self, *, seed: int = 0) -> None:
        ...     '''Create.
        ...
        ...     Args:
        ...         seed: A seed.
        ...     '''
        >>> @accepts_options_of(create)
        ... def extend(self, size: int, **options: int) -> None:
        ...     '''Extend.
        ...
        ...     Args:
        ...         size: A size.
        ...         **options: As `create`.
        ...     '''
        >>> print(inspect.signature(extend), inspect.getdoc(extend), sep="\\n")
        (self, size: int, *, seed: int = 0) -> None
        Extend.
        <BLANKLINE>
        Args:
            size: A size.
            seed: A seed.
    """

    def accept(constructor: Constructor) -> Constructor:
        signature = inspect.signature(constructor)
        own = [each for each in signature.parameters.values() if each.kind is not each.VAR_KEYWORD]
        added = [
            each
            for name, each in inspect.signature(parent).parameters.items()
            if each.kind in (each.KEYWORD_ONLY, each.VAR_KEYWORD) and name not in signature.parameters
        ]
        target: Any = constructor
        target.__signature__ = signature.replace(parameters=[*own, *added])
        if doc := inspect.getdoc(constructor):  # None with python -OO
            described = {found[1]: found[0] for found in DESCRIPTION.finditer(f"{inspect.getdoc(parent)}\n")}
            descriptions = "".join(described[str(each).partition(":")[0]] for each in added)
            target.__doc__ = DESCRIPTION.sub(
                lambda found: descriptions if found[1] == "**options" else found[0], doc + "\n"
            )
        return constructor

    return accept
