"""What learns, in one process: environments, networks, TD errors, DQN, DPG, exploration, evaluation."""
