"""The tables beside DeepMind's Reverb."""
