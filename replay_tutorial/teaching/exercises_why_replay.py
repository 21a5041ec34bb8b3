"""Chapter 00: the check of an update, and the exercises: TD errors, targets of a batch, a loop with a bug."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from replay_tutorial.steps.learning.online_q_learning import OnlineQLearning
from replay_tutorial.teaching.exercises import CheckFailed, Hints, NotYet

update_hints = Hints(
    "The target needs one number from a network: the larger of the two values that self.target predicts for "
    "next_obs. After a fall there is no future.",
    "`future = 0.0 if terminated else float(self.target(torch.from_numpy(next_obs)).max())`, and the target "
    "is the tensor `torch.tensor(reward + 0.99 * future)`. It is a constant: use `with torch.no_grad():`.",
    "The prediction is `self.network(torch.from_numpy(obs))[action]`. It must stay a tensor, because the "
    "gradient is computed through it.",
    "An update in PyTorch has three lines: `self.optimizer.zero_grad()`, `loss.backward()`, "
    "`self.optimizer.step()`. Without the first, the gradients of all updates so far are added up.",
    "Return target minus prediction as a float: `float(target - prediction.detach())`.",
)

GAMMA = 0.9
# (predicted value, reward, values of the next state, terminated)
ROWS = ((5.0, 1.0, (4.0, 6.0), False), (5.0, 1.0, (4.0, 6.0), True), (2.0, 1.0, (0.0, 0.0), False))


def check_update(kind: type[OnlineQLearning]) -> None:
    """Check the method `learn` of an agent: the TD errors it returns, and the parameters after each update.

    Raises:
        CheckFailed: If a TD error is wrong, or if an update is not one step of Adam along the gradient.
    """
    agent, oracle = kind(seed=0), OnlineQLearning(seed=0)
    rng = np.random.default_rng(0)
    with torch.no_grad():  # the target network must differ from the network
        for ours, theirs in zip(oracle.target.parameters(), agent.target.parameters(), strict=True):
            ours += torch.from_numpy(rng.normal(scale=0.1, size=tuple(ours.shape)).astype(np.float32))
            theirs.copy_(ours)
    for number in range(8):
        obs, next_obs = rng.normal(size=(2, 4)).astype(np.float32)
        # Rewards of both signs and up to ±20, so that TD errors are negative, too, and some lie beyond 10.
        action, terminated = number % 2, number % 3 == 1
        reward = (1.0, -3.0, 20.0, -20.0)[number % 4] + number
        where = f"update {number + 1}, action {action}, {'' if terminated else 'not '}terminated"
        value = oracle.network(torch.from_numpy(obs))[action]
        with torch.no_grad():
            future = 0.99 * float(oracle.target(torch.from_numpy(next_obs)).max())
        error = reward + future * (not terminated) - float(value.detach())
        before = parameters_of(agent.network)
        given = agent.learn(obs, action, reward, next_obs, terminated)
        check_returned(given, error, reward + future - float(value.detach()), where)
        if not torch.equal(parameters_of(agent.target), parameters_of(oracle.target)):
            raise CheckFailed(f"{where}: the target network has changed; only self.network learns")
        # The gradient of the loss is -δ ∇Q(s, a), with the TD error δ clipped to [-10, 10].
        parameters = list(oracle.network.parameters())
        for parameter, slope in zip(parameters, torch.autograd.grad(value, parameters), strict=True):
            parameter.grad = -float(np.clip(error, -10.0, 10.0)) * slope
        oracle.optimizer.step()
        wanted = parameters_of(oracle.network)
        check_change(parameters_of(agent.network) - before, wanted - before, where)
        with torch.no_grad():  # so that differences of rounding don't accumulate
            for ours, theirs in zip(parameters, agent.network.parameters(), strict=True):
                theirs.copy_(ours)
    print("right: eight updates, of both actions, with and without termination")


def parameters_of(network: torch.nn.Module) -> torch.Tensor:
    """Return a copy of all parameters of a network as one vector."""
    return torch.nn.utils.parameters_to_vector(network.parameters()).detach().clone()


def check_returned(given: Any, error: float, with_future: float, where: str) -> None:
    """Raise CheckFailed if `learn` has not returned the TD error."""
    if not isinstance(given, float):
        raise CheckFailed(f"{where}: learn() must return the TD error, a float, not {given!r}")
    if abs(given - error) > 1e-3:
        hint = "it is target minus prediction, with the target from self.target, before the update"
        if abs(given + error) < 1e-3:
            hint = "target minus prediction, not the other way round"
        elif abs(given - with_future) < 1e-3:
            hint = "after a fall there is no future"
        raise CheckFailed(f"{where}: learn() returned {given:.3f}, but the TD error is {error:.3f}; {hint}")


def check_change(given: torch.Tensor, wanted: torch.Tensor, where: str) -> None:
    """Raise CheckFailed if the parameters of the network have not changed as they should."""
    if not given.any():
        raise CheckFailed(f"{where}: the network has not changed; has the optimizer taken its step?")
    if (given - wanted).abs().mean() > 0.05 * wanted.abs().mean():
        hint = (
            "possible reasons: another loss than huber_loss with delta=10.0, gradients of earlier updates "
            "(zero_grad), the value of the other action, or more than one step of the optimizer"
        )
        if torch.dot(given, wanted) < 0:
            hint = "it moves away from the target"
        raise CheckFailed(f"{where}: the network has changed, but not towards the target alone; {hint}")


def check_td_errors(given: Sequence[Any]) -> None:
    """Check the TD errors of the three transitions of `ROWS`."""
    if len(given) != len(ROWS) or ... in given:
        raise NotYet("write a number for each of the three transitions: target minus prediction")
    for number, (value, (predicted, reward, next_values, terminated)) in enumerate(
        zip(given, ROWS, strict=True), start=1
    ):
        target = reward + GAMMA * max(next_values) * (not terminated)
        if abs(value - (target - predicted)) > 1e-9:
            hint = "after a fall there is no future" if terminated else "add 0.9 times the best next value"
            if abs(value + (target - predicted)) < 1e-9:
                hint = "target minus prediction, not the other way round"
            raise NotYet(f"transition {number}: {value:g} plus {predicted:g} is not its target; {hint}")
    print("right: the second TD error, -4, has the largest absolute value")


def check_targets(targets: Callable[..., Any]) -> None:
    """Check a function that computes the targets of a batch."""
    rng = np.random.default_rng(0)
    for count in (1, 2, 64):
        reward, next_values = rng.random(count), rng.normal(size=(count, 2)) - 3.0
        terminated = rng.random(count) < 0.4
        given = targets(reward, next_values, terminated, GAMMA)
        if given is None or given is ...:
            raise NotYet("my_targets must return an array with a target for each row")
        given = np.asarray(given)
        if given.shape != (count,):
            raise NotYet(f"the targets of {count} rows must have the shape ({count},), not {given.shape}")
        for place in range(count):
            wanted = reward[place] + (0.0 if terminated[place] else GAMMA * max(next_values[place]))
            if abs(given[place] - wanted) > 1e-9:
                row = f"r = {reward[place]:.2f}, next values {next_values[place].round(2).tolist()}"
                row += f", terminated {bool(terminated[place])}"
                raise NotYet(f"{row}: your target is {given[place]:.3f}, but should be {wanted:.3f}")
    print("right: for 1, 2 and 64 rows, also with negative values")


class Counter:
    """An environment whose observation is a counter: episode e starts at 100·e, and each step adds 1."""

    def __init__(self) -> None:
        """Initialise the counter; `reset` starts episode 0."""
        self.episode = -1

    def reset(self) -> int:
        """Start the next episode."""
        self.episode += 1
        self.place = 100 * self.episode
        return self.place

    def step(self) -> tuple[int, bool]:
        """Take a step; an episode ends after three."""
        self.place += 1
        return self.place, self.place % 100 == 3


def store_across(env: Counter, steps: int) -> list[tuple[int, int]]:
    """Return (obs, next_obs) of each step. The function has one bug."""
    rows: list[tuple[int, int]] = []
    obs = env.reset()
    for _ in range(steps):
        next_obs, ended = env.step()
        if ended:
            next_obs = env.reset()
        rows.append((obs, next_obs))
        obs = next_obs
    return rows


def check_store(store: Callable[..., Any]) -> None:
    """Check a corrected version of `store_across`."""
    rows = store(Counter(), 8)
    if len(rows) != 8:
        raise NotYet(f"8 steps must give 8 rows, not {len(rows)}")
    for number, (obs, next_obs) in enumerate(rows):
        wanted = (100 * (number // 3) + number % 3, 100 * (number // 3) + number % 3 + 1)
        if next_obs // 100 != obs // 100:
            raise NotYet(f"row {number} leads from {obs} to {next_obs}, which is in another episode")
        if (obs, next_obs) != wanted:
            raise NotYet(f"row {number} is {(obs, next_obs)}, not {wanted}")
    print("right: no row leads from one episode into the next")
