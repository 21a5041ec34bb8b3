"""The parameters of a PyTorch module as one vector, for the mailbox.

Floating-point buffers of the module, such as the statistics of batch normalization, are included. Float16 and
bfloat16 become float32 in the vector, and are exact again in the module.
"""

from typing import Any

import numpy.typing as npt

from replay_tutorial.buffers.batch import pytorch


def tensors_of(module: Any) -> list[Any]:
    """Return the parameters and the floating-point buffers of a module."""
    return [*module.parameters(), *(each for each in module.buffers() if each.is_floating_point())]


def vector_of(module: Any) -> npt.NDArray[Any]:
    """Return a copy of all parameters, in float32 or float64."""
    torch = pytorch()
    vector = torch.cat([tensor.detach().flatten() for tensor in tensors_of(module)])
    return vector.to(torch.promote_types(vector.dtype, torch.float32)).numpy(force=True)


def load_vector(module: Any, vector: npt.NDArray[Any]) -> None:
    """Overwrite all parameters in place; raise ValueError if the vector has another length."""
    torch, start, tensors = pytorch(), 0, tensors_of(module)
    if (count := sum(tensor.numel() for tensor in tensors)) != len(vector):
        raise ValueError(f"The module has {count} parameters, but {len(vector)} were published.")
    with torch.no_grad():
        for tensor in tensors:
            part = torch.from_numpy(vector[start : start + tensor.numel()])
            tensor.copy_(part.view(tensor.shape))
            start += tensor.numel()
