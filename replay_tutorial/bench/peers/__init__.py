"""The measured buffers: ours, those of other libraries, and plain NumPy calls as the upper bound."""
