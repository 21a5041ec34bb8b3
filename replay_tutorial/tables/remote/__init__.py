"""Calls between processes of one machine: the bytes, the socket, and both of its ends."""
