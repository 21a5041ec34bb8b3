"""The small agents: n-step rows against brute force, the same seed makes the same run, and one learns."""

import random
from typing import Any

import numpy as np
import pytest
import torch

from replay_tutorial.steps.learning import apex_loop, one_file_dqn, online_q_learning, q_learning_with_replay
from replay_tutorial.steps.learning.n_step_list import Step, n_step
from replay_tutorial.steps.learning.n_step_stream import NStepStream
from replay_tutorial.teaching.exercises import CheckFailed
from replay_tutorial.teaching.exercises_episodes import check_n_step_stream
from replay_tutorial.teaching.exercises_why_replay import check_update

GAMMA = 0.9


def random_steps(seed: int, count: int) -> list[Step]:
    """Steps of several episodes; observations are serial numbers, and a reset begins with a new one."""
    rng, steps, obs = random.Random(seed), [], 0
    for _ in range(count):
        end = rng.choice(["terminated", "truncated", *["no"] * 6])
        steps.append(Step(obs, 0, rng.random(), obs + 1, end == "terminated", end == "truncated"))
        obs += 1 if end == "no" else 100
    return steps


def by_hand(steps: list[Step], start: int, n: int) -> tuple[Any, ...] | None:
    """The row of one step by the definition: walk on until n rewards are there or the episode ends."""
    rewards: list[float] = []
    for step in steps[start:]:
        rewards.append(step.rew)
        if step.terminated or step.truncated or len(rewards) == n:
            total = sum(GAMMA**i * reward for i, reward in enumerate(rewards))
            return steps[start].obs, total, step.next_obs, (not step.terminated) * GAMMA ** len(rewards)
    return None


@pytest.mark.parametrize("n", [1, 2, 3, 5])
@pytest.mark.parametrize("count", [0, 1, 2, 5, 40])
@pytest.mark.parametrize("seed", range(5))
def test_rows_are_what_their_definition_gives(n: int, count: int, seed: int) -> None:
    steps = random_steps(seed, count)
    wanted = [row for start in range(count) if (row := by_hand(steps, start, n))]
    rows = [(row.obs, row.rew, row.next_obs, row.discount) for row in n_step(steps, n, GAMMA)]
    assert [row[::2] for row in rows] == [row[::2] for row in wanted]
    np.testing.assert_allclose([row[1::2] for row in rows], [row[1::2] for row in wanted], rtol=1e-12)


@pytest.mark.parametrize("n", [1, 2, 3, 5])
@pytest.mark.parametrize("seed", range(5))
def test_a_stream_returns_the_rows_of_the_list(n: int, seed: int) -> None:
    steps, stream = random_steps(seed, 40), NStepStream(n, GAMMA)
    assert [row for step in steps for row in stream.add(step)] == n_step(steps, n, GAMMA)


class KeepsNoTails(NStepStream):
    def add(self, step: Step) -> list[Any]:
        return super().add(step)[:1]


class RunsAcrossEpisodes(NStepStream):
    def add(self, step: Step) -> list[Any]:
        return super().add(step._replace(terminated=False, truncated=False))


class TakesTruncationForTermination(NStepStream):
    def add(self, step: Step) -> list[Any]:
        return super().add(step._replace(terminated=step.terminated or step.truncated))


class NeverForgets(NStepStream):
    def add(self, step: Step) -> list[Any]:
        rows = super().add(step)
        self.pending.extend([step] * (self.n * bool(rows)))
        return rows


def faulty(fault: str) -> type[online_q_learning.OnlineQLearning]:
    """An agent whose update has one fault."""

    class Faulty(online_q_learning.OnlineQLearning):
        def learn(self, obs: Any, act: int, rew: float, next_obs: Any, terminated: bool) -> float:
            bootstrap = self.network if fault == "own network" else self.target
            last = terminated and fault != "bootstraps after the end"
            future = 0.0 if last else float(bootstrap(torch.from_numpy(next_obs)).max().detach())
            goal = torch.tensor(rew + 0.99 * future)
            value = self.network(torch.from_numpy(obs))[1 - act if fault == "other action" else act]
            loss = torch.nn.functional.huber_loss(value, goal, delta=10.0)
            if fault == "ascends":
                loss = -loss
            if fault != "keeps gradients":
                self.optimizer.zero_grad()
            loss.backward()
            if fault != "takes no step":
                self.optimizer.step()
            error = float(goal - value.detach())
            return -error if fault == "sign" else error

    return Faulty


