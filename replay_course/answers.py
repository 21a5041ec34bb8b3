"""What the checks share: read an answer, call a reader's function, count what it costs.

Every comparison with NaN is false, so `if error > limit: fail` accepts NaN. Therefore the functions here
state what must hold, and reject everything else. Costs are counted, not timed: `lines_run` counts lines of
Python, and `Watched` counts the elements of lists and arrays that a call reads or writes.
"""

import copy
import inspect
import sys
from collections.abc import Callable
from numbers import Real
from typing import Any

import numpy as np
import numpy.typing as npt

from replay_course.chi_square import fairness
from replay_course.exercises import CheckFailed, NotYet


def numbers(given: Any, count: int, missing: str) -> list[float]:
    """Return an answer that consists of `count` numbers; raise NotYet with the text `missing` otherwise.

    Example:
        >>> numbers((1, 2.5), 2, "write two numbers")
        [1.0, 2.5]
    """
    if not isinstance(given, list | tuple | np.ndarray) or len(given) != count:
        raise NotYet(missing)
    for value in given:
        if not isinstance(value, Real) or not np.isfinite(float(value)):
            raise NotYet(missing + ("" if value is ... else f"; {value!r} is not a number"))
    return [float(value) for value in given]


def array_of(given: Any, shape: tuple[int, ...], what: str) -> npt.NDArray[Any]:
    """Return an answer as an array of finite numbers; raise NotYet if it isn't one, or has another shape."""
    if given is None or given is ...:
        raise NotYet(f"{what}: the result is {given}. Does every path end with `return`?")
    try:
        array = np.asarray(given)
    except ValueError:
        raise NotYet(f"{what}: the rows of the result have different lengths") from None
    if array.shape != shape:
        raise NotYet(f"{what}: the result must have the shape {shape}, not {array.shape}: {given!r:.60}")
    if array.dtype.kind not in "biuf":
        raise NotYet(f"{what}: the result must consist of numbers, not {array.dtype}: {given!r:.60}")
    if not np.isfinite(array).all():
        raise NotYet(f"{what}: the result contains NaN or infinity: {given!r:.60}")
    return array


