"""Use these buffers in Stable-Baselines3: uniform or prioritized, n-step, any number of environments."""

# --8<-- [start:uniform]
import numpy as np
import stable_baselines3
import torch
from stable_baselines3.common.buffers import BaseBuffer
from stable_baselines3.common.buffers import ReplayBuffer as SB3ReplayBuffer
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.type_aliases import ReplayBufferSamples

from replay_tutorial import NStep, PrioritizedReplayBuffer, ReplayBuffer, fields_from_spaces


class Replay(SB3ReplayBuffer):
    """A `replay_buffer_class` for DQN, DDPG, TD3 and SAC.

    Pass `n_steps`, `gamma` and `seed` in `replay_buffer_kwargs`.
    """

    make_buffer = ReplayBuffer
    handle_timeout_termination = True  # read by load_replay_buffer

    def __init__(
        self,
        buffer_size,
        observation_space,
        action_space,
        device="auto",
        n_envs=1,
        optimize_memory_usage=False,
        n_steps=1,
        gamma=0.99,
        seed=None,
    ):
        # SB3ReplayBuffer.__init__ would allocate its own arrays.
        BaseBuffer.__init__(self, buffer_size, observation_space, action_space, device, n_envs)
        if optimize_memory_usage:
            raise ValueError("optimize_memory_usage is not supported by this buffer")
        fields = fields_from_spaces(observation_space, action_space)
        window = {"size": n_steps, "gamma": gamma, "rew": "rew", "next": "next_obs"}
        self.n_step = NStep(fields, window, environments=n_envs)
        self.rows = self.make_buffer(buffer_size, self.n_step.env_dict, seed=seed)

    def size(self):
        return len(self.rows)

    def add(self, obs, next_obs, action, reward, done, infos):
        truncated = np.array([info.get("TimeLimit.truncated", False) for info in infos])
        flags = {"terminated": done & ~truncated, "truncated": truncated}
        rows = self.n_step.add_step(obs=obs, act=action, rew=reward, next_obs=next_obs, **flags)
        if rows is not None:
            self.rows.add(**rows)

    def sample(self, batch_size, env=None):
        return self.as_samples(self.rows.sample(batch_size), env)

    def as_samples(self, batch, env):
        """Convert a batch to SB3's format: scalars are (B, 1); a VecNormalize `env` normalizes them."""
        data = (
            self._normalize_obs(batch["obs"].reshape(-1, *self.obs_shape), env),
            batch["act"].reshape(-1, self.action_dim),
            self._normalize_obs(batch["next_obs"].reshape(-1, *self.obs_shape), env),
            batch["terminated"].reshape(-1, 1).astype("float32"),
            self._normalize_reward(batch["rew"].reshape(-1, 1), env),
            batch["discount"].reshape(-1, 1),
        )
        return ReplayBufferSamples(*map(self.to_torch, data))


# --8<-- [end:uniform]


# --8<-- [start:prioritized]
class PrioritizedReplay(Replay):
    """Keep the indexes and weights of the last batch for `PrioritizedDQN`."""

    make_buffer = PrioritizedReplayBuffer
    beta = 0.4

    def sample(self, batch_size, env=None):
        batch = self.rows.sample(batch_size, beta=self.beta)
        self.indexes, self.weights = batch["indexes"], self.to_torch(batch["weights"]).reshape(-1, 1)
        return self.as_samples(batch, env)


class PrioritizedDQN(stable_baselines3.DQN):
    """DQN with importance weights in the loss and |TD error| as priorities."""

    def train(self, gradient_steps, batch_size=100):
        self.policy.set_training_mode(True)
        self._update_learning_rate(self.policy.optimizer)
        replay = self.replay_buffer
        for _ in range(gradient_steps):
            data = replay.sample(batch_size, env=self._vec_normalize_env)
            with torch.no_grad():
                next_values = self.q_net_target(data.next_observations).amax(1, keepdim=True)
                targets = data.rewards + (1 - data.dones) * data.discounts * next_values
            chosen = self.q_net(data.observations).gather(1, data.actions.long())
            losses = torch.nn.functional.smooth_l1_loss(chosen, targets, reduction="none")
            loss = (replay.weights * losses).mean()

            self.policy.optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.policy.parameters(), self.max_grad_norm)
            self.policy.optimizer.step()
            errors = (targets - chosen).detach().abs().flatten().cpu().numpy()
            replay.rows.update_priorities(replay.indexes, errors)
        self._n_updates += gradient_steps
        self.logger.record("train/n_updates", self._n_updates, exclude="tensorboard")
        self.logger.record("train/loss", loss.item())


# --8<-- [end:prioritized]


# --8<-- [start:main]
def main(
    algorithm=PrioritizedDQN, replay=PrioritizedReplay, environment="CartPole-v1", steps=1_000, **options
):
    model = algorithm(
        "MlpPolicy",
        make_vec_env(environment, n_envs=4, seed=0),
        replay_buffer_class=replay,
        replay_buffer_kwargs={"n_steps": 3, "gamma": 0.99, "seed": 0},
        learning_starts=500,
        seed=0,
        device="cpu",
        **options,
    )
    return model.learn(steps)


if __name__ == "__main__":
    for algorithm, replay in ((stable_baselines3.DQN, Replay), (PrioritizedDQN, PrioritizedReplay)):
        print(main(algorithm, replay).replay_buffer.rows)
# --8<-- [end:main]
