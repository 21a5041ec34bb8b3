"""Observations stored once, by `dedupe_next`, `dedupe_frames` or both, beside a list of plain rows.

The histories hold what compression could go wrong at: episodes that end everywhere in a batch, or never;
frames that look alike; two environments whose steps interleave; observations that are not the ones
announced; batches longer than the buffer; copies, and files.
"""

import numpy as np
import pytest
from histories import EXAMPLE_FIELDS, History, atari_like, configured, example_transitions, repeatable
from hypothesis import given
from hypothesis import strategies as st
from oracles import PlainBuffer, assert_same_columns

from replay_tutorial import MPReplayBuffer, PrioritizedReplayBuffer, ReplayBuffer

MODES = ["dedupe_next", "dedupe_frames", "dedupe_next+dedupe_frames"]
ATARI = {
    "obs": {"shape": (4, 84, 84), "dtype": np.uint8},
    "action": {"dtype": np.int64},
    "reward": {},
    "terminated": {"dtype": bool},
}
PLAIN_ATARI = {**ATARI, "next_obs": ATARI["obs"]}


@pytest.mark.parametrize("n", [None, 1, 2, 3, 5])
@pytest.mark.parametrize("modes", MODES)
@repeatable(100)
@given(seed=st.integers(0, 2**32 - 1), operations=st.integers(1, 40))
def test_compressed_buffer_equals_a_plain_list_in_any_history(modes, n, seed, operations):
    History(seed, modes, n).run(operations)


@pytest.mark.parametrize("n", [None, 3])
@pytest.mark.parametrize("modes", MODES)
@repeatable(20)
@given(seed=st.integers(0, 2**32 - 1), size=st.integers(40, 120), disobedience=st.sampled_from([0.3, 1.0]))
def test_frames_memory_grows_without_losing_a_frame(modes, n, seed, size, disobedience):
    """Many frames that are met only once, in a large buffer: the room for one per row is not enough."""
    history = History(seed, modes, n, size=size, disobedience=disobedience)
    for _ in range(8):
        for _ in range(3):
            history.operate()
        history.add(int(history.rng.integers(1, 60)), single=False)
        history.compare_rows()


@pytest.mark.filterwarnings("ignore:The frames of .* are hardly shared")
@pytest.mark.parametrize("n", [None, 3])
@pytest.mark.parametrize("modes", MODES)
def test_buffers_of_a_thousand_equal_a_plain_list(modes, n):
    for seed in range(2):
        History(seed, modes, n, size=1000).run(350, compare_every=50)


@pytest.mark.parametrize("shape", [(3, 4, 5), (3, 5, 4)])
@pytest.mark.parametrize("dedupe_frames", ["obs", ["obs"], *({"obs": axis} for axis in range(-3, 3))])
def test_any_axis_may_be_the_stacks_told_or_found(shape, dedupe_frames):
    fields = {"obs": {"shape": shape, "dtype": np.int16}, "next_obs": {"shape": shape, "dtype": np.int16}}
    buffer = ReplayBuffer(8, fields, dedupe_next="obs", dedupe_frames=dedupe_frames)  # type: ignore[arg-type]
    oracle = PlainBuffer(8, fields)
    rng = np.random.default_rng(0)
    for count in (1, 3, 20):
        batch = {name: rng.integers(-300, 300, (count, *shape)).astype(np.int16) for name in fields}
        buffer.add(**batch)
        oracle.add(batch, count)
        assert_same_columns(buffer[:], oracle.all_transitions())


def frames_kept(shape: tuple[int, ...], axis: int) -> float:
    """Bytes per transition, of a stream that slides along `axis`, which `dedupe_frames` was not told."""
    buffer = ReplayBuffer(1000, {"obs": {"shape": shape, "dtype": np.uint8}}, dedupe_frames="obs")
    frames = np.random.default_rng(0).integers(0, 256, (1030, *np.delete(shape, axis))).astype(np.uint8)
    for i in range(1000):
        buffer.add(obs=np.stack(frames[i : i + shape[axis]], axis=axis))
    return buffer.bytes_per_transition / np.prod(shape)


def test_stack_axis_is_the_one_whose_length_can_be_that_of_a_stack():
    for shape, axis in {
        (4, 30, 30): 0,
        (30, 30, 4): 2,
        (4, 12, 12): 0,
        (4, 20, 20, 1): 0,
        (4, 3, 20, 20): 0,
        (20, 20, 3, 4): 3,
        (4, 200): 0,
    }.items():
        assert frames_kept(shape, axis) < 0.35, shape


