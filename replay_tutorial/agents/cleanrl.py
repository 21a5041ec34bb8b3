"""Drop-in replay buffers for CleanRL: uniform or prioritized, n-step, any number of environments.

The interface is that of `cleanrl_utils.buffers.ReplayBuffer`, which CleanRL took from Stable-Baselines3, so
that CleanRL's scripts need only another import. `sb3` builds on the same classes. The steps pass through
`NStepWindow`, with one window per environment, to a buffer of this package. A row keeps its n rewards, so
that `sample` can normalize each of them and discount them by the present gamma; batches are returned as
tensors.

    add(obs, next_obs, action, reward, done, infos) ──▶ NStepWindow ──▶ rows      sample(n) ──▶ Samples

Left out: rollout buffers, which don't replay.
"""

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from gymnasium import spaces
from torch import Tensor

import replay_tutorial
from replay_tutorial.agents.td_error import priorities_of
from replay_tutorial.buffers.batch import Batch
from replay_tutorial.buffers.cast import as_array
from replay_tutorial.buffers.rows import checked_at_least, checked_share

Observations = Tensor | dict[str, Tensor]  # a dict if the observation space is a Dict

POSITION: dict[str, Any] = {"dtype": np.int32}


class Samples(NamedTuple):
    """A batch with CleanRL's names; B is the batch size."""

    observations: Observations  # [B, ...]
    actions: Tensor  # int64[B, 1] or float32[B, size]
    next_observations: Observations  # [B, ...], after the last of the k ≤ n steps
    dones: Tensor  # float32[B, 1], 1 if the episode terminated within these steps
    rewards: Tensor  # float32[B, 1], Σ_{i<k} γ^i r_{t+i}
    discounts: Tensor | None = None  # float32[B, 1], γ^k, or 0 if the episode terminated; None without gamma
    weights: Tensor | None = None  # float32[B, 1], importance-sampling weights; None if uniform
    indexes: npt.NDArray[np.int64] | None = None  # [B], for `update_priorities`; None if uniform


