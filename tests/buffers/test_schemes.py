"""Sampling schemes: which rows they draw, and whether the probabilities that they report are true.

Distributions are compared by Pearson's χ² with fixed seeds; correct code fails less than once in a million
tests (`LEAST`).
"""

from typing import Any

import numpy as np
import pytest
from scipy.stats import chisquare

from replay_tutorial import PrioritizedReplayBuffer, ReplayBuffer
from replay_tutorial.buffers.schemes import Proportional, Scheme, Uniform

LEAST = 1e-6
ACT: dict[str, dict[str, Any]] = {"act": {"shape": (), "dtype": np.int64}}


def filled(kind: Any, capacity: int, rows: int, **options: Any) -> Any:
    """A buffer to which `rows` rows were added, a few at a time; `act` is the index."""
    buffer = kind(capacity, ACT, seed=5, **options)
    for first in range(0, rows, 7):
        buffer.add(act=np.arange(first, min(first + 7, rows)))
    return buffer


def assert_true(buffer: Any, scheme: Scheme, probabilities: dict[int, float], batch_size: int) -> None:
    """Assert that rows are drawn with these probabilities, one for each stored row, and report them."""
    assert sum(probabilities.values()) == pytest.approx(1.0, abs=1e-12)
    drawn = []
    for _ in range(8_000 // batch_size):
        sample = buffer.sample(batch_size, scheme=scheme)
        assert (sample["act"] == sample["indexes"]).all()
        expected = [probabilities[index] for index in sample["indexes"].tolist()]
        np.testing.assert_allclose(sample["probabilities"], expected, rtol=1e-9)
        drawn.append(sample["indexes"])
    counts = np.unique_counts(np.concatenate(drawn))
    seen = dict(zip(counts.values.tolist(), counts.counts.tolist(), strict=True))
    shares = np.array(sorted(probabilities.items()))
    observed = np.array([seen.get(int(index), 0) for index in shares[:, 0]], float)
    expected = shares[:, 1] * observed.sum()
    rare = expected < 5
    if rare.any():  # in one cell, because χ² is not valid for few expected draws
        observed = np.append(observed[~rare], observed[rare].sum())
        expected = np.append(expected[~rare], expected[rare].sum())
    if len(observed) > 1 and expected.min() > 0:
        assert chisquare(observed, expected).pvalue > LEAST


@pytest.mark.parametrize(("capacity", "rows"), [(11, 1), (11, 6), (11, 11), (11, 60), (1, 9)])
@pytest.mark.parametrize("kind", [ReplayBuffer, PrioritizedReplayBuffer])
def test_uniform_scheme_draws_every_stored_row_equally_often(kind, capacity, rows):
    buffer, stored = filled(kind, capacity, rows), min(capacity, rows)
    if kind is PrioritizedReplayBuffer:
        buffer.update_priorities([rows - 1], [100.0])
    assert_true(buffer, Uniform(), dict.fromkeys(range(rows - stored, rows), 1 / stored), 40)


def test_proportional_scheme_draws_what_a_prioritized_buffer_draws_by_itself():
    one, other = (filled(PrioritizedReplayBuffer, 11, 38, alpha=0.7) for _ in range(2))
    for buffer in (one, other):
        buffer.update_priorities(np.arange(27, 38), np.arange(11.0))
    for normalize in ("buffer", "batch"):
        plain, sample = (b.sample(20, 0.5, normalize=normalize, **o) for b, o in
                         ((one, {}), (other, {"scheme": Proportional()})))  # fmt: skip
        assert (plain["indexes"] == sample["indexes"]).all() and (plain["act"] == sample["act"]).all()
        np.testing.assert_allclose(plain["weights"], sample["weights"], rtol=1e-6)
    masses = (np.arange(11.0) + 1e-4) ** 0.7
    assert_true(other, Proportional(), dict(zip(range(27, 38), masses / masses.sum(), strict=True)), 5)


def test_weights_of_a_scheme_in_a_prioritized_buffer_correct_its_probabilities():
    buffer = filled(PrioritizedReplayBuffer, 11, 11)
    buffer.update_priorities(np.arange(11), np.arange(11.0))
    assert (buffer.sample(30, 1.0, scheme=Uniform())["weights"] == 1.0).all()


def test_scheme_that_needs_priorities_names_the_remedy_in_a_uniform_buffer():
    with pytest.raises(ValueError, match=r"Proportional requires priorities.*Use PrioritizedReplayBuffer"):
        filled(ReplayBuffer, 4, 3).sample(2, scheme=Proportional())
    nothing = filled(PrioritizedReplayBuffer, 4, 3, eps=0.0)
    nothing.update_priorities([0, 1, 2], 0.0)
    with pytest.raises(ValueError, match="Every mass is 0"):
        nothing.sample(2, scheme=Proportional())


def test_what_is_not_a_scheme_and_names_that_a_scheme_adds_are_refused():
    with pytest.raises(TypeError, match="must be a scheme such as"):
        filled(ReplayBuffer, 4, 3).sample(2, scheme="uniform")
    with pytest.raises(ValueError, match=r"\['indexes'\]; rename"):
        buffer = ReplayBuffer(4, {"indexes": {"shape": ()}})
        buffer.add(indexes=1)
        buffer.sample(2, scheme=Uniform())
    with pytest.raises(ValueError, match="the buffer is empty"):
        ReplayBuffer(4, ACT).sample(2, scheme=Uniform())


@pytest.mark.parametrize("kind", [ReplayBuffer, PrioritizedReplayBuffer])
def test_arrays_of_a_scheme_are_written_to_out(kind):
    out = {"probabilities": np.zeros(5), "indexes": np.zeros(5, np.int64), "act": np.zeros(5, np.int64)}
    sample = filled(kind, 4, 3).sample(5, scheme=Uniform(), out=out)
    assert all(sample[name] is array for name, array in out.items())
    assert (out["act"] == out["indexes"]).all() and (out["probabilities"] == 1 / 3).all()
    with pytest.raises(KeyError, match="probabilities"):
        filled(kind, 4, 3).sample(5, out={"probabilities": np.zeros(5)})
