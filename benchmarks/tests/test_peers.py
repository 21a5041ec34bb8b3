"""Every peer stores what it is given by its users' own calls, and says what it can't do."""

import os
import warnings
from functools import partial

import numpy as np
import pytest

from benchmarks import cases
from benchmarks.measuring import fresh
from benchmarks.peers import episodes, libraries, lineup
from benchmarks.peers.buffer import CEILING, FIELDS, CpprbLike, Kind, has_default_fields, random_rows
from replay_course.timing import SelfTimed, seconds_for

ROWS = 64
IN_PYTHON = [name for name in lineup.PEERS if name not in libraries.REVERB_WAYS]
LEARNING = ["Stable-Baselines3", "tianshou", "TorchRL"]
LIKE_OURS = ["ours", "cpprb", *LEARNING]


def peer_of(name):
    with warnings.catch_warnings():  # others may warn of what they like, while the tests make errors of it
        warnings.simplefilter("ignore")
        for distribution in lineup.PEERS[name].distributions[:1]:
            pytest.importorskip(distribution.replace("-", "_"))
    return lineup.Peer(name)


@pytest.fixture(autouse=True)
def quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.mark.parametrize("prioritized", [False, True])
@pytest.mark.parametrize("name", IN_PYTHON)
def test_peer_is_full_and_does_what_it_says_it_can(name, prioritized):
    peer = peer_of(name)
    buffer = peer.full_of_rows(Kind(ROWS, prioritized=prioritized))
    if prioritized not in lineup.PEERS[name].prioritized or peer.skipped:
        assert buffer is None
        return
    rng = np.random.default_rng(0)
    for work in (
        buffer.adding(random_rows(rng, None)),
        buffer.extending(random_rows(rng, 11)),
        buffer.sampling(8),
    ):
        work()
    if prioritized:
        buffer.updating(8)()
        add = cases.adding(Kind(ROWS, prioritized=True), 11, np.ones(11, np.float32))(peer)
        assert (add is None) == (name in ("tianshou", "TorchRL", "flashbax"))
        if add is not None:
            add()
    assert peer.full_of_rows(Kind(ROWS, prioritized=prioritized)) is buffer, "made once"
    if name in ("ours", "cpprb"):
        assert len(stored(name, buffer, "rew")) == ROWS


BY_KEY = ("ours", "cpprb", "TorchRL")  # the others have fields as attributes, some with names of their own
SB3 = {"obs": "observations", "next_obs": "next_observations", "act": "actions", "rew": "rewards"}
NAMES = {"Stable-Baselines3": SB3, "tianshou": {"next_obs": "obs_next"}}


def field_of(name, batch, field):
    """The field of a library's batch."""
    return batch[field] if name in BY_KEY else getattr(batch, NAMES[name].get(field, field))


def stored(name, buffer, field):
    """The column of a field as an array, or the columns of dicts, whichever library it is."""
    if name in ("ours", "cpprb"):
        rows = buffer.buffer[:] if name == "ours" else buffer.buffer.get_all_transitions()
        parts = {key.partition("/")[2]: rows[key] for key in rows if key.startswith(f"{field}/")}
        return rows.get(field, parts)
    column = field_of(name, buffer.buffer[:] if name == "TorchRL" else buffer.buffer, field)
    return dict(column.items()) if hasattr(column, "keys") else np.asarray(column)


def has(column, row):
    """Whether a column holds a row, in float32."""
    rows = np.asarray(column).reshape(-1, np.size(row))
    return bool((rows == np.asarray(row, np.float32).ravel()).all(axis=1).any())


def made(name, *, nested=False, environments=1):
    example, zeros = cases.values_of(None, np.float32), cases.values_of(24, np.float32)
    zeros = {key: np.zeros_like(value) for key, value in zeros.items()}
    if nested:
        example, zeros = cases.nested(example), cases.nested(zeros)
    return peer_of(name).full(example, Kind(24, environments=environments), [zeros])


