"""The four buffers under cpprb's names: its keywords, defaults, methods and settings of n-step returns."""

import inspect
import multiprocessing
import pickle
import pydoc
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from oracles import assert_same_columns

import replay_tutorial
from replay_tutorial import cpprb
from replay_tutorial.buffers.base import CPPRB_KEYWORDS

NAMES = cpprb.__all__
EVERY = pytest.mark.parametrize("name", NAMES)
PRIVATE = pytest.mark.parametrize("name", [name for name in NAMES if not name.startswith("MP")])
SHARED = pytest.mark.parametrize("name", [name for name in NAMES if name.startswith("MP")])
PRIORITIZED = pytest.mark.parametrize("name", [name for name in NAMES if "Prioritized" in name])
FIELDS: dict[str, Any] = {
    "obs": {"shape": 2},
    "act": {"dtype": np.int64},
    "rew": {},
    "next_obs": {"shape": 2},
    "done": {},
}


def kind_of(name: str) -> Any:
    return getattr(cpprb, name)


def steps(count: int) -> dict[str, Any]:
    obs = np.repeat(np.arange(count + 1.0), 2).reshape(-1, 2)
    last = np.arange(count) == count - 1
    return {
        "obs": obs[:-1],
        "act": np.arange(count),
        "rew": np.ones(count),
        "next_obs": obs[1:],
        "done": last,
    }


@EVERY
def test_fields_have_the_shape_1_and_the_default_dtype_unless_declared(name):
    buffer = kind_of(name)(8, {"a": {}, "b": {"shape": 3}, "c": {"dtype": np.int8}, "d": {"shape": ()}})
    buffer.add(a=[1, 2], b=np.ones((2, 3)), c=[3, 4], d=[5, 6])
    batch = buffer.sample(6)
    assert {field: (batch[field].shape, batch[field].dtype.name) for field in "abcd"} == {
        "a": ((6, 1), "float32"),
        "b": ((6, 3), "float32"),
        "c": ((6, 1), "int8"),
        "d": ((6,), "float32"),
    }
    wide = kind_of(name)(8, {"a": {}, "c": {"dtype": np.int8}}, default_dtype=np.float64)
    assert [dtype.name for dtype, _ in wide.field_specs.values()] == ["float64", "int8"]


@EVERY
def test_the_env_dict_is_not_changed_and_named_in_errors(name):
    fields = {"a": {}, "b": {"shape": 2}}
    kind_of(name)(size=8, env_dict=fields)
    assert fields == {"a": {}, "b": {"shape": 2}}
    for wrong in (3, None, {"a": 3}, {"a": {"shap": 3}}):
        with pytest.raises((TypeError, ValueError)):
            kind_of(name)(8, wrong)


@EVERY
def test_methods_of_cpprb_return_what_the_native_ones_do(name):
    buffer = kind_of(name)(8, FIELDS, seed=0)
    buffer.add(**steps(5))
    buffer.add(**steps(6))
    sizes = (buffer.get_stored_size(), buffer.get_buffer_size(), buffer.get_next_index())
    assert sizes == (len(buffer), buffer.capacity, buffer.next_index) == (8, 8, 11)
    assert all(type(size) is int for size in sizes)
    assert buffer.get_current_episode_len() == 11
    buffer.on_episode_end()
    assert buffer.get_current_episode_len() == 0 and buffer.is_Nstep() is False
    rows = buffer.get_all_transitions()
    assert_same_columns(rows, buffer[:])
    assert rows["act"].tolist() == [[3], [4], [0], [1], [2], [3], [4], [5]]
    shuffled = buffer.get_all_transitions(shuffle=True)
    assert shuffled.keys() == rows.keys()
    assert sorted(shuffled["act"].ravel()) == sorted(rows["act"].ravel())
    assert shuffled["act"].tolist() != buffer.get_all_transitions(shuffle=True)["act"].tolist()
    buffer.clear()
    assert (buffer.get_stored_size(), buffer.get_next_index()) == (0, 11)
    assert buffer.get_all_transitions(shuffle=True)["obs"].shape == (0, 2)


