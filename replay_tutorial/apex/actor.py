"""The actor: plays with a copy of the learner's weights and sends what it lived through to the replay.

It is curious to its own degree, so that all actors together see many kinds of states. It folds its steps into n-step
rows, gives each row its first priority by its own copy, and sends them by the run, not one by one. So the replay never
holds a row that nobody has evaluated, and is rarely disturbed.

An open episode can't be copied out of an environment, but it can be lived again: it is its first seed and its actions.
So every episode begins with a seed of its own, and an actor's state holds both. Only a run in one process has a use for
that, so other actors don't keep their actions: an episode may have no end.

Left out: recurrent state.

Paper: Horgan et al. 2018, section 3 and algorithm 1.
"""

import time
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
from numpy.typing import NDArray

from replay_tutorial import fields_from_spaces
from replay_tutorial.agents.agent import exploration_schedule, make_policy
from replay_tutorial.agents.atari import GAME_OVER, SCORE
from replay_tutorial.agents.environments import make_environment, playable
from replay_tutorial.apex.messages import Episodes, Note
from replay_tutorial.local.shared_context import POLL_SECONDS, SharedContext, Tell, n_step_windows
from replay_tutorial.local.worker import run_worker


class Actor:
    """Some environments, their n-step windows, and a copy of the policy.

    One environment here is one actor of the paper: it has its own exploration, and the rungs of the ladder are dealt out
    so that each process gets curious and greedy ones.

    Args:
        common: What it shares with the others.
        number: Which of the actors it is, from 0.
        seed: Of all its random numbers.
        tell: How its messages get to the parent.
    """

    def __init__(self, common: SharedContext, number: int, seed: np.random.SeedSequence, tell: Tell) -> None:
        config = common.config
        self.common = common
        self.tell = tell
        self.exploration = exploration_schedule(config)[
            number :: max(1, config.actors)
        ]  # float64[environments]
        self.generator = np.random.default_rng(seed)
        self.policy = make_policy(config, common.spaces)
        self.weights_version = 0
        self.windows = n_step_windows(config, common.spaces)

        self.environments = [make_environment(config.environment, training=True) for _ in self.exploration]
        count = len(self.environments)
        self.seeds = [0] * count  # that the open episodes began with
        self.lengths = [0] * count  # of the open episodes
        self.keeps_actions = config.actors == 0
        self.actions: list[list[Any]] = [[] for _ in range(count)]  # of the open episodes, if they are kept
        self.returns = np.zeros(count)  # float64[environments], of the open episodes
        starts = [self.begin_episode(number) for number in range(count)]
        self.observations = np.stack(starts)  # [environments, *observation]

        # The steps between two sends, of every environment: [send_interval, environments, ...]
        fields = fields_from_spaces(common.spaces.observation, common.spaces.action)
        self.steps = {
            name: np.zeros((config.send_interval, count, *spec["shape"]), spec["dtype"])
            for name, spec in fields.items()
        }

    def begin_episode(self, number: int) -> NDArray[Any]:
        """Begin an episode in one environment; return its first observation."""
        self.seeds[number] = int(self.generator.integers(2**31))
        self.lengths[number] = 0
        self.actions[number] = []
        self.returns[number] = 0.0
        return self.environments[number].reset(seed=self.seeds[number])[0]

    def run(self) -> None:
        """Play until the parent says stop."""
        # The learner's first weights also say that the replay has its old rows, if the run is resumed.
        while self.common.mailbox.version == 0 and not self.common.stopped:
            time.sleep(POLL_SECONDS / 10)
        while not self.common.stopped:
            self.play_and_send()

    def play_and_send(self) -> None:
        """Take newer weights if there are any, play a while, and send the rows that are whole."""
        self.pull_weights()
        episodes = self.play()
        rows = self.fold()
        if rows is not None:
            self.send(rows)
        if episodes.returns:
            self.tell(episodes)

    def pull_weights(self) -> None:
        """Copy the newest weights, if there are newer ones than ours."""
        if (news := self.common.mailbox.pull(self.weights_version)) is not None:
            self.weights_version, vector = news
            self.policy.set_parameters(vector)

    def play(self) -> Episodes:
        """Fill `steps`; report the episodes that ended meanwhile."""
        age = self.common.updates - self.common.update_of(self.weights_version)
        episodes = Episodes([], [], max(0, age))
        for row in range(self.common.config.send_interval):
            actions = self.policy.act(self.observations, self.exploration, self.generator)
            self.steps["obs"][row] = self.observations
            self.steps["act"][row] = actions
            for number, (env, action) in enumerate(zip(self.environments, playable(actions), strict=True)):
                observation, reward, terminated, truncated, info = env.step(action)
                self.lengths[number] += 1
                if self.keeps_actions:
                    self.actions[number].append(action)
                # An Atari game's reward is clipped, and an episode is one life: `info` has the game's own.
                self.returns[number] += info.get(SCORE, float(reward))
                self.steps["rew"][row, number] = reward
                self.steps["terminated"][row, number] = terminated
                self.steps["truncated"][row, number] = truncated
                # Before any reset: after a truncation the target looks at this observation, not at the next start.
                self.steps["next_obs"][row, number] = observation
                if terminated or truncated:
                    if info.get(GAME_OVER, True):
                        episodes.returns.append(float(self.returns[number]))
                        episodes.lengths.append(self.lengths[number])
                        observation = self.begin_episode(number)
                    else:
                        observation, _ = env.reset()  # without a seed the game goes on
                self.observations[number] = observation
        return episodes

    def fold(self) -> dict[str, NDArray[Any]] | None:
        """Turn the steps into the n-step rows that are whole by now; None if there are none."""
        parts: list[dict[str, NDArray[Any]]] = []
        for number in range(len(self.environments)):
            rows = self.windows.add(number, **{name: steps[:, number] for name, steps in self.steps.items()})
            if rows is not None:
                parts.append(rows)
        if not parts:
            return None
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def send(self, rows: dict[str, NDArray[Any]]) -> None:
        """Add rows with their first priorities to the replay, as soon as the limiter lets us."""
        priorities = self.policy.priorities(rows)
        while not self.common.limiter.await_can_insert(len(priorities), timeout=POLL_SECONDS):
            if self.common.stopped:
                return
        self.common.replay.add(**rows, priorities=priorities)
        self.common.limiter.inserted(len(priorities))

    def state(self) -> dict[str, Any]:
        """Copy all that decides how the actor of a run in one process goes on, but for the weights; see `restore`."""
        return {
            "generator": self.generator.bit_generator.state,
            "seeds": list(self.seeds),
            "returns": self.returns.tolist(),
            "observations": self.observations.copy(),
            "actions": [np.array(actions) for actions in self.actions],
            "windows": self.windows.state(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a state: live every open episode again, up to where it was.

        An environment that doesn't repeat itself begins a new episode, and the parent is told.
        """
        self.windows.restore(state["windows"])
        for number, env in enumerate(self.environments):
            seed, actions = int(state["seeds"][number]), state["actions"][number]
            observation, _ = env.reset(seed=seed)
            over = False
            for action in playable(actions):
                observation, _, terminated, truncated, info = env.step(action)
                if over := bool(terminated or truncated) and info.get(GAME_OVER, True):
                    break
                if terminated or truncated:
                    observation, _ = env.reset()
            if not over and np.array_equal(observation, state["observations"][number]):
                self.seeds[number], self.actions[number] = seed, playable(actions)
                self.lengths[number] = len(actions)
                self.returns[number] = state["returns"][number]
            else:
                # Its waiting steps go, too: the steps that they wait for won't come.
                self.windows.on_episode_end(number)
                observation = self.begin_episode(number)
                self.tell(
                    Note(
                        f"environment {number} doesn't repeat itself from its seed: its open episode is "
                        "given up, and a new one begins"
                    )
                )
            self.observations[number] = observation
        self.generator.bit_generator.state = state["generator"]


@dataclass(frozen=True)
class ActorTask:
    """What an actor's process is started with."""

    common: SharedContext
    number: int
    seed: np.random.SeedSequence
    messages: Connection


def run_actor(task: ActorTask) -> None:
    """Be an actor's process: play until told to stop, or until the parent is gone."""

    def play() -> None:
        Actor(task.common, task.number, task.seed, task.messages.send).run()

    run_worker(play, task.messages, task.common.config.threads)
