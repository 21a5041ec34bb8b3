"""Mixtures: exact counts, P(row) that adds up to 1, random order, and priorities that find their buffer.

Each row has an id, unique over all buffers; the oracle knows the id, source and probability of every row.
"""

import copy
from typing import Any

import numpy as np
import pytest
from scipy.stats import binomtest, chisquare

from replay_tutorial import (
    EpisodeReplayBuffer,
    Mixture,
    MPPrioritizedReplayBuffer,
    NStep,
    NStepWindow,
    PrioritizedReplayBuffer,
    ReplayBuffer,
    SequenceReplayBuffer,
)
from replay_tutorial.buffers.schemes import RankBased, Reverse, Uniform

FIELDS: dict[str, dict[str, Any]] = {"id": {"dtype": np.int64}, "obs": {"shape": (2, 3)}}
LEAST = 1e-6
ALPHA, EPS = 0.7, 0.25
SHARES = {"online": 0.55, "offline": 0.35, "expert": 0.1}


def three_buffers() -> dict[str, Any]:
    """Two that have wrapped, and one that is half full; ids count on from one to the next."""
    buffers: dict[str, Any] = {
        "online": PrioritizedReplayBuffer(7, FIELDS, seed=1, alpha=ALPHA, eps=EPS),
        "offline": ReplayBuffer(13, FIELDS, seed=2),
        "expert": PrioritizedReplayBuffer(5, FIELDS, seed=3, alpha=ALPHA, eps=EPS),
    }
    for (name, buffer), (first, count) in zip(buffers.items(), [(0, 31), (100, 20), (200, 3)], strict=True):
        ids = np.arange(first, first + count)
        extra = {} if name == "offline" else {"priorities": priority_of(ids)}
        buffer.add(id=ids, obs=ids[:, None, None] * np.ones((2, 3)), **extra)
    return buffers


def priority_of(ids: Any) -> Any:
    return (ids * 7) % 5


def rows_by_hand() -> dict[int, tuple[int, int, float]]:
    """Id → source, index, and probability in its own buffer."""
    rows = dict[int, tuple[int, int, float]]()
    for source, ids in enumerate([range(24, 31), range(107, 120), range(200, 203)]):
        masses = [(priority_of(i) + EPS) ** ALPHA if source != 1 else 1.0 for i in ids]
        for i, mass in zip(ids, masses, strict=True):
            rows[i] = (source, i - 100 * source, mass / sum(masses))
    return rows


def mixture_of(buffers: dict[str, Any], shares: dict[str, float] = SHARES, seed: int = 0) -> Mixture:
    return Mixture({name: (buffers[name], share) for name, share in shares.items()}, seed=seed)


@pytest.fixture(scope="module")
def large_batch() -> dict[str, Any]:
    return mixture_of(three_buffers()).sample(200_000, beta=1.0)


def test_every_row_says_where_it_is_from_and_with_what_probability(large_batch):
    rows, shares = rows_by_hand(), list(SHARES.values())
    first = dict(
        zip(*(each.tolist() for each in np.unique(large_batch["id"], return_index=True)), strict=True)
    )
    assert set(first) == set(rows), "every row of every buffer, and no other"
    for i, (source, index, probability) in rows.items():
        k = first[i]
        assert large_batch["source"][k] == source
        assert large_batch["indexes"][k] == index
        assert large_batch["probabilities"][k] == pytest.approx(shares[source] * probability, rel=1e-12)
        assert (large_batch["obs"][k] == i).all()
    assert sum(large_batch["probabilities"][k] for k in first.values()) == pytest.approx(1.0, rel=1e-12)


def test_rows_are_drawn_with_the_probabilities_they_report():
    mixture, ids, probabilities = mixture_of(three_buffers()), [], {}
    for _ in range(4_000):  # one by one, because the draws of a stratified batch are not independent
        batch = mixture.sample(1)
        ids.append(int(batch["id"][0]))
        probabilities[ids[-1]] = float(batch["probabilities"][0])
    drawn, counts = np.unique(ids, return_counts=True)
    assert set(drawn.tolist()) == set(rows_by_hand())
    assert sum(probabilities.values()) == pytest.approx(1.0)
    expected = np.array([probabilities[i] for i in drawn.tolist()]) * len(ids)
    assert chisquare(counts, expected * counts.sum() / expected.sum()).pvalue > LEAST


