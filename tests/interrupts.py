"""Calls to interrupt: objects, each with its calls, what there is to see of it, and whether it is whole.

Step i of the stream has the observation i and, where it is given, the priority i + 1, so that a mass shows
which row it belongs to. `interrupt_at` raises KeyboardInterrupt at a point: at the start of a line, and
where CPython checks for signals, which is at the start of a function, at a backward jump, and after a call.
"""

import copy
import dis
import sys
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np

import replay_tutorial
from replay_tutorial import Mailbox, NStep, NStepWindow, SamplesPerInsert
from replay_tutorial.buffers.schemes import Proportional

PACKAGE = str(Path(replay_tutorial.__file__).parent)
CAPACITY = 8
EPISODE = 6
ALPHA, EPS = 0.6, 1e-4
NUMBER, FLAG = {"dtype": np.float32}, {"dtype": np.bool_}
N_STEP = NStep(3, gamma=0.5)
FIELDS = {"obs": {"shape": 4, "dtype": np.uint8}, "reward": NUMBER, "done": FLAG, "other": NUMBER}
STEP_FIELDS = FIELDS | {"next_obs": FIELDS["obs"]}
OPTIONS = {
    "plain": {"fields": FIELDS},
    "n_step": {"fields": STEP_FIELDS, "n_step": N_STEP},
    "frames": {"fields": FIELDS, "dedupe_next": "obs"},
    "frames, n_step": {"fields": FIELDS, "dedupe_next": "obs", "n_step": N_STEP},
}
POINTS: dict[CodeType, dict[int, bool]] = {}


def steps(first: int, count: int | None, fields: dict[str, Any]) -> dict[str, Any]:
    """Make consecutive steps of one environment, or one step if the count is None."""
    i = np.arange(first, first + (count or 1))
    made = {"obs": np.repeat(i[:, None], 4, 1), "reward": i, "done": i % EPISODE == EPISODE - 1, "other": i}
    made["next_obs"] = made["obs"] + 1
    return {name: made[name] if count else made[name][0] for name in fields}


class Subject:
    """An object, its calls by name, and the steps that it was given so far."""

    make: Callable[[], Any]  # a new buffer

    def __init__(self, kind: str, option: str, folder: Path) -> None:
        self.thing: Any = None
        self.folder = folder
        self.calls: dict[str, Callable[[], object]] = {}

    def prepare(self, call: str) -> None:
        """Make ready for a call."""

    def check_locks(self) -> None:
        """Assert that no lock is held."""

    def check_files(self) -> None:
        """Assert that a buffer loaded from a file shows the same."""
        saved, original = self.thing, self.see()
        saved.save(self.folder / "checked")
        self.thing = self.make()
        self.thing.load(self.folder / "checked")
        assert self.see() == original, "a file differs from its buffer"
        self.thing = saved

    def see(self) -> Any:
        """Return all there is to see, comparable by ==."""
        raise NotImplementedError

    def check(self, files: bool = True) -> None:
        """Assert that nothing is torn, and that the next calls work, also with files."""
        raise NotImplementedError


