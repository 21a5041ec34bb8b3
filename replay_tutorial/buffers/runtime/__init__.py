"""What the buffers need of Python and the system: compiled kernels, interrupts, files and memory."""
