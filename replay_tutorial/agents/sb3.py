"""Prioritized DQN, SAC and TD3 for Stable-Baselines3 (SB3), with n-step returns and Dict observations.

Any off-policy algorithm of SB3 accepts `ReplayBuffer` as its `replay_buffer_class`. Priorities need more than
that, because SB3's `train` has no place for weights and keeps its TD errors to itself. The three subclasses
therefore override it. Their updates are SB3's, except that the importance weights multiply the losses of the
Q-networks; at equal priorities both compute the same parameters.

Paper: Schaul et al. 2016, "Prioritized Experience Replay", section 3.
"""

import weakref
from collections.abc import Mapping
from typing import Any

import numpy.typing as npt
import torch
from stable_baselines3 import DQN, SAC, TD3
from stable_baselines3.common.buffers import ReplayBuffer as SB3ReplayBuffer
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.save_util import load_from_pkl
from stable_baselines3.common.utils import polyak_update
from torch import Tensor
from torch.nn import functional
from torch.optim import Optimizer

import replay_tutorial
from replay_tutorial.agents import cleanrl
from replay_tutorial.buffers.n_step.windows import NotConsecutive

# Arguments of a buffer, and the attributes of the algorithm from which they are read.
OF_ALGORITHM = {"n_steps": "n_steps", "n_step": "n_steps", "gamma": "gamma", "num_envs": "n_envs"}


class ReplayBuffer(cleanrl.ReplayBuffer):
    """A `replay_buffer_class` for DQN, DDPG, TD3 and SAC.

    The rows are single steps; for n-step returns, see `NStepReturns`. Pass `seed` in `replay_buffer_kwargs`.
    """

    _model: "weakref.ref[OffPolicyAlgorithm] | None" = None

    def __init__(
        self, *arguments: Any, n_steps: int = 1, model: OffPolicyAlgorithm | None = None, **options: Any
    ) -> None:
        """Create an empty buffer.

        Args:
            *arguments: As for `cleanrl.ReplayBuffer`.
            n_steps: n, the number of rewards in a return.
            model: The algorithm, whose `gamma` discounts n-step returns; the algorithms derived from
                `NStepReturns` pass themselves.
            **options: As for `cleanrl.ReplayBuffer`, but not `gamma`, which belongs to the algorithm.

        Raises:
            TypeError: As for `cleanrl.ReplayBuffer`.
            ValueError: As for `cleanrl.ReplayBuffer`, or if `n_steps` is above 1 without `model`, or `gamma`
                or `n_step` is passed.
        """
        passed = "".join(f", {name}={options[name]}" for name in ("n_step", "gamma") if name in options)
        if passed or (n_steps > 1 and model is None):
            raise ValueError(
                f"The buffer was created with n_steps={n_steps}{passed}, but only the algorithm has its "
                "gamma. Pass n_steps and gamma to the algorithm instead of replay_buffer_kwargs; for n-step "
                "returns, derive the algorithm from NStepReturns: class NStepDQN(NStepReturns, DQN)."
            )
        gamma = None if model is None or n_steps == 1 else model.gamma
        super().__init__(*arguments, n_steps=n_steps, gamma=gamma, **options)
        if model is not None:
            self.use_gamma_of(model)

    def use_gamma_of(self, model: OffPolicyAlgorithm) -> None:
        """Discount n-step returns by the present `gamma` of an algorithm."""
        self._model = weakref.ref(model)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_model": None}

    def add(
        self,
        obs: Any,
        next_obs: Any,
        action: Any,
        reward: Any,
        done: Any,
        infos: Any,
        truncations: Any = None,
    ) -> None:
        """Add one step of every environment, as `cleanrl.ReplayBuffer` does.

        If the observations don't continue the episodes, the environments have been reset: by `learn`, or
        because the buffer was loaded into another process. The pending rows are then stored as truncated.
        The same happens if the buffer was loaded into an algorithm with another number of environments.

        Raises:
            ValueError: If a shape or value doesn't match. The buffer is then unchanged.
        """
        step = obs, next_obs, action, reward, done, infos, truncations
        if len(done) != self.n_envs:
            self._change_environments(len(done))
        try:
            super().add(*step)
        except NotConsecutive:
            self.end_episodes()
            super().add(*step)

    def _change_environments(self, n_envs: int) -> None:
        """Continue with the steps of another number of environments."""
        self.end_episodes()
        self._start(n_envs)

    def _samples(self, batch: Mapping[str, npt.NDArray[Any]], env: Any) -> cleanrl.Samples:
        if self.n_steps > 1:
            self.gamma = self._gamma_of_model()
        return super()._samples(batch, env)

    def _gamma_of_model(self) -> float:
        model = self._model and self._model()
        if model is None:
            raise ValueError(
                f"The buffer has n_steps={self.n_steps}, but no algorithm with a gamma. Load it with "
                "load_replay_buffer of an algorithm derived from NStepReturns."
            )
        return model.gamma