def test_weights_at_beta_1_are_unbiased(large_batch):
    value = np.cos(np.arange(300.0))  # any function of the row
    ids = list(rows_by_hand())
    estimates = value[large_batch["id"]] / large_batch["probabilities"] / len(ids)
    error = estimates.std() / np.sqrt(len(estimates))
    assert abs(estimates.mean() - value[ids].mean()) < 4 * error

    # `weights` keep the shares: the target is the mean of each buffer, times its share
    rows = rows_by_hand()
    sizes = np.array([7, 13, 3])[large_batch["source"]]
    in_buffer = np.array([rows.get(i, (0, 0, np.nan))[2] for i in range(300)])[large_batch["id"]]
    exact = 1 / (sizes * in_buffer)
    np.testing.assert_allclose(large_batch["weights"], exact / exact.max(), rtol=1e-6)
    estimates = value[large_batch["id"]] * large_batch["weights"] * exact.max()
    target = sum(
        share * value[[i for i in rows if rows[i][0] == source]].mean()
        for source, share in enumerate(SHARES.values())
    )
    assert abs(estimates.mean() - target) < 4 * estimates.std() / np.sqrt(len(estimates))


def test_weights_at_beta_0_and_of_uniform_buffers_are_1():
    buffers = three_buffers()
    assert (mixture_of(buffers).sample(64, beta=0.0)["weights"] == 1).all()
    uniform = Mixture({name: (b, SHARES[name], Uniform()) for name, b in buffers.items()}, seed=0)
    assert (uniform.sample(64, beta=1.0)["weights"] == 1).all(), "the shares are kept"


@pytest.mark.parametrize("batch_size", [1, 2, 7, 64])
def test_counts_differ_from_the_shares_by_less_than_1_and_are_exact_on_average(batch_size):
    mixture = mixture_of(three_buffers())
    counts = np.array([np.bincount(mixture.sample(batch_size)["source"], minlength=3) for _ in range(2_000)])
    for mine, share in zip(counts.T, SHARES.values(), strict=True):
        lower = int(np.floor(batch_size * share))
        assert set(mine.tolist()) <= {lower, lower + 1}
        rounded_up = int((mine == lower + 1).sum())
        assert binomtest(rounded_up, len(mine), batch_size * share - lower).pvalue > LEAST
    assert (counts.sum(axis=1) == batch_size).all()


def test_counts_are_the_shares_where_these_are_integers():
    buffers = three_buffers()
    half = mixture_of(buffers, {"online": 0.5, "offline": 0.5})
    assert {int(half.sample(10)["source"].sum()) for _ in range(200)} == {5}
    whole = mixture_of(buffers, {"offline": 1.0})
    assert (whole.sample(9)["source"] == 0).all()
    none = mixture_of(buffers, {"online": 0.0, "offline": 1.0})
    assert (none.sample(9)["source"] == 1).all()


def test_buffers_are_mixed_in_every_part_of_the_batch():
    mixture = mixture_of(three_buffers(), {"online": 0.5, "offline": 0.5})
    firsts = np.sum([mixture.sample(8)["source"] for _ in range(1_000)], axis=0)
    for place in firsts.tolist():  # at each place, each buffer in half of the batches
        assert binomtest(place, 1_000, 0.5).pvalue > LEAST


def test_one_component_is_its_buffer():
    alone, mixed = three_buffers()["online"], three_buffers()["online"]
    batch = Mixture({"online": (mixed, 1.0)}, seed=0).sample(50, beta=0.6)
    expected = alone.sample(50, beta=0.6, normalize="batch")
    order = np.argsort(batch["indexes"] % 7, kind="stable")
    for name in ("id", "obs", "indexes"):
        np.testing.assert_array_equal(batch[name][order], expected[name])
    np.testing.assert_allclose(batch["weights"][order], expected["weights"], rtol=1e-6)


def test_an_empty_buffers_share_goes_to_the_others():
    buffers = three_buffers()
    buffers["online"].clear()
    mixture = mixture_of(buffers)
    batch = mixture.sample(100_000)
    assert set(batch["source"].tolist()) == {1, 2}
    assert np.bincount(batch["source"])[1:] == pytest.approx([100_000 * 7 / 9, 100_000 * 2 / 9], abs=1)
    once = {int(i): float(p) for i, p in zip(batch["id"], batch["probabilities"], strict=True)}
    assert sum(once.values()) == pytest.approx(1.0)

    for buffer in buffers.values():
        buffer.clear()
    with pytest.raises(ValueError, match=r"\['online', 'offline', 'expert'\] are empty"):
        mixture.sample(1)
    buffers["online"].add(id=5, obs=np.zeros((2, 3)))
    assert mixture.sample(4)["id"].tolist() == [5] * 4


