"""Presets: what is known to work for an environment, where it differs from the defaults.

The defaults of `Config` fit small environments. Here, and only here, stands what else is known, each value with its
reason; a flag on the command line changes any of them.

Papers: Mnih et al. 2015, methods; Horgan et al. 2018, appendices C (Atari) and D (control suite).
"""

from typing import Any

# Classic control pays ±1 a step, so Q is of the order of 1/(1-γ) = 100 and the errors that matter, at the fall of the
# pole, are of the order of 10. Huber's usual 1 flattens just those that prioritized replay has picked.
CLASSIC_CONTROL: dict[str, Any] = {"huber_delta": 10.0}

# Rewards are -16 to 0 a step, so errors are of the order of 10 here, too.
PENDULUM: dict[str, Any] = {"huber_delta": 10.0, "learning_rate": 1e-3, "total_steps": 100_000}

# Rewards are -1 a step until the swing is high enough. Huber's usual 1 did better than 10 here. Above gymnasium's -100,
# which is reached long before the agent has stopped to improve.
ACROBOT: dict[str, Any] = {"solved_at": -78.0, "total_steps": 150_000}

# Landing pays 100 to 140, a crash -100, on top of a stream of small rewards for the way.
LUNAR_LANDER: dict[str, Any] = {
    "huber_delta": 10.0,  # a crash is an error of the order of 100: 1 would flatten all that matters
    "learning_rate": 5e-4,  # longer runs than CartPole's; 0.001 ended 24 points lower
    "batch_size": 128,
    "samples_per_insert": 8.0,  # 128 instead of 64 rows for the same number of updates
    "target_interval": 200,  # 3,200 steps apart: some ten episodes
    "capacity": 200_000,  # hundreds of episodes: what was tried early stays known for a while
    "total_steps": 800_000,  # after 400,000 one seed of three was below 200
    "evaluation_interval": 1_000,  # an evaluation is up to 20,000 steps here
    "solved_at": 250.0,  # above gymnasium's 200, which is only safely down
}

# The paper's settings for Atari games. What they are made for is a machine with a GPU and hundreds of actors.
PAPER_ATARI: dict[str, Any] = {
    "hidden_sizes": (512,),  # of each head, behind the convolutions
    "optimizer": "rmsprop",
    "learning_rate": 0.00025 / 4,
    "huber_delta": 1.0,  # rewards are clipped, so are errors
    "gradient_norm": 40.0,
    "batch_size": 512,
    "target_interval": 2_500,
    "capacity": 2_000_000,
    "replay_start": 50_000,
    # The paper has no limit; there, 19 batches of 512 a second met 12,500 rows a second.
    "samples_per_insert": 0.8,
    "slack": 50_000,
    "environments_per_actor": 1,
    "send_interval": 50,
    "total_steps": 50_000_000,  # 200 million frames
    # The replay is 18 GB on the disk, too, and the learner waits while it is written. Two are kept, and the next one is
    # written beside them: 54 GB.
    "checkpoint_seconds": 1_800.0,
    "evaluation_interval": 5_000,  # a game takes thousands of steps
    "evaluation_episodes": 5,
    "confirmation_episodes": 10,
    "final_episodes": 30,
    "device": "auto",
}

# The paper's settings for the control suite.
PAPER_CONTROL_SUITE: dict[str, Any] = {
    "hidden_sizes": (400, 300),
    "policy_hidden_sizes": (300, 200),
    "learning_rate": 1e-4,
    "policy_learning_rate": 1e-4,
    "action_gradient": 1.0,
    "noise": 0.3,
    "batch_size": 256,
    "target_interval": 100,
    "capacity": 1_000_000,
    "replay_start": 50_000,
    # The paper has no limit; there, 86 batches of 256 a second met 14,000 rows a second.
    "samples_per_insert": 1.6,
    "slack": 50_000,
    "total_steps": 10_000_000,
    "evaluation_interval": 5_000,
}

PRESETS: dict[str, dict[str, Any]] = {
    # Above gymnasium's 475, because it costs a few seconds only to be far from the bar.
    "CartPole-v1": {**CLASSIC_CONTROL, "solved_at": 490.0},
    "Acrobot-v1": ACROBOT,
    "MountainCar-v0": CLASSIC_CONTROL,
    "Pendulum-v1": PENDULUM,
    "LunarLander-v3": LUNAR_LANDER,
    # For all environments whose name begins so:
    "ALE/": PAPER_ATARI,
    "dm_control/": PAPER_CONTROL_SUITE,
}


def changes_for(environment: str) -> dict[str, Any]:
    """Return the settings that differ from the defaults for an environment; none where nothing is known of it."""
    for name in (environment, environment.partition("/")[0] + "/"):
        if name in PRESETS:
            return PRESETS[name]
    return {}
