"""Images: each frame of a stack is stored once."""
