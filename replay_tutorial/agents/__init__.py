"""The learning side, independent of processes: environments, networks, DQN, DPG and evaluation."""
