"""What identifies a node among all that are watched: a name alone may be given to a node in each zone."""

from __future__ import annotations


def node_label(zone: str, name: str) -> str:
    """ "zone/name"; "name" while the zone is not known."""
    return f"{zone}/{name}" if zone else name


def split_label(label: str) -> tuple[str, str]:
    """The zone, "" while it is not known, and the name in a label."""
    zone, _, name = label.rpartition("/")
    return zone, name