class OfBuffer(Subject):
    def __init__(self, kind: str, option: str, folder: Path) -> None:
        options, self.kind = OPTIONS[option], getattr(replay_tutorial, kind)
        if "Prioritized" in kind:
            options = options | {"alpha": ALPHA, "eps": EPS}
        self.is_shared = kind.startswith("MP")
        self.make = lambda: self.kind(CAPACITY, seed=0, **options)
        super().__init__(kind, option, folder)
        self.thing = self.make()
        self.fields = [*FIELDS, "next_obs"] if option != "plain" else [*FIELDS]
        self.is_prioritized, self.is_n_step = "Prioritized" in kind, "n_step" in options
        self.next = 0
        buffer = self.thing
        for count in (3, None, 7):  # the ring is full, and begins within the array
            self.add(count)
        if self.is_prioritized:
            buffer.sample(2)
        file = folder / f"{kind} {option}"
        if not file.exists():
            buffer.save(file)
        self.calls = {
            "add": lambda: self.add(None),
            "add a batch": lambda: self.add(5),
            "add more than fits": lambda: self.add(CAPACITY + 3),
            "end_episode": buffer.end_episode,
            "sample": lambda: buffer.sample(4),
            "get_all_transitions": lambda: next(buffer.epoch(len(buffer))),
            "clear": buffer.clear,
            "save": lambda: buffer.save(folder / "saved"),
            "load": lambda: self.thing.load(file),
        }
        if self.is_prioritized:
            indexes = np.arange(max(0, buffer.next_index - CAPACITY - 2), buffer.next_index)
            self.calls |= {
                "sample in proportion": lambda: buffer.sample(4, scheme=Proportional()),
                "update_priorities": lambda: buffer.update_priorities(indexes, np.full(len(indexes), 500.0)),
                "total_mass": lambda: buffer.total_mass,
            }
        if self.is_shared:
            self.calls["close"] = buffer.close
        else:
            self.calls["touch_pages"] = buffer.touch_pages

    def add(self, count: int | None) -> None:
        first = self.next
        self.next += count or 1
        row = steps(first, count, self.fields)
        if self.is_prioritized:
            row["priorities"] = row["reward"] + 1
        self.thing.add(**row)

    def prepare(self, call: str) -> None:
        if call == "load" and self.is_shared:  # only a new one can be filled
            self.thing = self.make()

    def see(self) -> Any:
        buffer = self.thing
        if repr(buffer).endswith("closed>"):
            return "closed"
        seen = [buffer.next_index, len(buffer), buffer._episode_len() if self.is_shared else None]
        seen.append(str(buffer._rng.bit_generator.state))
        seen += [(name, each.tolist()) for name, each in buffer[:].items()]
        if self.is_prioritized:
            seen += [self.masses().tolist(), buffer.max_priority, buffer.stale_updates]
        if self.is_n_step:
            flushed = copy.deepcopy(buffer)
            flushed.end_episode()
            seen += [(name, each.tolist()) for name, each in flushed[:].items()]
            seen += [flushed._ring.leaves.tolist()] if self.is_prioritized else []
        return seen

    def masses(self) -> Any:
        buffer = self.thing
        if self.is_shared:
            return buffer._masses(buffer._ring.published_slots())
        return buffer._ring.leaves[buffer._ring.slots_in_order()]

    def check(self, files: bool = True) -> None:
        buffer = self.thing
        if repr(buffer).endswith("closed>"):
            buffer.close()
            return
        self.check_rows()
        if files:
            self.check_files()
        buffer.end_episode()
        self.next = 120  # an interrupted call may not have added its rows
        self.add(None)
        self.add(4)
        self.thing.end_episode()
        batch = buffer.sample(4)
        if self.is_prioritized:
            buffer.update_priorities(batch["indexes"], batch["other"] + 1.0)
            assert ((batch["weights"] > 0) & (batch["weights"] <= 1)).all()
        self.check_rows()

    def check_locks(self) -> None:
        if self.is_shared and "_ring" in self.thing.__dict__:
            assert_free(self.thing._lease.registration.lock)

    def check_rows(self) -> None:
        rows = self.thing[:]
        first = rows["other"]
        assert (rows["obs"] == first[:, None]).all(), "a torn row"
        assert (np.diff(first) > 0).all(), "rows in another order than they were added"
        if "next_obs" in rows:
            ahead = rows["next_obs"] - rows["obs"]
            assert ((ahead >= 1) & (ahead <= 3)).all(), "a next observation of another row"
        if not self.is_n_step:
            assert (rows["reward"] == first).all()
        if self.is_prioritized:
            masses = self.masses()
            given = np.isclose(masses, (first + 1 + EPS) ** ALPHA, rtol=1e-6)
            assert (given | np.isclose(masses, (500.0 + EPS) ** ALPHA)).all(), "the mass of another row"


