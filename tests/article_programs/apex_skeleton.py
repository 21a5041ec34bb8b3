"""Ape-X: explorers fill one shared buffer, one learner draws from it and sends its weights back."""

import json
import multiprocessing
import sys
import time
from multiprocessing import Event, Process, Queue

import gymnasium
import numpy as np
from q_network import QNetwork

from replay_tutorial import MPPrioritizedReplayBuffer, ReplayBuffer

n_explorer = 2
buffer_size = 1e4
local_buffer_size = 100
env_dict = {
    "obs": {"shape": 4},
    "act": {"shape": 1, "dtype": np.ubyte},
    "rew": {},
    "next_obs": {"shape": 4},
    "done": {},
}


def explorer(number, global_rb, is_training_done, queue, reports):
    local_rb = ReplayBuffer(local_buffer_size, env_dict)
    rng = np.random.default_rng(number)
    env = gymnasium.make("CartPole-v1")
    model = QNetwork(seed=0)
    sent = 0
    received = []

    obs, _ = env.reset(seed=number)
    while not is_training_done.is_set():
        while not queue.empty():
            version, model.weights = queue.get()
            model.target = model.weights
            received.append(version)
        act = model.action(obs, 0.3, rng)
        next_obs, rew, terminated, truncated, _ = env.step(act)
        local_rb.add(obs=obs, act=act, rew=rew, next_obs=next_obs, done=terminated)
        if terminated or truncated:
            local_rb.on_episode_end()
            obs, _ = env.reset()
        else:
            obs = next_obs
        if local_rb.get_stored_size() == local_buffer_size:
            local_sample = local_rb.get_all_transitions()
            local_rb.clear()
            absTD = np.abs(model.td_error(local_sample)).ravel()
            global_rb.add(**local_sample, priorities=absTD)
            sent += local_buffer_size
    reports.put((number, sent, received, model.lesson()))


def learner(global_rb, queues, steps):
    model = QNetwork(seed=0)
    while global_rb.get_stored_size() < 500:
        time.sleep(0.05)
    for step in range(steps):
        sample = global_rb.sample(64, beta=0.4)
        absTD = model.train(sample)
        global_rb.update_priorities(sample["indexes"], absTD)
        if step % 100 == 99:
            for queue in queues:
                queue.put((step, [weight.copy() for weight in model.weights]))
    return model


def main(steps):
    global_rb = MPPrioritizedReplayBuffer(buffer_size, env_dict)
    is_training_done = Event()
    queues = [Queue() for _ in range(n_explorer)]
    reports = Queue()
    explorers = [
        Process(target=explorer, args=[number, global_rb, is_training_done, queue, reports])
        for number, queue in enumerate(queues)
    ]
    for process in explorers:
        process.start()
    model = learner(global_rb, queues, steps)
    time.sleep(0.5)  # the explorers take in the last weights
    is_training_done.set()
    told = sorted(reports.get(timeout=30) for _ in explorers)
    for process in explorers:
        process.join()
    everything = global_rb.get_all_transitions()
    return {
        "sent": sum(sent for _, sent, _, _ in told),
        "stored": global_rb.get_stored_size(),
        "next_index": int(global_rb.get_next_index()),
        "received": [received for _, _, received, _ in told],
        "lessons": [lesson for _, _, _, lesson in told],
        "lesson": model.lesson(),
        "explained_before": QNetwork(seed=0).explained(everything),
        "explained": model.explained(everything),
        "exit_codes": [process.exitcode for process in explorers],
    }


if __name__ == "__main__":
    multiprocessing.set_start_method(sys.argv[2])
    print(json.dumps(main(int(sys.argv[1]))))
