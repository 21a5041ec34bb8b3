"""Chapter 00: the check of an update, and the exercises: TD errors, targets of a batch, a loop with a bug."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from replay_course.answers import array_of, call, lines_run, numbers
from replay_course.exercises import CheckFailed, Hints, NotYet
from replay_course.steps.learning.online_q_learning import OnlineQLearning

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
STEP = 0.01  # step size of the gradient descent in the check of an update
# (predicted value, reward, values of the next state, terminated)
ROWS = ((5.0, 1.0, (4.0, 6.0), False), (5.0, 1.0, (4.0, 6.0), True), (2.0, 1.0, (0.0, 0.0), False))


def check_update(kind: type[OnlineQLearning]) -> None:
    """Check the method `learn` of an agent: the TD errors it returns, and the parameters after each update.

    The optimizer is replaced by plain gradient descent, whose step is the gradient of the loss: the steps of
    Adam are nearly the same for every scale of the loss.

    Raises:
        CheckFailed: If a TD error is wrong, or if an update is not one step along the gradient of the loss.
    """
    agent, oracle = kind(seed=0), OnlineQLearning(seed=0)
    agent.optimizer = torch.optim.SGD(agent.network.parameters(), lr=STEP)  # type: ignore[assignment]
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
        given = call(agent.learn, obs, action, reward, next_obs, terminated)
        check_returned(given, error, reward + future - float(value.detach()), where)
        if not torch.equal(parameters_of(agent.target), parameters_of(oracle.target)):
            raise CheckFailed(f"{where}: the target network has changed; only self.network learns")
        # The gradient of the loss is -δ ∇Q(s, a), with the TD error δ clipped to [-10, 10].
        slopes = torch.autograd.grad(value, list(oracle.network.parameters()))
        wanted = torch.nn.utils.parameters_to_vector(slopes) * (STEP * float(np.clip(error, -10.0, 10.0)))
        check_change(parameters_of(agent.network) - before, wanted, abs(error), where)
        with torch.no_grad():  # so that both start the next update with the same parameters
            for ours, theirs in zip(oracle.network.parameters(), agent.network.parameters(), strict=True):
                ours.copy_(theirs)
    print("right: eight updates, of both actions, with and without termination")


def parameters_of(network: torch.nn.Module) -> torch.Tensor:
    """Return a copy of all parameters of a network as one vector."""
    return torch.nn.utils.parameters_to_vector(network.parameters()).detach().clone()


def check_returned(given: Any, error: float, with_future: float, where: str) -> None:
    """Raise CheckFailed if `learn` has not returned the TD error."""
    if not isinstance(given, float):
        raise CheckFailed(f"{where}: learn() must return the TD error, a float, not {given!r}")
    if not abs(given - error) <= 1e-3:
        hint = "it is target minus prediction, with the target from self.target, before the update"
        if abs(given + error) < 1e-3:
            hint = "target minus prediction, not the other way round"
        elif abs(given - with_future) < 1e-3:
            hint = "after a fall there is no future"
        raise CheckFailed(f"{where}: learn() returned {given:.3f}, but the TD error is {error:.3f}; {hint}")


def check_change(given: torch.Tensor, wanted: torch.Tensor, size: float, where: str) -> None:
    """Raise CheckFailed if the network has not moved along the gradient; `size` is the absolute TD error."""
    if not given.any():
        raise CheckFailed(f"{where}: the network has not changed; has the optimizer taken its step?")
    if not (given - wanted).norm() <= 0.01 * wanted.norm():
        times = float(torch.dot(given, wanted) / torch.dot(wanted, wanted))
        hint = "gradients of earlier updates (zero_grad), or the value of the other action"
        if not torch.isfinite(given).all():
            hint = "some of its parameters are NaN"
        elif torch.dot(given, wanted) < 0:
            hint = "it moves away from the target"
        elif (given - times * wanted).norm() <= 0.01 * wanted.norm():
            hint = (
                f"the step is {times:.2f} times as long as that of huber_loss with delta=10.0, whose "
                f"gradient stops growing at a TD error of 10 (here {size:.1f}), or there is more than one "
                "step"
            )
        raise CheckFailed(f"{where}: the network has changed, but not as one step towards the target; {hint}")


def check_td_errors(given: Sequence[Any]) -> None:
    """Check the TD errors of the three transitions of `ROWS`."""
    errors = numbers(given, 3, "write a number for each of the three transitions: target minus prediction")
    for number, (error, (predicted, reward, next_values, terminated)) in enumerate(
        zip(errors, ROWS, strict=True), start=1
    ):
        target = reward + GAMMA * max(next_values) * (not terminated)
        if not abs(error - (target - predicted)) <= 1e-6:
            hint = "after a fall there is no future" if terminated else "add 0.9 times the best next value"
            if abs(error + (target - predicted)) < 1e-6:
                hint = "target minus prediction, not the other way round"
            raise NotYet(f"transition {number}: {error:g} plus {predicted:g} is not its target; {hint}")
    print("right: the second TD error, -4, has the largest absolute value")


def check_targets(targets: Callable[..., Any]) -> None:
    """Check a function that computes the targets of a batch, without a loop over its rows."""
    rng = np.random.default_rng(0)
    for count, gamma in ((1, 0.9), (2, 0.5), (64, 0.99)):
        for terminated in (rng.random(count) < 0.4, np.zeros(count, bool), np.ones(count, bool)):
            reward, next_values = rng.normal(size=count), rng.normal(size=(count, 2)) - 3.0
            given = call(targets, reward, next_values, terminated, gamma)
            given = array_of(given, (count,), f"targets of a batch of {count}")
            wanted = reward + np.where(terminated, 0.0, gamma * next_values.max(axis=1))
            for place in np.flatnonzero(~np.isclose(given, wanted, rtol=1e-5)):
                raise NotYet(
                    f"r = {reward[place]:.2f}, next values {next_values[place].round(2).tolist()}, "
                    f"terminated {terminated[place]}, γ = {gamma}: your target is {given[place]:.3f}, but "
                    f"should be {wanted[place]:.3f}"
                )
    costs = [
        lines_run(lambda n=n: targets(np.zeros(n), np.zeros((n, 2)), np.zeros(n, bool), GAMMA))
        for n in (10, 100)
    ]
    if costs[1] > costs[0] + 50:
        raise NotYet(
            f"the targets are right, but 10 rows take {costs[0]} lines of Python and 100 rows {costs[1]}: "
            "compute all rows at once, with next_values.max(axis=1), instead of in a loop"
        )
    print("right: for 1, 2 and 64 rows, also with negative values, and without a loop")


class Counter:
    """An environment whose observation is a counter: episode e starts at 100·e, and each step adds 1."""

    def __init__(self, length: int = 3) -> None:
        """Initialise the counter; `reset` starts episode 0."""
        self.episode, self.length = -1, length

    def reset(self) -> int:
        """Start the next episode."""
        self.episode += 1
        self.place = 100 * self.episode
        return self.place

    def step(self) -> tuple[int, bool]:
        """Take a step; an episode ends after `length` of them."""
        self.place += 1
        return self.place, self.place % 100 == self.length


def check_store(store: Callable[..., Any]) -> None:
    """Check a corrected loop that plays and stores transitions."""
    for length, steps in ((3, 8), (3, 1), (1, 4), (5, 10)):
        where = f"episodes of {length} steps, {steps} steps in all"
        rows = store(Counter(length), steps)
        if not isinstance(rows, list | tuple) or len(rows) != steps:
            found = len(rows) if isinstance(rows, list | tuple) else rows
            raise NotYet(f"{where}: {steps} steps must give a list of {steps} rows, not {found}")
        for number, pair in enumerate(rows):
            obs, next_obs = numbers(
                pair, 2, f"{where}: row {number} must be a pair (obs, next_obs), not {pair!r:.40}"
            )
            wanted = 100 * (number // length) + number % length
            if next_obs // 100 != obs // 100:
                raise NotYet(
                    f"{where}: row {number} leads from {obs:g} to {next_obs:g}, which is in another episode"
                )
            if obs % 100 == length:
                raise NotYet(
                    f"{where}: row {number} starts at {obs:g}, where an episode has ended: reset first"
                )
            if (obs, next_obs) != (wanted, wanted + 1):
                raise NotYet(f"{where}: row {number} is {(obs, next_obs)}, not {(wanted, wanted + 1)}")
    print("right: no row leads from one episode into the next")
