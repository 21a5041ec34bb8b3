"""A Q-network of two layers in NumPy: just enough of a learner for the programs beside it."""

import numpy as np

GAMMA = 0.9
LEARNING_RATE = 3e-3


class QNetwork:
    """obs[batch, 4] → ReLU → Q-values[batch, 2], trained by Adam on the squared TD error."""

    def __init__(self, seed, hidden=32, actions=0):
        rng = np.random.default_rng(seed)
        self.layers = [
            rng.normal(0, 0.5, (4, hidden)).astype(np.float32),
            np.zeros(hidden, np.float32),
            rng.normal(0, 0.1, (hidden, 2)).astype(np.float32),
            np.zeros(2, np.float32),
        ]
        self.moments = [(np.zeros_like(w), np.zeros_like(w)) for w in self.layers]
        self.target = [w.copy() for w in self.layers]
        self.steps = 0
        self.rng = np.random.default_rng(actions)

    @property
    def weights(self):
        """The layers, and after how many steps they were so."""
        return self.layers, self.steps

    @weights.setter
    def weights(self, w):
        self.layers, self.steps = w
        self.target = self.layers

    def values(self, obs, layers=None):
        """Q-values[batch, 2] of obs[batch, 4]."""
        w1, b1, w2, b2 = self.layers if layers is None else layers
        return np.maximum(obs @ w1 + b1, 0) @ w2 + b2

    def get_action(self, obs):
        """An action for one observation, 0.3-greedy."""
        if self.rng.random() < 0.3:
            return int(self.rng.integers(2))
        return int(self.values(obs[np.newaxis])[0].argmax())

    def td_error(self, sample):
        """Q(s, a) − (r + γ max Q'(s', ·)) as [batch, 1]; the sample's fields are (batch, 1) arrays."""
        chosen = np.take_along_axis(self.values(sample["obs"]), sample["act"].astype(np.int64), axis=1)
        return chosen - self.targets(sample)

    def targets(self, sample):
        """r + γ max Q'(s', ·), and r alone where the episode is done: [batch, 1]."""
        best = self.values(sample["next_obs"], self.target).max(axis=1, keepdims=True)
        return sample["rew"] + GAMMA * (1 - sample["done"]) * best

    def abs_TD_error(self, sample):
        """|TD error|, [batch]."""
        return np.abs(self.td_error(sample)).ravel()

    def train(self, sample):
        """One Adam step, weighted by sample["weights"] if there are any."""
        w1, b1, w2, _ = self.layers
        error = self.td_error(sample)
        scale = np.asarray(sample.get("weights", 1.0)).reshape(-1, 1) / len(error)
        hidden = np.maximum(sample["obs"] @ w1 + b1, 0)
        output = np.zeros((len(error), 2), np.float32)
        np.put_along_axis(output, sample["act"].astype(np.int64), (scale * error).astype(np.float32), axis=1)
        back = (output @ w2.T) * (hidden > 0)
        self.descend([sample["obs"].T @ back, back.sum(0), hidden.T @ output, output.sum(0)])

    def descend(self, gradients):
        """Adam; the target network follows every 50 steps."""
        self.steps += 1
        for weight, gradient, (first, second) in zip(self.layers, gradients, self.moments, strict=True):
            first += 0.1 * (gradient - first)
            second += 0.001 * (gradient**2 - second)
            corrected = np.sqrt(second / (1 - 0.999**self.steps)) + 1e-8
            weight -= LEARNING_RATE * first / (1 - 0.9**self.steps) / corrected
        if self.steps % 50 == 0:
            self.target = [w.copy() for w in self.layers]

    def explained(self, sample):
        """Share of the targets' variance that the network predicts: 1 is all, 0 or less is nothing."""
        return float(1 - np.mean(self.td_error(sample) ** 2) / np.var(self.targets(sample)))

    def lesson(self):
        """How much better an upright pole is than one about to fall: about 0 before it has learned."""
        upright, falling = np.zeros(4, np.float32), np.array([0, 0, 0.2, 2.0], np.float32)
        values = self.values(np.stack([upright, falling])).max(axis=1)
        return float(values[0] - values[1])