def test_priorities_go_to_the_rows_they_are_for():
    buffers = three_buffers()
    mixture = mixture_of(buffers)
    batch = mixture.sample(500)
    mixture.update_priorities(batch, 10.0 + batch["id"])
    batch = mixture.sample(5_000)
    assert set(batch["id"].tolist()) == set(rows_by_hand())
    once = dict(zip(batch["id"].tolist(), batch["probabilities"].tolist(), strict=True))
    for first, last, share in [(24, 31, 0.55), (200, 203, 0.1)]:
        total = sum((10.0 + i + EPS) ** ALPHA for i in range(first, last))
        for i in range(first, last):
            assert once[i] == pytest.approx(share * (10.0 + i + EPS) ** ALPHA / total, rel=1e-9)
    assert once[110] == pytest.approx(0.35 / 13), "a buffer without priorities is skipped"
    mixture.update_priorities(batch, 1.0)
    assert buffers["online"].min_mass == pytest.approx((1 + EPS) ** ALPHA)
    mixture.update_priorities({"source": np.zeros(2, int), "indexes": np.array([24, 24])}, [[3.0], [0.0]])
    assert buffers["online"].min_mass == pytest.approx(EPS**ALPHA), "the last one counts"


@pytest.mark.parametrize(
    ("source", "indexes", "priorities", "error", "message"),
    [
        ([0, 2], [30, -1], 9.0, IndexError, "No row with index -1"),
        ([0, 2], [30, 3], 9.0, IndexError, "No row with index 3"),
        ([0, 2], [30, 2], [1.0] * 3, ValueError, "2 or 1, not 3"),
        ([0, 2], [30, 2], [9.0, -1.0], ValueError, "between 0 and .*, not -1"),
        ([0, 2], [30, 2], [np.nan, 9.0], ValueError, "between 0 and .*, not nan"),
        ([0, 2], [30, 2], [9.0, 1e307], ValueError, r"between 0 and .*, not 1e[+]307"),  # too large for both
        ([0, 1], [30, 12], [9.0, -1.0], ValueError, "between 0 and .*, not -1"),  # of one without priorities
        ([0, 2], [30, 2], ["a", "a"], TypeError, "real numbers"),
    ],
)
def test_update_that_is_wrong_for_one_buffer_changes_none(source, indexes, priorities, error, message):
    buffers = three_buffers()
    masses = [buffers[name].total_mass for name in ("online", "expert")]
    with pytest.raises(error, match=message):
        mixture_of(buffers).update_priorities({"source": source, "indexes": indexes}, priorities)
    assert [buffers[name].total_mass for name in ("online", "expert")] == masses


def test_shared_buffers_mix_with_others_and_by_rank():
    buffers = three_buffers()
    shared = MPPrioritizedReplayBuffer(8, FIELDS, seed=4, alpha=ALPHA, eps=EPS)
    ids = np.arange(300, 320)
    shared.add(id=ids, obs=ids[:, None, None] * np.ones((2, 3)), priorities=ids - 299.0)
    mixture = Mixture(
        {"shared": (shared, 0.5), "ranked": (buffers["online"], 0.5, RankBased(alpha=1.0))}, seed=0
    )
    assert mixture.names == ["shared", "ranked"]
    batch = mixture.sample(10_000, beta=1.0)
    once = dict(zip(batch["id"].tolist(), batch["probabilities"].tolist(), strict=True))
    masses = {i: (i - 299.0 + EPS) ** ALPHA for i in range(312, 320)}
    for i, mass in masses.items():
        assert once[i] == pytest.approx(0.5 * mass / sum(masses.values()))
    assert set(once) == {*range(24, 31), *masses}
    assert sum(once.values()) == pytest.approx(1.0)
    harmonic = sum(1 / rank for rank in range(1, 8))
    assert once[27] == pytest.approx(0.5 / harmonic), "rank 1"
    assert once[24] == once[29] == pytest.approx(0.5 * (1 / 2 + 1 / 3) / 2 / harmonic), "equal priorities"
    mixture.update_priorities(batch, 1.0)
    assert shared.min_mass == pytest.approx((1 + EPS) ** ALPHA)


WINDOW, BURN_IN, EPISODES = 4, 2, [7, 1, 3, 12]