@pytest.mark.parametrize("name", LIKE_OURS)
@pytest.mark.parametrize("given", ["one", "lists", "nested", "environments", "batch"])
def test_what_programs_have_is_stored_in_float32(name, given):
    rows = cases.values_of(8 if given in ("environments", "batch") else None, np.float64)
    buffer = made(name, nested=given == "nested", environments=8 if given == "environments" else 1)
    if given == "nested":
        rows = cases.nested(rows)
    if given == "lists":
        work = buffer.adding({key: value.tolist() for key, value in rows.items()})
        if name == "Stable-Baselines3":
            assert work is None, "it takes no lists"
            return
    else:
        work = (buffer.extending if given == "batch" else buffer.adding)(rows)
    work()
    for field in ("obs", "act", "next_obs"):
        columns, values = stored(name, buffer, field), rows[field]
        if not isinstance(values, dict):
            columns, values = {"": columns}, {"": values}
        assert set(columns) == set(values)
        for part, column in columns.items():
            assert np.asarray(column).dtype == np.float32
            assert all(has(column, row) for row in np.atleast_2d(values[part]))
    assert all(np.isclose(stored(name, buffer, "rew"), reward).any() for reward in np.ravel(rows["rew"]))


@pytest.mark.parametrize("once", [(), ("dedupe_next",), ("dedupe_next", "dedupe_frames")])
@pytest.mark.parametrize("name", LIKE_OURS)
def test_pictures_stored_once_come_back_as_they_went_in(name, once):
    peer, kind = peer_of(name), Kind(24, once=once)
    buffer, _ = cases.full_of_pictures(peer, kind, cases.CHANNEL_LAST)
    assert (buffer is None) == (not set(once) <= set(lineup.PEERS[name].once))
    if buffer is None:
        return
    shape = cases.CHANNEL_LAST if name in ("ours", "cpprb") else cases.CHANNEL_FIRST
    seen = cases.stacks(shape, 32)
    for i in range(31):
        buffer.adding(cases.steps_of(seen, i, 1))()
    drawn = buffer.sampling(16)()
    batch = drawn[0] if name == "tianshou" else drawn
    obs, after = (np.asarray(field_of(name, batch, field)) for field in ("obs", "next_obs"))
    assert obs.shape == after.shape == (16, *shape) and obs.dtype == np.uint8
    whole = 0
    for stack, next_stack in zip(obs, after, strict=True):
        (places,) = np.nonzero((seen == stack).all(axis=(1, 2, 3)))
        # tianshou repeats a frame at the seam of its ring, and its newest row follows itself.
        whole += bool(len(places)) and bool((next_stack == seen[places[0] + 1]).all())
    assert whole >= (8 if name == "tianshou" and once else 16)


FAULTS = {("flashbax", "windows"), ("TorchRL", "goals")}  # windows across episodes; goals before the action


@pytest.mark.parametrize(("name", "variant"), episodes.COLUMNS)
def test_sampled_windows_and_goals_are_real_but_for_known_faults(name, variant):
    peer, goals = peer_of(name), variant == episodes.GOALS
    kind = Kind(1037, variant=variant)  # not a multiple of the episodes' length, so that their end is lost
    sample = cases.on_episodes(kind, goals, 256)(peer)
    assert bool(peer.fault) == ((name, variant) in FAULTS), peer.fault
    act, rew, obs, *rest = map(np.array, episodes.COLUMNS[name, variant](sample()))
    if goals:
        assert 0.7 < (rest[0][:, 1] != episodes.NOT_ACHIEVED).mean() < 0.9
    for column in (act, obs, rew[..., np.newaxis], *rest):
        column[..., -1] += 1
        assert episodes.share_of_broken(act, rew, obs, *rest) > 0.9, "a wrong number in each is found"
        column[..., -1] -= 1
    cases.on_episodes(kind, goals, 8, steps=2)(peer)()


