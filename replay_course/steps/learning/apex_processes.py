"""Ape-X as processes: actors and a learner that share a replay, a mailbox and a stop flag.

Each actor has an environment, an epsilon, a copy of the network, and a small local buffer. When the local
buffer is full, the actor adds its rows to the shared replay, with its own TD errors as initial priorities.
The learner samples, learns, updates priorities and publishes its parameters. Improvement over `apex_loop`: no
role waits for its turn. Remaining problems: how often a row is sampled depends on the machine, and a dead
actor isn't replaced; `apex/` and `local/` solve both. N-step returns are left out. Run it with `python -m
replay_course.steps.learning.apex_processes`. Source: Horgan et al. 2018, "Distributed Prioritized
Experience Replay", algorithms 1 and 2.
"""

import time
from collections.abc import Generator
from contextlib import contextmanager
from multiprocessing import parent_process
from multiprocessing.process import BaseProcess
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import torch
from numpy.typing import NDArray

from replay_tutorial import Mailbox, MPPrioritizedReplayBuffer, ReplayBuffer
from replay_tutorial.agents.dqn import DQNAgent, DQNPolicy, epsilon_schedule
from replay_tutorial.agents.networks import DuelingNetwork, parameter_count
from replay_tutorial.local.shared_context import SharedStopFlag
from replay_tutorial.local.supervisor import start_context
from replay_tutorial.shared.memory import SharedArrays

GAMMA, LEARNING_RATE, BATCH_SIZE, ALPHA, BETA = 0.99, 2e-3, 64, 0.6, 0.4
CAPACITY, WARM_UP, CHUNK = 100_000, 1_000, 50  # rows; a local buffer holds CHUNK of them
TARGET_INTERVAL, PUBLISH_INTERVAL = 50, 25  # updates
STOP_SECONDS = 20.0  # until an actor that doesn't stop is killed
ROW: dict[str, Any] = {
    "obs": {"shape": 4},
    "action": {"dtype": np.int64},
    "reward": {},
    "next_obs": {"shape": 4},
    "discount": {},  # GAMMA, or 0 after a terminated episode
    # Not used for learning:
    "actor": {"dtype": np.int64},
    "score": {},  # sum of the episode's rewards so far
    "ended": {"dtype": np.bool_},  # whether the episode ended with this step
}


def make_network() -> DuelingNetwork:
    """Return a new Q-network for CartPole."""
    return DuelingNetwork(observation_shape=(4,), action_count=2, hidden_sizes=(128, 128))


class Shared(NamedTuple):
    """All that the processes share. Each of them receives it as an argument."""

    replay: Any  # such as MPPrioritizedReplayBuffer; rows: actors → learner; priorities: both → replay
    parameters: Mailbox  # learner → actors
    stop: SharedStopFlag


def make_shared(seed: int = 0, capacity: int = CAPACITY, replay: Any = None) -> Shared:
    """Reserve the shared memory of a run; `replay` replaces the package's buffer."""
    flags = SharedArrays({"flags": ((2,), np.dtype(np.int64))})
    if replay is None:
        replay = MPPrioritizedReplayBuffer(capacity, ROW, alpha=ALPHA, seed=seed)
    return Shared(replay, Mailbox(parameter_count(make_network())), SharedStopFlag(flags))


def act(shared: Shared, number: int, epsilon: float, seed: int) -> None:
    """Play until the run ends: the main function of an actor's process."""
    torch.set_num_threads(1)
    policy, version, rng = DQNPolicy(make_network()), 0, np.random.default_rng([seed, number])
    local = ReplayBuffer(CHUNK, ROW)
    env, score = gymnasium.make("CartPole-v1"), 0.0
    obs, _ = env.reset(seed=int(rng.integers(2**31)))
    while not is_over(shared):
        if (published := shared.parameters.pull(version)) is not None:
            version, parameters = published
            policy.set_parameters(parameters)
        action = policy.act(obs[np.newaxis], np.array([epsilon]), rng)[0]
        next_obs, reward, terminated, truncated, _ = env.step(action)
        score, ended = score + float(reward), terminated or truncated
        discount = 0.0 if terminated else GAMMA
        step = {"obs": obs, "action": action, "reward": reward, "next_obs": next_obs, "discount": discount}
        local.add(**step, actor=number, score=score, ended=ended)
        obs = next_obs
        if ended:
            (obs, _), score = env.reset(), 0.0
        if len(local) == CHUNK:
            rows = local[:]
            local.clear()
            shared.replay.add(**rows, priorities=policy.priorities(rows))