def sequences(first: int = 0, **options: Any) -> SequenceReplayBuffer:
    """Four episodes; ids count on from step to step, and the final observation has the id of no step."""
    reward, flag = {}, {"dtype": bool}
    fields = {"id": {"dtype": np.int64}, "reward": reward, "next_id": {"dtype": np.int64}, "terminated": flag}
    buffer = SequenceReplayBuffer(100, fields, **{"length": WINDOW, **options}, seed=first)
    for steps in EPISODES:
        ids = first + np.arange(steps + 1)
        ends = np.arange(steps) == steps - 1
        buffer.add(id=ids[:-1], reward=ids[:-1], next_id=ids[1:], terminated=ends)
        first += steps + 1
    return buffer


def test_windows_of_sequences_mix_with_their_masks_probabilities_weights_and_priorities():
    online, offline = sequences(1000, burn_in=BURN_IN, alpha=ALPHA, eps=EPS), sequences(1, burn_in=BURN_IN)
    windows = dict[int, tuple[int, int, int]]()  # id of the first step: source, its number, episode's length
    for source, first in enumerate((1000, 1)):
        for steps in EPISODES:
            windows |= {first + k: (source, k, steps) for k in range(steps)}  # one at each step, by padding
            first += steps + 1
    mine = [i for i in windows if i >= 1000]
    online.update_priorities([i - 1000 for i in mine], [priority_of(i) for i in mine])
    mixture = Mixture({"online": (online, 0.25), "offline": (offline, 0.75)}, seed=0)
    batch = mixture.sample(1_000, beta=1.0)
    masses = {i: (priority_of(i) + EPS) ** ALPHA if i >= 1000 else 1.0 for i in windows}
    totals = [sum(mass for i, mass in masses.items() if windows[i][0] == source) for source in (0, 1)]
    law = {i: masses[i] / totals[windows[i][0]] for i in windows}  # in its buffer
    ids = batch.id[:, BURN_IN].tolist()
    assert set(ids) == set(windows)
    rarest = min(law[i] for i in ids) * len(mine)
    for row, i in enumerate(ids):
        source, step, steps = windows[i]
        assert batch.source[row] == source
        assert batch.probabilities[row] == pytest.approx([0.25, 0.75][source] * law[i], rel=1e-12)
        assert batch.weights[row] == pytest.approx(rarest / (law[i] * len(mine)), rel=1e-6)
        times = np.arange(-BURN_IN, WINDOW + 1)
        np.testing.assert_array_equal(
            batch.id[row], np.where((step + times >= 0) & (step + times <= steps), i + times, 0)
        )
        valid = ((step + times >= 0) & (step + times < steps))[:-1]
        assert (batch.valid[row] == valid).all() and (batch.reward[row] == valid * (i + times[:-1])).all()
        assert (batch.learn[row] == (valid & (times[:-1] >= 0))).all()
    counts = np.bincount(batch.source).tolist()
    assert counts == [250, 750]
    one_by_one = [int(mixture.sample(1).id[0, BURN_IN]) for _ in range(4_000)]
    expected = np.array([[0.25, 0.75][windows[i][0]] * law[i] * 4_000 for i in windows])
    assert chisquare([one_by_one.count(i) for i in windows], expected).pvalue > LEAST
    mixture.update_priorities(batch, np.array(ids) % 3)
    np.testing.assert_allclose(online.priorities[[i - 1000 for i in mine]], np.array(mine) % 3, atol=1e-9)
    with pytest.raises(IndexError, match="No step with index 99"):
        mixture.update_priorities({"source": np.zeros(2, int), "indexes": np.array([0, 99])}, [5.0, 5.0])
    assert online.priorities[0] == 1000 % 3


def test_steps_of_episodes_mix_with_transitions_and_a_buffer_without_windows_is_empty():
    reward, flag = {}, {"dtype": bool}
    fields = {"obs": reward, "reward": reward, "next_obs": reward, "terminated": flag}
    episodes, rows = EpisodeReplayBuffer(50, fields, seed=0), ReplayBuffer(50, fields, seed=1)
    step = {"reward": np.arange(5.0), "terminated": np.zeros(5, bool)}
    for buffer, first in ((episodes, 0.0), (rows, 10.0)):
        buffer.add(obs=first + np.arange(5), next_obs=first + np.arange(1, 6), **step)
    batch = Mixture({"a": (episodes, 0.5), "b": (rows, 0.5)}, seed=0).sample(100)
    assert set(batch.obs.tolist()) == {*range(5), *range(10, 15)}
    np.testing.assert_array_equal(batch.next_obs, batch.obs + 1)
    assert (batch.probabilities == 0.1).all() and (batch.weights == 1).all()
    short, full = SequenceReplayBuffer(50, fields, 9, boundary="drop"), SequenceReplayBuffer(50, fields, 9)
    for buffer in (short, full):
        buffer.add(obs=np.arange(5), next_obs=np.arange(1, 6), **step)
        buffer.end_episode()
    assert (Mixture({"short": (short, 0.9), "full": (full, 0.1)}).sample(9).source == 1).all()