def test_flashbax_draws_by_another_key_each_time():
    sample = peer_of("flashbax").full_of_rows(Kind(ROWS, prioritized=True)).sampling(8)
    assert sample().indices.tolist() != sample().indices.tolist()


@pytest.mark.parametrize("name", ["deque", "Python sum tree", "flashbax"])
def test_peer_of_rows_is_left_out_of_cases_with_others(name, capsys):
    peer, sets = peer_of(name), {"inputs": 64, "pictures": 264, "hindsight": 300}
    measured = set()
    for chosen, capacity in sets.items():
        for operation, prepare in getattr(cases, chosen)(capacity).items():
            if work := prepare(peer):
                work()
                measured.add(operation)
    assert measured == {
        *("add 1, float32", "add 1, float64", "add 1, lists", "8 rows one by one, float64"),
        *("add 64, float32", "add 64, float64"),
    }
    assert capsys.readouterr().out.count(f"skipped {name}: ") == 1


def test_deque_holds_the_rows_and_drops_the_oldest():
    buffer = lineup.Peer("deque").full_of_rows(Kind(ROWS))
    rows = random_rows(np.random.default_rng(3), 11)
    add = buffer.extending(rows)
    add()
    assert len(buffer.buffer) == ROWS
    before = list(buffer.buffer)  # so that none is freed, and its place taken by another
    add()
    assert set(map(id, before)).isdisjoint(map(id, list(buffer.buffer)[-11:])), "a tuple is made for each row"
    assert np.array_equal(buffer.buffer[-1][0], rows["obs"][10])
    assert [field.shape for field in buffer.sampling(5)()] == [(5, shape) for shape in FIELDS.values()]


@pytest.mark.parametrize("capacity", [2, 7, 64])
def test_python_sum_tree_keeps_its_sums_and_finds_each_leaf(capacity):
    memory = lineup.Peer("Python sum tree").full_of_rows(Kind(capacity, prioritized=True, alpha=1.0))
    memory.extending(random_rows(np.random.default_rng(0), 3))()
    assert memory.tree[0] == pytest.approx(memory.tree[capacity - 1 :].sum())
    assert memory.write == 3 % capacity
    found = {memory.find(0, query) for query in np.linspace(1e-9, memory.tree[0] - 1e-9, 20_000)}
    assert found == set(range(capacity - 1, 2 * capacity - 1))


def test_ceiling_moves_the_same_bytes_and_not_those_of_one_page(monkeypatch):
    monkeypatch.setattr(lineup, "CHUNK", 300)
    ceiling = lineup.Peer(CEILING).full_of_rows(Kind(1000))
    assert ceiling.buffer["rew"].all(), "records that nobody wrote to would lie in the cache"
    assert ceiling.buffer.itemsize == 140
    assert ceiling.sampling(512)().nbytes == 512 * 140
    rows = random_rows(np.random.default_rng(0), 101)
    ceiling.extending(rows)()
    assert np.array_equal(ceiling.buffer["next_obs"][:101], rows["next_obs"])
    steps = [random_rows(np.random.default_rng(seed), None) for seed in (5, 6)]
    for step, add in zip(steps, [ceiling.adding(step) for step in steps], strict=True):
        add()
        assert step["obs"] in ceiling.buffer["obs"]
    assert steps[0]["obs"] in ceiling.buffer["obs"], "each workload writes to the next slot, as buffers do"


def test_missing_library_is_skipped_by_name(monkeypatch):
    nobody = lineup.Entry(partial(CpprbLike, package="a_package_that_is_not_there"), ("another",))
    monkeypatch.setitem(lineup.PEERS, "nobody", nobody)
    gathered = lineup.Lineup(["cpprb", "nobody"])
    full = [peer.full_of_rows(Kind(ROWS)) for peer in gathered.peers if peer.name != "cpprb"]
    assert [buffer is not None for buffer in full] == [True, False, True]
    assert "a_package_that_is_not_there" in gathered.skipped["nobody"]
    assert gathered.distributions == []


