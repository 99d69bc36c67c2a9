"""Writes the man page: `make man`."""
