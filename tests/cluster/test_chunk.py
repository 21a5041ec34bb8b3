"""Chunks: what was packed is unpacked, each frame travels once, and what another run sent is refused."""

from dataclasses import replace

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("tyro", reason="the configuration needs the extra `train`")

from replay_tutorial.agents.environments import Spaces, spaces_of
from replay_tutorial.apex.config import preset
from replay_tutorial.apex.storage import n_step_windows, step_fields
from replay_tutorial.cluster.chunk import ChunkFormat


def images(*shape):
    return Box(0, 255, shape, np.uint8)


SPACES = {
    "flat": Spaces(Box(-np.inf, np.inf, (4,), np.float32), Discrete(2)),
    "float64, continuous": Spaces(Box(-1, 1, (6,), np.float64), Box(-1, 1, (3,), np.float32)),
    "numbers": Spaces(Box(0, 1, (5,), np.int64), Discrete(3)),
    "nested": spaces_of("small_environments:Nested-v0"),
    "stack": Spaces(images(4, 36, 40), Discrete(6), stacked=True),
    "stack, odd": Spaces(images(3, 37, 37), Discrete(6), stacked=True),
    "stack of two, continuous": Spaces(images(2, 36, 37), Box(-1, 1, (2,), np.float32), stacked=True),
    "colour": Spaces(images(3, 36, 36), Discrete(4)),
    "colour, odd": Spaces(images(3, 37, 39), Discrete(4)),
    "grey": Spaces(images(1, 41, 37), Discrete(4)),
}
IMAGES = [name for name, spaces in SPACES.items() if len(spaces.observation_shape) == 3]
FLAT = [name for name in SPACES if name not in IMAGES]


def config_of(environments=2):
    return replace(preset("CartPole-v1"), environments_per_actor=environments, n_step=3)


def format_of(spaces):
    return ChunkFormat(config_of(), spaces)


def played(spaces, environments=2, steps=12, seed=0, end_chance=0.2, contents=200):
    """The rows that an actor's windows make of some steps, and a priority each.

    Images are of one value; of `contents` values in all.
    """
    windows, rng, parts = n_step_windows(config_of(environments), spaces), np.random.default_rng(seed), []
    specs = step_fields(spaces)
    for environment in range(environments):
        stream = {name: [] for name in specs}
        seen = first_seen(spaces, rng, contents)
        for _ in range(steps):
            following, ends = next_seen(spaces, rng, contents, seen), rng.random() < end_chance
            how = ("terminated", "truncated")[rng.integers(2)]
            values = {
                "obs": seen,
                "next_obs": following,
                "reward": rng.normal(),
                "action": spaces.action.sample(),
            }
            for name, value in (values | {"terminated": False, "truncated": False, how: ends}).items():
                stream[name].append(value)
            seen = first_seen(spaces, rng, contents) if ends else following
        steps_of_it = {name: np.array(values, specs[name]["dtype"]) for name, values in stream.items()}
        parts.append(windows.add(environment, **steps_of_it))
    rows = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    return rows, rng.random(len(rows["reward"]), np.float32)


def first_seen(spaces, rng, contents):
    """An observation at the beginning of an episode; a stack repeats its first image."""
    space = spaces.observation
    if len(space.shape) == 1:
        return rng.random(space.shape).astype(space.dtype)
    return np.full(space.shape, rng.integers(contents), np.uint8)


def next_seen(spaces, rng, contents, seen):
    following = first_seen(spaces, rng, contents)
    return np.concatenate([seen[1:], following[-1:]]) if spaces.stacked else following


def assert_same(arrays, expected):
    assert arrays.keys() == expected.keys()
    for name, values in expected.items():
        assert arrays[name].dtype == values.dtype, name
        np.testing.assert_array_equal(arrays[name], values, name)


def assert_round_trip(spaces, rows, priorities):
    before = {name: values.copy() for name, values in rows.items()}
    chunk = format_of(spaces).pack(rows, priorities)
    for array in chunk:
        array.flags.writeable = False  # as all that comes out of Ray
    unpacked, arrived = format_of(spaces).unpack(chunk)
    assert_same(unpacked, before)
    assert_same(rows, before)  # packing has left them alone
    assert_same({"priorities": arrived}, {"priorities": priorities})
    return chunk


@pytest.mark.parametrize("kind", SPACES)
def test_read_only_and_scattered_rows_are_packed_and_unpacked(kind):
    rows, priorities = played(SPACES[kind])
    assert len(priorities) > 17
    rows = {name: values[::2] for name, values in rows.items()}
    for values in rows.values():
        values.flags.writeable = False
    assert_round_trip(SPACES[kind], rows, priorities[::2])


