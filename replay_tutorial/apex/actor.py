"""The actor: acts with a copy of the policy and sends its transitions to the replay.

Each environment has its own ε, so that the environments of all actors explore to different degrees. The actor
combines its steps into n-step rows, computes the initial priority of each row with its own copy of the
networks, and inserts the rows of several steps at once. So every row in the replay has a priority from a TD
error, and there are few inserts.

The state of an environment can't be saved, but its open episode can be replayed from its seed and actions. So
each episode has its own seed, and an actor's state contains seeds and actions. Only a run with `actors=0`
saves this state; other actors don't record their actions, because an episode may never end. Recurrent state
is not supported.

Paper: Horgan et al. 2018, section 3 and algorithm 1.
"""

import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from replay_tutorial.agents.atari import GAME_OVER, SCORE
from replay_tutorial.agents.environments import make_environment, to_step_actions
from replay_tutorial.apex.context import POLL_SECONDS, Context
from replay_tutorial.apex.messages import Episodes, Note
from replay_tutorial.apex.parts import exploration_schedule, make_policy
from replay_tutorial.apex.storage import n_step_windows, step_fields

Rows = dict[str, NDArray[Any]]  # field → [rows, ...]


class Actor:
    """Several environments with their n-step windows, and a copy of the policy.

    Each environment corresponds to one actor of the paper: it has its own ε. The schedule is distributed so
    that each process has exploratory and greedy environments. Actors are numbered from 0.
    """

    def __init__(self, context: Context, number: int, seed: np.random.SeedSequence) -> None:
        config = context.config
        self.context = context
        actors = max(1, config.actors)
        self.numbers = range(number, config.environment_count, actors)  # of its environments in the run
        # float64[environments]
        self.exploration = exploration_schedule(config, context.spaces)[number::actors]
        self.generator = np.random.default_rng(seed)
        self.policy = make_policy(config, context.spaces)
        self.version, self.parameters_update = 0, 0  # of the parameters in use
        self.windows = n_step_windows(config, context.spaces)

        name = config.environment
        self.environments = [
            make_environment(name, training=True, label=f"{name} (environment {i})") for i in self.numbers
        ]
        count = len(self.environments)
        # The open episode of each environment:
        self.seeds = [0] * count
        self.lengths = [0] * count
        self.returns = np.zeros(count)
        self.keeps_actions = config.actors == 0
        self.actions: list[list[Any]] = [[] for _ in range(count)]
        starts = [self.begin_episode(environment) for environment in range(count)]
        self.observations = np.stack(starts)  # [environments, *observation]

        # The steps since the last send: field → [send_interval, environments, ...]
        self.steps = {
            name: np.zeros((config.send_interval, count, *spec["shape"]), spec["dtype"])
            for name, spec in step_fields(context.spaces).items()
        }

    def run(self) -> None:
        """Act until the run is stopped."""
        # If the run is resumed, the learner publishes its first parameters after it has loaded the replay.
        while not self.pull_parameters() and not self.context.stop.requested:
            time.sleep(POLL_SECONDS / 10)
        while not self.context.stop.requested:
            self.play_and_send()

    def play_and_send(self) -> None:
        """Pull newer parameters, act for `send_interval` steps, and send the rows that are complete."""
        self.pull_parameters()
        episodes = self.play()
        rows = self.fold()
        if rows is not None:
            self.send(rows)
        if episodes.returns:
            self.context.send_message(episodes)

    def pull_parameters(self) -> bool:
        """Load the newest parameters; return whether they are new."""
        published = self.context.parameters.pull(self.version)
        if published is None:
            return False
        self.version, self.parameters_update, parameters = published
        self.policy.set_parameters(parameters)
        return True

    def play(self) -> Episodes:
        """Fill `steps`, and return the episodes that ended meanwhile."""
        age = self.context.counters.updates - self.parameters_update
        episodes = Episodes([], [], [], max(0, age))
        for row in range(self.context.config.send_interval):
            actions = self.policy.act(self.observations, self.exploration, self.generator)
            self.steps["obs"][row] = self.observations
            self.steps["action"][row] = actions
            for number, action in enumerate(to_step_actions(actions)):
                self.step(row, number, action, episodes)
        return episodes

    def step(self, row: int, number: int, action: Any, episodes: Episodes) -> None:
        """Step one environment, and store the step in row `row` of `steps`; reset after the last step."""
        env, steps = self.environments[number], self.steps
        observation, reward, terminated, truncated, info = env.step(action)
        self.lengths[number] += 1
        if self.keeps_actions:
            self.actions[number].append(action)
        # In Atari games the reward is clipped and each life is an episode; `info` has the game's score.
        self.returns[number] += info.get(SCORE, float(reward))
        steps["reward"][row, number] = reward
        steps["terminated"][row, number] = terminated
        steps["truncated"][row, number] = truncated
        # Before any reset: after a truncation, the target bootstraps from this observation.
        steps["next_obs"][row, number] = observation
        if terminated or truncated:
            if info.get(GAME_OVER, True):
                episodes.returns.append(float(self.returns[number]))
                episodes.lengths.append(self.lengths[number])
                episodes.environments.append(self.numbers[number])
                observation = self.begin_episode(number)
            else:
                observation, _ = env.reset()  # without a seed, the game continues with the next life
        self.observations[number] = observation

    def begin_episode(self, number: int) -> NDArray[Any]:
        """Start an episode in one environment and return its first observation."""
        self.seeds[number] = int(self.generator.integers(2**31))
        self.lengths[number] = 0
        self.actions[number] = []
        self.returns[number] = 0.0
        return self.environments[number].reset(seed=self.seeds[number])[0]

    def fold(self) -> Rows | None:
        """Return the n-step rows that the new steps complete, or None if there are none."""
        added = (
            self.windows.add(number, **{name: steps[:, number] for name, steps in self.steps.items()})
            for number in range(len(self.environments))
        )
        parts = [rows for rows in added if rows is not None]
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]} if parts else None

    def send(self, rows: Rows) -> None:
        """Insert rows with their initial priorities; block until they are accepted or the run is stopped."""
        priorities = self.policy.priorities(rows)
        while not self.context.replay.insert(rows, priorities, timeout=POLL_SECONDS):
            if self.context.stop.requested:
                return

    def state(self) -> dict[str, Any]:
        """Return a copy of the actor's state for `restore`, without the parameters."""
        return {
            "generator": self.generator.bit_generator.state,
            "seeds": list(self.seeds),
            "returns": self.returns.tolist(),
            "observations": self.observations.copy(),
            "actions": [np.array(actions) for actions in self.actions],
            "windows": self.windows.state(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Restore a state, and replay each open episode up to its last step."""
        self.windows.restore(state["windows"])
        for number in range(len(self.environments)):
            seed, actions = int(state["seeds"][number]), to_step_actions(state["actions"][number])
            observation = self.replay_episode(number, seed, actions)
            if observation is not None and np.array_equal(observation, state["observations"][number]):
                self.seeds[number], self.actions[number] = seed, actions
                self.lengths[number] = len(actions)
                self.returns[number] = state["returns"][number]
                self.observations[number] = observation
            else:
                # Drop the environment's incomplete n-step windows too, because the steps that would complete
                # them are lost.
                self.windows.end_episode(number)
                self.observations[number] = self.begin_episode(number)
                dropped = "its open episode is dropped, and a new one is started"
                reason = f"environment {number} is not reproducible from its seed: {dropped}"
                self.context.send_message(Note(reason))
        self.generator.bit_generator.state = state["generator"]

    def replay_episode(self, number: int, seed: int, actions: list[Any]) -> NDArray[Any] | None:
        """Replay an episode from its seed and actions; return its last observation, or None if it ended."""
        env = self.environments[number]
        observation, _ = env.reset(seed=seed)
        for action in actions:
            observation, _, terminated, truncated, info = env.step(action)
            if terminated or truncated:
                if info.get(GAME_OVER, True):
                    return None
                observation, _ = env.reset()
        return observation
