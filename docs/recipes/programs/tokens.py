"""Policy gradients on token sequences of different lengths, from the newest policies only, as in RLHF.

A prompt is one to five dots and a colon. The response should be an A for each dot, and then the end token.
Each sequence is an episode, whose step t leads from token t to token t + 1. The buffer stores every token
once, without padding. The tag of an episode is the version of the policy that wrote it; old
versions are evicted.

    python docs/recipes/programs/tokens.py [VERSIONS [SEED]]
"""

import sys

import numpy as np
import torch
from torch import nn

from replay_tutorial import SequenceReplayBuffer

DOT, COLON, A, END, VOCABULARY = 1, 2, 3, 4, 5  # 0 is padding
MAX_DOTS, MAX_LENGTH = 5, 14  # tokens of a prompt and its response
WRITTEN, UPDATES, BATCH_SIZE = 32, 4, 64  # sequences and updates per version of the policy
WINDOW = 4  # versions to sample from
HIDDEN, LEARNING_RATE, CLIP, ENTROPY = 64, 2e-3, 0.2, 0.01


def new_buffer(seed=0):
    """Return a buffer of tokens, in which each sequence is one window; a sample is padded to 14 tokens."""
    fields = {
        "token": {"dtype": np.int16},
        "next_token": {"dtype": np.int16},  # takes no memory
        "log_prob": {},  # of the next token, by the policy that wrote it
        "in_response": {"dtype": bool},  # whether the policy wrote the next token
        "reward": {},
        "terminated": {"dtype": bool},
    }
    capacity = 2 * WINDOW * WRITTEN * MAX_LENGTH  # in tokens
    return SequenceReplayBuffer(capacity, fields, MAX_LENGTH - 1, period=MAX_LENGTH - 1, seed=seed)


class Policy(nn.Module):
    """A recurrent language model."""

    def __init__(self):
        super().__init__()
        self.embedding, self.head = nn.Embedding(VOCABULARY, HIDDEN), nn.Linear(HIDDEN, VOCABULARY)
        self.body = nn.GRU(HIDDEN, HIDDEN, batch_first=True)

    def forward(self, tokens, state=None):
        """Return log p(next token) [B, T, vocabulary] and the state after tokens [B, T]."""
        features, state = self.body(self.embedding(tokens), state)
        return self.head(features).log_softmax(2), state


@torch.no_grad()
def write(policy, dots, generator):
    """Complete a prompt per entry of `dots`; return (tokens, log-probabilities) of each, without padding."""
    count = len(dots)
    tokens, log_probs = np.zeros((count, MAX_LENGTH), np.int64), np.zeros((count, MAX_LENGTH - 1), np.float32)
    for i, length in enumerate(dots):
        tokens[i, : length + 1] = [DOT] * length + [COLON]
    state = None
    for time in range(MAX_LENGTH - 1):
        log_p, state = policy(torch.from_numpy(tokens[:, time : time + 1]), state)
        drawn = torch.multinomial(log_p[:, 0].exp(), 1, generator=generator).numpy()[:, 0]
        tokens[:, time + 1] = np.where(time >= dots, drawn, tokens[:, time + 1])
        log_probs[:, time] = log_p[np.arange(count), 0, tokens[:, time + 1]].numpy()
    ends = [(row[length + 1 :] == END).argmax() for row, length in zip(tokens, dots, strict=True)]
    ends = np.where((tokens == END).any(1), dots + 2 + ends, MAX_LENGTH)
    return [(row[:end], p[: end - 1]) for row, p, end in zip(tokens, log_probs, ends, strict=True)]


def reward_of(tokens):
    """Return the share of the response that is right."""
    dots = int((tokens == COLON).argmax())
    response, wanted = tokens[dots + 1 :], [A] * dots + [END]
    right = sum(one == other for one, other in zip(response, wanted, strict=False))
    return right / max(len(response), len(wanted))


def add(buffer, tokens, log_probs):
    """Store a sequence: T steps from T + 1 tokens."""
    steps = np.arange(len(log_probs))
    last = steps == steps[-1]
    buffer.add(
        token=tokens[:-1],
        next_token=tokens[1:],
        log_prob=log_probs,
        in_response=steps >= (tokens == COLON).argmax(),
        reward=reward_of(tokens) * last,
        terminated=last,
    )


def update(policy, optimizer, batch):
    """Take one step of the clipped policy gradient (PPO) on the tokens that a policy wrote."""
    tokens, mask = batch.token.long(), batch.in_response  # [B, T + 1] and [B, T]; false for padding
    log_p, _ = policy(tokens[:, :-1])
    ratio = (log_p.gather(2, tokens[:, 1:, None])[:, :, 0] - batch.log_prob).exp()
    returns = batch.reward.sum(1, keepdim=True)
    advantage = (returns - returns.mean()) / (returns.std() + 0.1)
    gain = torch.minimum(ratio * advantage, ratio.clamp(1 - CLIP, 1 + CLIP) * advantage)
    entropy = -(log_p.exp() * log_p).sum(2)
    loss = -(gain + ENTROPY * entropy)[mask].mean()
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
    optimizer.step()


def train(versions=60, seed=0, every=20):
    """Return the buffer and the mean rewards of the sequences, one per 20 versions of the policy."""
    torch.manual_seed(seed)
    generator, rng = torch.Generator().manual_seed(seed), np.random.default_rng(seed)
    policy, buffer, curve, rewards = Policy(), new_buffer(seed), [], []
    optimizer = torch.optim.Adam(policy.parameters(), lr=LEARNING_RATE)
    for version in range(1, versions + 1):
        for tokens, log_probs in write(policy, rng.integers(1, MAX_DOTS + 1, WRITTEN), generator):
            add(buffer, tokens, log_probs)
            rewards.append(reward_of(tokens))
        stored = buffer.episodes()
        buffer.tag(stored.episode[-WRITTEN:], version)
        buffer.evict(stored.episode[:-WRITTEN][stored.tag[:-WRITTEN] <= version - WINDOW])
        for _ in range(UPDATES):
            update(policy, optimizer, buffer.sample(BATCH_SIZE).to_torch())
        if version % every == 0:
            curve.append(float(np.mean(rewards[-200:])))
            print(f"version {version}, mean reward of 200 sequences: {curve[-1]:.2f}")
    return buffer, curve


if __name__ == "__main__":
    torch.set_num_threads(1)  # more threads don't speed up a network this small
    train(*map(int, sys.argv[1:]))