@PRIVATE
@pytest.mark.parametrize("nstep", [None, {"size": 3, "rew": "rew", "next": "next_obs"}])
def test_the_length_of_an_episode_counts_waiting_steps_and_is_saved(name, nstep, tmp_path):
    buffer, loaded = (kind_of(name)(8, FIELDS, Nstep=nstep) for _ in range(2))
    buffer.add(**steps(3))
    buffer.on_episode_end()
    buffer.add(**{**steps(2), "done": np.zeros(2)})
    buffer.save(tmp_path / "saved")
    loaded.load(tmp_path / "saved")
    copied = pickle.loads(pickle.dumps(buffer))
    assert [each.get_current_episode_len() for each in (buffer, loaded, copied)] == [2, 2, 2]
    buffer.clear()
    assert buffer.get_current_episode_len() == 0
    buffer.add(**{field: column[0] for field, column in steps(1).items()})
    assert buffer.get_current_episode_len() == 1


@PRIORITIZED
def test_the_largest_priority_has_a_method(name):
    buffer = kind_of(name)(8, FIELDS, alpha=0.5, eps=0.01)
    assert buffer.get_max_priority() == 1.0
    buffer.add(**steps(5), priorities=np.arange(5.0))
    assert buffer.get_max_priority() == buffer.max_priority == 4.0
    batch = buffer.sample(3, beta=0.4)
    buffer.update_priorities(batch["indexes"], np.full(3, 9.0))
    assert buffer.get_max_priority() == 9.0


@EVERY
@pytest.mark.parametrize("options", [{"next_of": "obs"}, {"next_of": "obs", "stack_compress": {"obs": 0}}])
def test_observations_are_stored_once_under_cpprbs_keywords(name, options):
    native = {"next_of": "dedupe_next", "stack_compress": "dedupe_frames"}
    fields = {field: spec for field, spec in FIELDS.items() if field != "next_obs"}
    scalars = {field: {"shape": 1, **spec} for field, spec in fields.items()}
    theirs = kind_of(name)(8, fields, seed=3, **options)
    renamed = {native[option]: value for option, value in options.items()}
    ours = getattr(replay_tutorial, name)(8, scalars, seed=3, **renamed)
    for buffer in (theirs, ours):
        buffer.add(**steps(8))
    assert_same_columns(theirs.sample(9), ours.sample(9))
    assert theirs.nbytes == ours.nbytes


@EVERY
def test_keywords_without_a_meaning_here_are_ignored(name):
    for backend in ("sharedctypes", "SharedMemory"):
        context = multiprocessing.get_context("spawn")
        unused = {"ctx": context, "backend": backend, "check_for_update": True, "mmap_prefix": None}
        buffer = kind_of(name)(2, FIELDS, Nstep=None, next_of=None, stack_compress=None, **unused)
        assert buffer.add(**steps(1)) == 0
    assert not kind_of(name)(2, FIELDS, Nstep=False).is_Nstep()


@EVERY
def test_other_keywords_are_refused(name, tmp_path):
    with pytest.raises(ValueError, match=r"mmap_prefix is not supported.*MPReplayBuffer.*path="):
        kind_of(name)(2, FIELDS, mmap_prefix=str(tmp_path / "rows"))
    assert list(tmp_path.iterdir()) == []
    for keyword in ("nstep", "compress", "fields"):
        with pytest.raises(TypeError, match=keyword):
            kind_of(name)(2, FIELDS, **{keyword: 0.6})
    for size, error in ((0, ValueError), ("8", TypeError)):
        with pytest.raises(error, match="capacity must be an integer"):
            kind_of(name)(size, FIELDS)


