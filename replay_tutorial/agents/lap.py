"""LAP and PAL: prioritized replay without importance weights, and a uniform loss with the same gradient.

Prioritized sampling changes the expected gradient, and therefore the loss that is minimized. LAP raises
priorities below 1 to 1, so that rows with small errors are sampled uniformly, and uses the Huber loss instead
of importance weights. PAL is a loss for uniform sampling with the same expected gradient as LAP:

    LAP:  P(i) = max(|δ_i|, 1)^α / Σ_k max(|δ_k|, 1)^α       loss: huber(δ), linear beyond |δ| = 1
    PAL:  uniform     loss: 1/λ · (δ²/2 if |δ| ≤ 1, else |δ|^(1+α) / (1+α)),    λ = mean of max(|δ|, 1)^α

Paper: Fujimoto et al. 2020, "An Equivalence between Loss Functions and Non-Uniform Sampling in Experience
Replay", sections 4 and 5.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

LAP_ALPHA = 0.4  # α in the paper, for LAP and PAL


def lap_priorities(errors: Tensor) -> NDArray[np.float32]:
    """Return max(|δ|, 1): float32[B], for a buffer with `alpha=0.4, eps=0.0`, which applies α.

    The minimum makes eps unnecessary; with eps above 0, the gradients of LAP and PAL would differ.

    Args:
        errors: δ, float32[B], of the rows of a batch.
    """
    return errors.detach().abs().clamp(min=1.0).cpu().numpy()


def lap_loss(errors: Tensor) -> Tensor:
    """Return the mean of huber(δ), a scalar, for rows sampled in proportion to `lap_priorities`.

    Don't multiply the losses by importance weights, because the Huber loss replaces them.
    """
    return functional.huber_loss(errors, torch.zeros_like(errors), delta=1.0)


def pal_loss(errors: Tensor, alpha: float = LAP_ALPHA) -> Tensor:
    """Return PAL's loss, a scalar, for rows sampled uniformly.

    λ is the mean over the batch and has no gradient.

    Args:
        errors: δ, float32[B].
        alpha: The exponent α; with 0, the gradient is that of the Huber loss.
    """
    sizes = errors.abs()
    losses = torch.where(sizes <= 1.0, sizes**2 / 2, sizes ** (1.0 + alpha) / (1.0 + alpha))  # float32[B]
    lambda_ = sizes.detach().clamp(min=1.0).pow(alpha).mean()
    return losses.mean() / lambda_
