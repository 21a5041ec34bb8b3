"""Batch: the sampled transitions, a dict of arrays whose fields are attributes as well.

The dict stays flat, so that `**batch`, `items` and `|` work as for any dict. Nested observations, which are
stored as `obs/image` and `obs/goal/0`, are nested again where they are read: `batch.obs["image"]`.
"""

import sys
from collections.abc import Mapping
from functools import cache
from typing import Any, Self

import numpy as np

KNOWN_TO_JAX: list[bool] = []  # not empty once JAX treats a batch as a pytree

empty: Any = dict.__new__  # creates a batch without calling `Batch.__new__`, at the cost of five views


class Batch(dict[str, Any]):
    """Sampled transitions: maps each field to an array of shape (n, *shape).

    A batch is a dict, and `batch.obs` is short for `batch["obs"]`. If `obs` is nested, so that the fields are
    `obs/image` and `obs/goal/0`, both return a batch of its parts, which shares their arrays:
    `batch.obs["image"]`, `batch.obs["goal"][0]`. Iteration, `len`, `in` and `get` refer to the fields.
    A field that has the name of a method, such as `items`, is reached only as `batch["items"]`.

    A batch can be copied and pickled. JAX and PyTorch treat it as a pytree: you can pass it to `jax.jit`,
    `jax.tree.map` and `torch.func.vmap`. For this, the first batch that is created or unpickled after JAX has
    been imported registers the class with JAX, and the first `to_torch` with PyTorch; neither is imported
    otherwise.

    Example:
        >>> from replay_tutorial import PrioritizedReplayBuffer
        >>> fields = {"obs/image": {"shape": 4, "dtype": np.uint8}, "reward": {}}
        >>> buffer = PrioritizedReplayBuffer(100, fields, seed=0)
        >>> buffer.add(obs={"image": np.arange(40).reshape(10, 4)}, reward=np.ones(10))
        0
        >>> batch = buffer.sample(2)
        >>> batch
        <Batch: obs/image uint8[2, 4], reward float32[2], indexes int64[2], weights float32[2]>
        >>> batch.obs["image"] is batch["obs/image"], batch.weights.tolist()
        (True, [1.0, 1.0])
        >>> batch.reward = batch.reward - 1  # the same as batch["reward"] = …
        >>> batch.to_torch().reward
        tensor([0., 0.])
    """

    __slots__ = ()

    def __new__(cls, *_: Any, **__: Any) -> Self:
        """Create an empty batch, as `dict.__new__`; unpickling calls this, too, but not `__init__`."""
        if not KNOWN_TO_JAX and sys.modules.get("jax"):
            from replay_tutorial.buffers.frameworks import register_with_jax

            register_with_jax(Batch)
            KNOWN_TO_JAX.append(True)
        return super().__new__(cls)

    def __getattr__(self, name: str) -> Any:
        """Return a field, or the parts of a nested one."""
        try:
            return self[name]
        except KeyError as error:
            raise AttributeError(error.args[0], name=name, obj=self) from None

    def __setattr__(self, name: str, value: Any) -> None:
        """Set a field."""
        if hasattr(Batch, name):
            raise AttributeError(f"{name!r} is a method of a batch; set batch[{name!r}] instead.")
        self[name] = value

    def __missing__(self, name: Any) -> Any:
        """Return the parts of a nested field; `batch[name]` calls this if there is no field of this name."""
        if type(name) is int:  # a position in a nested tuple
            return self[str(name)]
        prefix = f"{name}/"
        parts = {field[len(prefix) :]: value for field, value in self.items() if field.startswith(prefix)}
        if not parts:
            raise KeyError(f"the batch has no field {name!r}; its fields are {list(self)}")
        return Batch(parts)

    def __or__(self, other: Mapping[str, Any]) -> "Batch":  # pyright: ignore[reportIncompatibleMethodOverride]
        """Return a batch of the fields of both; those of `other` replace those of the same name."""
        merged = Batch(self)
        merged.update(other)
        return merged

    def __dir__(self) -> list[str]:
        """Return the methods and the fields, for completion."""
        return sorted({*super().__dir__(), *(name.partition("/")[0] for name in self)})

    def __repr__(self) -> str:
        return f"<Batch: {', '.join(f'{name} {described(value)}' for name, value in self.items())}>"

    def copy(self) -> "Batch":
        """Return a batch of the same arrays."""
        return Batch(self)

    def contiguous(self) -> "Batch":
        """Return a batch whose arrays, or tensors, are contiguous; those that are not are copied.

        The small fields of a sample are strided views of one block of memory, which any of them keeps alive.
        A few libraries require contiguous arrays, for example `jax.numpy.from_dlpack`.
        """
        return Batch(
            {
                name: value.contiguous() if hasattr(value, "contiguous") else np.asarray(value, order="C")
                for name, value in self.items()
            }
        )

    def to_torch(self, device: Any = None) -> "Batch":
        """Convert the arrays to PyTorch tensors of the same dtypes.

        Args:
            device: Device of the tensors, such as "cuda"; None leaves them on the CPU.

        Returns:
            A batch of tensors. On the CPU, they share the memory of the arrays. Arrays with a negative
            stride, such as `batch.obs[:, ::-1]`, are copied, because PyTorch can't share their memory.

        Raises:
            TypeError: If PyTorch has no dtype for a field, as for `np.longdouble`.
        """
        convert = pytorch().from_numpy
        tensors = Batch() if "jax" in sys.modules and not KNOWN_TO_JAX else empty(Batch)
        try:
            for name, value in self.items():
                tensors[name] = convert(value)
        except (TypeError, ValueError):  # a NumPy scalar, a tensor, or a dtype or strides that PyTorch lacks
            from replay_tutorial.buffers.frameworks import as_tensor

            for name, value in self.items():
                tensors[name] = as_tensor(pytorch(), name, value)
        if device is not None:
            tensors.update({name: tensor.to(device) for name, tensor in tensors.items()})
        return tensors


def described(value: Any) -> str:
    """Return the dtype and shape of an array or a tensor; of anything else, the type."""
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape) or ''}"
    return type(value).__name__


@cache
def pytorch() -> Any:
    """Import PyTorch, and let it treat a batch as a pytree."""
    from replay_tutorial.buffers.frameworks import register_with_torch

    return register_with_torch(Batch)