@PRIVATE
@pytest.mark.parametrize(
    ("settings", "native"),
    [
        ({"size": 3}, {"n": 3, "reward": "rew"}),
        (
            {"size": 3, "rew": "rew", "gamma": 0.5, "next": "next_obs"},
            {"n": 3, "gamma": 0.5, "reward": "rew"},
        ),
        (
            {"size": 2, "rew": ["rew", "obs"], "next": ()},
            {"n": 2, "reward": ["rew", "obs"], "next_fields": ()},
        ),
        ({"size": 2, "rew": ()}, {"n": 2, "reward": ()}),
        ({"size": 2, "rew": None, "next": None}, {"n": 2, "reward": "rew"}),
    ],
)
def test_n_step_dicts_mean_the_native_settings(name, settings, native):
    fields = {field: {"shape": 1, **spec} for field, spec in FIELDS.items()}
    theirs = kind_of(name)(20, FIELDS, Nstep=settings, seed=1)
    ours = getattr(replay_tutorial, name)(20, fields, n_step=replay_tutorial.NStep(**native), seed=1)
    assert theirs.is_Nstep()
    rows = steps(9) if "obs" not in str(settings.get("rew")) else {**steps(9), "obs": np.zeros((9, 2))}
    rows["next_obs"] = np.vstack([rows["obs"][1:], rows["next_obs"][-1:]])
    for buffer in (theirs, ours):
        buffer.add(**rows)
    assert len(theirs) == 9
    assert theirs[:]["discount"].shape[0] == 9
    assert_same_columns(theirs[:], ours[:])


@PRIVATE
@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        (3, TypeError, r'Nstep must be a dict such as \{"size": 3, .*, not 3'),
        (True, TypeError, "Nstep must be a dict .*, not True"),
        ({"gamma": 0.9}, ValueError, "Nstep requires 'size'"),
        ({}, ValueError, "Nstep requires 'size'"),
        ({"size": 3, "reward": "rew", "n": 1}, ValueError, r"unknown keys \['n', 'reward'\]"),
        ({"size": 0}, ValueError, "n_step must be at least 1, not 0"),
        ({"size": 2.5}, TypeError, r"n_step must be an integer, not 2\.5"),
        ({"size": 3, "gamma": 1.5}, ValueError, r"gamma must be in \[0, 1\], not 1\.5"),
        ({"size": 3, "rew": "reward"}, ValueError, "there is no field 'reward'"),
        ({"size": 3, "next": "next_observation"}, ValueError, "there is no field 'next_observation'"),
    ],
)
def test_errors_of_n_step_dicts_name_the_remedy(name, settings, error, message):
    with pytest.raises(error, match=message):
        kind_of(name)(20, FIELDS, Nstep=settings)


@SHARED
def test_shared_buffers_refuse_n_step_returns_and_name_the_window_of_an_actor(name):
    for kind in (kind_of(name), getattr(replay_tutorial, name)):
        with pytest.raises(
            TypeError, match=f"^{name} has no argument 'Nstep'.*in each actor with NStepWindow"
        ):
            kind(20, FIELDS, Nstep={"size": 3})


@EVERY
@pytest.mark.parametrize("options", [{}, {"next_of": "obs"}])
def test_files_are_loaded_by_the_native_class_and_from_it(name, options, tmp_path):
    fields = {
        field: {"shape": 1, **spec} for field, spec in FIELDS.items() if field != "next_obs" or not options
    }
    native = {"dedupe_next": options["next_of"]} if options else {}

    def make() -> list[Any]:
        of_cpprb = {field: FIELDS[field] for field in fields}
        return [
            kind_of(name)(8, of_cpprb, seed=1, **options),
            getattr(replay_tutorial, name)(8, fields, seed=2, **native),
        ]

    for saved, loaded in (make(), make()[::-1]):
        saved.add(**steps(5))
        saved.sample(3)
        saved.save(tmp_path / "rows")
        loaded.load(tmp_path / "rows")
        assert_same_columns(loaded[:], saved[:])
        assert_same_columns(loaded.sample(9), saved.sample(9))


@PRIVATE
def test_files_with_n_step_rows_are_interchangeable(name, tmp_path):
    fields = {field: {"shape": 1, **spec} for field, spec in FIELDS.items()}
    theirs = kind_of(name)(8, FIELDS, Nstep={"size": 3, "rew": "rew", "next": "next_obs"})
    settings = replay_tutorial.NStep(3, reward="rew", next_fields="next_obs")
    ours = getattr(replay_tutorial, name)(8, fields, n_step=settings)
    theirs.add(**{field: column[:4] for field, column in steps(5).items()})
    theirs.save(tmp_path / "rows")
    ours.load(tmp_path / "rows")
    for buffer in (theirs, ours):
        buffer.add(**{field: column[4:] for field, column in steps(5).items()})
    assert len(ours) == 5
    assert_same_columns(ours[:], theirs[:])


