"""Sample a table for JAX: batches of one shape are passed to a jitted function."""

# --8<-- [start:main]
import jax
import jax.numpy as jnp
import numpy as np

from replay_tutorial.tables import (
    Client,
    Fifo,
    MinSize,
    Prioritized,
    Server,
    Table,
    TrajectoryDataset,
    importance_weights,
)

table = Table("replay", sampler=Prioritized(0.6), remover=Fifo(), max_size=1_000, rate_limiter=MinSize(10))
client = Client(Server([table], {"obs": {"shape": 4}, "reward": {}}, capacity=1_100, seed=0))


@jax.jit
def update(parameters, batch, weights):
    def loss_of(parameters):
        error = batch["obs"] @ parameters - batch["reward"]
        return (weights * error**2).mean(), error

    gradient, error = jax.grad(loss_of, has_aux=True)(parameters)
    return parameters - 0.5 * gradient, error


def train(updates):
    parameters, errors = jnp.zeros(4), []
    for sample in TrajectoryDataset(client, "replay", batch_size=32, max_samples=32 * updates):
        weights = importance_weights(sample.info, beta=0.4)
        parameters, error = update(parameters, sample.data, weights)
        client.mutate_priorities("replay", (sample.info.keys, np.abs(error)))
        errors.append(float(jnp.abs(error).mean()))
    return errors


if __name__ == "__main__":
    obs = np.random.default_rng(0).random((100, 4))
    client.insert_batch({"obs": obs, "reward": obs[:, 0]}, {"replay": np.ones(100)})
    errors = train(300)
    print(f"mean |TD error| {errors[0]:.3f} at first, {errors[-1]:.5f} at last")
    assert errors[-1] < errors[0] / 10
# --8<-- [end:main]
