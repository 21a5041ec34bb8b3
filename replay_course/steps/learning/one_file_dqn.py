"""A complete DQN with prioritized replay in one file, to copy and adapt.

    python -m replay_course.steps.learning.one_file_dqn        # learns CartPole-v1

Additions to Q-learning with uniform replay: double Q-learning, 3-step returns, priorities with importance
weights, an annealed beta, and an evaluation separate from learning. Remaining problem: one environment and
one network take turns, and each waits for the other.

Papers: Mnih et al. 2015 (DQN), van Hasselt et al. 2016 (double), Schaul et al. 2016 (prioritized replay).
"""

import copy
import sys
from typing import Any

import gymnasium
import numpy as np
import torch
from torch import nn

from replay_tutorial import Batch, PrioritizedReplayBuffer

ENVIRONMENT = "CartPole-v1"
SOLVED_AT = 475.0  # mean return; the maximum is 500
TOTAL_STEPS = 150_000
CAPACITY, WARM_UP = 50_000, 500  # rows; steps before the first update
EXPLORE_STEPS = 10_000  # steps over which epsilon falls from 1 to FINAL_EPSILON
FINAL_EPSILON = 0.05
UPDATE_EVERY = 16  # steps, so that each row is sampled 4 times on average
TARGET_EVERY = 800  # steps between copies to the target network
EVALUATE_EVERY = 2_000  # steps
GAMMA, BATCH_SIZE, LEARNING_RATE = 0.99, 64, 2e-3
N_STEP = 3  # rewards in a return
BETA = (0.4, 1.0)  # at the first and at the last step


def make_network() -> nn.Module:
    """Return a network from observations [B, 4] to Q(s, a) of both actions [B, 2]."""
    return nn.Sequential(nn.Linear(4, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 2))


def greedy(network: nn.Module, obs: np.ndarray) -> int:
    """Return the action with the highest Q(s, a)."""
    with torch.inference_mode():
        return int(network(torch.from_numpy(obs)).argmax())


def linear(start: float, end: float, fraction: float) -> float:
    """Interpolate from start to end as the fraction goes from 0 to 1; return end beyond."""
    return start + (end - start) * min(1.0, fraction)


def update(
    online: nn.Module, target: nn.Module, optimizer: torch.optim.Optimizer, sample: Batch
) -> np.ndarray:
    """Take one gradient step; return the new priorities |TD error|: float32[B]."""
    batch = sample.to_torch()  # no copies
    with torch.no_grad():
        next_action = online(batch["next_obs"]).argmax(1, keepdim=True)  # int64[B, 1]: online selects
        next_value = target(batch["next_obs"]).gather(1, next_action).squeeze(1)  # [B]: target evaluates
        goal = batch["reward"] + batch["discount"] * next_value  # discount is γ^k, or 0 if terminated
    value = online(batch["obs"]).gather(1, batch["action"][:, None]).squeeze(1)  # float32[B]
    td_error = goal - value  # float32[B]
    # Huber loss: quadratic up to 10, linear beyond; each row is weighted by its importance weight.
    loss = batch["weights"] * nn.functional.huber_loss(value, goal, reduction="none", delta=10.0)
    optimizer.zero_grad()
    loss.mean().backward()
    nn.utils.clip_grad_norm_(online.parameters(), 10.0)
    optimizer.step()
    return td_error.detach().abs().numpy()


def evaluate(network: nn.Module, episodes: int, seed: int) -> float:
    """Return the mean return of greedy episodes, which are not used for learning."""
    env, total = gymnasium.make(ENVIRONMENT), 0.0
    for episode in range(episodes):
        (obs, _), ended = env.reset(seed=seed + episode), False
        while not ended:
            obs, reward, terminated, truncated, _ = env.step(greedy(network, obs))
            ended, total = terminated or truncated, total + float(reward)
    return total / episodes


def train(
    seed: int, total_steps: int = TOTAL_STEPS, buffer: Any = None
) -> tuple[nn.Module, list[tuple[int, float]]]:
    """Learn until the mean return of 100 episodes reaches SOLVED_AT; return network and evaluations."""
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    env = gymnasium.make(ENVIRONMENT)
    if buffer is None:
        options = {"n_step": N_STEP, "gamma": GAMMA, "alpha": 0.6}
        buffer = PrioritizedReplayBuffer.for_env(env, CAPACITY, **options, seed=seed)
    online = make_network()
    target = copy.deepcopy(online)
    optimizer = torch.optim.Adam(online.parameters(), lr=LEARNING_RATE)
    curve: list[tuple[int, float]] = []  # (steps, mean return)
    obs, _ = env.reset(seed=seed)
    for step in range(1, total_steps + 1):
        epsilon = linear(1.0, FINAL_EPSILON, step / EXPLORE_STEPS)
        action = int(rng.integers(2)) if rng.random() < epsilon else greedy(online, obs)
        next_obs, reward, terminated, truncated, _ = env.step(action)
        flags = {"terminated": terminated, "truncated": truncated}
        buffer.add(obs=obs, action=action, reward=reward, next_obs=next_obs, **flags)
        obs = env.reset()[0] if terminated or truncated else next_obs
        if step > WARM_UP and step % UPDATE_EVERY == 0:
            sample = buffer.sample(BATCH_SIZE, beta=linear(*BETA, step / total_steps))
            buffer.update_priorities(sample["indexes"], update(online, target, optimizer, sample))
        if step % TARGET_EVERY == 0:
            target.load_state_dict(online.state_dict())
        if step % EVALUATE_EVERY == 0:
            curve.append((step, evaluate(online, 10, seed=1_000 * step)))
            print(f"{curve[-1][1]:.0f}", end=" ", flush=True)
            # With many evaluations, ten episodes can exceed the goal by chance; 100 new ones decide.
            if curve[-1][1] >= SOLVED_AT and evaluate(online, 100, seed=1_000 * step + 10) >= SOLVED_AT:
                break
    return online, curve


if __name__ == "__main__":
    torch.set_num_threads(1)  # a network this small is slower with more threads
    network, curve = train(seed=int(sys.argv[1]) if len(sys.argv) > 1 else 0)
    print("\nsteps, mean return of 10 episodes:", *curve, sep="\n")
    print(f"100 new episodes: {evaluate(network, 100, seed=900_000_000):.1f}")