@pytest.mark.parametrize("kind", [ReplayBuffer, MPReplayBuffer])
@pytest.mark.parametrize("shape", [(4, 64, 64, 3), (3, 64, 64, 4), (4, 3), (30, 30), (3, 3, 3)])
def test_two_axes_that_can_be_the_stack_are_refused_with_the_remedy(kind, shape):
    last, fields = len(shape) - 1, {"obs": {"shape": shape, "dtype": np.uint8}, "plain": {"shape": 4}}
    told = (
        rf"axis 0, of length {shape[0]}, or along axis {last}, of length {shape[-1]}.*"
        rf"dedupe_frames={{'obs': 0}} or dedupe_frames={{'obs': {last}}}"
    )
    with pytest.raises(ValueError, match=told):
        kind(8, fields, dedupe_next="obs", dedupe_frames="obs")
    with pytest.raises(ValueError, match=told):
        kind(8, fields, dedupe_frames=["plain", "obs"])
    for axis in (0, last):
        kind(8, fields, dedupe_next="obs", dedupe_frames={"obs": axis})


def colour_stacks(buffer, count, rng):
    """Add the stacks of four colour images that an environment shows, one after another."""
    frames = rng.integers(0, 256, (count + 4, 6, 6, 3)).astype(np.uint8)
    for i in range(count):
        buffer.add(obs=frames[i : i + 4], next_obs=frames[i + 1 : i + 5])


@pytest.mark.parametrize("kind", [ReplayBuffer, PrioritizedReplayBuffer, MPReplayBuffer])
def test_frames_that_are_hardly_shared_are_reported_once_with_the_bytes_of_a_row(kind):
    fields, rng = {"obs": {"shape": (4, 6, 6, 3), "dtype": np.uint8}}, np.random.default_rng(0)
    wrong = kind(5000, fields, dedupe_next="obs", dedupe_frames={"obs": -1})
    with pytest.warns(UserWarning) as caught:
        colour_stacks(wrong, 2001, rng)
    assert len(caught) == 1 and caught[0].filename == __file__
    assert "1,000 transitions added 3,003 frames" in (text := str(caught[0].message))
    assert "take 432 bytes per transition instead of about 144 (864 without" in text  # 3 frames of 4 · 6 · 6
    assert "it is axis 3 of the shape (4, 6, 6, 3)" in text
    right = kind(5000, fields, dedupe_next="obs", dedupe_frames={"obs": 0})
    colour_stacks(right, 2001, rng)  # a warning would be an error


def test_observations_that_no_row_has_in_common_are_reported():
    rng, fields = np.random.default_rng(0), {"obs": {"shape": (50,)}}
    buffer = ReplayBuffer(2000, fields, dedupe_next="obs")
    with pytest.warns(UserWarning, match="take 400 bytes per transition instead of about 200"):
        buffer.add(obs=rng.random((1500, 50)), next_obs=rng.random((1500, 50)))


def test_episodes_of_a_single_step_share_enough_to_be_silent():
    frames = np.random.default_rng(0).integers(0, 256, (2000, 2, 9)).astype(np.uint8)
    buffer = ReplayBuffer(2000, {"obs": {"shape": (4, 9)}}, dedupe_next="obs", dedupe_frames={"obs": 0})
    for first, second in frames:  # a reset repeats its image
        buffer.add(obs=[first] * 4, next_obs=[first, first, first, second])


def test_several_observations_are_each_stored_once():
    rng = np.random.default_rng(0)
    parts = {
        "image": {"shape": (2, 3), "dtype": np.uint8},
        "speed": {"shape": (3,), "dtype": np.float64},
        "goal": {"dtype": np.int64},
    }
    stored = {f"obs/{part}": spec for part, spec in parts.items()}
    fields = {**stored, **{f"next_{name}": spec for name, spec in stored.items()}}
    buffer = ReplayBuffer(5, stored, dedupe_next=list(stored), dedupe_frames={"obs/image": 0, "obs/speed": 0})
    oracle = PlainBuffer(5, fields)
    for count in (1, 1, 2, 4, 9):
        batch = {
            name: rng.integers(0, 2, (count, *spec.get("shape", ()))).astype(spec["dtype"])
            for name, spec in fields.items()
        }
        nested = {
            prefix: {part: batch[f"{prefix}/{part}"] for part in parts} for prefix in ("obs", "next_obs")
        }
        buffer.add(**nested)
        oracle.add(batch, count)
        assert_same_columns(buffer[:], oracle.all_transitions())


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.complex64])
def test_frames_are_compared_by_their_bits(dtype):
    """0.0 equals -0.0 and NaN equals nothing, but a buffer gives back what it was given."""
    odd = np.array([0.0, -0.0, np.nan, -np.nan, np.inf, 0.0, -0.0, -np.nan], dtype)
    fields = {"obs": {"dtype": dtype}, "next_obs": {"dtype": dtype}}
    buffer = ReplayBuffer(20, fields, dedupe_next="obs")
    buffer.add(obs=odd, next_obs=np.roll(odd, 3))
    buffer.add(obs=odd[::-1], next_obs=odd)
    oracle = PlainBuffer(20, fields)
    oracle.add({"obs": odd, "next_obs": np.roll(odd, 3)}, 8)
    oracle.add({"obs": odd[::-1], "next_obs": odd}, 8)
    assert_same_columns(buffer[:], oracle.all_transitions())


