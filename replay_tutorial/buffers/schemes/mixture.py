"""A mixture of buffers: a fixed share of each batch comes from each buffer, such as half from offline data.

    P(row) = share of its buffer · P(row in its buffer)        the sum over all rows of all buffers is 1

batch_size · share is rarely an integer, so the number of rows from each buffer is rounded up or down at
random, and its expectation is exact. The rows are in random order, so that every part of a batch is
also a mixture.

Source: Ball et al. 2023, "Efficient Online Reinforcement Learning with Offline Data" (RLPD), section 4.1.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from replay_tutorial.buffers.base import BaseBuffer, Sampled
from replay_tutorial.buffers.batch import Batch
from replay_tutorial.buffers.cast import as_array, widened
from replay_tutorial.buffers.gather import DRAW_SPECS, ArraySpec, new_arrays, value_type
from replay_tutorial.buffers.priorities import LEAST_WEIGHT, check_weight_options, limit_of_priorities
from replay_tutorial.buffers.rows import as_integers, check_batch_size, checked_share
from replay_tutorial.buffers.runtime.jit import Floats, Integers
from replay_tutorial.buffers.schemes.scheme import SCHEME_SPECS, Distribution, Proportional, Uniform
from replay_tutorial.buffers.streams import Stream, restore_rng_on_error

ROUNDING = 1e-9  # tolerance for a sum of shares such as 0.1 + 0.2 + 0.7

# The arrays that a sample contains in addition to the fields.
MIXTURE_SPECS: dict[str, ArraySpec] = {**DRAW_SPECS, **SCHEME_SPECS, "source": (np.dtype(np.int64), ())}


class Component(NamedTuple):
    """One buffer of a mixture."""

    name: str
    buffer: Any  # a `BaseBuffer`
    share: float  # of the rows of a batch, in [0, 1]
    scheme: Distribution | None  # how its rows are drawn; None for a buffer of episodes, which has no schemes

    @property
    def num_rows(self) -> int:
        """Number of rows or windows that can be drawn."""
        return self.buffer.num_windows if self.scheme is None else len(self.buffer)

    @property
    def options(self) -> dict[str, Any]:
        """The arguments of the buffer's `sample`, other than batch_size."""
        return {"beta": 0.0} if self.scheme is None else {"scheme": self.scheme}

    def draw(self, count: int) -> tuple[Callable[[], Batch], Integers, Floats]:
        """Draw rows; return a function that copies them, their indexes and their P in this buffer."""
        copy, drawn = self.buffer._draw_batch(count, self.options)
        if self.scheme is not None:
            return copy, drawn["indexes"], drawn["probabilities"]
        return copy, drawn["indexes"], self.buffer.probabilities(drawn["indexes"])