class OfEpisodes(Subject):
    """Two environments; the observation of step i is i, and its reward says where it belongs, too."""

    def __init__(self, kind: str, option: str, folder: Path) -> None:
        super().__init__(kind, option, folder)
        options = {"num_envs": 2, "seed": 0, "alpha": ALPHA, "eps": EPS}
        self.make = lambda: getattr(replay_tutorial, kind)(
            4 * CAPACITY, STEP_FIELDS, **options, autoreset=option or "disabled"
        )
        self.thing, self.next = self.make(), [0, 0]
        buffer = self.thing
        for environment, count in ((0, 40), (1, 22)):  # both rings have wrapped around
            self.add(environment, count)
        file = folder / f"{kind} {option}"
        if not file.exists():
            buffer.save(file)
        table = buffer.episodes()
        stored = [buffer.get_episode(number)["indexes"] for number in table["episode"].tolist()]
        indexes = np.concatenate([[0], *stored])  # step 0 has been overwritten
        some, finished = table["episode"][:2], table["finished"]
        assert finished[:2].all() and not finished.all()
        self.calls = {
            "add": lambda: self.add(0, None),
            "add a batch": lambda: self.add(0, 5),
            "add more than fits": lambda: self.add(1, 50),
            "add_step": self.add_step,
            "end_episode": lambda: buffer.end_episode(0),
            "sample": lambda: buffer.sample(4),
            "update_priorities": lambda: buffer.update_priorities(indexes, np.full(len(indexes), 500.0)),
            "update_fields": lambda: buffer.update_fields(indexes, reward=indexes + 0.5, other=indexes + 0.5),
            "episodes": buffer.episodes,
            "get_episode": lambda: buffer.get_episode(some[1]),
            "tag": lambda: buffer.tag(some, 7),
            "evict": lambda: buffer.evict(some),
            "keep_best": lambda: buffer.keep_best(1),
            "clear": buffer.clear,
            "save": lambda: buffer.save(folder / "saved"),
            "load": lambda: self.thing.load(file),
        }
        if option == "next_step":
            self.add(0, 2)  # ends an episode, so that the next step resets the environment
            self.calls = {
                name: self.calls[name] for name in ("add", "add a batch", "add_step", "end_episode")
            }

    def add(self, environment: int, count: int | None) -> None:
        first = self.next[environment]
        self.next = [step + (count or 1) * (i == environment) for i, step in enumerate(self.next)]
        self.thing.add(environment, **steps(first, count, STEP_FIELDS))

    def add_step(self) -> None:
        both = [steps(first, None, STEP_FIELDS) for first in self.next]
        self.next = [first + 1 for first in self.next]
        self.thing.add_step(**{name: np.stack([one[name] for one in both]) for name in STEP_FIELDS})

    def see(self) -> Any:
        buffer = self.thing
        seen = [len(buffer), buffer.max_priority, buffer.stale_updates]
        seen += [buffer.next_index_of(environment) for environment in (0, 1)]
        seen += [str(buffer._rng.bit_generator.state), buffer._ring.tree.sums.tolist()]
        seen += [buffer._ring.arrays.rings["reset"].tolist()]
        table = buffer.episodes()
        seen += [(name, each.tolist()) for name, each in table.items()]
        for episode in table["episode"].tolist():
            seen += [(name, each.tolist()) for name, each in buffer.get_episode(episode).items()]
        return seen

    def check(self, files: bool = True) -> None:
        self.check_episodes()
        if files:
            self.check_files()
        self.next = [120, 120]  # an interrupted call may not have added its steps
        for environment in (0, 1):
            self.thing.end_episode(environment)
            self.add(environment, 5)
        self.add_step()
        batch = self.thing.sample(4)
        self.thing.update_priorities(batch["indexes"], batch["other"] + 1.0)
        assert ((batch["weights"] > 0) & (batch["weights"] <= 1)).all()
        self.check_episodes()

    def check_episodes(self) -> None:
        table, tree = self.thing.episodes(), self.thing._ring.tree
        assert table["length"].sum() == len(self.thing) == np.count_nonzero(tree.leaves)
        assert np.isclose(tree.leaves.sum(), tree.total, rtol=1e-12)
        for episode in table["episode"].tolist():
            stored = self.thing.get_episode(episode)
            first = stored["obs"][0, 0]
            expected = first + np.arange(len(stored["obs"]))
            assert (stored["obs"] == expected[:, None]).all(), "a torn episode"
            assert (stored["reward"] == stored["other"]).all(), "fields of different updates"