class ReplayBuffer:
    """A uniform replay buffer with the interface of CleanRL's.

    Example:
        >>> space = spaces.Box(-1, 1, (3,))
        >>> rb = ReplayBuffer(1000, space, spaces.Discrete(2), "cpu", handle_timeout_termination=False)
        >>> zeros = np.zeros((1, 3), np.float32)
        >>> rb.add(zeros, zeros, np.array([0]), np.array([1.0]), np.array([False]), {})
        >>> data = rb.sample(4)
        >>> data.observations.shape, data.rewards.shape
        (torch.Size([4, 3]), torch.Size([4, 1]))

    Attributes:
        rows: The package's buffer. Its field `reward` contains the n rewards of a row, with zeros after the
            end of an episode, and `steps` their number.
        gamma: The discount factor per step, or None; you can change it between batches.
    """

    _kind: type[replay_tutorial.ReplayBuffer] = replay_tutorial.ReplayBuffer

    # With optimize_memory_usage, SB3's `learn` writes to its own arrays unless these say that they are empty.
    pos, full = 0, False

    def __init__(
        self,
        buffer_size: int,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        device: torch.device | str = "auto",
        n_envs: int = 1,
        optimize_memory_usage: bool = False,
        handle_timeout_termination: bool = True,
        *,
        n_steps: int = 1,
        gamma: float | None = None,
        autoreset: str | Enum = "same_step",
        seed: int | None = None,
        **options: Any,
    ) -> None:
        """Create an empty buffer.

        Args:
            buffer_size: Maximum number of rows, of all environments together.
            observation_space: The space of one environment; a Dict of arrays is supported.
            action_space: The space of one environment.
            device: Device of the batches. "auto" selects CUDA if it is available.
            n_envs: Number of environments.
            optimize_memory_usage: Whether to store each observation once, and each plane of an observation
                with three axes, such as a stack of frames, once (but not the three colours of an image).
                The rows are unchanged, including those at the end of an episode.
            handle_timeout_termination: Whether a step with `TimeLimit.truncated` in its info is truncated
                instead of terminated. This has no effect if `infos` is a dict.
            n_steps: n, the number of rewards in a return.
            gamma: The discount factor per step, which n-step returns require. A batch contains `discounts`
                only if it is set.
            autoreset: The mode in which a vector environment of gymnasium starts the next episode:
                "same_step", the mode of gymnasium 0.29, "next_step", the default of newer versions,
                "disabled", or `envs.metadata["autoreset_mode"]`. With "next_step", the step after the end of
                an episode only resets the environment, and is ignored.
            seed: Seed for sampling. By default, it is drawn from NumPy's global generator, which CleanRL and
                SB3 seed.
            **options: Further arguments of the package's buffer, such as `check_finite`.

        Raises:
            TypeError: If a space is not supported, or an argument has the wrong type.
            ValueError: If a value is out of range, or `n_steps` is above 1 without `gamma`.
        """
        n_steps = checked_at_least("n_steps", n_steps, 1)
        if gamma is None and n_steps > 1:
            raise ValueError(f"n_steps={n_steps} requires gamma: pass the discount factor of the algorithm.")
        if gamma is not None:
            gamma = checked_share("gamma", gamma)
        self.observation_space, self.action_space = observation_space, action_space
        self.n_steps, self.gamma, self.autoreset = n_steps, gamma, autoreset
        self._same_step = getattr(autoreset, "value", autoreset) in ("same_step", "SameStep")
        self._check_finite = bool(options.get("check_finite"))
        self._start(n_envs)
        seed = int(np.random.randint(2**31)) if seed is None else seed
        self.rows: Any = self._new_rows(buffer_size, optimize_memory_usage, seed=seed, **options)
        automatic = "cuda" if torch.cuda.is_available() else "cpu"
        self.device = torch.device(automatic if device == "auto" else device)
        self.buffer_size = buffer_size
        self.handle_timeout_termination = handle_timeout_termination

    def _start(self, n_envs: int) -> None:
        """Create empty n-step windows for a number of environments.

        Each reward is passed to `NStepWindow` as a vector with zeros at the positions of the other n - 1
        steps, so that their undiscounted sum contains every reward.
        """
        fields = fields_of(self.observation_space, self.action_space)
        fields |= {"reward": {"shape": (self.n_steps,)}, "first": POSITION, "last": POSITION}
        nexts = [name for name in fields if name.startswith("next_obs")]
        self._n_step = replay_tutorial.NStepWindow(
            fields,
            replay_tutorial.NStep(self.n_steps, gamma=1.0, next_fields=[*nexts, "last"]),
            num_envs=n_envs,
            autoreset=self.autoreset,
            check_finite=self._check_finite,
        )
        self.n_envs = n_envs
        self._position = 0  # of the next step's reward in the vector; the same in all environments

    def _new_rows(self, size: int, optimize_memory_usage: bool, **options: Any) -> Any:
        """Create the buffer that stores the rows."""
        unstored = ("first", "last", "discount")
        stored = {name: spec for name, spec in self._n_step.fields.items() if name not in unstored}
        stored["steps"] = POSITION
        if optimize_memory_usage:
            nexts = [name for name in stored if name.startswith("next_obs")]
            stored = {name: spec for name, spec in stored.items() if name not in nexts}
            observed = [name.removeprefix("next_") for name in nexts]
            stacks = [name for name in observed if is_stack(stored[name]["shape"])]
            options = {"dedupe_next": observed, "dedupe_frames": stacks, **options}
        return self._kind(size, stored, **options)

    def size(self) -> int:
        """Return the number of stored rows."""
        return len(self.rows)

    def add(
        self,
        obs: Any,
        next_obs: Any,
        action: npt.NDArray[Any],
        reward: npt.NDArray[Any],
        done: npt.NDArray[np.bool_],
        infos: Mapping[str, Any] | Sequence[Mapping[str, Any]],
        truncations: npt.NDArray[np.bool_] | None = None,
    ) -> None:
        """Add one step of every environment.

        With n-step returns, the first rows of an episode are stored after n steps, and its last rows when it
        ends.

        Args:
            obs: The observations: an array (n_envs, …), or a dict of arrays.
            next_obs: The next observations. Where an episode was truncated, the last observation of that
                episode, and not the first one of the next.
            action: One action per environment.
            reward: float[n_envs].
            done: bool[n_envs], whether the episode ended. If `infos` is a dict: whether it terminated.
            infos: A dict from a vector environment of gymnasium, as in CleanRL: an episode was truncated if
                there is a final observation, but it didn't terminate. Or a list from a `VecEnv` of SB3.
            truncations: bool[n_envs], whether the episode was truncated. Only required if `autoreset` isn't
                "same_step", because `infos` doesn't contain final observations then.

        Raises:
            ValueError: If a shape doesn't match, or, with n-step returns, if an observation differs from the
                next observation of the step before it in the same episode, or if an episode ended in another
                way than in the mode `autoreset`. The buffer is then unchanged.
        """
        ended = self._one_of_each("done", done).astype(np.bool_)
        if truncations is not None:
            truncations = self._one_of_each("truncations", truncations).astype(np.bool_)
        truncated = self._truncated(ended, infos, truncations)
        flags = {"terminated": ended & ~truncated, "truncated": truncated}
        self._add_step(reward, {"obs": obs, "action": action, "next_obs": next_obs, **flags})

    def end_episodes(self) -> None:
        """End the episodes of all environments; call this after resetting them in the middle of an episode.

        The pending rows, which have fewer than n rewards, are stored as if their episodes had been truncated.
        """
        for environment in range(self.n_envs):
            self._store(self._n_step.end_episode(environment))

    def reset(self) -> None:
        """Remove all rows, including pending ones."""
        self.end_episodes()
        self.rows.clear()

    def sample(self, batch_size: int, env: Any = None) -> Samples:
        """Sample rows.

        Args:
            batch_size: Number of rows.
            env: SB3's `VecNormalize`, which normalizes observations and rewards, or None.

        Returns:
            A batch of tensors on the device. Scalars have the shape (batch_size, 1).

        Raises:
            ValueError: If the buffer is empty, or batch_size is below 1.
        """
        return self._samples(self.rows.sample(batch_size), env)

    def _add_step(self, reward: npt.NDArray[Any], step: Mapping[str, Any]) -> None:
        """Pass a step of every environment to the n-step windows."""
        given = self._one_of_each("reward", reward)
        rewards = np.zeros((self.n_envs, self.n_steps), given.dtype)
        rewards[:, self._position] = given
        position = np.full(self.n_envs, self._position, np.int32)
        rows = self._n_step.add_step(reward=rewards, first=position, last=position, **step)
        self._position = (self._position + 1) % self.n_steps
        self._store(rows)

    def _one_of_each(self, name: str, values: Any) -> npt.NDArray[Any]:
        """Convert an argument to an array; raise ValueError unless it has one number per environment."""
        given = as_array(name, values)
        if given.shape != (self.n_envs,):
            raise ValueError(f"{name} must have the shape ({self.n_envs},), not {given.shape}.")
        return given

    def _store(self, rows: Batch | None) -> None:
        """Add completed rows, with the reward of their first step first."""
        if rows is None:
            return
        first, last, count = rows.pop("first"), rows.pop("last"), len(rows["reward"])
        order = (first[:, np.newaxis] + np.arange(self.n_steps, dtype=np.int32)) % self.n_steps
        rows["reward"] = rows["reward"][np.arange(count)[:, np.newaxis], order]
        rows["steps"] = (last - first) % self.n_steps + 1
        del rows["discount"]  # its gamma is 1
        self.rows.add(**rows)

    def _truncated(self, ended: npt.NDArray[np.bool_], infos: Any, truncations: Any) -> npt.NDArray[np.bool_]:
        if isinstance(infos, Mapping):
            return self._truncated_in_gymnasium(ended, infos, truncations)
        if len(infos) != self.n_envs:
            raise ValueError(f"infos must have {self.n_envs} dicts, one per environment, not {len(infos)}.")
        timeouts = [info.get("TimeLimit.truncated", False) for info in infos]
        return np.array(timeouts, np.bool_) & self.handle_timeout_termination

    def _truncated_in_gymnasium(
        self, ended: npt.NDArray[np.bool_], infos: Mapping[str, Any], truncations: Any
    ) -> npt.NDArray[np.bool_]:
        # gymnasium 0.29 names it final_observation
        final: Any = infos.get("_final_obs", infos.get("_final_observation", np.zeros_like(ended)))
        if truncations is None and not self._same_step:
            raise ValueError(
                f"With autoreset={self.autoreset!r}, infos doesn't contain the truncated episodes. Pass "
                "truncations, as returned by step, to add."
            )
        truncated = final if truncations is None else truncations
        missing = (ended | truncated) & ~final
        if self._same_step and missing.any():
            raise ValueError(
                f"The episode of environment {missing.argmax()} ended, but infos doesn't contain its final "
                "observation, so the next episode doesn't start in the same step. Create the environments "
                "with autoreset_mode=AutoresetMode.SAME_STEP, or pass autoreset="
                "envs.metadata['autoreset_mode'] to the buffer, and truncations to add."
            )
        return truncated & ~ended

    def _samples(self, batch: Mapping[str, npt.NDArray[Any]], env: Any) -> Samples:
        obs, next_obs = self._observations(batch, "obs"), self._observations(batch, "next_obs")
        if env is not None:
            obs, next_obs = env.normalize_obs(obs), env.normalize_obs(next_obs)
        rewards, discounts = self._returns(batch, env)
        return Samples(
            self._tensors(obs),
            self._tensor(batch["action"].reshape(len(rewards), -1)),
            self._tensors(next_obs),
            self._scalars(batch["terminated"]),
            self._scalars(rewards),
            None if discounts is None else self._scalars(discounts),
        )

    def _returns(self, batch: Mapping[str, npt.NDArray[Any]], env: Any) -> tuple[Any, Any]:
        """Return the n-step returns of rows, and their discounts, or None without gamma."""
        rewards = batch["reward"] if env is None else env.normalize_reward(batch["reward"])  # [B, n]
        if self.gamma is None:
            return rewards, None
        powers = self.gamma ** np.arange(self.n_steps + 1)
        return rewards @ powers[:-1], powers[batch["steps"]] * ~batch["terminated"]

    def _observations(self, batch: Mapping[str, npt.NDArray[Any]], name: str) -> Any:
        if isinstance(self.observation_space, spaces.Dict):
            return {key: column(batch[f"{name}/{key}"]) for key in self.observation_space.spaces}
        return column(batch[name])

    def _tensors(self, observations: Any) -> Observations:
        if isinstance(observations, dict):
            return {key: self._tensor(array) for key, array in observations.items()}
        return self._tensor(observations)

    def _scalars(self, array: npt.NDArray[Any]) -> Tensor:
        return self._tensor(array.reshape(-1, 1).astype(np.float32))

    def _tensor(self, array: npt.NDArray[Any]) -> Tensor:
        return torch.as_tensor(np.ascontiguousarray(array), device=self.device)


