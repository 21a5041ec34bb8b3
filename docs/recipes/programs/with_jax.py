"""Double DQN in JAX, with prioritized replay and 3-step returns: learns CartPole-v1.

A batch is a pytree, so it is passed to the jitted update as it is.

    python docs/recipes/programs/with_jax.py [STEPS [SEED]]
"""

import sys

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np

from replay_tutorial import PrioritizedReplayBuffer

CAPACITY, WARM_UP, BATCH_SIZE, UPDATE_EVERY, TARGET_EVERY = 20_000, 500, 64, 2, 200  # in steps
N_STEP, GAMMA, ALPHA, BETA = 3, 0.99, 0.6, 0.4
LEARNING_RATE, EXPLORE_STEPS, FINAL_EPSILON = 1e-3, 2_000, 0.05


def init(key, sizes):
    """Return the parameters of a network: a weight [inputs, outputs] and a bias [outputs] per layer."""
    keys = jax.random.split(key, len(sizes) - 1)
    return [
        (jax.random.normal(key, (inputs, outputs)) * np.sqrt(2 / inputs), jnp.zeros(outputs))
        for key, inputs, outputs in zip(keys, sizes, sizes[1:], strict=False)
    ]


@jax.jit
def q_values(parameters, obs):
    """Return the value of each action: [..., actions]."""
    for weight, bias in parameters[:-1]:
        obs = jax.nn.relu(obs @ weight + bias)
    weight, bias = parameters[-1]
    return obs @ weight + bias


def adam(parameters, gradient, state):
    """Take one step of Adam (Kingma & Ba 2015); return the new parameters and the new state."""
    mean, square, count = state
    count += 1
    mean = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, mean, gradient)
    square = jax.tree.map(lambda s, g: 0.999 * s + 0.001 * g * g, square, gradient)

    def step(parameter, m, s):
        return parameter - LEARNING_RATE * m / (1 - 0.9**count) / (jnp.sqrt(s / (1 - 0.999**count)) + 1e-8)

    return jax.tree.map(step, parameters, mean, square), (mean, square, count)


# --8<-- [start:update]
@jax.jit
def update(parameters, target_parameters, state, batch):
    """Take one gradient step; return the new parameters, Adam's new state and the TD errors: float32[B]."""

    def loss_of(parameters):
        chosen = jnp.take_along_axis(q_values(parameters, batch.obs), batch.action[:, None], 1)[:, 0]
        best = q_values(parameters, batch.next_obs).argmax(1)
        following = q_values(target_parameters, batch.next_obs)
        next_value = jnp.take_along_axis(following, best[:, None], 1)[:, 0]
        # The discount is γ^3, or 0 at the end of an episode.
        td_error = jax.lax.stop_gradient(batch.reward + batch.discount * next_value) - chosen
        return (batch.weights * td_error**2).mean(), td_error

    gradient, td_error = jax.grad(loss_of, has_aux=True)(parameters)
    return *adam(parameters, gradient, state), td_error


# --8<-- [end:update]


def train(steps=8_000, seed=0, every=1_000):
    """Return the buffer and the mean returns of the last ten episodes, one per 1,000 steps."""
    env = gymnasium.wrappers.RecordEpisodeStatistics(gymnasium.make("CartPole-v1"), buffer_length=10)
    rng = np.random.default_rng(seed)
    buffer = PrioritizedReplayBuffer.for_env(
        env, CAPACITY, n_step=N_STEP, gamma=GAMMA, alpha=ALPHA, seed=seed
    )
    parameters = target_parameters = init(jax.random.key(seed), [*env.observation_space.shape, 128, 128, 2])
    zeros = jax.tree.map(jnp.zeros_like, parameters)
    state, curve = (zeros, zeros, 0), []
    obs, _ = env.reset(seed=seed)
    for step in range(1, steps + 1):
        explore = rng.random() < max(FINAL_EPSILON, 1 - step / EXPLORE_STEPS)
        action = int(rng.integers(2) if explore else np.argmax(q_values(parameters, obs)))
        next_obs, reward, terminated, truncated, _ = env.step(action)
        ends = {"terminated": terminated, "truncated": truncated}
        buffer.add(obs=obs, action=action, reward=reward, next_obs=next_obs, **ends)
        obs = env.reset()[0] if terminated or truncated else next_obs
        if step > WARM_UP and step % UPDATE_EVERY == 0:
            batch = buffer.sample(BATCH_SIZE, beta=BETA + (1 - BETA) * step / steps)
            parameters, state, td_error = update(parameters, target_parameters, state, batch)
            buffer.update_priorities(batch.indexes, jnp.abs(td_error))
        if step % TARGET_EVERY == 0:
            target_parameters = parameters
        if step % every == 0:
            curve.append(float(np.mean(env.return_queue)))
            print(f"{step:,} steps, mean of ten returns: {curve[-1]:.0f}")
    return buffer, curve


if __name__ == "__main__":
    train(*map(int, sys.argv[1:]))