class PrioritizedReplayBuffer(cleanrl.PrioritizedReplayBuffer, ReplayBuffer):
    """The default `replay_buffer_class` of `PrioritizedDQN`, `PrioritizedSAC` and `PrioritizedTD3`.

    Pass `alpha`, `beta`, `eps` and `seed` in `replay_buffer_kwargs`.
    """


class HindsightReplayBuffer(PrioritizedReplayBuffer):
    """Hindsight experience replay (HER) with priorities and n-step returns, for the prioritized algorithms.

    The observation space is the Dict of gymnasium's GoalEnv. Pass the two functions `compute_reward` and
    `compute_terminated` of the package's `HindsightReplayBuffer` in `replay_buffer_kwargs`, and its options,
    such as `strategy`, `relabel` and `alpha`. `save_replay_buffer` pickles the functions, so define them in a
    module. `buffer_size` counts slots: an episode of T steps occupies T + 1.
    """

    def use_gamma_of(self, model: OffPolicyAlgorithm) -> None:
        """Discount n-step returns by the present `gamma` of an algorithm with as many environments.

        Raises:
            ValueError: If the number of environments differs.
        """
        if model.n_envs != self.n_envs:
            raise ValueError(
                f"The buffer has the episodes of {self.n_envs} environments, and the algorithm has "
                f"{model.n_envs}. Create or load the algorithm with {self.n_envs} environments."
            )
        super().use_gamma_of(model)

    def _change_environments(self, n_envs: int) -> None:
        raise ValueError(
            f"The buffer has the episodes of {self.n_envs} environments, and the step is of {n_envs}. Create "
            f"a buffer with n_envs={n_envs}."
        )

    def end_episodes(self) -> None:
        """End the episodes of all environments, as if they had been truncated."""
        for environment in range(self.n_envs):
            self.rows.end_episode(environment)

    def sample(self, batch_size: int, env: Any = None) -> cleanrl.Samples:
        """Sample steps by priority, and relabel some of them with goals that were achieved later.

        Args:
            batch_size: Number of rows.
            env: As for `cleanrl.ReplayBuffer`.

        Returns:
            A batch as for `cleanrl.PrioritizedReplayBuffer`.

        Raises:
            ValueError: As for `cleanrl.PrioritizedReplayBuffer`, or if `env` normalizes rewards and `n_steps`
                is above 1.
        """
        if self.n_steps > 1:
            self.rows.set_gamma(self._gamma_of_model())
        return super().sample(batch_size, env)

    def _start(self, n_envs: int) -> None:
        self.n_envs = n_envs

    def _new_rows(self, size: int, optimize_memory_usage: bool, **options: Any) -> Any:
        fields = cleanrl.fields_of(self.observation_space, self.action_space)
        if self.n_steps > 1:
            options = {"n_step": self.n_steps, "gamma": self.gamma, **options}
        options = {"alpha": 0.6, "num_envs": self.n_envs, **options}
        return replay_tutorial.HindsightReplayBuffer(size, fields, **options)

    def _add_step(self, reward: npt.NDArray[Any], step: Mapping[str, Any]) -> None:
        self.rows.add_step(reward=reward, **step)

    def _returns(self, batch: Mapping[str, npt.NDArray[Any]], env: Any) -> tuple[Any, Any]:
        if env is None:
            return batch["reward"], batch.get("discount")
        if env.norm_reward and self.n_steps > 1:
            raise ValueError(
                f"VecNormalize can't normalize the rewards of hindsight returns of n_steps={self.n_steps}. "
                "Pass norm_reward=False to it, or n_steps=1 to the algorithm."
            )
        return env.normalize_reward(batch["reward"]), batch.get("discount")


SB3ReplayBuffer.register(ReplayBuffer)  # `load_replay_buffer` requires an instance


