"""Train in JAX: a batch is passed directly to a jitted function."""

# --8<-- [start:update]
import jax
import jax.numpy as jnp
import numpy as np

from replay_tutorial import PrioritizedReplayBuffer

GAMMA, LEARNING_RATE = 0.99, 0.1


@jax.jit
def update(parameters, target_parameters, batch):
    """Do one DQN update of a linear network; return new parameters and the TD errors (B,)."""

    def loss_of(parameters):
        chosen = jnp.take_along_axis(batch.obs @ parameters, batch.action[:, None], 1)[:, 0]
        next_value = (batch.next_obs @ target_parameters).max(1)
        td_error = batch.reward + GAMMA * (1 - batch.terminated) * next_value - chosen
        return (batch.weights * td_error**2).mean(), td_error

    gradient, td_error = jax.grad(loss_of, has_aux=True)(parameters)
    return parameters - LEARNING_RATE * gradient, td_error


# --8<-- [end:update]


# --8<-- [start:dlpack]
def as_jax(array):
    """Convert an array of a sample with `from_dlpack`, which requires a contiguous array."""
    return jnp.from_dlpack(np.ascontiguousarray(array))


# --8<-- [end:dlpack]


# --8<-- [start:main]
def main(updates=1_000):
    fields = {"obs": {"shape": 4}, "action": {"dtype": np.int64}, "reward": {}, "next_obs": {"shape": 4}}
    fields["terminated"] = {"dtype": bool}
    buffer = PrioritizedReplayBuffer(1_000, fields, seed=0)
    rng = np.random.default_rng(0)
    obs, action = rng.random((1_000, 4)), rng.integers(2, size=1_000)
    buffer.add(
        obs=obs, action=action, reward=obs[:, 0] * action, next_obs=obs, terminated=np.ones(1_000, bool)
    )

    parameters = jnp.zeros((4, 2))
    errors = []
    for _ in range(updates):
        batch = buffer.sample(32, beta=0.4)
        indexes = batch.pop("indexes")  # JAX would convert them to int32, which serial numbers can exceed
        parameters, td_error = update(parameters, parameters, batch)
        buffer.update_priorities(indexes, np.abs(td_error))
        errors.append(float(jnp.abs(td_error).mean()))
    return buffer, errors


if __name__ == "__main__":
    _, errors = main()
    print(f"mean |TD error| {np.mean(errors[:20]):.3f} at first, {np.mean(errors[-20:]):.3f} at last")
# --8<-- [end:main]