@EVERY
def test_a_buffer_can_be_pickled(name):
    buffer = kind_of(name)(8, FIELDS, seed=0)
    buffer.add(**steps(5))
    twin = pickle.loads(pickle.dumps(buffer))
    assert type(twin) is kind_of(name) and twin.get_stored_size() == 5
    assert_same_columns(twin.get_all_transitions(), buffer.get_all_transitions())
    twin.add(**steps(1))
    assert buffer.get_stored_size() == (6 if name.startswith("MP") else 5)


ATTACHED = """
import sys
import numpy as np
from replay_tutorial.cpprb import {name}

with {name}.attach(sys.argv[1]) as buffer:
    rows = buffer.get_all_transitions()
    assert rows["act"].tolist() == [[0], [1], [2]], rows
    buffer.add(**{{name: column[:1] for name, column in rows.items()}})
    print(buffer.get_stored_size(), buffer.get_next_index())
"""


@SHARED
@pytest.mark.parametrize("attached", ["file", "memory"])
def test_another_process_attaches_itself(name, attached, tmp_path):
    if attached == "memory" and sys.platform != "linux":
        pytest.skip("only files can be attached here")
    path = tmp_path / "rows" if attached == "file" else None
    with kind_of(name)(8, FIELDS, path=path) as buffer:
        buffer.add(**steps(3))
        address = str(path or buffer.address)
        command = [sys.executable, "-c", ATTACHED.format(name=name), address]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        assert (done.stdout, done.stderr) == ("4 4\n", "")
        assert buffer.get_stored_size() == 4


@EVERY
def test_help_shows_the_arguments_and_methods_of_cpprb(name):
    kind = kind_of(name)
    assert list(inspect.signature(kind).parameters) == ["size", "env_dict", "keywords"]
    text = pydoc.plain(pydoc.render_doc(kind))
    described = {"next_of", "stack_compress", "default_dtype", "Nstep", "backend", "check_for_update", "ctx"}
    assert all(f"`{keyword}`" in text for keyword in described)
    methods = ["stored_size", "buffer_size", "next_index", "current_episode_len", "all_transitions"]
    methods += ["max_priority"] * ("Prioritized" in name)
    for method in [f"get_{method}" for method in methods] + ["is_Nstep", "on_episode_end"]:
        assert inspect.getdoc(getattr(kind, method)) and f" {method}(self" in text


@EVERY
@pytest.mark.parametrize("keyword", CPPRB_KEYWORDS)
def test_native_classes_refuse_each_keyword_of_cpprb_with_the_remedy(name, keyword):
    remedy = CPPRB_KEYWORDS[keyword]
    message = rf"^{name} has no argument '{keyword}'; {remedy}\. .*replay_tutorial\.cpprb"
    if keyword == "Nstep" and name.startswith("MP"):
        message = "NStepWindow"
    for arguments in ({"capacity": 8, "fields": FIELDS}, {}):
        with pytest.raises(TypeError, match=message):
            getattr(replay_tutorial, name)(**arguments, **{keyword: {"size": 3}})


@EVERY
def test_native_classes_have_none_of_the_methods_of_cpprb(name):
    ours, theirs = getattr(replay_tutorial, name), kind_of(name)
    added = {method for method in set(dir(theirs)) - set(dir(ours)) if not method.startswith("_")}
    sizes = {"get_stored_size", "get_buffer_size", "get_next_index", "get_current_episode_len"}
    others = {"get_all_transitions", "is_Nstep", "on_episode_end"}
    assert added == sizes | others | ({"get_max_priority"} if "Prioritized" in name else set())


def test_buffers_of_episodes_refuse_the_keywords_of_cpprb_too():
    for name in ("EpisodeReplayBuffer", "SequenceReplayBuffer", "HindsightReplayBuffer"):
        with pytest.raises(
            TypeError, match=f"{name} has no argument 'Nstep'; use n_step=3, gamma=0.99 instead"
        ):
            getattr(replay_tutorial, name)(9, FIELDS, Nstep={"size": 3})
