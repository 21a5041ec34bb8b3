"""Calls from other processes on the same machine: wire format, sockets, endpoint, sessions and handle."""
