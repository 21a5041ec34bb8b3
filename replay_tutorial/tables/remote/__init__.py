"""Calls from other processes and hosts: wire format, addresses and keys, endpoint, and handle."""
