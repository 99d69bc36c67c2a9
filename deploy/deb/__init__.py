"""Builds the Debian package: `make deb`."""