class OfNStep(Subject):
    def __init__(self, kind: str, option: str, folder: Path) -> None:
        super().__init__(kind, option, folder)
        mode = "next_step" if option == "next_step" else "disabled"
        n_step = self.thing = NStepWindow(STEP_FIELDS, N_STEP, num_envs=2, autoreset=mode)
        self.add(0, 4)
        self.add(1, None)
        restored = copy.deepcopy(n_step)
        both = {name: np.stack([one, one]) for name, one in steps(40, None, STEP_FIELDS).items()}
        n_step.end_episode(0)
        n_step.end_episode(1)
        self.add(0, 4)
        self.add(1, None)
        self.calls = {
            "add": lambda: self.add(0, None),
            "add a batch": lambda: self.add(0, 7),
            "end_episode": lambda: n_step.end_episode(0),
            "restore": lambda: n_step.restore(restored.state()),
            "state": n_step.state,
        }
        if option == "add_step":
            n_step.end_episode(0)
            n_step.end_episode(1)
            self.calls = {"add_step": lambda: n_step.add_step(**both)}
        if option == "next_step":
            n_step.end_episode(1)
            n_step.add(0, **steps(8, 4, STEP_FIELDS))  # ends, so that the next step resets the environment
            n_step.add(1, **steps(30, 2, STEP_FIELDS))
            both = [steps(first, None, STEP_FIELDS) for first in (12, 32)]
            stacked = {name: np.stack([one[name] for one in both]) for name in STEP_FIELDS}
            self.calls = {
                "add_step": lambda: n_step.add_step(**stacked),
                "add": lambda: n_step.add(0, **both[0]),
                "end_episode": lambda: n_step.end_episode(0),
            }

    next = (0, 0)

    def add(self, environment: int, count: int | None) -> Any:
        firsts = list(self.next)
        first, firsts[environment] = firsts[environment], firsts[environment] + (count or 1)
        self.next = tuple(firsts)
        return self.thing.add(environment, **steps(first, count, STEP_FIELDS))

    def see(self) -> Any:
        flushed = copy.deepcopy(self.thing)
        tails = [flushed.end_episode(environment) for environment in (0, 1)]
        tails = [{name: each.tolist() for name, each in (tail or {}).items()} for tail in tails]
        return tails, [rows.tobytes() for rows in self.thing.state()]

    def check(self, files: bool = True) -> None:
        for environment in (0, 1):
            self.thing.end_episode(environment)
            assert self.thing.add(environment, **steps(50, 3, STEP_FIELDS))["reward"].tolist() == [88.5]


class OfVectorBuffer(Subject):
    """Two environments in one buffer; the next step of the second one only resets it."""

    def __init__(self, kind: str, option: str, folder: Path) -> None:
        super().__init__(kind, option, folder)
        self.make = lambda: getattr(replay_tutorial, kind)(
            CAPACITY, seed=0, num_envs=2, autoreset="next_step", **OPTIONS[option]
        )
        self.kind, self.next = kind, [0, 1]
        buffer = self.thing = self.make()
        for _ in range(EPISODE - 1):
            self.add()
        file = folder / f"{kind} {option} of two"
        if not file.exists():
            buffer.save(file)
        self.calls = {
            "add": self.add,
            "end_episode of one": lambda: buffer.end_episode(1),
            "end_episode": buffer.end_episode,
            "clear": buffer.clear,
            "save": lambda: buffer.save(folder / "saved"),
            "load": lambda: self.thing.load(file),
        }

    def add(self) -> None:
        both = [steps(first, None, STEP_FIELDS) for first in self.next]
        self.next = [first + 1 for first in self.next]
        self.thing.add(**{name: np.stack([one[name] for one in both]) for name in STEP_FIELDS})

    def see(self) -> Any:
        flushed = copy.deepcopy(self.thing)
        seen = [flushed.next_index, flushed._stages.window.state[2].tolist()]
        seen += [flushed._stages.pending_count]
        seen += [(name, each.tolist()) for name, each in flushed[:].items()]
        flushed.end_episode()
        seen += [(name, each.tolist()) for name, each in flushed[:].items()]
        return [*seen, flushed._ring.leaves.tolist() if "Prioritized" in self.kind else None]

    def check(self, files: bool = True) -> None:
        if files:
            self.check_files()
        self.thing.end_episode()
        self.next = [120, 126]
        for _ in range(4):
            self.add()
        self.thing.end_episode()
        rows = self.thing[:]
        assert sorted(rows["other"].tolist()) == [120, 121, 122, 123, 126, 127, 128, 129]
        assert (rows["obs"] == rows["other"][:, None]).all(), "a torn row"


class OfMailbox(Subject):
    def __init__(self, kind: str, option: str, folder: Path) -> None:
        super().__init__(kind, option, folder)
        mailbox = self.thing = Mailbox(3)
        mailbox.publish(np.ones(3, np.float32))
        self.calls = {
            "publish": lambda: mailbox.publish(np.full(3, 2, np.float32)),
            "pull": lambda: mailbox.pull(0),
        }

    def see(self) -> Any:
        version, vector = self.thing.pull(0)
        return version, self.thing.version, vector.tolist()

    def check(self, files: bool = True) -> None:
        version = self.thing.publish(np.full(3, 7, np.float32))
        pulled, vector = self.thing.pull(version - 1)
        assert pulled == version and vector.tolist() == [7.0] * 3