@settings(max_examples=60)
@given(
    kind=st.sampled_from(IMAGES),
    environments=st.integers(1, 3),
    steps=st.integers(4, 20),
    end_chance=st.sampled_from([0.0, 0.3, 1.0]),
    contents=st.sampled_from([1, 2, 5, 256]),
    seed=st.integers(0, 2**32 - 1),
)
def test_images_that_repeat_and_episodes_that_end_are_unpacked(
    kind, environments, steps, end_chance, contents, seed
):
    rows, priorities = played(SPACES[kind], environments, steps, seed, end_chance, contents)
    chunk = assert_round_trip(SPACES[kind], rows, priorities)
    distinct = {frame.tobytes() for frame in chunk.frames}
    assert len(distinct) == len(chunk.frames) <= contents  # each once


@settings(max_examples=40)
@given(kind=st.sampled_from(FLAT), bits=st.binary(min_size=300, max_size=300), count=st.integers(1, 5))
def test_every_bit_of_a_number_arrives(kind, bits, count):
    rows, priorities = played(SPACES[kind])
    rows = {name: values[:count].copy() for name, values in rows.items()}
    for name in ("obs", "next_obs", "reward"):
        flat = rows[name].reshape(-1).view(np.uint8)
        flat[:] = np.resize(np.frombuffer(bits, np.uint8), flat.shape)  # NaNs of all kinds, too
    unpacked, _ = format_of(SPACES[kind]).unpack(format_of(SPACES[kind]).pack(rows, priorities[:count]))
    assert all(unpacked[name].tobytes() == values.tobytes() for name, values in rows.items())


def test_rows_of_atari_take_a_seventh_of_what_their_stacks_would():
    spaces = Spaces(images(4, 84, 84), Discrete(18), stacked=True)
    stream = np.random.default_rng(0).integers(0, 255, (58, 84, 84), np.uint8)
    stacks = np.stack([stream[i : i + 4] for i in range(55)])
    fields = n_step_windows(config_of(), spaces).fields
    rows = {name: np.zeros((50, *spec["shape"]), spec["dtype"]) for name, spec in fields.items()}
    rows |= {"obs": stacks[:50], "next_obs": stacks[3:53]}
    chunk = assert_round_trip(spaces, rows, np.ones(50, np.float32))
    assert len(chunk.frames) == 50 + 3 + 3
    assert chunk.nbytes / 50 <= 8_500
    assert 7 * chunk.nbytes < sum(values.nbytes for values in rows.values())


def packed(kind="stack"):
    return format_of(SPACES[kind]).pack(*played(SPACES[kind]))


RECORDS = r"received records of .*; expected a vector of"
FRAMES = r"frames of .* are uint8\(1440,\)\. Actors and learner"


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [("flat", "float64, continuous"), ("flat", "stack"), ("stack", "flat"), ("stack", "colour")],
)
def test_rows_of_another_run_are_refused(ours, theirs):
    with pytest.raises(ValueError, match=RECORDS):
        format_of(SPACES[ours]).unpack(packed(theirs))


@pytest.mark.parametrize(
    ("part", "change", "reason"),
    [
        ("records", lambda records: records.reshape(-1, 1), RECORDS),
        ("records", lambda records: records[0], RECORDS),
        ("frames", lambda frames: frames[:, :-1], FRAMES),
        ("frames", lambda frames: np.pad(frames, ((0, 0), (0, 1))), FRAMES),
        ("frames", lambda frames: frames.astype(np.int8), FRAMES),
        ("frames", lambda frames: frames.reshape(len(frames), -1, 2), FRAMES),
        ("frames", lambda frames: frames.reshape(-1), FRAMES),
        ("frames", lambda _: np.empty((0, 0), np.uint8), FRAMES),
    ],
)
def test_arrays_of_another_shape_or_type_are_refused(part, change, reason):
    chunk = packed()
    with pytest.raises(ValueError, match=reason):
        format_of(SPACES["stack"]).unpack(chunk._replace(**{part: change(getattr(chunk, part))}))


@pytest.mark.parametrize("name", ["obs", "next_obs"])
@pytest.mark.parametrize("number", [-1, -(2**63), 2**63 - 1, "count"])
def test_frame_that_is_not_there_is_refused(name, number):
    chunk = packed()
    chunk.records[name][3, 1] = len(chunk.frames) if number == "count" else number
    with pytest.raises(ValueError, match=f"rows refer to frames .* has {len(chunk.frames)}"):
        format_of(SPACES["stack"]).unpack(chunk)
