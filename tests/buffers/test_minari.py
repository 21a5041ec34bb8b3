"""Minari: episodes are the same after export and import, and only whole ones are exported.

The conversions are tested without Minari; one test writes and reads a dataset, if Minari is installed.
"""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from replay_tutorial import (
    EpisodeReplayBuffer,
    Mixture,
    MPPrioritizedReplayBuffer,
    MPReplayBuffer,
    NStep,
    PrioritizedReplayBuffer,
    ReplayBuffer,
    fields_from_spaces,
)
from replay_tutorial.buffers.episodes.minari import export_minari, import_minari, to_minari

spaces = pytest.importorskip("gymnasium", reason="declares the spaces").spaces
OBSERVATIONS = spaces.Dict(
    {
        "image": spaces.Box(0, 255, (3, 8, 2), np.uint8),
        "pair": spaces.Tuple([spaces.Discrete(1000), spaces.Box(-np.inf, np.inf, (2,), np.float32)]),
    }
)
ACTIONS = spaces.Box(-1, 1, (2,), np.float32)
FIELDS = {**fields_from_spaces(OBSERVATIONS, ACTIONS), "value": {"dtype": np.float64}}
OWN = ("episode", "environment", "start", "indexes")  # what an episode has of its own in each buffer


def filled(size: int = 200, environments: int = 2) -> EpisodeReplayBuffer:
    """Episodes of 1 to 5 steps: terminated, truncated, cut off, and running."""
    buffer, rng = EpisodeReplayBuffer(size, FIELDS, num_envs=environments), np.random.default_rng(0)
    for number in range(10):
        steps = number % 5 + 1
        last = np.arange(steps) == steps - 1
        image = rng.integers(0, 256, (steps + 1, 3, 8, 2), np.uint8)
        scalar, vector = rng.integers(0, 1000, steps + 1), rng.random((steps + 1, 2), np.float32)
        vector[0, 0] = np.nan
        buffer.add(
            number % environments,
            obs={"image": image[:-1], "pair": (scalar[:-1], vector[:-1])},
            next_obs={"image": image[1:], "pair": (scalar[1:], vector[1:])},
            action=rng.random((steps, 2), np.float32),
            reward=rng.random(steps, np.float32),
            terminated=last & (number % 3 == 0) & (number < 9),
            truncated=last & (number % 3 == 1),
            value=rng.random(steps),
        )
        if number % 3 == 2:
            buffer.end_episode(number % environments)
    return buffer


def contents(buffer: EpisodeReplayBuffer) -> list[dict[str, Any]]:
    """All whole finished episodes, in an order that doesn't depend on their environments."""
    table = buffer.episodes()
    found = [buffer.get_episode(n) for n in table["episode"][table["finished"] & table["whole"]]]
    lists = [{name: array.tolist() for name, array in each.items() if name not in OWN} for each in found]
    return sorted(lists, key=lambda episode: repr(episode["action"]))


