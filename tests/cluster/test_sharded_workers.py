"""The driver's end of a shard, without Ray: its lives, its place, and what it is filled with."""

import shutil
import threading
import time
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import pytest

pytest.importorskip("ray", reason="needs the extra `cluster`")
from cluster_parts import made_context, numbered_rows
from ray.exceptions import ActorDiedError, ActorUnavailableError, RayTaskError
from shard_world import calls_of, is_lost

from replay_tutorial.apex.config import preset
from replay_tutorial.apex.runs import lives as lives_module
from replay_tutorial.apex.runs.run_provenance import digest_of_sources
from replay_tutorial.apex.runs.watch import ProcessDied
from replay_tutorial.cluster import placement
from replay_tutorial.cluster.cluster_options import ClusterOptions
from replay_tutorial.cluster.shards import remote_shard, sharded_workers
from replay_tutorial.cluster.shards.remote_shard import RemoteShard
from replay_tutorial.cluster.shards.shard import Shard, ShardPart
from replay_tutorial.cluster.shards.shard_files import save_shards
from replay_tutorial.cluster.shards.sharded_workers import ShardedWorkers, ShardRole

CONFIG = replace(preset("CartPole-v1"), capacity=300, replay_start=10, restart_limit=3)


def remote(answer):
    return SimpleNamespace(remote=lambda: SimpleNamespace(future=lambda: answer))


class Life:
    """What Ray makes of a shard's life: it waits for its place until it is given one."""

    def __init__(self, part):
        self.part, self.shard = part, Shard(part)
        self.has_place, self.end = Future(), Future()
        self.live = SimpleNamespace(options=lambda **_: remote(self.end))
        self.open = SimpleNamespace(remote=self.shard.open)

    @property
    def __ray_ready__(self):
        return remote(self.has_place)

    def die(self, error=None):
        if not self.has_place.done():
            self.has_place.set_exception(ActorDiedError())
        end, self.end = self.end, Future()
        end.set_exception(error or ActorDiedError())


class Driver:
    """The driver of shard 1 of 2, whose clock is moved by hand."""

    def __init__(self, patch, folder):
        self.now, self.lives, self.said, self.killed = 1000.0, [], [], []
        self.refusals = 0  # of the name, by a Ray that has not heard of the last life's end
        clock = SimpleNamespace(monotonic=lambda: self.now)
        for module in (sharded_workers, lives_module):
            patch.setattr(module, "time", clock)
        patch.setattr(sharded_workers, "ray", SimpleNamespace(kill=self.killed.append))
        patch.setattr(
            sharded_workers, "NamedShard", lambda name: SimpleNamespace(calls=calls_of(self.lives[-1].shard))
        )
        self.folder = folder
        setup = SimpleNamespace(
            context=replace(made_context(), config=CONFIG), folder=SimpleNamespace(path=folder)
        )
        self.role = ShardRole(setup, 1, 2, "shard 1 of 2", 3_000_000_000)
        self.start()

    def options(self, name):
        assert name == "shard 1 of 2"
        return SimpleNamespace(remote=self.begin)

    def begin(self, part):
        if self.refusals or self.killed != self.lives:
            self.refusals = max(0, self.refusals - 1)
            raise ValueError("the name is taken")
        self.lives.append(Life(part))
        return self.lives[-1]

    def start(self):
        self.role.start(self, "")

    def wait(self, seconds):
        end = self.now + seconds
        while self.now < end:
            self.now += 1.0
            self.role.check()
            if self.role.lives.is_due():
                self.start()
            time.sleep(0.0)
            self.said += [self.role.notes.pop(0).text for _ in range(len(self.role.notes))]

    def give_place(self):
        self.lives[-1].has_place.set_result(True)
        self.wait(1)

    def die(self, error=None):
        self.lives[-1].die(error)
        self.wait(2)

    def checkpoint(self, number, rows):
        """Save a shard with so many rows, as the learner does."""
        folder = self.folder / "checkpoints" / f"{number:04d}_step_{rows}"
        folder.mkdir(parents=True)
        shard = Shard(ShardPart(CONFIG, self.lives[0].part.spaces, 1, 2, 0))
        fields, priorities = numbered_rows(0, rows)
        shard.buffer.add(**fields, priorities=priorities)
        save_shards(folder / "replay.npz", [calls_of(shard), calls_of(shard)], is_lost)

    def rows_when_open(self):
        """Wait in real time until the shard takes rows."""
        deadline = time.monotonic() + 30.0
        while self.lives[-1].shard.filling and time.monotonic() < deadline:
            self.wait(1)
            time.sleep(0.01)
        self.wait(1)
        assert not self.lives[-1].shard.filling
        return len(self.lives[-1].shard.buffer)


@pytest.fixture
def driver(monkeypatch, tmp_path):
    return Driver(monkeypatch, tmp_path)


def test_shard_that_waits_for_a_place_says_so_once_and_is_filled_from_the_checkpoint_of_that_moment(driver):
    driver.give_place()
    driver.checkpoint(1, 20)
    driver.die()
    assert driver.said == ["shard 1 is gone, with its rows"]
    driver.said.clear()
    driver.wait(58)
    assert driver.said == []
    driver.wait(500)
    (waits,) = driver.said
    assert waits.startswith("shard 1 has had no place for 60 s: it needs a host with 3 GB of memory")
    driver.checkpoint(2, 30)
    driver.said.clear()
    driver.give_place()
    assert driver.rows_when_open() == 30
    place, filled = driver.said
    assert place.startswith("shard 1 has its place, after 55")
    assert filled == "shard 1 begins again, with its rows of checkpoint 0002_step_30"
    driver.said.clear()
    driver.die()
    driver.wait(70)
    assert ["no place for 60 s" in line for line in driver.said] == [False, True]


