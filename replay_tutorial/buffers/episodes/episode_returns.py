"""N-step returns of stored steps, summed when they are sampled.

    R = r_t + γ r_t+1 + … + γ^(k-1) r_t+k-1        discount = γ^k, or 0 if the last of these steps terminated

k is below n at the end of an episode, and at the newest steps of a running episode.

Source: Sutton and Barto 2018, section 7.1.
"""

from collections.abc import Mapping
from typing import Any

from replay_tutorial.buffers.fields import Fields
from replay_tutorial.buffers.n_step.returns import NStepSettings, parse_settings, with_constant_gamma
from replay_tutorial.buffers.runtime.jit import Flags, Floats, Integers, kernel


def parse_returns(settings: Mapping[str, Any], rew: str, fields: Fields) -> NStepSettings:
    """Parse and check the argument `Nstep`, whose "rew" defaults to the argument `rew`."""
    if isinstance(settings, Mapping):
        settings = {"rew": rew, **settings, "next": ()}
    parsed = with_constant_gamma(parse_settings(settings, fields))
    if len(parsed.rewards) != 1 or fields.fields[parsed.rewards[0]].shape not in ((), (1,)):
        raise ValueError(
            f"Nstep['rew'] must be one field of the shape () or (1,), not {list(parsed.rewards)}."
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
