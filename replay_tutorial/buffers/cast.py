"""Checked conversion of values to arrays, and of arrays to a field's dtype.

Rounding is allowed, overflow and truncation are not. Tensors of any framework are accepted: their framework
has been imported by the caller, so that none is imported here.

Most environments return float64 observations, which are stored as float32, so the conversion runs at every
step. The kernels only report that some value can't be represented; which one is found for the error message.
"""

import math
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt

from replay_tutorial.buffers.runtime.jit import Floats, kernel, types

# NumPy's own instances: comparing them with `is` takes a third of the time of `==`.
FLOAT64, FLOAT32, UINT8 = np.dtype(np.float64), np.dtype(np.float32), np.dtype(np.uint8)

NUMBERS = (float, int, np.generic)
LISTS = (list, tuple)
NESTING: Any = (*LISTS, np.ma.MaskedArray)  # types whose values may contain masked elements

REGISTERED = 2  # `isbuiltin` of a dtype that another library has registered, such as JAX's bfloat16

Float32s = Annotated[npt.NDArray[np.float32], types.float32[::1]]
ByteValues = Annotated[npt.NDArray[np.uint8], types.uint8[::1]]


def as_dtype(name: str, dtype: Any) -> np.dtype[Any]:
    """Convert a dtype of NumPy, or the equivalent dtype of PyTorch; raise TypeError for anything else."""
    text = str(dtype)
    try:
        found = np.dtype(text.removeprefix("torch.") if text.startswith("torch.") else dtype)
    except TypeError:
        found = None
    if found is None or found.isbuiltin == REGISTERED:
        raise TypeError(
            f"{name}: the dtype must be one that NumPy has, such as np.float32, not {dtype!r:.60}."
        )
    return found


def as_array(name: str, value: Any) -> npt.NDArray[Any]:
    """Convert a value, such as a list or a tensor of any framework, to an array of any dtype and shape.

    Tensors of PyTorch that require gradients, or lie on another device, are detached and copied: an array
    contains only their numbers. Raise ValueError for masked elements or a ragged list, or TypeError if the
    value contains no numbers that NumPy can read.
    """
    if contains_masked(value):
        raise ValueError(
            f"{name!r} has masked elements, which stand for no number. Pass array.filled(value), which "
            "replaces them by a value."
        )
    try:
        try:
            return np.asarray(value)
        except (TypeError, RuntimeError):
            if not hasattr(value, "detach"):
                raise
            return tensor_to_array(value)
    except ValueError as error:
        raise ValueError(f"{name!r} can't be converted to an array: {error}") from None
    except (TypeError, RuntimeError) as error:
        raise TypeError(f"{name!r} can't be converted to an array: {error}") from None


def contains_masked(value: Any) -> bool:
    """Return whether an array, or an array in nested lists, has masked elements.

    Usually, only the types of the elements are checked: converting a list of 1,000 lists of four floats takes
    10% longer, and a list of 1,000 arrays 17%.
    """
    items: Any = value
    if not isinstance(value, LISTS):
        return np.ma.is_masked(value)
    if not items or isinstance(items[0], NUMBERS):  # NumPy warns if a masked number follows
        return False
    types = set(map(type, items))
    if types == {list} and items[0] and isinstance(items[0][0], NUMBERS):
        return False
    return any(issubclass(kind, NESTING) for kind in types) and any(map(contains_masked, items))


def tensor_to_array(tensor: Any) -> npt.NDArray[Any]:
    """Convert a tensor of PyTorch that NumPy can't read; bfloat16 and narrower floats become float32."""
    is_narrow = tensor.is_floating_point() and tensor.element_size() <= 2
    return (tensor.float() if is_narrow else tensor).numpy(force=True)


def widened(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Convert JAX's further dtypes, such as bfloat16, to float32, which holds all their values."""
    is_further = array.dtype.kind == "V" and array.dtype.type is not np.void
    return array.astype(np.float32) if is_further else array


@kernel
def round_floats(given: Floats, rounded: Float32s) -> bool:
    """Round to float32; return whether a finite number overflowed to infinity."""
    lost = False
    for i in range(len(given)):
        rounded[i] = given[i]
        lost |= np.isinf(rounded[i]) & ~np.isinf(given[i])
    return lost


@kernel
def to_bytes(given: Float32s, values: ByteValues) -> bool:
    """Convert integer-valued floats to bytes; return whether one is not an integer from 0 to 255."""
    lost = False
    for i in range(len(given)):
        fits = (given[i] >= 0) & (given[i] <= 255)
        values[i] = np.uint8(given[i] if fits else 0)  # converting a value out of range is undefined
        lost |= values[i] != given[i]
    return lost


@kernel
def all_finite(values: Float32s) -> bool:
    """Return whether all numbers are finite."""
    finite = True
    for i in range(len(values)):
        finite &= np.isfinite(values[i])
    return finite


def check_finite(name: str, value: Any) -> None:
    """Raise ValueError if a number or an array, float or complex, contains NaN or infinity."""
    if isinstance(value, float | int) and math.isfinite(value):
        return
    array = np.asarray(value)
    if array.dtype is FLOAT32 and array.flags.carray and all_finite(array.reshape(-1)):
        return
    finite = np.isfinite(array)
    if not finite.all():
        wrong = array[~finite].flat[0]
        part = wrong.imag if np.isfinite(wrong.real) else wrong.real
        raise ValueError(f"{name!r} contains {part}, which check_finite=True doesn't allow.")


def cast(name: str, array: npt.NDArray[Any], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Convert an array to a field's dtype; an array that already has this dtype is not copied.

    Raise TypeError if the array is not numeric, or ValueError if a value can't be represented in the dtype.
    """
    given = array.dtype
    if given is FLOAT64 and dtype is FLOAT32 and array.flags.carray:
        rounded = np.empty(array.shape, dtype)
        flat = (array, rounded) if array.ndim == 1 else (array.ravel(), rounded.ravel())
        if not round_floats(*flat):
            return rounded
    elif given == dtype:
        return array  # callers compare with `is`; the dtype of an unpickled array is equal, but not identical
    elif given == FLOAT32 and dtype == UINT8 and array.flags.carray:
        values = np.empty(array.shape, dtype)
        if not to_bytes(array.reshape(-1), values.reshape(-1)):
            return values
    elif given.kind not in "biufc":
        if (wide := widened(array)) is not array:
            return cast(name, wide, dtype)
        raise TypeError(f"{name!r} must be numeric, not {given} ({array!r:.60}).")
    elif np.can_cast(given, dtype, "safe"):
        return array.astype(dtype)
    elif given.kind == "c" and dtype.kind != "c":
        raise ValueError(f"{name!r} has the dtype {dtype}, which can't hold complex numbers.")
    with np.errstate(all="ignore"):
        values = array.astype(dtype)
        if dtype.kind in "fc":
            lost = np.isfinite(array) & ~np.isfinite(values)
        else:
            lost = values != array
            if given.kind == "f" and dtype.itemsize == 8:
                # 2**63 may be converted to the int64 2**63 - 1, which compares equal to the float 2**63
                lost |= array >= float(np.iinfo(dtype).max)
    if lost.any():
        raise ValueError(f"{name!r} has the dtype {dtype}, which can't hold {array[lost].flat[0]}.")
    return values
