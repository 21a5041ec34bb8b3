"""A value's way into a dtype that is not its own: rounding is fine, losing the value is not.

Observations come as float64 from most environments and are stored as float32, so this is done at every step.
The quick look asks only whether anything at all was lost; what it was is worked out for the message.

Left out: which shapes a field takes (`fields`).
"""

import math
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt

from replay_tutorial.buffers.jit import Floats, kernel, types

# The ones that NumPy has: `is` costs a third of `==`.
FLOAT64, FLOAT32, UINT8 = np.dtype(np.float64), np.dtype(np.float32), np.dtype(np.uint8)

Float32s = Annotated[npt.NDArray[np.float32], types.float32[::1]]
ByteValues = Annotated[npt.NDArray[np.uint8], types.uint8[::1]]


@kernel
def round_floats(given: Floats, rounded: Float32s) -> bool:
    """Round to float32; return whether a finite number became infinite."""
    lost = False
    for i in range(len(given)):
        rounded[i] = given[i]
        lost |= np.isinf(rounded[i]) & ~np.isinf(given[i])
    return lost


@kernel
def to_bytes(given: Float32s, values: ByteValues) -> bool:
    """Convert pictures of whole numbers to bytes; return whether one is no number from 0 to 255."""
    lost = False
    for i in range(len(given)):
        fits = (given[i] >= 0) & (given[i] <= 255)
        values[i] = np.uint8(given[i] if fits else 0)  # of others the processor makes what it likes
        lost |= values[i] != given[i]
    return lost


@kernel
def all_finite(values: Float32s) -> bool:
    """Return whether no number is NaN or infinite."""
    finite = True
    for i in range(len(values)):
        finite &= np.isfinite(values[i])
    return finite


def check_finite(name: str, value: Any) -> None:
    """Refuse NaN and infinity, in one number or an array of floats or complex numbers."""
    if isinstance(value, float | int) and math.isfinite(value):
        return
    array = np.asarray(value)
    if array.dtype is FLOAT32 and array.flags.carray and all_finite(array.reshape(-1)):
        return
    finite = np.isfinite(array)
    if not finite.all():
        wrong = array[~finite].flat[0]
        part = wrong.imag if np.isfinite(wrong.real) else wrong.real
        raise ValueError(f"{name!r} holds {part}, which check_finite=True refuses.")


def cast(name: str, array: npt.NDArray[Any], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Return a field's values as an array of its dtype: the same array if it has it."""
    given = array.dtype
    if given == dtype:
        return array  # of an array that was pickled, the dtype is equal and not the same
    if given == FLOAT64 and dtype == FLOAT32 and array.flags.carray:
        rounded = np.empty(array.size, dtype)
        if not round_floats(array if array.ndim == 1 else array.reshape(-1), rounded):
            return rounded if array.ndim == 1 else rounded.reshape(array.shape)
    elif given == FLOAT32 and dtype == UINT8 and array.flags.carray:
        values = np.empty(array.shape, dtype)
        if not to_bytes(array.reshape(-1), values.reshape(-1)):
            return values
    elif given.kind not in "biufc":
        raise TypeError(f"{name!r} takes numbers, not {given} ({array!r:.60}).")
    elif np.can_cast(given, dtype, "safe"):
        return array.astype(dtype)
    elif given.kind == "c" and dtype.kind != "c":
        raise ValueError(f"{name!r} is {dtype}, which can't hold complex numbers.")
    with np.errstate(all="ignore"):
        values = array.astype(dtype)
        if dtype.kind in "fc":
            lost = np.isfinite(array) & ~np.isfinite(values)
        else:
            lost = values != array
            if given.kind == "f" and dtype.itemsize == 8:
                # 2**63 as an int64 may be 2**63 - 1, which is 2**63 as a float
                lost |= array >= float(np.iinfo(dtype).max)
    if lost.any():
        raise ValueError(f"{name!r} is {dtype}, which can't hold {array[lost].flat[0]}.")
    return values