def call(function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """Call a function; raise NotYet if it changes one of its arguments."""
    before = copy.deepcopy((arguments, options))
    result = function(*arguments, **options)
    names = inspect.signature(function).parameters
    passed = [*zip(names, arguments, before[0], strict=False)]
    passed += [(name, value, before[1][name]) for name, value in options.items()]
    for name, now, then in passed:
        if not same(now, then):
            raise NotYet(
                f"the call changed its argument `{name}`, which belongs to the caller: work on a copy"
            )
    return result


def same(now: Any, then: Any) -> bool:
    """Return whether the arrays, the lists and the tuples in an argument are as they were."""
    if isinstance(now, np.ndarray):
        return np.array_equal(now, then, equal_nan=now.dtype.kind == "f")
    if isinstance(now, list | tuple):
        return len(now) == len(then) and all(map(same, now, then))
    return not isinstance(now, int | float) or now == then or np.isnan(now)


def expect_draws(
    counts: npt.ArrayLike, probabilities: npt.ArrayLike, text: str, error: type[CheckFailed] = NotYet
) -> None:
    """Raise an error unless counts agree with probabilities, neither too badly nor too well.

    Correct draws fail once in a million calls on each side.
    """
    drawn = fairness(counts, probabilities)
    if not drawn.is_fair:
        raise error(f"{text} (χ² = {drawn.chi_square:,.0f} with {drawn.degrees})")
    if drawn.is_too_even:
        raise error(
            f"{text}. They agree too well for independent draws (χ² = {drawn.chi_square:.3g} with "
            f"{drawn.degrees}): draw each at random"
        )


def expect_independent(
    drawn: npt.NDArray[Any], count: int, where: str, what: str = "row", error: type[CheckFailed] = NotYet
) -> None:
    """Raise an error unless numbers below `count` are drawn equally often and independently of each other.

    If they are independent, all distances between consecutive ones are equally likely.
    """
    counts = np.bincount(drawn, minlength=count)
    result = fairness(counts, np.ones(count))
    text = f"{where}: all {what}s were drawn nearly equally often"
    if not result.is_fair:
        text = (
            f"{where}: one {what} was drawn {counts[result.worst]:,} times in {len(drawn):,} draws, but "
            f"{len(drawn) / count:,.0f} times are expected"
        )
    expect_draws(counts, np.ones(count), text, error)
    distances = np.bincount(np.diff(drawn) % count, minlength=count)
    if count > 1 and not fairness([distances[0], distances[1:].sum()], [1, count - 1]).is_fair:
        raise error(
            f"{where}: the same {what} was drawn twice running {distances[0]:,} times in {len(drawn):,} "
            f"draws, but {len(drawn) / count:,.0f} times are expected; draw each {what} independently, with "
            "replacement"
        )
    result = fairness(distances, np.ones(count))
    if not result.is_fair or result.is_too_even:
        raise error(
            f"{where}: {what} i was followed by {what} i + {result.worst} {distances[result.worst]:,} times "
            f"in {len(drawn):,} draws, but {len(drawn) / count:,.0f} times are expected; draw each {what} "
            "independently of the others"
        )


def lines_run(function: Callable[[], Any]) -> int:
    """Return how many lines of Python a call runs, those of the functions that it calls included."""
    lines = 0

    def trace(frame: Any, event: str, argument: Any) -> Any:
        nonlocal lines
        lines += event in ("call", "line")
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        function()
    finally:
        sys.settrace(before)
    return lines


class Tally:
    """How many elements have been read or written."""

    touched = 0


class CountedList(list[Any]):
    """A list that adds to a tally how many of its elements are read, written or moved."""

    def __init__(self, values: Any, tally: Tally) -> None:
        super().__init__(values)
        self.tally = tally

    def touch(self, place: Any) -> None:
        """Count the elements at an index or in a slice."""
        self.tally.touched += len(range(*place.indices(len(self)))) if isinstance(place, slice) else 1

    def plain(self) -> list[Any]:
        """Return the elements without counting them."""
        return [*super().__iter__()]

    def __getitem__(self, place: Any) -> Any:
        self.touch(place)
        return super().__getitem__(place)

    def __setitem__(self, place: Any, value: Any) -> None:
        self.touch(place)
        super().__setitem__(place, value)

    def __iter__(self) -> Any:
        for value in super().__iter__():
            self.tally.touched += 1
            yield value

    def copy(self) -> list[Any]:
        """Return a plain list; reads all elements."""
        return [*self]

    def __delitem__(self, place: Any) -> None:
        self.tally.touched += len(self) - place % len(self) if isinstance(place, int) else len(self)
        super().__delitem__(place)

    def pop(self, place: Any = -1) -> Any:
        """Remove an element; all later ones move."""
        self.tally.touched += len(self) - place % len(self)
        return super().pop(place)

    def insert(self, place: Any, value: Any) -> None:
        """Insert an element; all later ones move."""
        self.tally.touched += len(self) - min(place, len(self)) + 1
        super().insert(place, value)


class CountedArray(np.ndarray):
    """An array that adds to a tally how many of its elements are read or written.

    A view of it counts when it is used.
    """

    tally: Any = None

    def __array_finalize__(self, source: Any) -> None:
        self.tally = getattr(source, "tally", Tally())

    def plain(self, given: Any) -> Any:
        """Return an argument of a function of NumPy without this class, and count its elements."""
        if isinstance(given, list | tuple):
            return type(given)(self.plain(each) for each in given)
        if isinstance(given, CountedArray):
            given.tally.touched += given.size
            return given.view(np.ndarray)
        return given

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        options = {name: self.plain(value) for name, value in options.items()}
        return getattr(ufunc, method)(*self.plain(inputs), **options)

    def __array_function__(self, function: Any, types: Any, arguments: Any, options: Any) -> Any:
        options = {name: self.plain(value) for name, value in options.items()}
        return function(*self.plain(arguments), **options)

    def __getitem__(self, place: Any) -> Any:
        found = super().__getitem__(place)
        if not isinstance(found, CountedArray):
            self.tally.touched += 1
        elif not np.may_share_memory(
            found.view(np.ndarray), self.view(np.ndarray)
        ):  # a copy of selected elements
            self.tally.touched += found.size
            return found.view(np.ndarray)
        return found

    def __setitem__(self, place: Any, value: Any) -> None:
        if isinstance(place, str):
            self.tally.touched += self.size
        else:
            self.tally.touched += np.size(np.empty(self.shape, bool)[place])
        super().__setitem__(place, value)


def counted(value: Any, tally: Tally) -> Any:
    """Return a list or an array, or those in a dict, as ones that count; anything else unchanged."""
    if isinstance(value, dict):
        return {name: counted(each, tally) for name, each in value.items()}
    if type(value) in (list, CountedList):
        return CountedList(value, tally)
    if type(value) in (np.ndarray, CountedArray):
        array = value.view(CountedArray)
        array.tally = tally
        return array
    return value


class Watched:
    """Counts the elements that a call reads or writes in the lists and arrays of an object.

    Example:
        >>> from replay_course.steps.prioritized import PlainSumTree
        >>> tree = PlainSumTree(1024)
        >>> Watched(tree).cost_of(lambda: tree.set([7], [1.0]))
        31
    """

    def __init__(self, thing: Any) -> None:
        self.thing, self.tally = thing, Tally()

    def containers(self) -> list[Any]:
        """Return all lists and arrays of the object, those in a dict included."""
        values = [*vars(self.thing).values()]
        values += [each for value in values if isinstance(value, dict) for each in value.values()]
        return [value for value in values if isinstance(value, list | np.ndarray)]

    def cost_of(self, function: Callable[[], Any]) -> int:
        """Call a function, and return the number of elements, including all those of new lists and arrays."""
        names = vars(self.thing)
        names.update({name: counted(value, self.tally) for name, value in names.items()})
        before = self.containers()
        self.tally.touched = 0
        function()
        new = [each for each in self.containers() if not any(each is old for old in before)]
        return self.tally.touched + sum(map(len, new))
