"""Batches for PyTorch and JAX: both treat a batch as a pytree, like a dict, once the class is registered.

`batch` loads this module when a batch is first converted to tensors, or created after JAX has been imported.
"""

from collections.abc import Iterable
from contextlib import suppress
from importlib import import_module
from typing import Any

import numpy as np

Flat = tuple[list[Any], tuple[str, ...]]  # values and names of the fields


def as_tensor(torch: Any, name: str, value: Any) -> Any:
    """Return the tensor of one field; raise TypeError if PyTorch has no dtype for it.

    An array whose memory PyTorch can't share is copied, for example one with a negative stride.
    """
    try:
        return torch.as_tensor(value)
    except TypeError as error:
        raise TypeError(
            f"{name!r} can't become a tensor: {error} Declare the field with one of these."
        ) from None
    except (RuntimeError, ValueError) as error:
        if hasattr(value, "dtype"):  # an array
            return torch.as_tensor(np.array(value, value.dtype.newbyteorder("="), order="C"))
        raise TypeError(f"{name!r} can't become a tensor: {error}.") from None


def flatten(batch: Any) -> Flat:
    """Return the fields in the order of their names, as JAX does for a dict."""
    names = tuple(sorted(batch))
    return [batch[name] for name in names], names


def register_with_jax(kind: Any) -> None:
    """Let JAX treat the class as a pytree."""
    jax: Any = import_module("jax.tree_util")

    def with_keys(batch: Any) -> Flat:
        values, names = flatten(batch)
        return [(jax.DictKey(name), value) for name, value in zip(names, values, strict=True)], names

    def unflatten(names: tuple[str, ...], values: Iterable[Any]) -> Any:
        return kind(zip(names, values, strict=True))

    with suppress(ValueError):  # another thread has just registered it
        jax.register_pytree_with_keys(kind, with_keys, unflatten, flatten)


def register_with_torch(kind: Any) -> Any:
    """Let PyTorch treat the class as a pytree; return the module `torch`."""
    torch, pytree = import_module("torch"), import_module("torch.utils._pytree")

    def with_keys(batch: Any) -> Flat:
        values, names = flatten(batch)
        return [(pytree.MappingKey(name), value) for name, value in zip(names, values, strict=True)], names

    def unflatten(values: Iterable[Any], names: tuple[str, ...]) -> Any:
        return kind(zip(names, values, strict=True))

    with suppress(ValueError):  # another thread has just registered it
        pytree.register_pytree_node(
            *(kind, flatten, unflatten),
            serialized_type_name="replay_tutorial.Batch",
            flatten_with_keys_fn=with_keys,
        )
    return torch