class Mixture(Sampled):
    """Takes a fixed share of each batch from each of several buffers with the same fields.

    While a buffer is empty, the other buffers take over its share, in proportion to their own shares.

    Example:
        >>> from replay_tutorial import PrioritizedReplayBuffer, ReplayBuffer
        >>> fields = {"obs": {"shape": 4}, "reward": {}}
        >>> online, offline = PrioritizedReplayBuffer(1000, fields), ReplayBuffer(1000, fields)
        >>> online.add(obs=np.zeros((10, 4)), reward=np.zeros(10))
        0
        >>> offline.add(obs=np.ones((500, 4)), reward=np.ones(500))
        0
        >>> mixture = Mixture({"online": (online, 0.5), "offline": (offline, 0.5)}, seed=0)
        >>> batch = mixture.sample(256)
        >>> np.bincount(batch["source"]).tolist(), float(batch["reward"].mean())
        ([128, 128], 0.5)
        >>> mixture.update_priorities(batch, np.abs(batch["reward"]))
    """

    def __init__(
        self,
        components: Mapping[str, tuple[BaseBuffer, float] | tuple[BaseBuffer, float, Distribution]],
        *,
        seed: int | np.random.SeedSequence | np.random.Generator | None = None,
    ) -> None:
        """Combine buffers; their rows are not copied.

        Args:
            components: Maps a name to a buffer, its share, and optionally a scheme. The shares must add up
                to 1. The scheme is a `Distribution`, such as `Geometric(...)`, and defaults to
                `Proportional()` for a prioritized buffer, and otherwise to `Uniform()`. Buffers of episodes
                have no schemes; those of sequences must have equal windows and can't be `online`.
            seed: Seed for the rounding and for the order of the rows, or a generator, whose state you can
                save. The draws in each buffer depend on that buffer's own seed.

        Raises:
            TypeError: If a component is not such a tuple, or its buffer can't be sampled with the scheme.
            ValueError: If there is no component, the shares are out of range, the fields of two buffers
                differ, a buffer is in two components, or a field has a reserved name.
        """
        if not isinstance(components, Mapping):
            raise TypeError(f"components must be a dict of (buffer, share), not {components!r:.60}.")
        self._components = [checked_component(name, parts) for name, parts in components.items()]
        buffers: list[Any] = [component.buffer for component in self._components]
        if not buffers:
            raise ValueError("A mixture must have at least one component.")
        if len({id(buffer) for buffer in buffers}) < len(buffers):
            raise ValueError(
                "A buffer is in two components, so the probabilities of its rows would be wrong. Pass it "
                "once, with the sum of its shares."
            )
        self._shares = np.array([component.share for component in self._components])  # float64[components]
        if not abs(self._shares.sum() - 1.0) <= ROUNDING:
            raise ValueError(f"The shares must add up to 1, not {self._shares.sum()}: {self._shares}.")
        self._shares /= self._shares.sum()
        self._specs = buffers[0].field_specs
        for component in self._components:
            if (specs := component.buffer.field_specs) != self._specs:
                first = self._components[0].name
                wrong = sorted({field for field, _ in specs.items() ^ self._specs.items()})
                raise ValueError(
                    f"The buffers {first!r} and {component.name!r} differ in the fields {wrong}; the arrays "
                    "of their samples must have the same names, shapes and dtypes."
                )
        sequences = [buffer for buffer in buffers if hasattr(buffer, "_lengths")]
        windows = [[*buffer._lengths, buffer._layout["n_step"]] for buffer in sequences]
        if any(window != windows[0] for window in windows):
            raise ValueError(
                "The windows must have the same burn_in, length, n_step and gamma (with the reward), not "
                f"{', '.join(map(str, windows))}."
            )
        if taken := MIXTURE_SPECS.keys() & self._specs.keys():
            raise ValueError(f"The field names {sorted(taken)} are reserved in a mixture; rename the fields.")
        self._types = {name: value_type(*spec) for name, spec in self._specs.items()}
        self._rng = Stream(seed)
        self._loaded: tuple[Any, Sequence[list[Batch]]] = (), ()  # the source, and batches drawn ahead of it

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_loaded": self._loaded_ahead}  # the ring of a shared buffer can't be pickled

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        # another process draws batches of its own
        ahead = () if self._rng.sender is not None else state["_loaded"]
        self._loaded = self._source() if ahead else (), ahead

    @property
    def names(self) -> list[str]:
        """The names of the components; `source` contains positions in this list."""
        return [component.name for component in self._components]

    def reseed(self, seed: int | np.random.SeedSequence | None = None) -> None:
        """Restart the random numbers of the mixture and of all its buffers; see `ReplayBuffer.reseed`.

        Args:
            seed: One seed, from which the seeds of the mixture and of the buffers are derived; None uses
                entropy from the operating system.

        Raises:
            TypeError: If the seed is not an integer.
            ValueError: If the seed is negative.
        """
        sequence = seed if isinstance(seed, np.random.SeedSequence) else np.random.SeedSequence(seed)
        own, *others = sequence.spawn(1 + len(self._components))
        self._rng = Stream(own)
        for component, other in zip(self._components, others, strict=True):
            component.buffer.reseed(other)

    def sample(self, batch_size: int, beta: float = 0.4) -> Batch:
        """Sample transitions, or windows of sequences, from all buffers.

        O(batch_size) plus the cost of the schemes; allocates the batch and one part per buffer.

        Args:
            batch_size: Number of transitions or windows.
            beta: Exponent of the importance-sampling weights, in [0, 1].

        Returns:
            A `Batch`: a contiguous array of shape (batch_size, *shape) for each array that the buffers
            return, and four further arrays of length batch_size: `source`, int64, the position of the row's
            component in `names`; `indexes`, int64, the row's index in this component's buffer;
            `probabilities`, float64, P(row) in the mixture; and `weights`, float32 in (0, 1], (1 / (N · P(row
            in its buffer))) ** beta, divided by the largest weight in the batch, where N is the number of
            rows in the buffer. The weights correct for priorities, but not for the shares. To correct for
            both, compute (1 / probabilities) ** beta instead. Of sequences, N is the number of windows, and
            time is the second axis; `array.swapaxes(0, 1)` is a view in which it is the first.

        Raises:
            TypeError: If batch_size is not an integer.
            ValueError: If an argument is out of range, every buffer with a share is empty, or a scheme can't
                draw from its buffer.
        """
        return self._copy(*self._draw(batch_size, beta))

    def _draw(self, batch_size: int, beta: float = 0.4) -> tuple[Any, dict[str, Any]]:
        """Draw rows of all buffers; return the copies to make, and the arrays of the batch that are known."""
        check_batch_size(batch_size)
        beta = check_weight_options(beta, "batch")
        with restore_rng_on_error(self._rng, *(component.buffer._rng for component in self._components)):
            return self._draw_parts(batch_size, beta)

    def _draw_parts(self, batch_size: int, beta: float) -> tuple[Any, dict[str, Any]]:
        sizes, shares = np.array([component.num_rows for component in self._components]), self._shares
        if not sizes.all():
            shares = np.where(sizes > 0, shares, 0.0)
            if not shares.any():
                empty = [each.name for each in self._components if each.share]
                raise ValueError(
                    f"Can't sample {batch_size} transitions: the buffers {empty} are empty. Add some first."
                )
            shares /= shares.sum()
        order = self._rng.permutation(batch_size)
        counts = random_counts(shares, batch_size, self._rng)
        drawn = [each.draw(n) for each, n in zip(self._components, counts.tolist(), strict=True) if n]
        copies, indexes, probabilities = zip(*drawn, strict=True)
        source, in_buffer = np.repeat(np.arange(len(counts)), counts), np.concatenate(probabilities)
        relative = sizes[source] * in_buffer  # to uniform sampling
        known: dict[str, Any] = {
            "source": source,
            "indexes": np.concatenate(indexes),
            "probabilities": shares[source] * in_buffer,
            "weights": np.maximum((relative.min() / relative) ** beta, LEAST_WEIGHT).astype(np.float32),
        }
        others = {name: np.empty(batch_size, dtype) for name, (dtype, _) in MIXTURE_SPECS.items()}
        for name, values in known.items():
            others[name][order] = values
        return (order, counts[counts > 0].tolist(), copies), others

    def _copy(self, rows: Any, others: Mapping[str, Any]) -> Batch:
        """Return a batch of the rows that have been drawn from each buffer, and the other arrays."""
        batch = Batch(new_arrays(len(others["source"]), self._types))
        (order, counts, copies), stop = rows, 0
        for count, copy in zip(counts, copies, strict=True):
            part, places = copy(), order[stop : stop + count]
            stop += count
            for name in self._specs:
                batch[name][places] = part[name]
        batch.update(others)
        return batch

    def _buffers(self) -> list[BaseBuffer]:
        return [component.buffer for component in self._components]

    def _source(self) -> tuple[Any, ...]:
        return (*(component.buffer._source() for component in self._components), self._rng)

    @property
    def _iterators(self) -> Any:
        """The iterators that may have drawn rows ahead, of this mixture and of its first buffer."""
        return self._components[0].buffer._iterators

    @property
    def _loaded_ahead(self) -> Sequence[list[Batch]]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The batches of the loaded file, unless a buffer has been cleared, loaded or reseeded since."""
        source, batches = self._loaded
        return batches if batches and source == self._source() else ()

    @_loaded_ahead.setter
    def _loaded_ahead(self, batches: tuple[()]) -> None:  # pyright: ignore[reportIncompatibleVariableOverride]
        self._loaded = (), batches  # without `_source`, because a shared buffer may have been closed

    @property
    def _layout(self) -> dict[str, Any]:
        """What must be equal in a loaded file, as JSON."""
        fields = {name: [dtype.str, list(shape)] for name, (dtype, shape) in self._specs.items()}
        shares = dict(zip(self.names, self._shares.tolist(), strict=True))
        return {"kind": type(self).__name__, "shares": shares, "fields": fields}

    def save(self, path: str | PathLike[str]) -> None:
        """Save the random state, and the batches that `batches` has drawn in advance, but not the buffers.

        To resume exactly, save the buffers, too, for example in a folder of `Checkpoints`.

        Args:
            path: Path of the file; no suffix is added. An existing file is replaced atomically.

        Raises:
            OSError: If the file can't be written. An existing file is then unchanged.
            TypeError: If `seed` was a generator of another kind than `numpy.random.default_rng` returns.
        """
        from replay_tutorial.buffers import archive
        from replay_tutorial.buffers.tensors.batches import state_ahead

        if type(generator := self._rng.bit_generator) is not np.random.PCG64:
            raise TypeError(
                f"The state of {type(generator).__name__} can't be saved; pass an integer as the seed of the "
                "mixture."
            )
        ahead, arrays = state_ahead(self)
        archive.save(path, self._layout, {"random_state": self._rng.state, "ahead": ahead}, arrays)

    def load(self, path: str | PathLike[str]) -> None:
        """Restore the state that `save` wrote. First load the buffers.

        Args:
            path: A file saved by a mixture that was constructed with the same names, shares and fields.

        Raises:
            OSError: If the file can't be read.
            ValueError: If the file is damaged, or its layout or version differs. The mixture is then
                unchanged.
        """
        from replay_tutorial.buffers import archive
        from replay_tutorial.buffers.tensors.batches import read_ahead

        with archive.open_archive(path, self._layout) as (counters, reader):
            rng, batches = archive.checked_generator(counters), read_ahead(self, counters["ahead"], reader)
        source = *self._source()[:-1], rng
        self.__dict__.update(_rng=rng, _loaded=(source, batches))

    def update_priorities(self, batch: Mapping[str, npt.NDArray[Any]], priorities: npt.ArrayLike) -> None:
        """Set the priorities of the rows of a sample, in the buffers from which they were drawn.

        Rows of buffers without priorities are ignored.

        Args:
            batch: A sample of this mixture, or a dict of its `source` and `indexes`.
            priorities: |TD error|, float[n] or one number for all rows, finite and at least 0.

        Raises:
            IndexError: If a component doesn't exist, or an index has not been assigned to any row of its
                buffer. All buffers are then unchanged.
            TypeError: If the batch is not a mapping that contains `source` and `indexes`, the indexes are not
                integers, or the priorities are not real numbers.
            ValueError: If the lengths differ, or a priority is negative, infinite or NaN. All buffers are
                then unchanged.
        """
        if not (isinstance(batch, Mapping) and {"source", "indexes"} <= batch.keys()):
            raise TypeError(
                "The first argument must be a batch of this mixture, or a dict of its `source` and "
                f"`indexes`, not {batch!r:.60}; an index alone doesn't identify the buffer."
            )
        source, indexes = as_integers("source", batch["source"]), as_integers("indexes", batch["indexes"])
        if len(source) != len(indexes):
            raise ValueError(
                f"The batch has {len(source)} entries of `source` and {len(indexes)} of `indexes`; pass the "
                "batch that `sample` returned."
            )
        if len(wrong := source[(source < 0) | (source >= len(self._components))]):
            raise IndexError(
                f"There is no component {wrong[0]}; the mixture has {len(self._components)}, {self.names}. "
                "Pass the batch that `sample` of this mixture returned."
            )
        floats = widened(as_array("priorities", priorities)).reshape(-1)
        if floats.size not in (1, len(source)):
            raise ValueError(
                f"priorities must be one number per row or one for all: {len(source)} or 1, not "
                f"{floats.size}."
            )
        floats = np.broadcast_to(floats, len(source))
        updates = [
            (component.buffer, indexes[mine], floats[mine])
            for number, component in enumerate(self._components)
            if (mine := source == number).any() and has_priorities(component.buffer)
        ]
        # All checks are before the first update, so that an error changes no buffer.
        largest = max((buffer.capacity for buffer, *_ in updates), default=1)
        limit = np.float64(limit_of_priorities(largest))  # float32 can't hold it
        if floats.dtype.kind in "biuf" and not (valid := (floats >= 0) & (floats <= limit)).all():
            raise ValueError(
                f"A priority must be between 0 and {limit:.3g}, not {floats[~valid][0]}. Pass |TD error|."
            )
        for buffer, mine, _ in updates:
            buffer._check_indexes(mine)
        for buffer, mine, own_values in updates:
            buffer.update_priorities(mine, own_values)


def random_counts(shares: Floats, batch_size: int, rng: np.random.Generator) -> Integers:
    """Round batch_size · shares to integers that add up to batch_size: int64[components].

    Each number is rounded up or down, and its expectation is exact. The intervals of length
    batch_size · share_c adjoin and are shifted by one uniform random number; component c gets as many rows as
    its half-open interval contains integers.
    """
    bounds = np.zeros(len(shares) + 1)
    np.cumsum(shares, out=bounds[1:])
    bounds *= batch_size
    bounds[-1] = batch_size
    bounds += rng.random()
    ends = bounds.astype(np.int64)  # rounds down
    return ends[1:] - ends[:-1]


def checked_component(name: str, parts: Any) -> Component:
    """Check one component, and add the default scheme."""
    if not isinstance(parts, tuple) or not 2 <= len(cast(tuple[Any, ...], parts)) <= 3:
        raise TypeError(
            f"The component {name!r} must be (buffer, share) or (buffer, share, scheme), not {parts!r:.60}."
        )
    buffer, share, *schemes = cast(tuple[Any, ...], parts)
    if not isinstance(buffer, BaseBuffer):
        raise TypeError(f"The component {name!r} must be a buffer of this package, not {buffer!r:.60}.")
    share, scheme = checked_share(f"The share of {name!r}", share), schemes[0] if schemes else None
    if hasattr(buffer, "num_windows"):
        if schemes:
            raise TypeError(f"The component {name!r} is a buffer of episodes, which has no schemes; omit it.")
        if getattr(buffer, "_online", False):
            raise ValueError(f"The component {name!r} can't be online=True: P of its new windows is unknown.")
        return with_sample(Component(name, buffer, share, None))
    if scheme is None:
        scheme = Proportional() if has_priorities(buffer) else Uniform()
    if not isinstance(scheme, Distribution):
        raise TypeError(
            f"The scheme of {name!r} must draw every row with a fixed probability, such as Uniform() or "
            f"Geometric(...), not {scheme!r:.60}."
        )
    return with_sample(Component(name, buffer, share, scheme))


def with_sample(component: Component) -> Component:
    """Return the component; raise TypeError if its `sample` lacks an argument that a mixture passes."""
    signature = inspect.signature(component.buffer.sample)
    try:
        signature.bind(1, **component.options)
    except TypeError as error:
        raise TypeError(
            f"A mixture passes {', '.join(component.options)}= to `sample` of its buffers, but that of the "
            f"component {component.name!r} is {type(component.buffer).__name__}.sample{signature}. "
            "Accept the argument there, and pass it on."
        ) from error
    return component


def has_priorities(buffer: Any) -> bool:
    """Return whether the rows of a buffer have priorities."""
    return hasattr(buffer, "update_priorities")
