"""A process is killed inside add, at the second conversion of its value: another one must be able to sample.

It waits forever, because MPReplayBuffer still counts the killed process as inside add. So it does after an
exception there. Its documentation promises nothing about killed processes.
"""

import os
from multiprocessing import get_context

import numpy as np
from cpprb import MPReplayBuffer

buffer, values, fork = MPReplayBuffer(8, {"obs": {}}), [np.zeros(1)], get_context("fork")
convert = {"__array__": lambda *_, **__: values.pop() if values else os.kill(os.getpid(), 9)}
for value in ({"obs": 0}, {"obs": type("Fatal", (), convert)()}, {"batch_size": 1}):
    process = fork.Process(target=buffer.add if "obs" in value else buffer.sample, kwargs=value, daemon=True)
    print(process.start(), process.join(10), process.exitcode)
assert process.exitcode == 0, "the process still waits"
