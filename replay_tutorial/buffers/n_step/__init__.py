"""N-step returns: the windows that sum rewards, and the ends of episodes."""
