"""TD3 (Fujimoto et al. 2018) with three collector processes and a buffer in shared memory: Pendulum-v1.

Collectors act with the newest policy from a mailbox. A limiter keeps one update per step, at any speed.

    python docs/recipes/programs/td3_collectors.py [UPDATES [SEED]]
"""

import copy
import multiprocessing
import sys

import gymnasium
import numpy as np
import torch
from torch import nn

from replay_tutorial import Mailbox, MPReplayBuffer, SamplesPerInsert

COLLECTORS, CAPACITY, WARM_UP, BATCH_SIZE = 3, 100_000, 1_000, 128
GAMMA, TAU, LEARNING_RATE, EXPLORATION, SMOOTHING, NOISE_LIMIT = 0.95, 0.02, 2e-3, 0.1, 0.2, 0.5


def make_env():
    """Return an environment with actions in [-1, 1]."""
    return gymnasium.wrappers.RescaleAction(gymnasium.make("Pendulum-v1"), np.float32(-1), np.float32(1))


def mlp(inputs, outputs):
    hidden = [nn.Linear(inputs, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU()]
    return nn.Sequential(*hidden, nn.Linear(128, outputs))


def new_policy(env):
    return mlp(*env.observation_space.shape, *env.action_space.shape).append(nn.Tanh())


def act(policy, obs):
    with torch.no_grad():
        return policy(torch.from_numpy(obs)).numpy()


class Critics(nn.Module):
    """Two estimates of Q(s, a): [2, B]."""

    def __init__(self, env):
        super().__init__()
        size = env.observation_space.shape[0] + env.action_space.shape[0]
        self.first, self.second = mlp(size, 1), mlp(size, 1)

    def forward(self, obs, action):
        inputs = torch.cat([obs, action], dim=1)
        return torch.stack([self.first(inputs), self.second(inputs)]).squeeze(2)


def collect(seed, buffer, mailbox, limiter, stop):
    """Add steps of one environment until `stop` is set; act at random until the first policy arrives."""
    torch.set_num_threads(1)
    env, rng, version = make_env(), np.random.default_rng(seed), 0
    policy = new_policy(env)
    obs, _ = env.reset(seed=seed)
    while not stop.is_set() and multiprocessing.parent_process().is_alive():
        if not limiter.await_can_insert(1, timeout=0.1):
            continue  # the learner hasn't sampled the earlier rows often enough
        version = mailbox.load_into(policy, version)
        action = act(policy, obs) + rng.normal(0, EXPLORATION, 1) if version else rng.uniform(-1, 1, 1)
        action = action.clip(-1, 1).astype(np.float32)
        next_obs, reward, terminated, truncated, _ = env.step(action)
        ends = {"terminated": terminated, "truncated": truncated}
        buffer.add(obs=obs, action=action, reward=reward, next_obs=next_obs, **ends)
        limiter.inserted(1)
        obs = env.reset()[0] if terminated or truncated else next_obs


def critic_loss(critics, target_policy, target_critics, batch):
    """Return the sum of both critics' mean squared TD errors, for smoothed actions of the target policy."""
    with torch.no_grad():
        noise = (torch.randn_like(batch.action) * SMOOTHING).clamp(-NOISE_LIMIT, NOISE_LIMIT)
        next_action = (target_policy(batch.next_obs) + noise).clamp(-1, 1)
        next_value = target_critics(batch.next_obs, next_action).amin(0)
        goal = batch.reward + GAMMA * ~batch.terminated * next_value  # truncated steps bootstrap
    return (goal - critics(batch.obs, batch.action)).square().mean(1).sum()


def evaluate(policy, episodes=10):
    """Return the mean return of episodes without exploration."""
    env, total = make_env(), 0.0
    for episode in range(episodes):
        (obs, _), ended = env.reset(seed=1_000_000 + episode), False
        while not ended:
            obs, reward, terminated, truncated, _ = env.step(act(policy, obs))
            total, ended = total + float(reward), terminated or truncated
    return total / episodes


def learn(buffer, mailbox, limiter, processes, updates, evaluate_every):
    """Return the mean return of each evaluation."""
    env, curve = make_env(), []
    policy, critics = nets = nn.ModuleList([new_policy(env), Critics(env)])
    targets = copy.deepcopy(nets).requires_grad_(False)
    policy_optimizer, critic_optimizer = (torch.optim.Adam(net.parameters(), LEARNING_RATE) for net in nets)
    for update in range(1, updates + 1):
        while not limiter.await_can_sample(BATCH_SIZE, timeout=1.0):
            if not all(process.is_alive() for process in processes):
                raise RuntimeError("a collector has exited")
        batch = buffer.sample(BATCH_SIZE).to_torch()
        limiter.sampled(BATCH_SIZE)
        critic_optimizer.zero_grad()
        critic_loss(critics, *targets, batch).backward()
        critic_optimizer.step()
        if update % 2 == 0:  # the policy and the targets change half as often
            policy_optimizer.zero_grad()
            (-critics(batch.obs, policy(batch.obs))[0].mean()).backward()
            policy_optimizer.step()
            for slow, fast in zip(targets.parameters(), nets.parameters(), strict=True):
                slow.lerp_(fast.detach(), TAU)
            mailbox.publish(policy)
        if update % evaluate_every == 0 or update == updates:
            curve.append(evaluate(policy))
            print(f"{buffer.next_index:,} steps, {update:,} updates, mean return {curve[-1]:.0f}")
    return curve


def train(updates=2_000, seed=0, evaluate_every=500):
    """Return all rows and the mean return of each evaluation."""
    torch.manual_seed(seed)
    context = multiprocessing.get_context("spawn")  # the same on Linux, macOS and Windows
    stop, env = context.Event(), make_env()
    with MPReplayBuffer.for_env(env, CAPACITY, seed=seed) as buffer:
        mailbox = Mailbox.for_module(new_policy(env))
        limiter = SamplesPerInsert(BATCH_SIZE, WARM_UP, error_buffer=100 * BATCH_SIZE)
        shared = (buffer, mailbox, limiter, stop)
        seeds = range(COLLECTORS * seed, COLLECTORS * (seed + 1))
        processes = [context.Process(target=collect, args=(each, *shared)) for each in seeds]
        for process in processes:
            process.start()
        try:
            curve = learn(buffer, mailbox, limiter, processes, updates, evaluate_every)
        finally:  # even if the learner fails; otherwise Python would wait for the collectors forever
            stop.set()
            for process in processes:
                process.join()
        return buffer[:], curve


if __name__ == "__main__":  # spawn imports this file in every process
    torch.set_num_threads(1)  # more threads don't speed up networks this small
    train(*map(int, sys.argv[1:]))