class NStepReturns(OffPolicyAlgorithm):
    """Adds n-step returns with Dict observations to an algorithm of SB3 whose targets use `discounts`.

    The arguments `n_steps` and `gamma` of the algorithm set the returns. The rows keep their n rewards, so
    that a new `gamma` counts from the next batch on, whether it is assigned or passed to `load`.

    Example:
        >>> from stable_baselines3 import DDPG
        >>> class NStepDDPG(NStepReturns, DDPG):
        ...     pass
        >>> NStepDDPG("MlpPolicy", "Pendulum-v1", n_steps=3, gamma=0.9, buffer_size=100).gamma
        0.9
    """

    _buffer_class: type[ReplayBuffer] = ReplayBuffer

    def _setup_model(self) -> None:
        self.replay_buffer_class: Any = self.replay_buffer_class or self._buffer_class
        if not issubclass(self.replay_buffer_class, self._buffer_class):
            raise TypeError(
                f"{type(self).__name__} can't sample from replay_buffer_class="
                f"{self.replay_buffer_class.__name__}, which isn't derived from {__name__}."
                f"{self._buffer_class.__name__}. Use that class, or HindsightReplayBuffer for hindsight "
                "goals, or an algorithm of stable_baselines3."
            )
        n_steps, options = self.n_steps, self.replay_buffer_kwargs
        for name in OF_ALGORITHM.keys() & options.keys():
            own = OF_ALGORITHM[name]
            raise ValueError(
                f"replay_buffer_kwargs contains {name}={options[name]}, and the algorithm has "
                f"{own}={getattr(self, own)}. Remove {name}: the buffer uses the algorithm's {own}."
            )
        # If n_steps isn't 1, SB3 warns that it doesn't use its own n-step buffer.
        self.n_steps, self.replay_buffer_kwargs = 1, {**options, "n_steps": n_steps, "model": self}
        super()._setup_model()
        self.n_steps, self.replay_buffer_kwargs = n_steps, options

    def learn(self, *arguments: Any, **options: Any) -> Any:
        """Learn as SB3's algorithm does; the buffer of a copied algorithm then has the copy's `gamma`."""
        replay: Any = self.replay_buffer
        replay.use_gamma_of(self)
        return super().learn(*arguments, **options)

    def load_replay_buffer(self, path: Any, truncate_last_traj: bool = True) -> None:
        """Load a buffer that `save_replay_buffer` has saved.

        Args:
            path: As for SB3.
            truncate_last_traj: As for SB3; it has no effect.

        Raises:
            TypeError: If the buffer is of another class. The algorithm then keeps its buffer.
            ValueError: If the buffer has another `n_steps`. The algorithm then keeps its buffer.
        """
        loaded: Any = load_from_pkl(path, self.verbose)
        if not isinstance(loaded, self.replay_buffer_class):
            raise TypeError(
                f"The file contains a {type(loaded).__name__}; {type(self).__name__} requires a "
                f"{self.replay_buffer_class.__name__}."
            )
        if loaded.n_steps != self.n_steps:
            raise ValueError(
                f"The buffer has n_steps={loaded.n_steps}, and the algorithm has n_steps={self.n_steps}. "
                f"Create or load the algorithm with n_steps={loaded.n_steps}, or collect new steps."
            )
        loaded.device = self.device
        loaded.use_gamma_of(self)
        self.replay_buffer: Any = loaded


class Prioritized(NStepReturns):
    """The common part of the prioritized algorithms: sampling, and updating priorities."""

    _buffer_class = PrioritizedReplayBuffer

    def train(self, gradient_steps: int, batch_size: int = 100) -> None:
        """Update the networks, and the priorities of the sampled rows."""
        self.policy.set_training_mode(True)
        self._update_learning_rate(self._optimizers())
        replay: Any = self.replay_buffer
        metrics: dict[str, list[float]] = {}
        for step in range(gradient_steps):
            self._n_updates += 1
            data = replay.sample(batch_size, env=self._vec_normalize_env)
            if data.discounts is None:
                data = data._replace(discounts=self.gamma * (1 - data.dones))
            errors, losses = self._update(data, step)
            replay.update_priorities(data.indexes, errors)
            for name, value in losses.items():
                metrics.setdefault(name, []).append(value.item())
        self.logger.record("train/n_updates", self._n_updates, exclude="tensorboard")
        for name, values in metrics.items():
            self.logger.record(f"train/{name}", sum(values) / len(values))

    def _optimizers(self) -> list[Optimizer]:
        raise NotImplementedError

    def _update(self, data: Any, step: int) -> tuple[Tensor, dict[str, Tensor]]:
        """Make one update; return the TD errors, float32[B, Q-networks], and the numbers to log."""
        raise NotImplementedError


class PrioritizedDQN(Prioritized, DQN):
    """SB3's DQN with prioritized replay; the argument `n_steps` sets n-step returns."""

    def _optimizers(self) -> list[Optimizer]:
        return [self.policy.optimizer]

    def _update(self, data: Any, step: int) -> tuple[Tensor, dict[str, Tensor]]:
        with torch.no_grad():
            next_values = self.q_net_target(data.next_observations).amax(1, keepdim=True)  # [B, 1]
            targets = data.rewards + data.discounts * next_values
        chosen = self.q_net(data.observations).gather(1, data.actions.long())  # [B, 1]
        losses = functional.smooth_l1_loss(chosen, targets, reduction="none")
        loss = (data.weights * losses).mean()
        self.policy.optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.policy.parameters(), self.max_grad_norm)
        self.policy.optimizer.step()
        return targets - chosen, {"loss": loss}


