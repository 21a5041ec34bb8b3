"""LAP and PAL: their enumerated expected gradients are equal row by row; priorities are the paper's."""

import numpy as np
import pytest
import torch

from replay_tutorial import PrioritizedReplayBuffer
from replay_tutorial.agents.lap import lap_loss, lap_priorities, pal_loss

ERRORS = [0.0, 0.3, -0.999, 1.0, -1.0, 1.001, -7.5, 300.0]
ALPHA = 0.4


def probabilities_in_a_buffer(priorities: np.ndarray, alpha: float) -> np.ndarray:
    """P(row) of each row of a buffer, read from the weights 1 / (N P) of a sample that has every row."""
    buffer = PrioritizedReplayBuffer(len(priorities), {"obs": {}}, seed=0, alpha=alpha, eps=0.0)
    buffer.add(obs=np.zeros(len(priorities)))
    buffer.update_priorities(np.arange(len(priorities)), priorities)
    sample = buffer.sample(4096, beta=1.0)
    inverse = np.full(len(priorities), np.nan)
    inverse[sample["indexes"]] = sample["weights"].astype(float)
    return (1 / inverse) / (1 / inverse).sum()


@pytest.mark.parametrize("alpha", [0.0, ALPHA, 1.0])
def test_expected_gradients_of_lap_and_pal_are_equal_row_by_row(alpha):
    errors = torch.tensor(ERRORS, dtype=torch.float64)
    probabilities = probabilities_in_a_buffer(lap_priorities(errors), alpha)
    lap = np.zeros(len(ERRORS))
    for row, probability in enumerate(probabilities):  # every batch of one row, by its probability
        leaf = errors[row].clone().requires_grad_()
        lap_loss(leaf.reshape(1)).backward()
        lap[row] = probability * leaf.grad.item()

    leaf = errors.clone().requires_grad_()
    pal_loss(leaf, alpha).backward()  # every row once: the expectation over uniform batches of one λ
    np.testing.assert_allclose(leaf.grad.numpy(), lap, rtol=1e-6, atol=0)

    scale = sum(max(abs(error), 1) ** alpha for error in ERRORS)  # and by hand
    by_hand = [e if abs(e) <= 1 else np.sign(e) * abs(e) ** alpha for e in ERRORS]
    np.testing.assert_allclose(leaf.grad.numpy(), np.array(by_hand) / scale, rtol=1e-12, atol=0)


def test_priorities_are_those_of_the_paper():
    priorities = lap_priorities(torch.tensor([-0.5, 1.0, -3.0], requires_grad=True))
    assert priorities.tolist() == [1.0, 1.0, 3.0]
    assert priorities.dtype == np.float32


def test_values_of_the_losses_by_hand():
    errors = torch.tensor([0.5, -2.0])
    assert lap_loss(errors).item() == pytest.approx((0.125 + 1.5) / 2)
    lambda_ = (1 + 2**ALPHA) / 2
    assert pal_loss(errors).item() == pytest.approx((0.125 + 2**1.4 / 1.4) / 2 / lambda_)
    assert pal_loss(errors, 0.0).item() == pytest.approx((0.125 + 2.0) / 2)
