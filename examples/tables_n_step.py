"""N-step returns: patterns select the steps, and the learner sums the rewards."""

# --8<-- [start:pattern]
import numpy as np

from replay_tutorial.tables import Client, Fifo, MinSize, Pattern, Server, Table, Uniform, reference

N, GAMMA = 3, 0.5
number, flag = {}, {"dtype": bool}
COLUMNS = {"obs": number, "reward": number, "terminated": flag}


def patterns():
    """Return a pattern for n steps, and one for each shorter row at the end of an episode."""
    step = reference(COLUMNS)

    def row(n):
        return {
            "obs": step["obs"][-n - 1],
            "reward": step["reward"][-n - 1 : -1],
            "terminated": step["terminated"][-2],
            "next_obs": step["obs"][-1],
        }

    tails = [Pattern("replay", row(n), when=[lambda state: state.is_end_episode]) for n in range(1, N)]
    return [Pattern("replay", row(N)), *tails]


# --8<-- [end:pattern]


# --8<-- [start:target]
def target(sample, value):
    """Return the n-step targets; shorter rows are padded with rewards of 0."""
    rewards = sample.data["reward"]
    lengths = sample.lengths["reward"] if sample.lengths else rewards.shape[1]
    bootstrap = GAMMA**lengths * ~sample.data["terminated"] * value(sample.data["next_obs"])
    return rewards @ GAMMA ** np.arange(rewards.shape[1]) + bootstrap


# --8<-- [end:target]


# --8<-- [start:main]
if __name__ == "__main__":
    table = Table("replay", sampler=Uniform(), remover=Fifo(), max_size=100, rate_limiter=MinSize(1))
    client = Client(Server([table], COLUMNS, capacity=200, seed=0))
    with client.structured_writer(patterns()) as writer:
        for step in range(5):  # five steps with a reward of 1 each; the last one terminates
            writer.append({"obs": step, "reward": 1.0, "terminated": step == 4})
        writer.append({"obs": 5})
        writer.end_episode()
    rows = client.items("replay")
    values = (1 - GAMMA ** (5 - rows.data["obs"])) / (1 - GAMMA)  # discounted rewards until step 5
    print("from", rows.data["obs"], "to", rows.data["next_obs"], "targets", target(rows, np.zeros_like))
    assert sorted(rows.data["obs"]) == [0, 1, 2, 3, 4]
    assert np.allclose(target(rows, lambda obs: (1 - GAMMA ** (5 - obs)) / (1 - GAMMA)), values)
# --8<-- [end:main]
