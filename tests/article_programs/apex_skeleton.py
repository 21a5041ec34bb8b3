"""Ape-X: explorers fill one shared buffer, one learner draws from it and sends its weights back."""

import json
import multiprocessing
import sys
import time
from multiprocessing import Event, Process, Queue, SimpleQueue

import gymnasium
from q_network import QNetwork

from replay_tutorial.cpprb import MPPrioritizedReplayBuffer, ReplayBuffer


def explorer(global_rb, env_dict, is_training_done, queue, number, reports):
    local_buffer_size = int(1e2)
    local_rb = ReplayBuffer(local_buffer_size, env_dict)

    model = QNetwork(seed=0, actions=number)
    env = gymnasium.make("CartPole-v1")
    sent = 0
    received = []

    obs, _ = env.reset(seed=number)

    def receive():
        w = queue.get()
        model.weights = w
        received.append(model.steps)

    while not is_training_done.is_set():
        if not queue.empty():
            receive()

        action = model.get_action(obs)
        next_obs, reward, done, truncated, _ = env.step(action)
        local_rb.add(obs=obs, act=action, rew=reward, next_obs=next_obs, done=done)

        if done or truncated:
            local_rb.on_episode_end()
            obs, _ = env.reset()
        else:
            obs = next_obs

        if local_rb.get_stored_size() == local_buffer_size:
            local_sample = local_rb.get_all_transitions()
            local_rb.clear()

            absTD = model.abs_TD_error(local_sample)
            global_rb.add(**local_sample, priorities=absTD)
            sent += local_buffer_size
    while not queue.empty():
        receive()
    reports.put((number, sent, received, model.lesson()))


def learner(global_rb, queues, n_training_step):
    batch_size = 64
    n_warmup = 100
    explorer_update_freq = 100

    model = QNetwork(seed=0)
    last_sent = None

    while global_rb.get_stored_size() < n_warmup:
        time.sleep(0.05)

    for step in range(n_training_step):
        sample = global_rb.sample(batch_size)

        model.train(sample)
        absTD = model.abs_TD_error(sample)
        global_rb.update_priorities(sample["indexes"], absTD)

        if step % explorer_update_freq == 0:
            w = model.weights
            last_sent = model.lesson()
            for q in queues:
                q.put(w)
    return model, last_sent


def main(n_training_step):
    buffer_size = int(1e6)
    env_dict = {"obs": {"shape": 4}, "act": {}, "rew": {}, "next_obs": {"shape": 4}, "done": {}}
    n_explorer = 2

    global_rb = MPPrioritizedReplayBuffer(buffer_size, env_dict)

    is_training_done = Event()
    is_training_done.clear()

    qs = [SimpleQueue() for _ in range(n_explorer)]
    reports = Queue()
    ps = [
        Process(target=explorer, args=[global_rb, env_dict, is_training_done, q, number, reports])
        for number, q in enumerate(qs)
    ]

    for p in ps:
        p.start()

    model, last_sent = learner(global_rb, qs, n_training_step)
    is_training_done.set()
    told = sorted(reports.get(timeout=300) for _ in ps)

    for p in ps:
        p.join()

    everything = global_rb.get_all_transitions()
    return {
        "sent": sum(sent for _, sent, _, _ in told),
        "stored": global_rb.get_stored_size(),
        "next_index": int(global_rb.get_next_index()),
        "received": [received for _, _, received, _ in told],
        "lessons": [lesson for _, _, _, lesson in told],
        "last_sent": last_sent,
        "lesson": model.lesson(),
        "explained_before": QNetwork(seed=0).explained(everything),
        "explained": model.explained(everything),
        "exit_codes": [p.exitcode for p in ps],
    }


if __name__ == "__main__":
    multiprocessing.set_start_method(sys.argv[2])
    print(json.dumps(main(int(sys.argv[1]))))