def test_first_life_that_has_no_place_is_told_too_and_begins_empty(driver):
    driver.wait(70)
    assert ["no place for 60 s" in line for line in driver.said] == [True]
    driver.checkpoint(1, 20)
    driver.give_place()
    assert driver.rows_when_open() == 0


def test_shard_without_a_checkpoint_or_with_a_damaged_one_begins_empty_and_says_so(driver):
    driver.give_place()
    driver.die()
    driver.give_place()
    assert driver.rows_when_open() == 0
    assert driver.said[-1] == "shard 1 begins again, without rows: no checkpoint has them"
    driver.checkpoint(1, 20)
    (saved,) = driver.folder.glob("checkpoints/*/replay_1_of_2.npz")
    saved.write_bytes(saved.read_bytes()[:-50])
    driver.die()
    driver.give_place()
    assert driver.rows_when_open() == 0
    assert driver.said[-1].startswith("shard 1 begins again, without the rows of checkpoint 0001_step_20: ")


def test_shard_whose_name_is_still_taken_is_begun_after_a_pause(driver):
    driver.give_place()
    driver.refusals = 1
    driver.die()
    driver.wait(3)
    assert [life.part.life for life in driver.lives] == [0, 2]


def test_shard_that_is_only_out_of_reach_goes_on(driver):
    driver.give_place()
    driver.die(ActorUnavailableError("a cable is cut", None))
    assert (driver.said, len(driver.lives)) == ([], 1)
    driver.die()
    assert driver.said == ["shard 1 is gone, with its rows"]


@pytest.mark.parametrize("when", ["at its beginning", "later"])
def test_error_of_a_shards_code_ends_the_run_at_once(driver, when):
    wrong = RayTaskError("live", "a traceback", ZeroDivisionError())
    with pytest.raises(ProcessDied, match=r"shard 1 failed: (?s:.*)a traceback"):
        driver.die(wrong if when == "later" else ActorDiedError(wrong))
    assert len(driver.lives) == 1


def test_time_in_which_a_shard_waits_for_its_place_is_no_sign_of_health(driver):
    def wait_and_die():
        for _ in range(CONFIG.restart_limit):
            driver.wait(200)
            driver.die()

    with pytest.raises(ProcessDied, match=r"shard 1 died: .*, 3 times in a row"):
        wait_and_die()
    assert not [line for line in driver.said if "has its place" in line or "begins again" in line]


def test_shard_whose_lives_are_long_may_have_any_number(driver):
    for _ in range(2 * CONFIG.restart_limit):
        driver.give_place()
        driver.wait(70)
        driver.die()


def test_folders_that_a_killed_life_left_are_removed_by_the_next_one(driver, tmp_path, monkeypatch):
    monkeypatch.setattr(remote_shard.tempfile, "tempdir", str(tmp_path))
    spaces = driver.lives[0].part.spaces
    part = ShardPart(CONFIG, spaces, 0, 2, 0, False, "shard 0 of 2, run [a]", digest_of_sources())
    shard = RemoteShard(part)

    def leave(copy):
        """Copy the folder that there is: it stays when this shard removes its own."""
        (folder,) = (path for path in tmp_path.iterdir() if not path.name.endswith("copy"))
        shutil.copytree(folder, folder.with_name(folder.name + copy))

    pieces = shard.save()
    next(pieces)
    leave("a copy")
    pieces.close()
    shard.load(b"some bytes")
    leave("another copy")
    with pytest.raises(ValueError, match="damaged"):
        shard.load(b"")
    assert len(list(tmp_path.iterdir())) == 2
    of_another = tmp_path / "shard 1 of 2, run [a]-x"
    of_another.mkdir()
    RemoteShard(part._replace(life=1))
    assert list(tmp_path.iterdir()) == [of_another]


def test_run_that_ends_lets_its_shards_remove_their_folders_before_they_are_killed(driver, monkeypatch):
    done = []

    def answer_of(number):
        """The first one is dead, and the second one silent."""
        done.append(f"tidy {number}")
        answer = Future()
        if number == 0:
            answer.set_exception(ActorDiedError())
        return SimpleNamespace(future=lambda: answer)

    session = SimpleNamespace(gcs_address="", namespace="")
    ray = SimpleNamespace(
        get_runtime_context=lambda: session, remote=lambda **_: lambda kind: kind, kill=done.append
    )
    thread = SimpleNamespace(join=lambda _: None)
    watch = SimpleNamespace(addresses={}, closing=threading.Event(), thread=thread)
    monkeypatch.setattr(sharded_workers, "ray", ray)
    monkeypatch.setattr(sharded_workers, "of_shard", lambda size: {})
    monkeypatch.setattr(placement, "HostWatch", lambda: watch)
    workers = ShardedWorkers(driver.role.setup, ClusterOptions("auto", shards=3))
    handles = [
        SimpleNamespace(tidy=SimpleNamespace(remote=partial(answer_of, number))) for number in range(2)
    ]
    for shard, handle in zip(workers.shards, handles, strict=False):  # the third one was never begun
        shard.handle = handle
    workers._end_remote(0.1)
    assert done == ["tidy 0", "tidy 1", *handles]
