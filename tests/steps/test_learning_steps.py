"""The small agents: n-step rows against brute force, the same seed makes the same run, and one learns."""

import copy
import random
from typing import Any

import numpy as np
import pytest
import torch

from replay_course.steps.learning import apex_loop, one_file_dqn, online_q_learning, q_learning_with_replay
from replay_course.steps.learning.n_step_list import Step, n_step
from replay_course.steps.learning.n_step_stream import NStepStream
from replay_tutorial import Batch, PrioritizedReplayBuffer

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
        rewards.append(step.reward)
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
    rows = [(row.obs, row.reward, row.next_obs, row.discount) for row in n_step(steps, n, GAMMA)]
    assert [row[::2] for row in rows] == [row[::2] for row in wanted]
    np.testing.assert_allclose([row[1::2] for row in rows], [row[1::2] for row in wanted], rtol=1e-12)


@pytest.mark.parametrize("n", [1, 2, 3, 5])
@pytest.mark.parametrize("seed", range(5))
def test_a_stream_returns_the_rows_of_the_list(n: int, seed: int) -> None:
    steps, stream = random_steps(seed, 40), NStepStream(n, GAMMA)
    assert [row for step in steps for row in stream.add(step)] == n_step(steps, n, GAMMA)


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


class Recording(PrioritizedReplayBuffer):
    """A prioritized buffer that keeps what was sampled and which priorities were updated."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.sampled: list[tuple[float, Any]] = []
        self.updated: list[tuple[Any, Any]] = []
        buffers.append(self)

    def sample(self, batch_size: int, beta: float = 0.4, **options: Any) -> Any:
        sample = super().sample(batch_size, beta, **options)
        self.sampled.append((beta, sample))
        return sample

    def update_priorities(self, indexes: Any, priorities: Any) -> None:
        super().update_priorities(indexes, priorities)
        self.updated.append((indexes, priorities))


buffers: list[Recording] = []


@pytest.mark.learns
def test_the_one_file_agent_copies_its_target_anneals_beta_and_returns_the_errors_as_priorities(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    networks, errors, update = [], [], one_file_dqn.update

    def recorded(online: Any, target: Any, optimizer: Any, sample: Any) -> Any:
        networks.append((parameters(online), parameters(target)))
        errors.append(update(online, target, optimizer, sample))
        return errors[-1]

    monkeypatch.setattr(one_file_dqn, "update", recorded)
    monkeypatch.setattr(one_file_dqn, "PrioritizedReplayBuffer", Recording)
    one_file_dqn.train(0, total_steps=1_950)
    buffer, steps = buffers.pop(), range(512, 1_950, 16)
    assert len(networks) == len(buffer.sampled) == len(buffer.updated) == len(steps)
    copies = {0: networks[0][0]}  # no update before step 512
    copies |= {step: networks[steps.index(step) + 1][0] for step in (800, 1_600)}
    rows = zip(steps, networks, buffer.sampled, buffer.updated, errors, strict=True)
    for step, (_, target), (beta, sample), (indexes, priorities), error in rows:
        assert torch.equal(target, copies[max(copied for copied in copies if copied < step)])
        assert beta == pytest.approx(0.4 + 0.6 * step / 1_950)
        assert np.array_equal(indexes, sample["indexes"]) and priorities is error
        # 3-step rows of rewards of 1: shorter rows end their episode, and none of those here is truncated
        rewards = np.stack([sample["reward"], sample["discount"]], 1).astype(float).round(4)
        assert set(map(tuple, rewards.tolist())) <= {(1, 0), (1.99, 0), (2.9701, 0), (2.9701, 0.9703)}
    assert buffer.sampled[-1][1]["weights"].std() > 0


def test_the_one_file_agent_explores_less_and_less(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an update, and with action 1 as the greedy one: its share is 1 - ε / 2."""
    actions = list[int]()

    class Actions(PrioritizedReplayBuffer):
        def add(self, /, **fields: Any) -> Any:
            actions.append(fields["action"])
            return super().add(**fields)

    changes: dict[str, Any] = {"EXPLORE_STEPS": 2_000, "WARM_UP": 10_000, "EVALUATE_EVERY": 10_000}
    changes |= {"greedy": lambda *_: 1, "PrioritizedReplayBuffer": Actions}
    for name, value in changes.items():
        monkeypatch.setattr(one_file_dqn, name, value)
    one_file_dqn.train(0, total_steps=4_000)
    expected = 1 - np.array([0.7625, 0.2875, 0.05, 0.05]) / 2  # means of 1,000 steps: ε falls in 2,000
    shares = np.reshape(actions, (4, 1_000)).mean(axis=1)
    # Six standard deviations: 8 seeds in 10⁹ fail, and the numbers of this one depend on NumPy only.
    assert (abs(shares - expected) < 6 * np.sqrt(expected * (1 - expected) / 1_000)).all()


def forward(network: Any, obs: Any) -> Any:
    """Q-values of one observation, float64[2], from the parameters alone."""
    for layer in network[::2]:
        obs = layer.weight @ (obs if layer is network[0] else obs.relu()) + layer.bias
    return obs


@pytest.mark.parametrize("scale", [1.0, 100.0])  # the norm of the gradient: below 10, and clipped
@pytest.mark.learns
def test_an_update_of_the_one_file_agent_is_the_weighted_gradient_of_double_q_learning(scale: float) -> None:
    torch.manual_seed(0)
    online, target = one_file_dqn.make_network(), one_file_dqn.make_network()
    exact, exact_target = copy.deepcopy(online).double(), copy.deepcopy(target).double()
    rng, size = np.random.default_rng(0), 64
    sample: dict[str, Any] = {name: scale * rng.normal(size=(size, 4)) for name in ("obs", "next_obs")}
    sample |= {"reward": scale * rng.normal(size=size), "discount": rng.choice([0, 0.9, 0.99], size)}
    sample |= {"weights": rng.random(size)}
    sample = {name: array.astype(np.float32) for name, array in sample.items()}
    sample["action"] = rng.integers(2, size=size)

    loss, errors = 0.0, []
    for obs, next_obs, reward, discount, weight, action in zip(*sample.values(), strict=True):
        obs, next_obs = (torch.from_numpy(each).double() for each in (obs, next_obs))
        with torch.no_grad():
            best = int(forward(exact, next_obs).argmax())
            goal = float(reward) + float(discount) * forward(exact_target, next_obs)[best]
        value = forward(exact, obs)[action]
        error = float(goal - value.detach())
        # its gradient is that of the loss
        loss = loss - float(weight) * np.clip(error, -10, 10) * value / size
        errors.append(abs(error))
    gradient = torch.cat([part.ravel() for part in torch.autograd.grad(loss, list(exact.parameters()))])
    norm = float(gradient.norm())
    assert (norm > 10) == (scale > 1)

    before = parameters(online).double()
    sgd = torch.optim.SGD(online.parameters(), lr=1.0)
    given = one_file_dqn.update(online, target, sgd, Batch(sample))
    step = before - parameters(online).double()
    np.testing.assert_allclose(given, errors, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(step, gradient * min(1.0, 10 / norm), rtol=1e-3, atol=1e-5)


@pytest.mark.learns
def test_one_file_learns_cartpole(monkeypatch: pytest.MonkeyPatch) -> None:
    """A random policy has 22. That it solves the task is tested by `make stress`."""
    monkeypatch.setattr(one_file_dqn, "SOLVED_AT", 150.0)  # of ten episodes, and of a hundred others
    assert any(one_file_dqn.train(seed, total_steps=20_000)[1][-1][0] < 20_000 for seed in range(4))
