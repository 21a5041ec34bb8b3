"""What learns, in one process: environments, networks, TD errors, DQN, DPG, and how a policy is evaluated."""
