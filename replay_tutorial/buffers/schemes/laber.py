"""LaBER: draw a batch from a larger one, in proportion to priorities of the current network.

Stored priorities become stale as the network learns. LaBER therefore samples a large batch of M rows
uniformly, computes their priorities p with the current network, and draws the training batch from these rows:

    P(i) = p_i / Σ_k p_k        with replacement
    w_i  = mean_k(p_k) / p_i    so that the expected weighted loss is the mean loss of the large batch

Source: Lahire et al. 2022, "Large Batch Experience Replay", section 5.
"""

from typing import Literal

import numpy as np
import numpy.typing as npt

from replay_tutorial.buffers.cast import as_array, widened
from replay_tutorial.buffers.rows import check_batch_size
from replay_tutorial.buffers.runtime.jit import Floats, Integers


def laber(
    priorities: npt.ArrayLike,
    batch_size: int,
    rng: np.random.Generator,
    variant: Literal["mean", "lazy", "max"] = "mean",
) -> tuple[Integers, Floats]:
    """Draw a batch from a large batch, in proportion to the priorities of its rows, with replacement.

    The priority that minimizes the variance is the norm of a row's gradient. |TD error| is proportional to it
    for the squared loss, and min(|TD error|, 1) for the Huber loss, up to the network's Jacobian.

    Multiply the losses by the weights. If the large batch was drawn from a prioritized buffer, multiply
    its weights by these. O(M + batch_size · log M); allocates both results.

    Args:
        priorities: One number per row of the large batch, finite and at least 0, float[M] or float[M, 1].
            A row of priority 0 is never drawn.
        batch_size: Number of rows to draw; the authors use M / 4.
        rng: The random generator to draw with.
        variant: "mean" is unbiased, and recommended by the authors. "lazy" leaves out the factor mean(p), so
            that the steps become larger as the errors become smaller. "max" divides by the largest weight of
            the batch, so that no weight exceeds 1.

    Returns:
        The positions of the rows in the large batch, int64[batch_size], and their weights,
        float64[batch_size].

    Raises:
        TypeError: If batch_size is not an integer, rng is not a generator, or the priorities are not real
            numbers.
        ValueError: If a priority is negative, infinite or NaN, all of them are 0, or another argument is out
            of range.

    Example:
        >>> positions, weights = laber([1.0, 0.0, 3.0], 2, np.random.default_rng(0))
        >>> positions.tolist(), weights.round(3).tolist()
        ([2, 2], [0.444, 0.444])
    """
    check_batch_size(batch_size)
    if variant not in ("mean", "lazy", "max"):
        raise ValueError(f'variant must be "mean", "lazy" or "max", not {variant!r}.')
    if not isinstance(rng, np.random.Generator):
        raise TypeError(f"rng must be a generator, such as np.random.default_rng(0), not {rng!r:.60}.")
    errors = widened(as_array("priorities", priorities))
    if errors.dtype.kind not in "biuf":
        raise TypeError(f"priorities must be real numbers, not {errors.dtype} ({priorities!r:.60}).")
    if errors.ndim == 0 or errors.size != len(errors):
        raise ValueError(f"priorities must have the shape (M,) or (M, 1), not {errors.shape}.")
    p = errors.reshape(-1).astype(np.float64)  # float64[M]; a copy
    valid = (p >= 0.0) & (p < np.inf)  # False for NaN
    if not valid.all():
        raise ValueError(f"A priority must be finite and at least 0, not {p[~valid][0]}. Pass |TD error|.")
    if not p.any():
        raise ValueError("At least one priority must be above 0; to draw uniformly, pass equal priorities.")
    scale = p.max()
    p /= scale  # so that the sum can't overflow
    positions = rng.choice(len(p), batch_size, p=p / p.sum())
    drawn = p[positions]
    numerator = p.mean() if variant == "mean" else drawn.min() if variant == "max" else 1.0 / scale
    return positions, numerator / drawn