@pytest.mark.parametrize(
    "arguments",
    [
        *({"dedupe_next": name} for name in ("observation", ["obs", "observation"])),
        *({"dedupe_frames": name} for name in ("observation", "reward")),
        *({"dedupe_frames": axis} for axis in ({"observation": 0}, {"obs": 3}, {"obs": -4})),
    ],
)
def test_compression_of_what_is_not_there_is_refused(arguments):
    with pytest.raises((ValueError, KeyError)):
        ReplayBuffer(3, ATARI, **arguments)


@pytest.mark.parametrize("changed", [{"dtype": np.int16}, {"shape": (4, 84, 83)}])
def test_next_observation_that_differs_from_the_observation_is_refused(changed):
    with pytest.raises(ValueError, match="next_obs"):
        ReplayBuffer(3, {**ATARI, "next_obs": {**ATARI["obs"], **changed}}, dedupe_next="obs")


def test_a_million_atari_transitions_fit_in_7_3_gigabytes_where_the_plain_layout_takes_56_5():
    small = 2000
    plain = ReplayBuffer(small, PLAIN_ATARI)
    assert 56_448 <= plain.bytes_per_transition <= 56_500
    buffer = ReplayBuffer(small, ATARI, dedupe_next="obs", dedupe_frames="obs")
    atari_like(buffer, 1500, shape=(4, 84, 84), episode=250)
    expected = plain
    atari_like(expected, 1500, shape=(4, 84, 84), episode=250)
    picked = expected[:]
    assert_same_columns(buffer[:], picked)
    atari_like(buffer, 2500, shape=(4, 84, 84), episode=250, seed=1)
    assert len(buffer) == small
    # a fixed room of 256 frames, which is nothing in a buffer of a million, is much in one of 2,000
    fixed = 256 * 84 * 84 / small
    assert buffer.bytes_per_transition - fixed <= 7_300
    try:
        for kind in (ReplayBuffer, PrioritizedReplayBuffer):
            million = kind(1_000_000, ATARI, dedupe_next="obs", dedupe_frames="obs")
            assert million.nbytes <= 7.3e9
            assert million.bytes_per_transition == million.nbytes / 1_000_000
    except MemoryError:
        pytest.skip("this system does not promise 7.3 GB of memory that nobody has touched")


def test_frames_memory_does_not_grow_in_a_long_life_of_usual_episodes():
    fields = {**ATARI, "obs": {"shape": (4, 6, 6), "dtype": np.uint8}}
    buffer = ReplayBuffer(2000, fields, dedupe_next="obs", dedupe_frames="obs")
    empty = buffer.nbytes
    atari_like(buffer, 10_000, shape=(4, 6, 6), episode=1000)
    assert buffer.nbytes == empty


@pytest.mark.filterwarnings("ignore:The frames of .* are hardly shared")
@pytest.mark.parametrize("name", ["dedupe_next", "dedupe_frames", "both", "n-step, both"])
def test_memory_stays_bounded_when_no_frame_is_ever_met_again(name):
    """Wrong streams cost memory, but no more than the plain layout and some slack, forever."""
    buffer = configured(name, size=100)
    rng = np.random.default_rng(0)
    sizes = []
    for _ in range(60):
        batch = example_transitions(rng, 50)
        batch["obs"] = rng.integers(0, 256, batch["obs"].shape)
        batch["next_obs"] = rng.integers(0, 256, batch["next_obs"].shape)
        batch["terminated"][...] = True  # an n-step window refuses steps that go on elsewhere
        buffer.add(**batch)
        sizes.append(buffer.nbytes)
    assert sizes[-1] == sizes[30]
    plain = ReplayBuffer(100, EXAMPLE_FIELDS)
    numbers = 4 * 8 * 100  # four frame numbers per row
    assert sizes[-1] <= 5 * plain.nbytes + numbers