def test_n_step_rows_mix_with_a_buffer_that_declares_their_fields():
    number, flag = {}, {"dtype": bool}
    step = {"obs": number, "reward": number, "next_obs": number, "terminated": flag}
    window = NStep(3)
    online = ReplayBuffer(10, step, n_step=window)
    with pytest.raises(ValueError, match=r"differ in the fields \['discount'\]"):
        Mixture({"online": (online, 0.5), "offline": (ReplayBuffer(10, step), 0.5)})
    offline = ReplayBuffer(10, NStepWindow(step, window).fields)
    offline.add(obs=1, reward=1, next_obs=2, terminated=False, discount=0.5)
    assert (
        Mixture({"online": (online, 0.5), "offline": (offline, 0.5)}).sample(2)["discount"].tolist()
        == [0.5] * 2
    )


def test_a_seed_makes_batches_reproducible_and_a_generator_can_be_saved():
    one, other = (mixture_of(three_buffers(), seed=5).sample(99) for _ in range(2))
    assert all(np.array_equal(one[name], other[name]) for name in one)
    buffers, rng = three_buffers(), np.random.default_rng(0)
    mixture = Mixture({"online": (buffers["online"], 0.3), "offline": (buffers["offline"], 0.7)}, seed=rng)
    twin = copy.deepcopy(mixture)
    state = rng.bit_generator.state
    expected = mixture.sample(9)["source"]
    rng.bit_generator.state = state
    np.testing.assert_array_equal(twin.sample(9)["source"], expected)
    np.testing.assert_array_equal(mixture.sample(9)["source"], expected)


@pytest.mark.parametrize(
    ("components", "error", "message"),
    [
        (lambda b: {}, ValueError, "at least one component"),
        (lambda b: [(b["online"], 1.0)], TypeError, "components must be a dict"),
        (lambda b: {"a": (b["online"], 0.5), "b": (b["offline"], 0.4)}, ValueError, r"add up to 1, not 0\.9"),
        (
            lambda b: {"a": (b["online"], 1.5), "b": (b["offline"], -0.5)},
            ValueError,
            r"in \[0, 1\], not 1\.5",
        ),
        (lambda b: {"a": (b["online"], float("nan"))}, ValueError, "not nan"),
        (lambda b: {"a": (b["online"], "half")}, TypeError, "must be a number, not 'half'"),
        (lambda b: {"a": b["online"]}, TypeError, r"must be \(buffer, share\)"),
        (lambda b: {"a": (b["online"], 1.0, "uniform")}, TypeError, "must draw every row with a fixed prob"),
        (lambda b: {"a": (b["online"], 1.0, Reverse())}, TypeError, "such as Uniform"),
        (lambda b: {"a": ([1, 2], 1.0)}, TypeError, r"must be a buffer of this package, not \[1, 2\]"),
        (lambda b: {"a": (sequences(), 1.0, Uniform())}, TypeError, "has no schemes"),
        (
            lambda b: {"a": (sequences(burn_in=1, length=3), 0.5), "b": (sequences(), 0.5)},
            ValueError,
            r"same burn_in, length, n_step and gamma.*\[1, 3, 1, None\], \[0, 4, 1, None\]",
        ),
        (lambda b: {"a": (sequences(period=2, online=True), 1.0)}, ValueError, "can't be online"),
        (
            lambda b: {"a": (sequences(), 0.5), "b": (sequences(burn_in=1), 0.5)},
            ValueError,
            r"'a' and 'b' differ in the fields \['id', 'learn', 'reward', 'terminated', 'valid'\]",
        ),
        (lambda b: {"a": (b["online"], 0.5), "b": (b["online"], 0.5)}, ValueError, "two components"),
        (lambda b: {"a": (ReplayBuffer(3, {"source": {}}), 1.0)}, ValueError, r"\['source'\] are reserved"),
        (
            lambda b: {"a": (b["online"], 0.5), "b": (ReplayBuffer(3, {**FIELDS, "id": {}}), 0.5)},
            ValueError,
            r"'a' and 'b' differ in the fields \['id'\]",
        ),
    ],
)
def test_wrong_components_are_refused(components, error, message):
    with pytest.raises(error, match=message):
        Mixture(components(three_buffers()))


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"source": np.full(8, 3)}, IndexError, r"no component 3; the mixture has 3"),
        ({"source": np.full(8, -1)}, IndexError, r"no component -1"),
        ({"source": np.zeros(7, int)}, ValueError, "7 entries of `source` and 8 of `indexes`"),
        ({"source": np.zeros(8)}, TypeError, "source must be integers"),
    ],
)
def test_the_batch_of_another_mixture_is_refused_and_changes_nothing(changes, error, message):
    buffers = three_buffers()
    mixture = mixture_of(buffers)
    batch = mixture.sample(8)
    masses = [buffer.total_mass for buffer in buffers.values() if hasattr(buffer, "total_mass")]
    with pytest.raises(error, match=message):
        mixture.update_priorities({**batch, **changes}, np.full(8, 5.0))
    assert masses == [buffer.total_mass for buffer in buffers.values() if hasattr(buffer, "total_mass")]


