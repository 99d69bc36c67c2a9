"""Conversion of a protobuf Node of the Cloud TPU API to a CloudNode, with all text cleaned and bounded.

The raw messages are read, not Google's wrappers: those take more than ten times as long, and fail on enum values that
are newer than the package.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from tpuwatch.core import clean, parse_time
from tpuwatch.model import CloudNode, Maintenance, Symptom

if TYPE_CHECKING:
    from collections.abc import Mapping

_NAME: Final = re.compile(r"(?:.*/)?([a-z0-9-]{1,63})")
_ADDRESS: Final = re.compile(r"[0-9A-Fa-f.:]+")
_MAX_ADDRESS: Final = 45  # of an IPv6 address
_MAX_TEXT: Final = 500
_MAX_WORD: Final = 128
_MAX_LABELS: Final = 64  # as many as Google allows
_MAX_SYMPTOMS: Final = 20  # the newest
_names: dict[str, Mapping[int, str]] = {}  # of enums, by their full names


def short_name(path: str) -> str:
    """The last part of a resource's name; "" if that cannot be a name."""
    match = _NAME.fullmatch(path)
    return match[1] if match else ""


class NodeConverter:
    """Converts the nodes of one poll of one zone. Equal strings of several nodes are stored once."""

    def __init__(self, project: str, zone: str, now: float) -> None:
        self._project = project
        self._zone = zone
        self._now = now
        self._strings: dict[str, str] = {}

    def convert(self, raw: Any, name: str, previous: CloudNode | None, *, looked: bool = True) -> CloudNode:
        """Convert a raw Node. `previous` is the node at the last poll, and is returned itself if nothing has changed.

        `looked`: this process made that poll, so it has seen the change. Otherwise an earlier run made it, or nobody.
        """
        state, health = enum_name(raw, "state", "STATE"), enum_name(raw, "health", "HEALTH")
        created = time_of(raw, "create_time")
        # A recreated node has nothing in common with the old one.
        recreated = previous and created and previous.created and created != previous.created
        before = None if recreated else previous
        health = "" if health == "HEALTH_UNSPECIFIED" else health
        unchanged = before is not None and (before.state, before.health) == (state, health)
        node = CloudNode(
            project=self._project,
            zone=self._zone,
            name=name,
            state=state,
            health=health,
            health_description=self._text(raw.health_description, _MAX_TEXT),
            symptoms=self._symptoms(raw.symptoms) if raw.symptoms else (),
            accelerator=self._text(raw.accelerator_type),
            runtime_version=self._text(raw.runtime_version),
            # A preempted node may have lost its endpoints; it has as many hosts as before.
            hosts=len(raw.network_endpoints) or (before.hosts if before else 1),
            spot=raw.scheduling_config.preemptible or raw.scheduling_config.spot,
            addresses=_addresses(raw) or (before.addresses if before else ()),
            lacks_endpoints=not raw.network_endpoints,
            queued_resource=self._text(raw.queued_resource.rpartition("/")[2]),
            maintenance=_maintenance(raw),
            created=created,
            labels=self._labels(raw.labels) if raw.labels else (),
            changed=before.changed if before and unchanged else self._now,
            changed_unseen=before.changed_unseen if before and unchanged else not looked,
        )
        return before if before and before == node else node

    def _text(self, text: str, chars: int = _MAX_WORD) -> str:
        if len(text) > chars or not text.isprintable():
            text = clean(text, chars)
        return self._strings.setdefault(text, text)

    def _labels(self, labels: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
        pairs = sorted(labels.items())[:_MAX_LABELS]
        return tuple((self._text(key), self._text(value)) for key, value in pairs)

    def _symptoms(self, symptoms: Any) -> tuple[Symptom, ...]:
        all_ = [
            Symptom(
                kind=enum_name(symptom, "symptom_type", "SYMPTOM"),
                at=time_of(symptom, "create_time"),
                worker=self._text(symptom.worker_id),
                details=self._text(symptom.details, _MAX_TEXT),
            )
            for symptom in symptoms
        ]
        return tuple(sorted(all_, key=lambda symptom: symptom.at or 0.0)[-_MAX_SYMPTOMS:])


def _addresses(raw: Any) -> tuple[str, ...]:
    """IP addresses of the hosts in their order, "" for one that cannot be read; nothing where there is none at all."""
    texts = (endpoint.ip_address for endpoint in raw.network_endpoints)
    found = tuple(text if len(text) <= _MAX_ADDRESS and _ADDRESS.fullmatch(text) else "" for text in texts)
    return found if any(found) else ()


def enum_name(message: Any, field: str, kind: str) -> str:
    """The name of an enum's value; "STATE_17" for one that is newer than the package."""
    number = getattr(message, field)
    enum = message.DESCRIPTOR.fields_by_name[field].enum_type
    names = _names.get(enum.full_name)
    if names is None:
        names = _names[enum.full_name] = {value.number: value.name for value in enum.values}
    return names.get(number) or f"{kind}_{number}"


def time_of(message: Any, field: str) -> float | None:
    """A timestamp in seconds since the epoch; None if the message has none."""
    if not message.HasField(field):
        return None
    time = getattr(message, field)
    return float(time.seconds + time.nanos / 1e9)


def _maintenance(raw: Any) -> Maintenance | None:
    """What is announced: v2alpha1 alone has it."""
    if "upcoming_maintenance" not in raw.DESCRIPTOR.fields_by_name or not raw.HasField("upcoming_maintenance"):
        return None
    upcoming = raw.upcoming_maintenance
    return Maintenance(
        kind=enum_name(upcoming, "type_", "TYPE"),
        status=enum_name(upcoming, "maintenance_status", "STATUS"),
        start=_parsed(upcoming.window_start_time),
        end=_parsed(upcoming.window_end_time),
        latest_start=_parsed(upcoming.latest_window_start_time),
        can_reschedule=upcoming.can_reschedule,
    )


def _parsed(text: str) -> float | None:
    """An RFC 3339 time in seconds since the epoch; None if it is none."""
    try:
        return parse_time(text[:64])
    except (ValueError, OverflowError):
        return None