def is_over(shared: Shared) -> bool:
    """Return whether the run has been stopped, or the process that started it has died."""
    parent = parent_process()
    return shared.stop.requested or (parent is not None and not parent.is_alive())


class Learner:
    """The agent, and the loop that trains it from the shared replay."""

    def __init__(self, shared: Shared, seed: int = 0) -> None:
        """Create the agent, and publish its first parameters."""
        torch.manual_seed(seed)
        network = make_network()
        optimizer = torch.optim.Adam(network.parameters(), lr=LEARNING_RATE)
        self.agent = DQNAgent(
            network, optimizer, huber_delta=10.0, gradient_norm=10.0, target_interval=TARGET_INTERVAL
        )
        self.shared = shared
        shared.parameters.publish(self.agent.parameters())

    def learn(self, updates: int) -> None:
        """Make `updates` updates."""
        agent, replay = self.agent, self.shared.replay
        for _ in range(updates):
            batch = replay.sample(BATCH_SIZE, BETA)
            update = agent.update(batch, batch["weights"])
            replay.update_priorities(batch["indexes"], update.priorities)
            if agent.updates % PUBLISH_INTERVAL == 0:
                self.shared.parameters.publish(agent.parameters())


@contextmanager
def running_actors(shared: Shared, count: int, seed: int = 0) -> Generator[list[BaseProcess]]:
    """Start actors, and wait until each of them has added rows; stop them at the end of the block.

    Raises:
        RuntimeError: If all actors die before the replay has WARM_UP rows.
    """
    processes = start_context()  # forks a server that has imported PyTorch, or spawns
    actors: list[BaseProcess] = [
        processes.Process(target=act, args=(shared, number, epsilon, seed), daemon=True)
        for number, epsilon in enumerate(epsilon_schedule(count))
    ]
    try:
        for actor in actors:
            actor.start()
        while alive := sum(actor.is_alive() for actor in actors):
            if shared.replay.wait_for(WARM_UP, timeout=1.0):
                added = shared.replay[:]["actor"]
                if len(np.unique(added)) >= alive:
                    break
            time.sleep(0.01)
        else:
            raise RuntimeError("all actors died before the learner could start; see their errors above")
        yield actors
    finally:
        shared.stop.request()
        for actor in actors:
            if actor.pid is not None:
                actor.join(STOP_SECONDS)
                actor.kill()  # has no effect on a process that has ended
                actor.join()


def episodes(shared: Shared, number: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Return the episodes of an actor, as long as the ring has not wrapped around.

    Returns:
        For each episode, the number of rows in the replay when it was added, int64[E], and its return,
        float32[E].
    """
    rows = shared.replay[:]
    ends = np.flatnonzero(rows["ended"] & (rows["actor"] == number))
    return ends + 1, rows["score"][ends]


def main(actors: int = 2, updates: int = 500) -> None:
    """Train, and print the mean return of each actor's first and last episodes."""
    torch.set_num_threads(1)
    shared = make_shared()
    learner = Learner(shared)
    with running_actors(shared, actors):
        learner.learn(updates)
    print(f"{shared.replay.statistics().rows_added:,} rows, {updates:,} updates")
    for number in range(actors):
        _, returns = episodes(shared, number)
        first, last = returns[:20].mean(), returns[-20:].mean()
        print(f"actor {number}: mean return {first:.0f} at first, {last:.0f} at last")


if __name__ == "__main__":  # a spawned actor imports this file
    main()
