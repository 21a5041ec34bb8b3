"""Save a learner, its shared buffer and its limiter, and resume with new actors."""

# --8<-- [start:actor]
import json
import multiprocessing
import tempfile

import numpy as np

from replay_tutorial import Checkpoints, Mailbox, MPPrioritizedReplayBuffer, SamplesPerInsert

FIELDS = {"obs": {"shape": 4}, "action": {"dtype": np.int64}, "reward": {}}
ACTORS, ROWS, BATCH = 2, 50, 32  # rows of an insert, rows of a batch


def actor(seed, buffer, limiter, mailbox, stop):
    """Insert rows whenever the limiter allows it, until `stop` is set; the reward of action 1 is obs[0]."""
    rng, version, q = np.random.default_rng(seed), 0, np.zeros((4, 2), np.float32)
    while not stop.is_set():
        update = mailbox.pull(version)
        if update is not None:
            version, q = update[0], update[1].reshape(4, 2)
        if limiter.await_can_insert(ROWS, timeout=0.1):
            obs = rng.random((ROWS, 4))
            action = np.where(rng.random(ROWS) < 0.2, rng.integers(2, size=ROWS), (obs @ q).argmax(1))
            buffer.add(obs=obs, action=action, reward=obs[:, 0] * action)
            limiter.inserted(ROWS)


# --8<-- [end:actor]


# --8<-- [start:learner]
class Learner:
    """A linear Q-network."""

    def __init__(self):
        self.updates, self.q = 0, np.zeros((4, 2), np.float32)

    def learn(self, buffer, limiter, mailbox, updates):
        for _ in range(updates):
            if not limiter.await_can_sample(BATCH, timeout=60.0):
                raise TimeoutError("no rows for a minute: have all actors exited?")
            batch = buffer.sample(BATCH, beta=0.4)
            limiter.sampled(BATCH)
            td_error = batch.reward - np.take_along_axis(batch.obs @ self.q, batch.action[:, None], 1)[:, 0]
            np.add.at(self.q.T, batch.action, 0.3 / BATCH * (batch.weights * td_error)[:, None] * batch.obs)
            buffer.update_priorities(batch.indexes, np.abs(td_error))
            self.updates += 1
            if self.updates % 20 == 0:
                mailbox.publish(self.q.ravel())


# --8<-- [end:learner]


# --8<-- [start:save]
def save(folder, buffer, limiter, learner):
    counts = {"limiter": limiter.state(), "updates": learner.updates}  # before the rows
    (folder / "counts.json").write_text(json.dumps(counts))
    np.save(folder / "q.npy", learner.q)
    buffer.save(folder / "buffer.npz")


def restore(folder, buffer, limiter, learner):
    counts = json.loads((folder / "counts.json").read_text())
    limiter.restore(counts["limiter"])
    learner.updates, learner.q = counts["updates"], np.load(folder / "q.npy")
    buffer.load(folder / "buffer.npz")


# --8<-- [end:save]


# --8<-- [start:main]
def run(checkpoints, updates):
    """Make `updates` updates, starting from the newest checkpoint if there is one; write one at the end.

    Return whether the learner could sample before the first actor started, and the counts at the end.
    """
    context = multiprocessing.get_context("spawn")
    stop, mailbox, learner = context.Event(), Mailbox(8), Learner()
    limiter = SamplesPerInsert(4.0, min_size=1_000, error_buffer=1_000.0)
    with MPPrioritizedReplayBuffer(10_000, FIELDS, seed=0) as buffer:
        if checkpoints.newest:
            restore(checkpoints.newest, buffer, limiter, learner)
        is_ready = limiter.await_can_sample(BATCH, timeout=0.0)
        mailbox.publish(learner.q.ravel())
        # Other seeds than before, or the new actors would repeat the first steps of the old ones.
        seeds = [(number, limiter.inserts) for number in range(ACTORS)]
        actors = [
            context.Process(target=actor, args=(seed, buffer, limiter, mailbox, stop)) for seed in seeds
        ]
        for process in actors:
            process.start()
        try:
            learner.learn(buffer, limiter, mailbox, updates)
        finally:
            stop.set()
            for process in actors:
                process.join()
        with checkpoints.write(learner.updates) as new:
            save(new, buffer, limiter, learner)
        return is_ready, learner.updates, limiter.inserts, limiter.samples, buffer.next_index


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        for start in ("new", "resumed", "resumed again"):
            is_ready, updates, inserts, samples, rows = run(Checkpoints(folder), updates=200)
            assert rows == inserts and is_ready == (start != "new")
            print(
                f"{start}: the learner {'samples at once' if is_ready else 'waits for rows'}; at the end "
                f"{updates} updates, {samples / (inserts - 1_000):.1f} samples per insert"
            )
# --8<-- [end:main]