@pytest.mark.parametrize(
    ("check", "wrong", "message"),
    [
        (check_n_step_stream, KeepsNoTails, "add\\(\\) returned 1 rows; the step completes 2: 5 → 7, 6 → 7"),
        (check_n_step_stream, RunsAcrossEpisodes, "has discount 0.5, not 0.0"),
        (check_n_step_stream, TakesTruncationForTermination, "has discount 0.0, not 0.5"),
        (check_n_step_stream, NeverForgets, "still pending"),
        (check_update, faulty("own network"), "with the target from self.target"),
        (check_update, faulty("bootstraps after the end"), "after a fall there is no future"),
        (check_update, faulty("other action"), "target minus prediction"),
        (check_update, faulty("ascends"), "away from the target"),
        (check_update, faulty("keeps gradients"), "earlier updates"),
        (check_update, faulty("takes no step"), "taken its step"),
        (check_update, faulty("sign"), "the other way round"),
    ],
)
def test_a_wrong_class_fails_with_its_hint(check: Any, wrong: Any, message: str) -> None:
    with pytest.raises(CheckFailed, match=message):
        check(wrong)


def parameters(network: torch.nn.Module) -> torch.Tensor:
    return torch.nn.utils.parameters_to_vector(network.parameters()).detach()


def run_online(seed: int) -> tuple[Any, torch.Tensor]:
    agent = online_q_learning.OnlineQLearning(seed)
    return online_q_learning.train(agent, 300, seed), parameters(agent.network)


def run_with_replay(seed: int) -> tuple[Any, torch.Tensor]:
    agent = q_learning_with_replay.ReplayQLearning(seed)
    return online_q_learning.train(agent, 700, seed), parameters(agent.network)


def run_one_file(seed: int) -> tuple[Any, torch.Tensor]:
    network, curve = one_file_dqn.train(seed, total_steps=2_000)
    return curve, parameters(network)


def run_apex(seed: int) -> tuple[Any, torch.Tensor]:
    network, actors = apex_loop.train(3, 1_200, seed)
    return [actor.returns for actor in actors], parameters(network)


@pytest.mark.parametrize("run", [run_online, run_with_replay, run_one_file, run_apex])
def test_the_same_seed_makes_the_same_run(run: Any) -> None:
    (curve, end), (again, end_again), (_, other_end) = run(0), run(0), run(1)
    assert curve and curve == again
    assert torch.equal(end, end_again) and not torch.equal(end, other_end)


def test_the_returns_of_episodes_are_their_lengths() -> None:
    episodes, _ = run_online(0)
    ends = [0, *(step for step, _ in episodes)]
    assert [score for _, score in episodes] == np.diff(ends).tolist()


def test_the_first_actor_explores_most_and_the_last_hardly_ever() -> None:
    _, actors = apex_loop.train(3, 48)
    assert [round(actor.epsilon, 4) for actor in actors] == [0.4, 0.0162, 0.0007]


def test_the_one_loop_replay_draws_what_it_holds_by_its_mass() -> None:
    replay = apex_loop.Replay(8, seed=0)
    replay.add(list("abc"), torch.tensor([1.0, 0.0, 100.0]))
    rows = replay.sample(2000)[2]
    masses = (np.array([1.0, 0.0, 100.0]) + 1e-4) ** apex_loop.ALPHA
    counts = [rows.count(name) for name in "abc"]
    np.testing.assert_allclose(np.array(counts) / 2000, masses / masses.sum(), atol=0.03)
    replay.add(list("defghij"), torch.ones(7))
    assert replay.rows == [*"ij", *"cdefgh"]


def test_one_file_learns_cartpole() -> None:
    network, curve = one_file_dqn.train(seed=1)
    assert one_file_dqn.evaluate(network, 50, seed=700_000_000) >= 475, curve
