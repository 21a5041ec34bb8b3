"""SAC (Haarnoja et al. 2018) with prioritized replay, in one file."""

# --8<-- [start:networks]
import copy
import sys

import gymnasium
import numpy as np
import torch
from torch import nn

from replay_tutorial import PrioritizedReplayBuffer

GAMMA, TAU, LEARNING_RATE, BATCH_SIZE, RANDOM_STEPS = 0.99, 0.005, 1e-3, 128, 500


def mlp(inputs, outputs):
    return nn.Sequential(
        nn.Linear(inputs, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, outputs)
    )


class Policy(nn.Module):
    """A Gaussian squashed by tanh; actions lie in [-1, 1]."""

    def __init__(self, obs_size, act_size):
        super().__init__()
        self.body = mlp(obs_size, 2 * act_size)

    def forward(self, obs):
        """Return actions (B, act_size), their log-probabilities (B,), and the most likely actions."""
        mean, log_std = self.body(obs).chunk(2, dim=-1)
        normal = torch.distributions.Normal(mean, log_std.clamp(-5, 2).exp())
        raw = normal.rsample()
        # log(1 - tanh(x)²), in a form that is stable for large |x|
        correction = 2 * (np.log(2) - raw - nn.functional.softplus(-2 * raw))
        return raw.tanh(), (normal.log_prob(raw) - correction).sum(-1), mean.tanh()


class Critics(nn.Module):
    """Two estimates of Q(s, a)."""

    def __init__(self, obs_size, act_size):
        super().__init__()
        self.first, self.second = mlp(obs_size + act_size, 1), mlp(obs_size + act_size, 1)

    def forward(self, obs, action):
        """Return both estimates: (2, B)."""
        inputs = torch.cat([obs, action], dim=-1)
        return torch.stack([self.first(inputs), self.second(inputs)]).squeeze(-1)


# --8<-- [end:networks]


# --8<-- [start:update]
class SAC:
    def __init__(self, obs_size, act_size):
        self.policy, self.critics = Policy(obs_size, act_size), Critics(obs_size, act_size)
        self.target_critics = copy.deepcopy(self.critics).requires_grad_(False)
        self.log_alpha = torch.zeros(1, requires_grad=True)  # of the entropy's weight, not of the priorities
        self.target_entropy = -float(act_size)
        modules = [self.policy.parameters(), self.critics.parameters(), [self.log_alpha]]
        self.optimizers = [torch.optim.Adam(parameters, lr=LEARNING_RATE) for parameters in modules]

    def update(self, batch):
        """Train on a batch of tensors; return its |TD errors| (B,), the mean over both critics."""
        obs, next_obs, entropy_weight = batch.obs, batch.next_obs, self.log_alpha.exp().detach()

        with torch.no_grad():
            next_action, next_log_prob, _ = self.policy(next_obs)
            next_value = self.target_critics(next_obs, next_action).amin(0) - entropy_weight * next_log_prob
            target = batch.reward + GAMMA * ~batch.terminated * next_value  # truncated steps bootstrap
        td_errors = target - self.critics(obs, batch.action)  # (2, B)
        critic_loss = (batch.weights * td_errors.square().sum(0)).mean()  # only this loss is weighted
        self.step(1, critic_loss)

        action, log_prob, _ = self.policy(obs)
        policy_loss = (entropy_weight * log_prob - self.critics(obs, action).amin(0)).mean()
        self.step(0, policy_loss)
        self.step(2, -(self.log_alpha * (log_prob.detach() + self.target_entropy)).mean())

        for slow, fast in zip(self.target_critics.parameters(), self.critics.parameters(), strict=True):
            slow.lerp_(fast.detach(), TAU)
        return td_errors.abs().mean(0)

    def step(self, number, loss):
        self.optimizers[number].zero_grad()
        loss.backward()
        self.optimizers[number].step()


# --8<-- [end:update]


# --8<-- [start:main]
def rescaled(env):
    """Actions in [-1, 1], whatever the environment's own limits."""
    return gymnasium.wrappers.RescaleAction(env, np.float32(-1), np.float32(1))


def evaluate(agent, environment, episodes=10):
    env, returns = rescaled(gymnasium.make(environment)), []
    for episode in range(episodes):
        (obs, _), total, done = env.reset(seed=1_000_000 + episode), 0.0, False
        while not done:
            with torch.no_grad():
                action = agent.policy(torch.as_tensor(obs[None]))[2][0].numpy()
            obs, reward, terminated, truncated, _ = env.step(action)
            total, done = total + float(reward), terminated or truncated
        returns.append(total)
    return np.mean(returns)


def main(steps=1_000, environment="Pendulum-v1", seed=0, alpha=0.6):
    env = rescaled(gymnasium.make(environment))
    torch.manual_seed(seed)
    env.action_space.seed(seed)
    buffer = PrioritizedReplayBuffer.for_env(env, 100_000, alpha=alpha, seed=seed)
    agent = SAC(env.observation_space.shape[0], env.action_space.shape[0])

    obs, _ = env.reset(seed=seed)
    for step in range(steps):
        if step < RANDOM_STEPS:
            action = env.action_space.sample()
        else:
            with torch.no_grad():
                action = agent.policy(torch.as_tensor(obs[None]))[0][0].numpy()
        next_obs, reward, terminated, truncated, _ = env.step(action)
        ends = {"terminated": terminated, "truncated": truncated}
        buffer.add(obs=obs, action=action, reward=reward, next_obs=next_obs, **ends)
        obs = env.reset()[0] if terminated or truncated else next_obs
        if step >= RANDOM_STEPS:
            batch = buffer.sample(BATCH_SIZE, beta=0.4 + 0.6 * step / steps).to_torch()
            buffer.update_priorities(batch.indexes, agent.update(batch))
    return agent, buffer, evaluate(agent, environment)


if __name__ == "__main__":
    torch.set_num_threads(1)  # more threads don't speed up networks this small
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000
    print(f"mean return after {steps:,} steps: {main(steps)[2]:.0f}")
# --8<-- [end:main]
