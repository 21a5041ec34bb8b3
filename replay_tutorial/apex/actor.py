"""The actor: a process that plays with a copy of the learner's policy and sends what it lived through to the replay.

It is curious to its own degree, so that all actors together see many kinds of states. It folds its steps into n-step
rows, gives each row its first priority from its own networks, and sends them by the run, not one by one. So the replay
never holds a row that nobody has judged, and is rarely disturbed.

Left out: recurrent state, being started again after a fault.

Paper: Horgan et al. 2018, section 3 and algorithm 1; the ladder of ε in section 4.1.
"""

import os
import signal
import sys
import threading
import traceback
from dataclasses import dataclass
from multiprocessing import parent_process
from multiprocessing.connection import Connection, wait
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from replay_tutorial import Mailbox, MPPrioritizedReplayBuffer, NStep, SamplesPerInsert, fields_from_spaces
from replay_tutorial.apex.agent import exploration_ladder, make_policy
from replay_tutorial.apex.config import Config
from replay_tutorial.apex.environments import Spaces, make_environment, playable
from replay_tutorial.shared.memory import SharedArrays

PATIENCE = 0.1  # seconds that an actor waits for the limiter before it looks at the stop flag again


def n_step_windows(config: Config, spaces: Spaces) -> NStep:
    """Return one empty window for each environment of an actor; its `env_dict` is that of the replay."""
    return NStep(
        fields_from_spaces(spaces.observation, spaces.action),
        {"size": config.n_step, "gamma": config.gamma, "rew": "rew", "next": "next_obs"},
        environments=config.environments_per_actor,
    )


@dataclass(frozen=True)
class ActorTask:
    """All that an actor's process is given when it starts."""

    number: int
    config: Config
    spaces: Spaces
    seed: np.random.SeedSequence
    replay: MPPrioritizedReplayBuffer
    limiter: SamplesPerInsert
    mailbox: Mailbox
    stop: SharedArrays  # "flag": bool[1]
    reports: Connection


class Report(NamedTuple):
    """What an actor tells the parent: the episodes that have ended since its last report."""

    returns: list[float]
    lengths: list[int]


class Failure(NamedTuple):
    """The last words of an actor whose Python code failed."""

    traceback: str


class Actor:
    """Some environments, their n-step windows, and a copy of the policy.

    One environment here is one actor of the paper: it has its own ε or σ, and the rungs of the ladder are dealt out so that
    each process gets curious and greedy ones.
    """

    def __init__(self, task: ActorTask) -> None:
        config = task.config
        self.task = task
        ladder = exploration_ladder(config)
        self.exploration = ladder[task.number :: config.actors]  # float64[environments]
        env_seed, action_seed = task.seed.spawn(2)
        self.generator = np.random.default_rng(action_seed)
        self.policy = make_policy(config, task.spaces)
        self.weights_version = 0
        self.windows = n_step_windows(config, task.spaces)

        self.environments = [make_environment(config.environment, training=True) for _ in self.exploration]
        seeds = env_seed.generate_state(len(self.environments))
        starts = [env.reset(seed=int(seed))[0] for env, seed in zip(self.environments, seeds, strict=True)]
        self.observations = np.stack(starts)  # [environments, ...]
        self.returns = np.zeros(len(starts))  # float64[environments], of the unfinished episodes
        self.lengths = np.zeros(len(starts), np.int64)

        # The steps between two sends, of every environment: [send_interval, environments, ...]
        shape = (config.send_interval, len(starts))
        fields = fields_from_spaces(task.spaces.observation, task.spaces.action)
        self.steps = {
            name: np.zeros((*shape, *spec["shape"]), spec["dtype"]) for name, spec in fields.items()
        }

    def run(self) -> None:
        """Pull, play, send; until the parent says stop."""
        while not self.stopped():
            self.pull_weights()
            report = self.play()
            rows = self.fold()
            if rows is not None:
                self.send(rows)
            if report.returns:
                self.task.reports.send(report)

    def stopped(self) -> bool:
        """Tell whether the parent has asked all actors to end."""
        return bool(self.task.stop["flag"][0])

    def pull_weights(self) -> None:
        """Copy the newest weights, if there are newer ones than ours."""
        if (news := self.task.mailbox.pull(self.weights_version)) is not None:
            self.weights_version, vector = news
            self.policy.set_weights(vector)

    def play(self) -> Report:
        """Fill `steps`; report the episodes that ended meanwhile."""
        report = Report([], [])
        for row in range(self.task.config.send_interval):
            actions = self.policy.act(self.observations, self.exploration, self.generator)
            self.steps["obs"][row] = self.observations
            self.steps["act"][row] = actions
            for number, (env, action) in enumerate(zip(self.environments, playable(actions), strict=True)):
                observation, reward, terminated, truncated, info = env.step(action)
                # An Atari game's reward is clipped, and an episode is one life: `info` has the game's own.
                self.returns[number] += info.get("score", float(reward))
                self.lengths[number] += 1
                self.steps["rew"][row, number] = reward
                self.steps["terminated"][row, number] = terminated
                self.steps["truncated"][row, number] = truncated
                # Before any reset: after a truncation the target looks at this observation, not at the next start.
                self.steps["next_obs"][row, number] = observation
                if terminated or truncated:
                    if info.get("game_over", True):
                        report.returns.append(float(self.returns[number]))
                        report.lengths.append(int(self.lengths[number]))
                        self.returns[number] = self.lengths[number] = 0
                    observation, _ = env.reset()
                self.observations[number] = observation
        return report

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
        while not self.task.limiter.await_can_insert(len(priorities), timeout=PATIENCE):
            if self.stopped():
                return
        self.task.replay.add(**rows, priorities=priorities)
        self.task.limiter.inserted(len(priorities))


def run_actor(task: ActorTask) -> None:
    """Be an actor's process: act until told to stop, or until the parent is gone."""
    # Ctrl-C reaches every process of the terminal; the parent hears it, too, and tells us in good order.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=exit_with_parent, daemon=True).start()
    # As many processes as cores already: more threads would only stand in each other's way.
    torch.set_num_threads(1)
    try:
        Actor(task).run()
    except Exception:  # noqa: BLE001 - whatever it was, the parent shall hear of it
        task.reports.send(Failure(traceback.format_exc()))
        sys.exit(1)


def exit_with_parent() -> None:
    """Wait for the parent's end, then end this process at once, whatever it is waiting for."""
    parent = parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
