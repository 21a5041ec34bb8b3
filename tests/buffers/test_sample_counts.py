"""`times_sampled`: how many times each row was sampled, against a dictionary that counts every batch."""

import io
import pickle
import zipfile
from collections import Counter
from typing import Any

import numpy as np
import pytest
from forger import packed

from replay_tutorial import MPPrioritizedReplayBuffer, MPReplayBuffer, PrioritizedReplayBuffer, ReplayBuffer
from replay_tutorial.buffers.schemes import Combined, Geometric, Proportional, Scheme, Uniform

ACT: dict[str, dict[str, Any]] = {"action": {"dtype": np.int64}}
each_kind = pytest.mark.parametrize(
    "kind", [ReplayBuffer, PrioritizedReplayBuffer, MPReplayBuffer, MPPrioritizedReplayBuffer]
)


def schemes_of(kind: Any) -> list[Scheme | None]:
    return [None, Uniform(), Combined(2), *([Proportional()] if "Prioritized" in kind.__name__ else [])]


@each_kind
def test_every_row_of_every_batch_is_counted_and_a_new_row_begins_at_zero(kind):
    buffer, rng = kind(13, ACT, count_samples=True, seed=0), np.random.default_rng(0)
    counted: Counter[int] = Counter()
    for step in range(400):
        if step % 3 == 0:
            count = int(rng.integers(2, 16 if step % 30 == 0 else 4))
            buffer.add(action=buffer.next_index + np.arange(count))
        if step == 300:
            buffer.clear()
            buffer.add(action=buffer.next_index + np.arange(3))
        scheme = schemes_of(kind)[step % len(schemes_of(kind))]
        sample = buffer.sample(int(rng.integers(3, 9)), scheme=scheme)
        rows = sample["action"].tolist()
        counted.update(rows)
        assert sample["times_sampled"].dtype == np.int64
        assert sample["times_sampled"].tolist() == [counted[row] for row in rows]
        assert scheme is not None or "probabilities" not in sample
    assert max(counted.values()) > 5


@each_kind
def test_counts_are_saved_and_loaded_and_a_file_without_them_is_refused(kind, tmp_path):
    buffer = kind(13, ACT, count_samples=True, seed=0)
    buffer.add(action=np.arange(40))
    for _ in range(9):
        buffer.sample(8)
    buffer.add(action=[40, 41])
    buffer.save(tmp_path / "counted")
    loaded = kind(13, ACT, count_samples=True)
    loaded.load(tmp_path / "counted")
    for scheme in 3 * schemes_of(kind):
        one, other = buffer.sample(8, scheme=scheme), loaded.sample(8, scheme=scheme)
        assert one["times_sampled"].tolist() == other["times_sampled"].tolist()
        assert one["times_sampled"].max() > 1
    kind(13, ACT).save(tmp_path / "plain")
    for wrong, options in (("plain", {"count_samples": True}), ("counted", {})):
        with pytest.raises(ValueError, match="count_samples"):
            kind(13, ACT, **options).load(tmp_path / wrong)


@each_kind
def test_negative_count_in_a_file_is_refused_and_changes_nothing(kind, tmp_path):
    buffer = kind(4, ACT, count_samples=True, seed=0)
    buffer.add(action=np.arange(4))
    buffer.sample(8)
    buffer.save(tmp_path / "file")
    with zipfile.ZipFile(tmp_path / "file") as container:
        members = {name: container.read(name) for name in container.namelist()}
    forged = io.BytesIO()
    np.lib.format.write_array(forged, np.array([0, -1, 0, 0]), version=(2, 0))
    (tmp_path / "file").write_bytes(packed(members | {"times_sampled.npy": forged.getvalue()}))
    loaded = kind(4, ACT, count_samples=True, seed=0)
    with pytest.raises(ValueError, match="a count in times_sampled"):
        loaded.load(tmp_path / "file")
    assert len(loaded) == 0


@pytest.mark.parametrize("kind", [PrioritizedReplayBuffer, MPPrioritizedReplayBuffer])
def test_rows_of_a_sample_that_is_refused_for_its_weights_are_not_counted(kind) -> None:
    buffer = kind(1000, ACT, eps=0.0, count_samples=True, seed=0)
    buffer.add(action=np.arange(1000), priorities=np.append(1e-60, np.ones(999)))
    for scheme in (None, Geometric(2), Proportional()):
        with pytest.raises(ValueError, match="largest weight"):
            buffer.sample(8, beta=1.0, normalize="buffer", scheme=scheme)
    batch = buffer.sample(8, scheme=Geometric(2))  # probably some of the same rows
    assert batch["times_sampled"].sum() == sum(n * n for n in Counter(batch["indexes"].tolist()).values())


@each_kind
def test_the_name_of_the_counts_is_reserved(kind):
    with pytest.raises(ValueError, match="'times_sampled' is reserved"):
        kind(4, {"times_sampled": {}}, count_samples=True)


@each_kind
def test_copy_has_its_own_counts_unless_it_is_of_a_shared_buffer(kind):
    buffer = kind(4, ACT, count_samples=True)
    buffer.add(action=0)
    buffer.sample(3)
    other = pickle.loads(pickle.dumps(buffer))
    assert other.sample(1)["times_sampled"].tolist() == [4]
    shared = kind in (MPReplayBuffer, MPPrioritizedReplayBuffer)
    assert buffer.sample(2)["times_sampled"].tolist() == 2 * [6 if shared else 5]