class OfLimiter(Subject):
    def __init__(self, kind: str, option: str, folder: Path) -> None:
        super().__init__(kind, option, folder)
        limiter = self.thing = SamplesPerInsert(2.0, min_size=2, error_buffer=20.0)
        limiter.inserted(4)
        limiter.sampled(2)
        self.restored = SamplesPerInsert(2.0, min_size=2, error_buffer=20.0)
        self.calls = {
            "restore": lambda: self.restored.restore(limiter.state()),
            "inserted": lambda: limiter.inserted(3),
            "sampled": lambda: limiter.sampled(3),
            "await_can_insert": lambda: limiter.await_can_insert(2),
            "await_can_sample": lambda: limiter.await_can_sample(2),
        }

    def see(self) -> Any:
        return self.thing.state(), self.thing.error, self.restored.state()

    def check(self, files: bool = True) -> None:
        inserts = self.thing.inserts
        self.thing.inserted(1)
        assert self.thing.inserts == inserts + 1


SUBJECTS: list[tuple[type[Subject], str, str]] = [
    *((OfBuffer, "ReplayBuffer", option) for option in ("plain", "frames, n_step")),
    *((OfBuffer, "PrioritizedReplayBuffer", option) for option in OPTIONS),
    *(
        (OfBuffer, kind, option)
        for kind in ("MPReplayBuffer", "MPPrioritizedReplayBuffer")
        for option in ("plain", "frames")
    ),
    (OfVectorBuffer, "ReplayBuffer", "frames, n_step"),
    (OfVectorBuffer, "PrioritizedReplayBuffer", "n_step"),
    (OfEpisodes, "EpisodeReplayBuffer", ""),
    (OfEpisodes, "EpisodeReplayBuffer", "next_step"),
    (OfNStep, "NStepWindow", ""),
    (OfNStep, "NStepWindow", "add_step"),
    (OfNStep, "NStepWindow", "next_step"),
    (OfMailbox, "Mailbox", ""),
    (OfLimiter, "SamplesPerInsert", ""),
]


def assert_free(lock: Any) -> None:
    """Assert that no thread holds a lock."""
    found: list[bool] = []

    def look() -> None:
        found.append(lock.acquire(blocking=False))
        if found[0]:
            lock.release()

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert found == [True], "a lock stays held"


def points_of(code: CodeType) -> dict[int, bool]:
    """Return the offsets of instructions before which CPython checks for signals."""
    if code not in POINTS:
        after, points = False, {}
        for instruction in dis.get_instructions(code):
            points[instruction.offset] = after
            after = instruction.opname.startswith(("CALL", "RESUME", "JUMP_BACKWARD"))
        POINTS[code] = points
    return POINTS[code]


def is_finalizing(frame: FrameType | None) -> bool:
    """Return whether an object is being deleted: of its finalizer, Python reports exceptions, and goes on."""
    while frame is not None and frame.f_code.co_filename.startswith(PACKAGE):
        if frame.f_code.co_name in ("__del__", "clear_words"):
            return True
        frame = frame.f_back
    return False


def run_traced(call: Callable[[], object], trace: Any) -> None:
    """Call a function under a trace function, and restore the one before."""
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)


def interrupt_at(point: tuple[str, int, int] | None, call: Callable[[], object]) -> Counter[Any]:
    """Call, and raise KeyboardInterrupt at a point of the package; return the points that came before.

    A point is a function, an offset in it (of a line's start minus its number), and how often it has come.
    """
    passed: Counter[Any] = Counter()

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        code = frame.f_code
        if not code.co_filename.startswith(PACKAGE) or is_finalizing(frame):
            return None
        name = f"{code.co_filename}:{code.co_qualname}"
        if point and point[0] != name:
            return None
        frame.f_trace_opcodes = point is None or point[1] >= 0
        if event == "opcode" and points_of(code).get(frame.f_lasti, False):
            here = (name, frame.f_lasti)
        elif event == "line":
            here = (name, -frame.f_lineno)
        else:
            return trace
        passed[here] += 1
        if point == (*here, passed[here]):
            raise KeyboardInterrupt
        return trace

    run_traced(call, trace)
    return passed
