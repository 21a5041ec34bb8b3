"""Prioritized DQN, SAC and TD3 for Stable-Baselines3 (SB3), with n-step returns and Dict observations.

Any off-policy algorithm of SB3 accepts `ReplayBuffer` as its `replay_buffer_class`. Priorities need more than
that, because SB3's `train` has no place for weights and keeps its TD errors to itself. The three subclasses
therefore override it. Their updates are SB3's, except that the importance weights multiply the losses of the
Q-networks; at equal priorities both compute the same parameters.

Paper: Schaul et al. 2016, "Prioritized Experience Replay", section 3.
"""

from typing import Any

import torch
from stable_baselines3 import DQN, SAC, TD3
from stable_baselines3.common.buffers import ReplayBuffer as SB3ReplayBuffer
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.utils import polyak_update
from torch import Tensor
from torch.nn import functional
from torch.optim import Optimizer

from replay_tutorial.agents import cleanrl
from replay_tutorial.buffers.n_step_windows import NotConsecutive


class ReplayBuffer(cleanrl.ReplayBuffer):
    """A `replay_buffer_class` for DQN, DDPG, TD3 and SAC.

    Pass `n_steps`, `gamma` and `seed` in `replay_buffer_kwargs`.
    """

    def add(self, obs: Any, next_obs: Any, action: Any, reward: Any, done: Any, infos: Any) -> None:
        """Add one step of every environment.

        If the observations don't continue the episodes, the environments have been reset: by `learn`, or
        because the buffer was loaded into another process. The pending rows are then stored as truncated.

        Raises:
            ValueError: If a shape or value doesn't match. The buffer is then unchanged.
        """
        try:
            super().add(obs, next_obs, action, reward, done, infos)
        except NotConsecutive:
            self.end_episodes()
            super().add(obs, next_obs, action, reward, done, infos)


class PrioritizedReplayBuffer(cleanrl.PrioritizedReplayBuffer, ReplayBuffer):
    """The default `replay_buffer_class` of `PrioritizedDQN`, `PrioritizedSAC` and `PrioritizedTD3`.

    Pass `alpha`, `beta`, `eps` and `seed` in `replay_buffer_kwargs`.
    """


SB3ReplayBuffer.register(ReplayBuffer)  # `load_replay_buffer` requires an instance


class Prioritized(OffPolicyAlgorithm):
    """The common part of the prioritized algorithms: sampling, and updating priorities."""

    def _setup_model(self) -> None:
        self.replay_buffer_class: Any = self.replay_buffer_class or PrioritizedReplayBuffer
        returns = {"n_steps": self.n_steps, "gamma": self.gamma}
        self.replay_buffer_kwargs = {**returns, **self.replay_buffer_kwargs}
        self.n_steps = 1  # otherwise SB3 warns that it doesn't use its own n-step buffer
        super()._setup_model()

    def train(self, gradient_steps: int, batch_size: int = 100) -> None:
        """Update the networks, and the priorities of the sampled rows."""
        self.policy.set_training_mode(True)
        self._update_learning_rate(self._optimizers())
        replay: Any = self.replay_buffer
        metrics: dict[str, list[float]] = {}
        for step in range(gradient_steps):
            self._n_updates += 1
            data = replay.sample(batch_size, env=self._vec_normalize_env)
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
