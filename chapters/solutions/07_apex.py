"""Solutions to the skeleton and the exercises of chapter 07."""

import time
from collections import defaultdict, deque

import numpy as np


class MyLimiter:
    """Keeps the samples owed within a band: -error_buffer <= error <= error_buffer."""

    def __init__(self, samples_per_insert, min_size, error_buffer):
        """Set the counters to 0."""
        self.samples_per_insert, self.min_size = samples_per_insert, min_size
        self.error_buffer = error_buffer
        self.inserts = self.samples = 0

    def inserted(self, count):
        """Count inserted rows."""
        self.inserts += count

    def sampled(self, count):
        """Count sampled rows."""
        self.samples += count

    def error(self):
        """Return the number of samples owed."""
        return (self.inserts - self.min_size) * self.samples_per_insert - self.samples

    def await_can_insert(self, count, timeout):
        """Wait until `count` rows may be inserted."""
        deadline = time.monotonic() + timeout
        while self.inserts + count > self.min_size:
            if self.error() + count * self.samples_per_insert <= self.error_buffer:
                return True
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.001)
        return True

    def await_can_sample(self, count, timeout):
        """Wait until `count` rows may be sampled."""
        deadline = time.monotonic() + timeout
        while self.inserts < self.min_size or self.error() - count < -self.error_buffer:
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.001)
        return True


# 1. The limiter admits a chunk up to an error of 384, because 384 + 128 = 512. Four chunks: 384 + 4 * 128.
my_error = 896


def my_epsilons(actors):
    """2. The exponents rise from 1 to 8; a single actor gets the first."""
    return 0.4 ** (1 + 7 * np.arange(actors) / max(1, actors - 1))


def my_sums(steps, n):
    """3. Use one window per environment, because consecutive steps may belong to different episodes."""
    windows, sums = defaultdict(lambda: deque(maxlen=n)), []
    for environment, reward in steps:
        window = windows[environment]
        window.append(reward)
        if len(window) == n:
            sums.append((environment, sum(window)))
    return sums
