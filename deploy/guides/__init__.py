"""Writes docs/guides.md from the table of the items of Google's guides: `make guides`."""
