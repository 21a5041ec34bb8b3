"""N-step returns of stored steps, summed when they are sampled.

    R = r_t + γ r_t+1 + … + γ^(k-1) r_t+k-1        discount = γ^k, or 0 if the last of these steps terminated

k is below n at the end of an episode, and at the newest steps of a running episode.

Source: Sutton and Barto 2018, section 7.1.
"""

from replay_tutorial.buffers.fields import Fields
from replay_tutorial.buffers.n_step.settings import NStep, ParsedNStep, optional_settings, parse_settings
from replay_tutorial.buffers.runtime.jit import Flags, Floats, Integers, kernel


def parse_returns(
    n_step: int | NStep | None, gamma: float | None, reward: str, fields: Fields
) -> ParsedNStep | None:
    """Parse and check the arguments `n_step` and `gamma` of a buffer whose reward has this name."""
    settings = optional_settings(n_step, gamma)
    if settings is None:
        return None
    if settings.next_fields is not None:
        raise ValueError("n_step: next_fields must be None in a buffer of episodes.")
    if isinstance(settings.gamma, str):
        raise TypeError(
            f"gamma must be a number in a buffer of episodes, not the field {settings.gamma!r}. "
            "NStepWindow, ReplayBuffer and PrioritizedReplayBuffer support discounts of each step."
        )
    summed = reward if settings.reward is None else settings.reward
    parsed = parse_settings(settings._replace(reward=summed, next_fields=()), fields)
    if len(parsed.rewards) != 1 or fields.fields[parsed.rewards[0]].shape not in ((), (1,)):
        raise ValueError(
            f"n_step: the reward must be one field of the shape () or (1,), not {list(parsed.rewards)}."
        )
    return parsed


@kernel
def sum_rewards(
    rewards: Floats,
    terminated: Flags,
    firsts: Integers,
    counts: Integers,
    gamma: float,
    returns: Floats,
    discounts: Floats,
    lasts: Integers,
) -> None:
    """Sum `counts` rewards of each row, from the entry `firsts` on, up to the first terminated step.

    Write the n-step returns, the discounts, and the entries of the last steps. Both numbers of a row without
    a reward are 0.
    """
    for i in range(counts.shape[0]):
        returns[i], discounts[i], lasts[i] = 0.0, 1.0 if counts[i] else 0.0, firsts[i]
        for entry in range(firsts[i], firsts[i] + counts[i]):
            returns[i] += discounts[i] * rewards[entry]
            discounts[i] *= gamma
            lasts[i] = entry
            if terminated[entry]:
                discounts[i] = 0.0
                break
