"""Learning libraries get the same rows as we do, by their own calls; those that are missing are named."""

import importlib.util
import json
import warnings

import numpy as np
import pytest

from replay_tutorial.bench import command
from replay_tutorial.bench.method.timing import Spread
from replay_tutorial.bench.one_process import cases, inputs, pictures
from replay_tutorial.bench.one_process.cases import run as run_case
from replay_tutorial.bench.one_process.operations import Row
from replay_tutorial.bench.peers import lineup, ordinary

CAPACITY = 24
BATCH = inputs.values_of(inputs.SIZES, 8, np.float64)
ONE = {name: column[0] for name, column in BATCH.items()}
DEEP = inputs.nested(inputs.values_of(inputs.NESTED, None, np.float64))


def library_named(name):
    package = lineup.PEERS[name].package
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    with warnings.catch_warnings():  # others may warn of what they like, while the tests make errors of it
        warnings.simplefilter("ignore")
        importlib.import_module(package)
    return ordinary.LIBRARIES[name]


def made(name, example, environments=1, once=()):
    library = library_named(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        example = {key: ordinary.each(value, inputs.as_stored) for key, value in example.items()}
        return library(example, CAPACITY, environments, True, once)


def stored(made, field):
    """The column of a field as an array, or the columns of dicts, whichever library it is."""
    name = type(made).__name__
    if name == "TorchRL":
        column = made.buffer[:][field]
        return dict(column.items()) if hasattr(column, "keys") else column.numpy()
    names = {
        "Tianshou": {"next_obs": "obs_next"},
        "StableBaselines3": {
            "obs": "observations", "next_obs": "next_observations", "act": "actions", "rew": "rewards",
        },
    }[name]  # fmt: skip
    column = getattr(made.buffer, names.get(field, field))
    return dict(column.items()) if hasattr(column, "keys") else column


def has(column, row):
    """Whether a column holds a row, in float32."""
    rows = np.asarray(column).reshape(-1, np.size(row))
    return bool((rows == np.asarray(row, np.float32).ravel()).all(axis=1).any())


@pytest.mark.parametrize("name", ordinary.LIBRARIES)
def test_one_float64_transition_is_stored_in_float32(name):
    buffer = made(name, {key: np.zeros_like(value) for key, value in ONE.items()})
    assert not has(stored(buffer, "obs"), ONE["obs"])
    buffer.adding(ONE)()
    for field in ("obs", "act", "next_obs"):
        assert stored(buffer, field).dtype == np.float32
        assert has(stored(buffer, field), ONE[field])
    assert np.isclose(stored(buffer, "rew"), ONE["rew"]).any()


@pytest.mark.parametrize("name", ordinary.LIBRARIES)
@pytest.mark.parametrize("environments", [8, 1])
def test_eight_rows_of_environments_or_of_a_batch_are_all_stored(name, environments):
    zeros = {key: np.zeros_like(value) for key, value in BATCH.items()}
    example = zeros if environments == 8 else {key: value[0] for key, value in zeros.items()}
    buffer = made(name, example, environments)
    (buffer.adding if environments == 8 else buffer.extending)(BATCH)()
    for field in ("obs", "act", "next_obs"):
        assert all(has(stored(buffer, field), row) for row in BATCH[field])
    assert all(np.isclose(stored(buffer, "rew"), reward).any() for reward in BATCH["rew"])


@pytest.mark.parametrize("name", ordinary.LIBRARIES)
def test_nested_observations_are_stored_part_by_part(name):
    buffer = made(name, {key: ordinary.each(value, np.zeros_like) for key, value in DEEP.items()})
    buffer.adding(DEEP)()
    for field in ("obs", "next_obs"):
        assert set(stored(buffer, field)) == {"joints", "goal"}
        assert all(has(column, DEEP[field][part]) for part, column in stored(buffer, field).items())


@pytest.mark.parametrize("name", ordinary.LIBRARIES)
def test_lists_are_stored_where_a_library_takes_them(name):
    lists = {key: value.tolist() for key, value in ONE.items()}
    work = inputs.beside([lists])
    if not (library := library_named(name)).lists:
        assert work(library) is None
        return
    buffer = made(name, {key: np.zeros_like(value) for key, value in ONE.items()})
    buffer.adding(lists)()
    assert has(stored(buffer, "obs"), ONE["obs"])


@pytest.mark.parametrize("once", [(), ("next_of",), ("next_of", "stack_compress")])
@pytest.mark.parametrize("name", ordinary.LIBRARIES)
def test_pictures_stored_once_come_back_as_they_went_in(name, once, monkeypatch):
    monkeypatch.setattr(pictures, "CAPACITY", CAPACITY)
    library = library_named(name)
    assert (pictures.beside_adding(1, once=once)(library) is None) == (not set(once) <= set(library.once))
    if (buffer := pictures.beside(library, 1, once)) is None:
        assert pictures.beside_sampling(4, once)(library) is None
        return
    seen = pictures.stacks(pictures.CHANNEL_FIRST, CAPACITY + 8)
    for i in range(CAPACITY + 7):
        buffer.adding(pictures.step(seen, i, 1))()
    drawn = buffer.sampling(16)()
    batch = drawn[0] if name == "tianshou" else drawn
    first, following = {
        "Stable-Baselines3": ("observations", "next_observations"),
        "tianshou": ("obs", "obs_next"),
        "TorchRL": ("obs", "next_obs"),
    }[name]
    obs, after = (
        np.asarray(batch[field] if name == "TorchRL" else getattr(batch, field))
        for field in (first, following)
    )
    assert obs.shape == after.shape == (16, *pictures.CHANNEL_FIRST)
    assert obs.flags.c_contiguous and obs.dtype == np.uint8
    whole = 0
    for stack, next_stack in zip(obs, after, strict=True):
        (places,) = np.nonzero((seen == stack).all(axis=(1, 2, 3)))
        # tianshou repeats a frame at the seam of its ring, and its newest row follows itself.
        whole += bool(len(places)) and bool((next_stack == seen[places[0] + 1]).all())
    assert whole >= (8 if name == "tianshou" and once else 16)


def test_missing_library_is_left_out_by_name(monkeypatch):
    nobody = lineup.Entry((), "a_package_that_is_not_there", lineup.Library)
    monkeypatch.setitem(lineup.PEERS, "tianshou", nobody)
    found, skipped = ordinary.installed()
    assert "tianshou" not in found
    assert "a_package_that_is_not_there" in skipped["tianshou"]
    assert set(found) | set(skipped) == set(ordinary.LIBRARIES)


def test_table_is_empty_where_a_library_cannot_and_bold_where_we_are_slower():
    def row(operation, **ratios):
        spreads = {name: Spread(ratio, ratio, ratio) for name, ratio in ratios.items()}
        return Row(operation, {}, spreads)

    rows = [row("add", one=2.0, other=0.5, cpprb=3.0), row("sample", other=4.0)]
    assert cases.lines_beside(rows, ["one", "other"])[3:] == [
        "| add | 2.00 (2.00, 2.00) | **0.500 (0.500, 0.500)** |",
        "| sample |  | 4.00 (4.00, 4.00) |",
    ]
    assert cases.lines_beside(rows, []) == []


@pytest.mark.parametrize(("module", "capacity"), [(inputs, 10_000), (pictures, 300)])
def test_ordinary_inputs_and_pictures_are_measured_beside_other_libraries(
    module, capacity, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(module, "CAPACITY", capacity)
    monkeypatch.setattr(
        cases, "run", lambda case, rounds, libraries: run_case(case, rounds, libraries, slot_seconds=1e-9)
    )
    name = module.__name__.rpartition(".")[2]
    record, page = tmp_path / "record.json", tmp_path / "page.md"
    page.write_text(f"<!-- {name}:begin -->\n<!-- {name}:end -->\n")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        asked = ["--rounds", "1", "--json", str(record), "--markdown", str(page)]
        assert command.main([name, *asked]) == 0
    read, text = json.loads(record.read_text()), page.read_text()
    assert [row["operation"] for row in read["rows"]] == [case.operation for case in module.cases()]
    everybody = {"cpprb", *ordinary.LIBRARIES}
    missing = {side for side in everybody if importlib.util.find_spec(lineup.PEERS[side].package) is None}
    assert set(read["skipped"]) == missing
    printed = capsys.readouterr().out
    assert all(f"{side} (" in text and f"skipped {side}: " in printed for side in missing)
    measured = {side for row in read["rows"] for side in row["microseconds"]}
    assert measured == {"ours", "ceiling"} | everybody - missing
    for row in read["rows"]:
        assert {"ours", "ceiling"} | ({"cpprb"} - missing) <= set(row["microseconds"])
        assert set(row["ratios"]) == set(row["microseconds"]) - {"ours"}
        assert text.count(f"| {row['operation']} |") == (1 if missing >= set(ordinary.LIBRARIES) else 2)
