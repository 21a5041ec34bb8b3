"""An actor and a learner in the manner of Acme, on two hosts: the server, the adder and the dataset.

This program runs all roles on one machine. On several hosts, run `python -m replay_tutorial tables serve` on
one of them, and `act(address)` and `learn(address)` on the others.
"""

# --8<-- [start:actor]
import numpy as np

from replay_tutorial.tables import Client, TrajectoryDataset, importance_weights

COLUMNS = {"obs": {"shape": 4}, "action": {"dtype": "int64"}, "reward": {}, "discount": {}}


def act(address, episodes=20):
    """Play episodes, and insert each transition with the highest priority so far."""
    rng = np.random.default_rng(0)
    client = Client(address)
    with client.writer(num_keep_alive_refs=2, items_per_message=20) as writer:
        for _ in range(episodes):
            writer.append({"obs": rng.random(4)}, partial_step=True)  # Acme: adder.add_first(timestep)
            for step in range(10):  # Acme: adder.add(action, timestep)
                writer.append({"action": rng.integers(2), "reward": 1.0, "discount": float(step < 9)})
                writer.append({"obs": rng.random(4)}, partial_step=True)
                history = writer.history
                transition = {name: history[name][-2] for name in COLUMNS} | {"next_obs": history["obs"][-1]}
                writer.create_item("replay", None, transition)
            writer.end_episode()


# --8<-- [end:actor]


# --8<-- [start:learner]
def learn(address, updates=50):
    """Sample with eight requests in flight, and return the new priorities to the server."""
    client = Client(address)
    dataset = TrajectoryDataset(client, "replay", 32, in_flight=8, workers=8, max_samples=32 * updates)
    for sample in dataset:  # Acme: next(self._iterator)
        weights = importance_weights(sample.info, beta=0.4)
        errors = np.abs(sample.data["reward"]) * weights  # your TD errors
        client.mutate_priorities("replay", (sample.info.keys, errors))  # Acme: update_priorities


# --8<-- [end:learner]


if __name__ == "__main__":
    from tempfile import TemporaryDirectory
    from threading import Thread

    from replay_tutorial.tables import Endpoint, Fifo, MinSize, Prioritized, Server, Table

    replay = Table(
        "replay", sampler=Prioritized(0.6), remover=Fifo(), max_size=1_000, rate_limiter=MinSize(32)
    )
    server = Server([replay], COLUMNS)
    with TemporaryDirectory() as folder, Endpoint(server, f"{folder}/socket") as endpoint:
        actor = Thread(target=act, args=(endpoint.address,))
        actor.start()
        learn(endpoint.address)
        actor.join()
    state = server.info()["replay"]
    print(state.inserts, "inserts,", state.samples, "samples")
    assert state.inserts == 200 and state.samples == 1_600