class PrioritizedSAC(Prioritized, SAC):
    """SB3's SAC with prioritized replay; the argument `n_steps` sets n-step returns.

    The priority of a row is the mean of |TD error| over the critics.
    """

    def _optimizers(self) -> list[Optimizer]:
        optimizers = [self.actor.optimizer, self.critic.optimizer, self.ent_coef_optimizer]
        return [optimizer for optimizer in optimizers if optimizer is not None]

    def _update(self, data: Any, step: int) -> tuple[Tensor, dict[str, Tensor]]:
        logged: dict[str, Tensor] = {}
        if self.use_sde:
            self.actor.reset_noise()
        actions, log_prob = self.actor.action_log_prob(data.observations)
        log_prob = log_prob.reshape(-1, 1)
        if self.ent_coef_optimizer is None:
            ent_coef = self.ent_coef_tensor
        else:
            log_ent_coef: Any = self.log_ent_coef
            ent_coef = log_ent_coef.detach().exp()
            target: Any = self.target_entropy
            logged["ent_coef_loss"] = -(log_ent_coef * (log_prob + target).detach()).mean()
            descend(self.ent_coef_optimizer, logged["ent_coef_loss"])
        with torch.no_grad():
            next_actions, next_log_prob = self.actor.action_log_prob(data.next_observations)
            next_values = torch.cat(self.critic_target(data.next_observations, next_actions), dim=1)
            next_values = next_values.amin(1, keepdim=True) - ent_coef * next_log_prob.reshape(-1, 1)
            targets = data.rewards + data.discounts * next_values  # [B, 1]
        errors = targets - torch.cat(self.critic(data.observations, data.actions), dim=1)  # [B, critics]
        critic_loss = 0.5 * (data.weights * errors.square()).sum(1).mean()
        descend(self.critic.optimizer, critic_loss)
        values = torch.cat(self.critic(data.observations, actions), dim=1).amin(1, keepdim=True)
        actor_loss = (ent_coef * log_prob - values).mean()
        descend(self.actor.optimizer, actor_loss)
        if step % self.target_update_interval == 0:
            polyak_update(self.critic.parameters(), self.critic_target.parameters(), self.tau)
            polyak_update(self.batch_norm_stats, self.batch_norm_stats_target, 1.0)
        return errors, {**logged, "ent_coef": ent_coef, "actor_loss": actor_loss, "critic_loss": critic_loss}


class PrioritizedTD3(Prioritized, TD3):
    """SB3's TD3 with prioritized replay; the argument `n_steps` sets n-step returns.

    The priority of a row is the mean of |TD error| over the critics.
    """

    def _optimizers(self) -> list[Optimizer]:
        return [self.actor.optimizer, self.critic.optimizer]

    def _update(self, data: Any, step: int) -> tuple[Tensor, dict[str, Tensor]]:
        with torch.no_grad():
            noise = torch.empty_like(data.actions).normal_(0, self.target_policy_noise)
            noise = noise.clamp(-self.target_noise_clip, self.target_noise_clip)
            next_actions = (self.actor_target(data.next_observations) + noise).clamp(-1, 1)
            next_values = torch.cat(self.critic_target(data.next_observations, next_actions), dim=1)
            targets = data.rewards + data.discounts * next_values.amin(1, keepdim=True)  # [B, 1]
        errors = targets - torch.cat(self.critic(data.observations, data.actions), dim=1)  # [B, critics]
        critic_loss = (data.weights * errors.square()).sum(1).mean()
        descend(self.critic.optimizer, critic_loss)
        if self._n_updates % self.policy_delay != 0:
            return errors, {"critic_loss": critic_loss}
        actor_loss = -self.critic.q1_forward(data.observations, self.actor(data.observations)).mean()
        descend(self.actor.optimizer, actor_loss)
        for network, target in [(self.critic, self.critic_target), (self.actor, self.actor_target)]:
            polyak_update(network.parameters(), target.parameters(), self.tau)
        polyak_update(self.critic_batch_norm_stats, self.critic_batch_norm_stats_target, 1.0)
        polyak_update(self.actor_batch_norm_stats, self.actor_batch_norm_stats_target, 1.0)
        return errors, {"critic_loss": critic_loss, "actor_loss": actor_loss}


def descend(optimizer: Optimizer, loss: Tensor) -> None:
    """Make one step of an optimizer."""
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