def test_wrong_arguments_of_sample_are_refused():
    mixture = mixture_of(three_buffers())
    with pytest.raises(ValueError, match="batch_size must be at least 1"):
        mixture.sample(0)
    with pytest.raises(ValueError, match=r"beta must be in \[0, 1\]"):
        mixture.sample(1, beta=2.0)
    assert Mixture({n: (b, s) for (n, b), s in zip(three_buffers().items(), [0.1, 0.2, 0.7], strict=True)})


def test_a_sample_that_one_buffer_refuses_leaves_all_random_states_as_they_were():
    plain, massless = ReplayBuffer(9, FIELDS, seed=1), PrioritizedReplayBuffer(9, FIELDS, eps=0.0, seed=2)
    for buffer in (plain, massless):
        buffer.add(id=np.zeros(5, int), obs=np.zeros((5, 2, 3)))
    mixture = Mixture({"plain": (plain, 0.5), "massless": (massless, 0.5)}, seed=3)
    twins = copy.deepcopy((plain, massless, mixture))
    massless.update_priorities(np.arange(5), 0)
    with pytest.raises(ValueError, match="mass"):
        mixture.sample(8)
    for made, twin in zip((plain, massless, mixture), twins, strict=True):
        assert made._rng.bit_generator.state == twin._rng.bit_generator.state


@pytest.mark.parametrize("kind", [ReplayBuffer, PrioritizedReplayBuffer, EpisodeReplayBuffer])
def test_a_buffer_whose_sample_lacks_an_argument_is_refused_at_once(kind):
    class Narrow(kind):
        def sample(self, batch_size: int) -> Any:
            return super().sample(batch_size)

    class Wide(kind):
        def sample(self, batch_size: int, **options: Any) -> Any:
            return super().sample(batch_size, **options)

    fields: Any = {"obs": {}, "next_obs": {}, "reward": {}, "terminated": {"dtype": bool}}
    with pytest.raises(TypeError, match=r"passes \w+= .*'narrow' is Narrow.sample\(batch_size"):
        Mixture({"narrow": (Narrow(8, fields), 1.0)})
    buffer = Wide(8, fields)
    buffer.add(obs=0, next_obs=1, reward=2, terminated=True)
    assert Mixture({"wide": (buffer, 1.0)}).sample(4).reward.tolist() == [2.0] * 4


def test_the_indexes_of_a_mixture_alone_are_refused():
    buffer = PrioritizedReplayBuffer(8, {"x": {}})
    buffer.add(x=np.arange(8))
    mixture = Mixture({"a": (buffer, 1.0)})
    batch = mixture.sample(4)
    for wrong in (batch.indexes, batch.indexes.tolist(), {"indexes": batch.indexes}, 3):
        with pytest.raises(TypeError, match="must be a batch of this mixture"):
            mixture.update_priorities(wrong, np.ones(4))


def test_only_empty_buffers_that_have_a_share_are_named():
    full, empty = ReplayBuffer(8, {"x": {}}), ReplayBuffer(8, {"x": {}})
    full.add(x=1)
    with pytest.raises(ValueError, match=r"the buffers \['empty'\] are empty"):
        Mixture({"full": (full, 0.0), "empty": (empty, 1.0)}).sample(4)
