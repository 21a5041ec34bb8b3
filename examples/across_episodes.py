"""Windows that continue in the next episode, for a model that resets its state there."""

# --8<-- [start:cross]
import numpy as np

from replay_tutorial import SequenceReplayBuffer

FIELDS = {"obs": {}, "action": {}, "reward": {}, "next_obs": {}, "terminated": {"dtype": bool}}


def unroll(batch, model, initial):
    """Return the model's state after each step of the windows: a list of arrays (B, …)."""
    state, states = initial, []
    for time, action in enumerate(batch.action):
        state = np.where(batch.is_first[time], initial, state)  # before the first step of an episode
        state = model(state, batch.obs[time], action)
        states.append(state)
    return states


def main():
    buffer = SequenceReplayBuffer(1_000, FIELDS, length=16, boundary="cross", seed=0)
    for length in (3, 10, 20, 7, 30):
        ends = np.arange(length) == length - 1
        obs = np.arange(length + 1)
        buffer.add(obs=obs[:-1], action=ends, reward=np.ones(length), next_obs=obs[1:], terminated=ends)

    batch = buffer.sample(64, time_major=True)
    # This model counts the steps; the loss compares the prediction with the next observation of each step.
    states = unroll(batch, lambda state, obs, action: state + 1, initial=np.zeros(64))
    loss = (np.square(states - batch.obs[1:]) * batch.learn).sum() / batch.learn.sum()
    print(f"{batch.is_first.sum()} episodes begin in 64 windows, loss {loss:.2f}")
    return batch, states


if __name__ == "__main__":
    main()
# --8<-- [end:cross]