def as_truncated(episodes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The episodes as they come back: one that was cut off is truncated."""
    for episode in episodes:
        episode["truncated"][-1] = not episode["terminated"][-1]
    return episodes


def test_episodes_come_back_exactly():
    buffer, loaded = filled(), EpisodeReplayBuffer(200, FIELDS, num_envs=2)
    loaded.add(1, **{name: np.zeros(spec.get("shape", ()), spec["dtype"]) for name, spec in FIELDS.items()})
    exported = [SimpleNamespace(**each) for each in to_minari(buffer, None)]
    assert import_minari(loaded, exported) == len(exported) == 9
    before, after = contents(buffer), contents(loaded)
    assert len(after) == 10
    after = [
        episode for episode in after if episode["action"] != [[0, 0]]
    ]  # without the one that was running
    assert repr(after) == repr(as_truncated(before))  # NaN is equal to NaN
    assert loaded.episodes()["environment"].tolist().count(1) == 5


def test_exported_episode_has_minaris_form():
    (episode,) = to_minari(filled(environments=1), 2)
    assert episode["observations"]["image"].shape == (4, 3, 8, 2)
    scalar, vector = episode["observations"]["pair"]
    assert scalar.shape == (4,) and vector.shape == (4, 2) and episode["actions"].shape == (3, 2)
    assert episode["terminations"].tolist() == [False] * 3
    assert episode["truncations"].tolist() == [False, False, True]  # it was cut off
    assert episode["rewards"].dtype == np.float32 and episode["infos"].keys() == {"value"}


def test_infos_with_an_entry_of_the_reset_belong_to_the_steps_after_it():
    fields = {"obs": {}, "next_obs": {}, "action": {}, "reward": {}, "done": {}, "value": {}}
    buffer = EpisodeReplayBuffer(20, fields)
    flags = np.array([False, True])
    episode = SimpleNamespace(
        observations=np.arange(3.0), actions=np.zeros(2), rewards=np.ones(2), terminations=flags,
        truncations=~flags, infos={"value": np.array([70.0, 71.0, 72.0])},
    )  # fmt: skip
    assert import_minari(buffer, [episode]) == 1
    stored = buffer.get_episode(0)
    assert stored["value"].tolist() == [71, 72] and stored["done"].tolist() == [0, 1]
    assert stored["obs"].tolist() == [0, 1, 2]
    episode.infos = {}
    with pytest.raises(KeyError, match=r"no 'value'; it has \['action', 'done', 'obs'"):
        import_minari(buffer, [episode])


def test_only_whole_episodes_are_exported():
    buffer = filled(size=17, environments=1)  # the oldest ones are overwritten, in part or altogether
    table = buffer.episodes()
    assert table["whole"].tolist()[0] is False and table["finished"].tolist()[-1] is False
    assert len(to_minari(buffer, None)) == len(table["whole"]) - 2
    for number in table["episode"][[0, -1]]:
        with pytest.raises(ValueError, match=f"Episode {number} is running or partly overwritten"):
            to_minari(buffer, number)
    with pytest.raises(IndexError, match="Episode 0 is no longer stored"):
        to_minari(buffer, [0])
    buffer.clear()
    with pytest.raises(ValueError, match="no whole finished episode"):
        to_minari(buffer, None)
    fields = {"obs": {}, "next_obs": {}, "reward": {}, "done": {}}
    buffer = EpisodeReplayBuffer(20, fields)
    buffer.add(obs=0, next_obs=1, reward=0, done=1)
    with pytest.raises(KeyError, match="no field 'action' or 'action/…'"):
        to_minari(buffer, None)


NEXTS = tuple(name for name in FIELDS if name.startswith("next_"))
N_STEP: dict[str, Any] = {"n_step": NStep(3, gamma=0.9, next_fields=NEXTS)}
TRANSITION_BUFFERS = [
    (ReplayBuffer, {}),
    (ReplayBuffer, N_STEP),
    (ReplayBuffer, {"dedupe_next": ["obs/image"], **N_STEP}),
    (PrioritizedReplayBuffer, {}),
    (PrioritizedReplayBuffer, N_STEP),
    (MPReplayBuffer, {}),
    (MPPrioritizedReplayBuffer, {}),
]


def add_step_by_step(buffer: Any, source: EpisodeReplayBuffer) -> None:
    """The oracle: every whole episode as its steps were added, and then its end."""
    table = source.episodes()
    for number in table["episode"][table["finished"] & table["whole"]]:
        episode = source.get_episode(number)
        for t in range(len(episode["action"])):
            step = {name: episode[name][t] for name in FIELDS if name in episode}
            step |= {name: episode[name.removeprefix("next_")][t + 1] for name in NEXTS}
            step["truncated"] = t + 1 == len(episode["action"]) and not step["terminated"]
            buffer.add(**step)
        buffer.end_episode()


@pytest.mark.parametrize(("kind", "options"), TRANSITION_BUFFERS)
def test_imported_episodes_are_the_transitions_of_their_steps(kind, options):
    shared = {f"next_{name}" for name in options.get("dedupe_next", [])}  # declared by dedupe_next itself
    fields = {name: spec for name, spec in FIELDS.items() if name not in shared}
    source, expected = filled(), kind(100, fields, **options)
    add_step_by_step(expected, source)
    imported = kind(100, fields, **options)
    episodes = [SimpleNamespace(**each) for each in to_minari(source, None)]
    assert import_minari(imported, episodes) == 9
    rows = imported[:]
    assert len(rows["action"]) == 25 and rows.keys() == expected[:].keys()
    for name, array in expected[:].items():
        np.testing.assert_array_equal(rows[name], array)


def test_running_episode_of_a_transition_buffer_is_ended_before_the_import():
    fields = {"obs": {}, "next_obs": {}, "reward": {}, "done": {}}
    window = NStep(3, gamma=0.5)
    buffer = ReplayBuffer(20, fields, n_step=window)
    buffer.add(obs=7, next_obs=8, reward=1, done=0)
    flags = np.array([False, True])
    episode = SimpleNamespace(
        observations=np.arange(3.0), actions=np.zeros(2), rewards=np.ones(2), terminations=flags,
        truncations=~flags, infos=None,
    )  # fmt: skip
    assert import_minari(buffer, [episode]) == 1
    rows = buffer[:]
    assert {name: rows[name].ravel().tolist() for name in rows} == {
        "obs": [7, 0, 1], "next_obs": [8, 2, 2], "reward": [1, 1.5, 1], "done": [0, 1, 1],
        "discount": [0.5, 0, 0],
    }  # fmt: skip


def test_observations_without_a_next_one_are_those_before_the_actions():
    buffer = ReplayBuffer(20, {"obs": {}, "reward": {}})
    episode = SimpleNamespace(
        observations=np.arange(3.0), actions=np.zeros(2), rewards=np.ones(2), terminations=np.zeros(2),
        truncations=np.ones(2), infos={},
    )  # fmt: skip
    import_minari(buffer, [episode])
    assert buffer[:]["obs"].ravel().tolist() == [0, 1]


def test_import_into_a_mixture_names_what_to_pass_instead():
    mixture = Mixture({"all": (ReplayBuffer(9, {"obs": {}}), 1.0)})
    with pytest.raises(TypeError, match="the offline buffer of a mixture"):
        import_minari(mixture, [])  # pyright: ignore[reportArgumentType]


@pytest.mark.filterwarnings("ignore::UserWarning")  # Minari recommends to name an author
def test_dataset_of_minari_gives_the_same_episodes(tmp_path, monkeypatch):
    minari = pytest.importorskip("minari", reason="the extra `minari`")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    buffer, loaded = filled(), EpisodeReplayBuffer(200, FIELDS, num_envs=2)
    made = export_minari(
        buffer, "test/whole-v0", observation_space=OBSERVATIONS, action_space=ACTIONS, description="test"
    )
    dataset = minari.load_dataset("test/whole-v0")
    assert made.total_episodes == dataset.total_episodes == 9 and dataset.total_steps == 25
    assert import_minari(loaded, dataset) == 9
    assert repr(contents(loaded)) == repr(as_truncated(contents(buffer)))
    one = export_minari(
        buffer, "test/one-v0", episodes=3, observation_space=OBSERVATIONS, action_space=ACTIONS
    )
    assert one.total_episodes == 1
    offline, expected = (PrioritizedReplayBuffer(100, FIELDS, **N_STEP, seed=0) for _ in range(2))
    assert import_minari(offline, dataset) == 9
    add_step_by_step(expected, buffer)
    for name, array in expected[:].items():
        np.testing.assert_array_equal(offline[:][name], array)
    online = ReplayBuffer(100, FIELDS, **N_STEP)
    batch = Mixture({"online": (online, 0.5), "offline": (offline, 0.5)}, seed=0).sample(64)
    stored = expected[:]["action"]
    np.testing.assert_array_equal(batch["action"], stored[batch["indexes"]])