# ------------------------------------------------------------------------------------------------ Reverb


def test_reverb_is_skipped_by_name_where_it_is_not(monkeypatch, tmp_path):
    monkeypatch.setattr(fresh, "ENVIRONMENTS", tmp_path)
    gathered = lineup.Lineup(list(libraries.REVERB_WAYS))
    for peer in gathered.peers:
        peer.full_of_rows(Kind(ROWS))
    assert set(gathered.skipped) == set(libraries.REVERB_WAYS)
    assert all("make lab TARGET=peers" in reason for reason in gathered.skipped.values())
    peer = lineup.Peer("Reverb client")
    assert peer.full_of_rows(Kind(2**20)) is None
    assert "above 65,536 rows its server takes minutes to fill and 6 KB per row, here 6 GB" in peer.skipped


def test_peers_of_rows_are_not_asked_for_others():
    rows = random_rows(np.random.default_rng(0), 3)
    one = {name: values[0] for name, values in rows.items()}
    assert has_default_fields(rows) and has_default_fields(one)
    assert not has_default_fields({**rows, "rew": rows["rew"].reshape(3)})
    pictures = {**one, "obs": np.zeros((84, 84, 4), np.uint8)}
    assert not has_default_fields(pictures)
    for name in ("Reverb client", "deque"):
        peer = lineup.Peer(name)
        assert peer.full(pictures, Kind(ROWS), []) is None, "Reverb would sample its own rows"
        assert "only rows of float32 vectors" in peer.skipped


@pytest.mark.parametrize("name", libraries.REVERB_WAYS)
def test_reverb_adds_and_samples_in_its_own_python(name):
    if fresh.python_of("reverb") is None:
        pytest.skip("there is no benchmarks/.venv/reverb")
    peer = lineup.Peer(name)
    try:
        for prioritized in (False, True):
            buffer = peer.full_of_rows(Kind(ROWS, prioritized=prioritized))
            assert seconds_for(buffer.extending(random_rows(np.random.default_rng(0), 3)), 2) > 0
            assert seconds_for(buffer.sampling(4), 2) > 0
    finally:
        buffers = list(peer.buffers.values())
        peer.close()
    assert all(buffer.helper.process.returncode is not None for buffer in buffers)


def test_workload_of_another_process_brings_its_own_seconds():
    assert seconds_for(SelfTimed(lambda calls: 10.0 * calls), 3) == 30.0


@pytest.mark.skipif(os.name == "nt", reason="needs a POSIX shell; Reverb is for Linux only")
@pytest.mark.parametrize("end", ["exec sleep 600 1>&- 0<&-", "printf '{\"seco'; exit 1"])
def test_peer_whose_process_is_lost_is_dropped_and_the_others_stay(end, tmp_path, monkeypatch):
    from benchmarks import __main__ as command

    python = tmp_path / "reverb" / "bin" / "python"
    python.parent.mkdir(parents=True)
    answers = """echo 'a line of some library'; echo '{"version": "0"}'; read order
        for answer in 1 2 3 4 5 6 7; do echo '{"seconds": 0.01}'; read order; done"""
    python.write_text(f"#!/bin/sh\n{answers}\necho 'no more memory' >&2; echo >&2; {end}\n")
    python.chmod(0o755)
    monkeypatch.setattr(fresh, "ENVIRONMENTS", tmp_path)
    page = tmp_path / "buffers.md"
    page.write_text("<!-- article:begin -->\n<!-- article:end -->\n")
    asked = ["--quick", "--peers", "Reverb client", "deque", "--markdown", str(page)]
    assert command.main(["article", *asked]) == 0
    text = page.read_text()
    assert "Not measured: Reverb client (from 'sample" in text
    assert "on, because its helper process ended; its last message was 'no more memory')." in text
    assert text.count("Reverb client |") == 1, "what was measured before stays"
    assert ", dm-reverb 0." in text, "with the version that it was measured with"
