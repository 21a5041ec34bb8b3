"""Who is measured: our buffers, other libraries, and the bare NumPy call that nobody can beat."""
