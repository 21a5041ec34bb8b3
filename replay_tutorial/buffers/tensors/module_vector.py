"""The parameters of a PyTorch module as one vector, for the mailbox.

Floating-point buffers of the module, such as the statistics of batch normalization, are included. Float16 and
bfloat16 become float32 in the vector, and are exact again in the module. Integers need a float64 vector.
"""

from collections.abc import Sequence
from functools import reduce
from itertools import zip_longest
from typing import Any

import numpy.typing as npt

from replay_tutorial.buffers.batch import pytorch


def tensors_of(module: Any) -> list[Any]:
    """Return the parameters and the floating-point buffers of a module; raise an error if there are none."""
    if not isinstance(module, pytorch().nn.Module):
        raise TypeError(f"module must be a torch.nn.Module, not a {type(module).__name__}.")
    tensors = [*module.parameters(), *(each for each in module.buffers() if each.is_floating_point())]
    if not tensors:
        raise ValueError(
            f"The {type(module).__name__} has no parameters to publish; pass the module that contains them."
        )
    return tensors


def vector_of(module: Any) -> npt.NDArray[Any]:
    """Return a copy of all parameters, in float32 or float64."""
    torch, tensors = pytorch(), tensors_of(module)
    at_least = torch.float32 if all(tensor.is_floating_point() for tensor in tensors) else torch.float64
    dtype = torch.promote_types(at_least, reduce(torch.promote_types, (each.dtype for each in tensors)))
    return torch.cat([tensor.detach().flatten().to(dtype) for tensor in tensors]).numpy(force=True)


def shapes_of(module: Any) -> list[tuple[int, ...]]:
    """Return the shapes of the tensors of which `vector_of` makes a vector."""
    return [tuple(tensor.shape) for tensor in tensors_of(module)]


def load_vector(
    module: Any, vector: npt.NDArray[Any], shapes: Sequence[tuple[int, ...]] | None = None
) -> None:
    """Overwrite all parameters in place; raise ValueError for another length, or other shapes."""
    torch, start, tensors = pytorch(), 0, tensors_of(module)
    if (count := sum(tensor.numel() for tensor in tensors)) != len(vector):
        raise ValueError(f"The module has {count} parameters, but {len(vector)} were published.")
    for own, published in zip_longest(shapes_of(module), shapes) if shapes else ():
        if own != published:
            raise ValueError(
                f"The module has a parameter of shape {own} where the mailbox was created for one of shape "
                f"{published}; pass a module of the same architecture."
            )
    with torch.no_grad():
        for tensor in tensors:
            part = torch.from_numpy(vector[start : start + tensor.numel()])
            tensor.copy_(part.view(tensor.shape))
            start += tensor.numel()
