"""Actors in separate processes, a buffer in shared memory, and a learner that samples from it."""

# --8<-- [start:actor]
import multiprocessing

import numpy as np

from replay_tutorial import Mailbox, MPPrioritizedReplayBuffer

FIELDS = {"obs": {"shape": 4}, "action": {"dtype": np.int64}, "reward": {}}


def actor(seed, buffer, mailbox, stop):
    """Act with the newest parameters until `stop` is set; the reward of action 1 is obs[0]."""
    rng, version, q = np.random.default_rng(seed), 0, np.zeros((4, 2), np.float32)
    while not stop.is_set():
        update = mailbox.pull(version)  # None if there is no newer version; never blocks
        if update is not None:
            version, q = update[0], update[1].reshape(4, 2)
        obs = rng.random((50, 4))
        action = np.where(rng.random(50) < 0.2, rng.integers(2, size=50), (obs @ q).argmax(1))
        buffer.add(obs=obs, action=action, reward=obs[:, 0] * action)  # 50 rows in one call


# --8<-- [end:actor]


# --8<-- [start:learner]
def learner(buffer, mailbox, updates):
    """Train a linear Q-network; return the mean |TD error| of each update."""
    q, errors = np.zeros((4, 2), np.float32), []
    for update in range(updates):
        batch = buffer.sample(32, beta=0.4)
        chosen = np.take_along_axis(batch.obs @ q, batch.action[:, None], 1)[:, 0]
        td_error = batch.reward - chosen
        np.add.at(q.T, batch.action, 0.3 / 32 * (batch.weights * td_error)[:, None] * batch.obs)
        buffer.update_priorities(batch.indexes, np.abs(td_error))
        errors.append(np.abs(td_error).mean())
        if update % 20 == 0:
            mailbox.publish(q.ravel())
    return errors


# --8<-- [end:learner]


# --8<-- [start:main]
def main(actors=2, updates=1_000):
    """Return the errors, the number of rows added, and the exit codes of the actors."""
    context = multiprocessing.get_context("spawn")  # the same on Linux, macOS and Windows
    stop = context.Event()
    with MPPrioritizedReplayBuffer(10_000, FIELDS, seed=0) as buffer:
        mailbox = Mailbox(8)
        processes = [
            context.Process(target=actor, args=(seed, buffer, mailbox, stop)) for seed in range(actors)
        ]
        for process in processes:
            process.start()
        try:
            while not buffer.wait_for(1_000, timeout=1.0):
                if not all(process.is_alive() for process in processes):
                    raise RuntimeError("an actor exited before the buffer had enough rows")
            errors = learner(buffer, mailbox, updates)
        finally:  # even if the learner fails; otherwise Python would wait for the actors forever
            stop.set()
            for process in processes:
                process.join()
        return errors, buffer.next_index, [process.exitcode for process in processes]


if __name__ == "__main__":  # spawn imports this file in every process
    errors, rows, exit_codes = main()
    print(f"{rows:,} rows, {len(errors):,} updates")
    print(f"mean |TD error| {np.mean(errors[:20]):.3f} at first, {np.mean(errors[-20:]):.3f} at last")
    assert exit_codes == [0, 0]
# --8<-- [end:main]