class PrioritizedReplayBuffer(ReplayBuffer):
    """A prioritized replay buffer with the interface of CleanRL's, and `update_priorities`.

    A batch contains `weights`, by which the losses must be multiplied, and `indexes`.

    Attributes:
        beta: Exponent of the importance-sampling weights; you can change it between batches.
    """

    _kind = replay_tutorial.PrioritizedReplayBuffer

    def __init__(self, *arguments: Any, beta: float = 0.4, **options: Any) -> None:
        """Create an empty buffer.

        Args:
            *arguments: As for `ReplayBuffer`.
            beta: Exponent of the importance-sampling weights, in [0, 1].
            **options: As for `ReplayBuffer`, and `alpha` and `eps` as for the package's
                `PrioritizedReplayBuffer`.

        Raises:
            TypeError: As for `ReplayBuffer`.
            ValueError: As for `ReplayBuffer`.
        """
        super().__init__(*arguments, **options)
        self.beta = beta

    def sample(self, batch_size: int, env: Any = None) -> Samples:
        """Sample rows in proportion to their masses, (priority + eps) ** alpha.

        Args:
            batch_size: Number of rows.
            env: As for `ReplayBuffer`.

        Returns:
            A batch as for `ReplayBuffer`, with `weights` and `indexes`.

        Raises:
            ValueError: As for `ReplayBuffer`, or if `beta` is not in [0, 1].
        """
        batch = self.rows.sample(batch_size, beta=self.beta)
        weights = self._tensor(batch["weights"].reshape(-1, 1))
        return self._samples(batch, env)._replace(weights=weights, indexes=batch["indexes"])

    def update_priorities(self, indexes: npt.NDArray[np.int64], errors: Tensor) -> None:
        """Set the priorities of rows to |TD error|.

        Args:
            indexes: The `indexes` of a batch, int64[B].
            errors: TD errors of either sign, float[B], or float[B, critics], whose mean over the critics
                counts.

        Raises:
            ValueError: If the lengths differ, or an error is infinite or NaN. The buffer is then unchanged.
        """
        sizes = priorities_of(errors)
        self.rows.update_priorities(indexes, sizes.reshape(len(sizes), -1).mean(axis=1))


def fields_of(observation_space: spaces.Space[Any], action_space: spaces.Space[Any]) -> dict[str, Any]:
    """Return the fields of a step: observations keep their dtype, and float64 actions become float32."""
    fields = replay_tutorial.fields_from_spaces(observation_space, action_space, float_dtype=None)
    for name, spec in fields.items():
        if name.split("/")[0] == "action" and spec["dtype"] == np.float64:
            fields[name] = {**spec, "dtype": np.dtype(np.float32)}
    return fields


def is_stack(shape: tuple[int, ...]) -> bool:
    """Return whether an observation can be a stack of planes: an image, but not one of three colours."""
    return len(shape) == 3 and shape[0] != shape[-1] and 3 not in (shape[0], shape[-1])


def column(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return scalars, an array of shape (B,), with shape (B, 1), and other arrays unchanged."""
    return array[:, np.newaxis] if array.ndim == 1 else array
