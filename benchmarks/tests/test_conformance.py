"""Our buffers have every property, and every property detects a buffer without it."""

import ast
import itertools
import json
import os
import re
from dataclasses import dataclass

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from places import ROOT
from programs import run_python

from benchmarks.conformance import check, command
from benchmarks.conformance.adapters import ours
from benchmarks.conformance.library import Buffer, Library, NotOffered
from benchmarks.conformance.properties import GAMMA, PROPERTIES, N, filled
from benchmarks.conformance.world import CASES, MODES, vector_steps, world

LENGTHS = (5, 1, 3, 7, 2, 4)  # of consecutive episodes, in steps
RECORD = ROOT / "docs" / "measurements" / "conformance.json"


@dataclass
class Changed(Buffer):
    """Our buffer, with something wrong: in its steps, rows, windows, updates or new rows."""

    buffer: Buffer
    step: object = lambda step: step
    row: object = lambda row, buffer: row
    keep: object = lambda row: True
    window: object = lambda window: window
    updated: object = lambda indexes, priorities, buffer: (indexes, priorities)
    new: object = None  # priority of a new row
    extra: object = lambda buffer: []
    newest: object = None
    count = 0

    def add(self, tick):
        self.buffer.add([self.step(step) for step in tick])
        self.newest, self.count = tick[-1], self.count + 1
        if self.new is not None:
            self.buffer.update([self.count - 1], [self.new])

    def add_vector_step(self, step):
        self.buffer.add_vector_step(self.step(step))

    def sample(self, count):
        rows = [self.row(row, self) for row in self.buffer.sample(count) if self.keep(row)]
        return rows + self.extra(self) * (count // 4)

    def windows(self, count):
        return [self.window(window) for window in self.buffer.windows(count)]

    def update(self, indexes, priorities):
        self.buffer.update(*self.updated(list(indexes), list(priorities), self))


class Broken(Library):
    """Ours, with every buffer changed; `options` change the arguments of its factory."""

    def __init__(self, changes, options):
        self.changes, self.options, self.right = changes, options, ours.library

    def restored(self, buffer, folder):  # without the priorities
        other = self.prioritized(7, 1.0)
        filled(other, 11)
        return other


def factory(name):
    def make(self, *arguments, **named):
        names = getattr(type(ours.library), name).__code__.co_varnames[1:]
        given = dict(zip(names, arguments, strict=False)) | named
        given |= {option: change(given[option]) for option, change in self.options.items()}
        return Changed(getattr(self.right, name)(**given), **self.changes)

    return make


KINDS = ["uniform", "stored_once", "n_step", "stacked", "prioritized", "protected", "across_processes"]
KINDS += ["sequences", "hindsight", "vectorized"]
for kind in KINDS:
    setattr(Broken, kind, factory(kind))


def to_next_episode(obs):
    return (obs[0], obs[1] + 1, *obs[2:])


def is_final(environment, episode, step):
    return step == LENGTHS[(environment + episode) % len(LENGTHS)]


def next_reset(row, _):
    return row._replace(next_obs=(row.obs[0], row.obs[1] + 1, 0)) if is_final(*row.next_obs) else row


def repeated_obs(row, _):
    return row._replace(next_obs=row.obs)


def stack_of_next_episode(row, _):
    *earlier, environment, episode, frame = row.next_obs
    reset = (*earlier, environment, episode + 1, 0)
    return row._replace(next_obs=reset) if is_final(environment, episode, frame) else row


def other_goal(row, _):
    return row._replace(goal=to_next_episode(row.goal)) if row.goal[0] >= 0 else row


def late(indexes, priorities, buffer):
    return [index + 8 if index < buffer.count - 8 else index for index in indexes], priorities


def changed(**changes):
    return Broken(changes, {})


def with_options(**options):
    return Broken({}, options)


def row_of_oldest_and_newest(buffer):
    wrong = {"obs": buffer.newest.obs, "next_obs": (0, 0, 0), "discount": GAMMA**N}
    return [buffer.buffer.sample(1)[0]._replace(**wrong)]


FAULTS = {  # property → a buffer without it
    "newest_rows": with_options(capacity=lambda capacity: capacity + 1),
    "uniform": changed(extra=lambda b: b.buffer.sample(1)),
    "truncation": changed(step=lambda step: step._replace(terminated=step.ended, truncated=False)),
    "final_observation": changed(row=next_reset),
    "stored_once_inside": changed(row=repeated_obs),
    "stored_once_newest": changed(
        row=lambda row, b: repeated_obs(row, b) if row.obs == b.newest.obs else row
    ),
    "stored_once_truncated": changed(row=next_reset),
    "environments": changed(row=lambda row, _: row._replace(reward=row.reward % 10_000)),
    "n_step_inside": with_options(n=lambda n: n - 1),
    "n_step_terminated": changed(row=lambda row, _: row._replace(discount=GAMMA**N)),
    "n_step_truncated": changed(row=lambda row, _: row._replace(discount=GAMMA**N) if row.discount else row),
    "n_step_tails": changed(keep=lambda row: row.discount == GAMMA**N),
    "n_step_newest": changed(extra=row_of_oldest_and_newest),
    "n_step_environments": changed(
        row=lambda row, _: row._replace(reward=row.reward % 10_000) if row.obs[0] else row
    ),
    "stack": changed(row=lambda row, _: row._replace(obs=(*row.obs[:1], row.obs[-2] + 1, *row.obs[2:]))),
    "next_stack": changed(row=lambda row, _: row._replace(next_obs=(*row.obs[3:], *row.obs[-3:]))),
    "next_stack_truncated": changed(row=stack_of_next_episode),
    "autoreset": with_options(mode=lambda _: "DISABLED"),
    "proportional": with_options(alpha=lambda alpha: 1.0),
    "weights": changed(row=lambda row, _: row._replace(weight=1.0)),
    "new_row": changed(new=1.0),
    "replaced_row": changed(new=0.01),
    "zero": changed(updated=lambda indexes, priorities, _: (indexes, [max(p, 1) for p in priorities])),
    "repeated_index": changed(updated=lambda i, p, _: (i, p) if len({*i}) == len(i) else (i[:1], [sum(p)])),
    "large_priority": changed(updated=lambda i, p, _: (i, [8.0] if len(p) == 1 and p[0] < 1e8 else p)),
    "late_priority": changed(updated=late),
    "killed_writer": changed(row=lambda row, b: row._replace(reward=0.0)),
    "window": changed(window=lambda window: [*window[:-1], to_next_episode(window[-1])]),
    "padding": changed(window=lambda window: window if len(window) == 3 else [*window, window[-1]]),
    "goal_future": changed(row=other_goal),
    "goal_others": changed(row=other_goal),
    "goal_after": changed(row=lambda row, _: row._replace(goal=row.obs) if row.goal[0] >= 0 else row),
    "goal_reward": changed(row=lambda row, _: row._replace(reward=0.0)),
    "restored": changed(),
}
# Those that hold for all rows but need certain ones.
OF_CERTAIN_ROWS = [
    *(
        "stored_once_inside",
        "stored_once_truncated",
        "n_step_inside",
        "n_step_terminated",
        "n_step_truncated",
    ),
    *("autoreset", "stack", "next_stack", "next_stack_truncated"),
    *("goal_future", "goal_others", "goal_after", "goal_reward"),
]
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
NAMES = [pytest.param(name, marks=needs_fork) if name == "killed_writer" else name for name in PROPERTIES]


@pytest.mark.parametrize("name", NAMES)
def test_our_buffers_have_the_property(name):
    assert check.verdict(ours.library, name) == {"verdict": check.YES}


@pytest.mark.parametrize("name", NAMES)
def test_the_property_detects_a_buffer_without_it(name):
    found = check.verdict(FAULTS[name], name)
    assert found["verdict"] == check.NO, found


@pytest.mark.parametrize("name", OF_CERTAIN_ROWS)
def test_a_property_is_not_confirmed_by_rows_that_are_never_drawn(name):
    found = check.verdict(changed(keep=lambda row: False), name)
    assert found["verdict"] == check.NO, found


def test_the_final_observation_of_a_step_that_resets_must_not_be_ignored():
    broken = changed(step=lambda step: step._replace(final_obs=[None] * 3))
    assert check.verdict(broken, "autoreset")["verdict"] == check.NO


class World(gymnasium.Env):
    """An environment that goes through given episodes."""

    observation_space, action_space = Box(0, 99, (3,), np.int64), Discrete(2)

    def __init__(self, stream):
        self.steps = iter(stream)
        self.upcoming = next(self.steps)

    def reset(self, *, seed=None, options=None):
        return np.array(self.upcoming.obs), {}

    def step(self, action):
        step, self.upcoming = self.upcoming, next(self.steps)
        return np.array(step.next_obs), step.reward, step.terminated, step.truncated, {}


@pytest.mark.parametrize("mode", MODES)
def test_vector_steps_are_those_of_gymnasium(mode):
    streams = [list(stream) for stream in zip(*world(40, 3), strict=True)]
    makers = [lambda stream=stream: World(stream) for stream in streams]
    environments = SyncVectorEnv(makers, autoreset_mode=AutoresetMode[mode])
    obs, ended = environments.reset()[0], np.zeros(3, bool)
    for step in vector_steps(streams, mode)[:-1]:
        next_obs, reward, terminated, truncated, infos = environments.step([0, 0, 0])
        final = list(infos.get("final_obs", [None] * 3))
        assert [place if place is None else tuple(place) for place in final] == step.final_obs
        found = obs, next_obs, reward, terminated, truncated, ended & (mode == "NEXT_STEP")
        for right, value in zip((*step[:5], step.only_reset), found, strict=True):
            np.testing.assert_array_equal(value, right)
        obs, ended = next_obs.copy(), terminated | truncated
        if mode == "DISABLED" and ended.any():
            obs = environments.reset(options={"reset_mask": ended})[0].copy()


def episodes_of(environment):
    """Yield (observation, terminated, truncated) by the rule: these lengths, two kinds of ends in turn."""
    for episode in itertools.count():
        length = LENGTHS[(episode + environment) % len(LENGTHS)]
        for step in range(length):
            last = step == length - 1
            yield (environment, episode, step), last and episode % 2 == 0, last and episode % 2 == 1


def test_the_steps_and_their_targets_in_the_file_are_those_of_the_rule():
    """An oracle: sums of rewards, in a loop."""
    for environment, steps in enumerate(CASES["steps"]):
        ruled = list(itertools.islice(episodes_of(environment), len(steps) + N))
        for start, step in enumerate(steps):
            (place, terminated, truncated), reward, targets = ruled[start], 0.0, []
            for k, ((_, episode, at), *ends) in enumerate(ruled[start : start + N]):
                reward += GAMMA**k * (10_000 * environment + 100 * episode + at + 1)
                discount = 0.0 if ends[0] else GAMMA ** (k + 1)
                targets.append([reward, discount, [environment, episode, at + 1]])
                if any(ends):
                    break
            assert step == {
                "obs": list(place),
                "reward": 10_000 * environment + 100 * place[1] + place[2] + 1,
                "next_obs": [*place[:2], place[2] + 1],
                "terminated": terminated,
                "truncated": truncated,
                "targets": targets + targets[-1:] * (N - len(targets)),
            }
        for added, step in zip(world(len(steps), len(CASES["steps"])), steps, strict=True):
            assert (list(added[environment].next_obs), added[environment].reward) == (
                step["next_obs"],
                step["reward"],
            )


def test_every_property_has_cases_a_reason_and_a_reference():
    assert list(CASES["properties"]) == list(PROPERTIES)
    for name, found in CASES["properties"].items():
        assert all(found[key] for key in ("group", "property", "right", "why", "reference", "cases")), name


def test_what_is_not_offered_or_raises_is_no_fault():
    class Nothing(Library):
        def uniform(self, capacity, environments=1):
            raise TypeError("called wrongly\nat some place")

    assert check.verdict(Nothing(), "stack")["verdict"] == check.NOT_OFFERED
    assert check.verdict(Nothing(), "uniform") == {
        "verdict": check.NOT_CHECKED,
        "reason": "TypeError: called wrongly",
    }
    with pytest.raises(NotOffered, match="no priorities"):
        Nothing().prioritized(1, 1.0)


def test_every_no_of_the_table_has_a_program_of_at_most_ten_lines():
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    named = set()
    for library in record["libraries"]:
        for name, verdict in library["verdicts"].items():
            assert (verdict["verdict"] == check.NO) == ("program" in verdict)
            if library["name"] == "replay_tutorial":
                assert verdict["verdict"] == check.YES, name
            named |= {verdict.get("program")} - {None}
    assert named == {path.name for path in command.PROGRAMS.glob("*.py")}
    for path in command.PROGRAMS.glob("*.py"):
        module = ast.parse(path.read_text(encoding="utf-8"))
        after_docstring = path.read_text(encoding="utf-8").splitlines()[module.body[0].end_lineno :]
        assert sum(map(bool, after_docstring)) <= 10, path.name
        assert ast.get_docstring(module) and "replay_tutorial" not in ast.unparse(module)
        assert isinstance(module.body[-1], ast.Assert), "the last line says what correct replay is"


@pytest.fixture
def available(monkeypatch):
    """The libraries that are installed, with the verdict on every property."""
    installed = {"flashbax": check.YES, "ours": check.YES}

    def checked(adapter):
        if adapter not in installed:
            return {"skipped": "not installed"}
        verdicts = {name: {"verdict": installed[adapter]} for name in PROPERTIES}
        return {"name": command.ADAPTERS[adapter], "versions": {"it": "1"}, "verdicts": verdicts}

    monkeypatch.setattr(command, "checked", checked)
    return installed


def test_a_record_keeps_the_results_of_libraries_that_are_not_checked(tmp_path, available, capsys):
    record = tmp_path / "record.json"
    assert command.main(["--json", str(record)]) == 0
    del available["flashbax"]
    available["cpprb"] = check.NOT_OFFERED
    assert command.main(["--json", str(record), "--only", "cpprb", "reverb"]) == 0
    printed = capsys.readouterr()
    assert "| property | ours | cpprb | flashbax |" in printed.out
    assert "The following command checked cpprb, reverb only. Measured on" in printed.out
    assert "reverb is skipped: not installed" in printed.err
    found = json.loads(record.read_text(encoding="utf-8"))
    assert [library["name"] for library in found["libraries"]] == ["replay_tutorial", "cpprb", "flashbax"]
    assert command.main(["--json", str(record)]) == 0, "without --only, nothing is kept"
    found = json.loads(record.read_text(encoding="utf-8"))
    assert [library["name"] for library in found["libraries"]] == ["replay_tutorial", "cpprb"]


def test_our_buffers_must_not_be_skipped(available, capsys):
    del available["ours"]
    assert command.main([]) == 1
    assert "ours is skipped: not installed" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--json", "--markdown"])
def test_results_of_other_libraries_are_not_thrown_away(tmp_path, available, monkeypatch, capsys, option):
    record, page = tmp_path / "record.json", tmp_path / "page.md"
    page.write_text("<!-- conformance:begin -->\n<!-- conformance:end -->\n")
    assert command.main(["--json", str(record), "--markdown", str(page)]) == 0
    before = record.read_text(), page.read_text()
    if option == "--json":
        monkeypatch.setitem(PROPERTIES, "new", PROPERTIES["stack"])
        given, reason = ["--json", str(record)], "has other properties: replay_tutorial differs in new;"
    else:
        given, reason = ["--markdown", str(page)], "--only with --markdown requires --json and a record"
    with pytest.raises(SystemExit):
        command.main(["--only", "ours", *given])
    assert reason in capsys.readouterr().err
    assert (record.read_text(), page.read_text()) == before


LIST_BUFFER = ROOT / "benchmarks" / "conformance" / "adapters" / "your_buffer.py"


def test_an_adapter_is_checked_by_name_by_file_and_as_a_module(capsys):
    for adapter in ("your_buffer", str(LIST_BUFFER), "benchmarks.conformance.adapters.your_buffer"):
        assert command.main(["--adapter", adapter]) == 0
        assert capsys.readouterr().out.endswith("\n5 yes, 0 no, 29 not offered, 0 not checked\n")
    with pytest.raises(SystemExit):
        command.main(["--adapter", "nothing.py"])
    assert "there is no file nothing.py" in capsys.readouterr().err


def test_a_fault_of_an_adapter_is_printed_with_its_reason_and_gives_status_1(tmp_path, capsys):
    right = LIST_BUFFER.read_text(encoding="utf-8")
    wrong = tmp_path / "wrong.py"
    wrong.write_text(right.replace("[-self.capacity :]", "[-self.capacity - 1 :]"), encoding="utf-8")
    assert check.main([str(wrong)]) == 1
    printed = capsys.readouterr().out
    assert "\n  NO           At every capacity, a sample contains exactly the newest rows\n" in printed
    assert "capacity 1, 2 rows added: 1 wrong rows, 0 never drawn\n" in printed
    assert "\n3 yes, 2 no, 29 not offered" in printed


def test_the_page_shows_the_adapter_and_its_program_needs_no_code_of_ours():
    page = (ROOT / "docs" / "measurements" / "your_buffer.md").read_text(encoding="utf-8")
    adapter, program = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert LIST_BUFFER.read_text(encoding="utf-8").endswith(f'"""\n\n{adapter}')
    done = run_python("-I", "-W", "ignore", "-c", program)
    assert done.stdout.startswith("A truncated episode bootstraps, a terminated one does not\n"), done.stderr
