"""What the metadata server of a simulated worker holds: the values under computeMetadata/v1, as plain data.

Two dialects are in use. A TPU VM that the Cloud TPU API made tells its node's name in `tpu-env` and in the attribute
`instance-id`. A VM with TPUs that Compute Engine or GKE made writes the NODE_ID '0' there, other names for worker and
accelerator, and the instances' names as endpoints.
"""

from __future__ import annotations

import hashlib
import ipaddress
import math
import zlib
from datetime import datetime, timezone
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from tpuwatch.model import Maintenance
    from tpuwatch.sim.cloud.nodes import SimNode

_ADDRESSES: Final = 10 << 24  # 10.0.0.0/8
_LOOPBACK: Final = (127 << 24) + (64 << 16)  # 127.64.0.0/10: where workers are played, they can be asked
PORTS: Final = (8431, 8432, 8433, 8434)  # of the runtime metrics
_BOUNDS: Final = {1: (1, 1, 1), 2: (1, 2, 1), 4: (2, 2, 1), 8: (2, 4, 1)}  # chips of a host
_CUBES: Final = ("v4", "v5p", "tpu7x", "v7x")  # kinds whose slices are wired in three dimensions
_TYPES: Final = {"v5litepod": "V5LITE_POD", "v5lite": "V5LITE_POD"}


class MetadataDialect(str, Enum):
    """Who made the VM, and so which words its metadata use."""

    TPU = "tpu"  # the Cloud TPU API
    COMPUTE = "compute"  # Compute Engine or GKE


class MetadataRecord(dict[str, Any]):
    """A value of several fields that keeps its names: lines as text, an object as JSON."""


def tree(node: SimNode, worker: int, dialect: MetadataDialect, ports: tuple[int, ...] = PORTS) -> dict[str, Any]:
    """All values of one worker but its service accounts: directories as dictionaries, leaves as str, int or Record.

    `upcoming-maintenance` is an empty Record while nothing is announced.
    """
    number = _number(node.project, 12)
    attributes = (
        _tpu_attributes(node, worker, ports) if dialect is MetadataDialect.TPU else _compute(node, worker, ports)
    )
    return {
        "instance": {
            "attributes": attributes,
            "hostname": f"{instance_name(node, worker, dialect)}.{node.zone}.c.{node.project}.internal",
            "id": instance_id(node, worker),
            "maintenance-event": node.notice,
            "name": instance_name(node, worker, dialect),
            "preempted": "TRUE" if node.preempted else "FALSE",
            "scheduling": {
                "automatic-restart": "FALSE" if node.spot else "TRUE",
                "on-host-maintenance": "TERMINATE",
                "preemptible": "TRUE" if node.spot else "FALSE",
            },
            "upcoming-maintenance": _announced(node.maintenance),
            "zone": f"projects/{number}/zones/{node.zone}",
        },
        "project": {"numeric-project-id": number, "project-id": node.project},
        "universe": {"universe-domain": "googleapis.com"},
    }


def instance_name(node: SimNode, worker: int, dialect: MetadataDialect) -> str:
    """The VM's name; that of a TPU VM does not contain the node's."""
    if dialect is MetadataDialect.TPU:
        return f"t1v-n-{_digest(node.path)[:8]}-w-{worker}"
    return f"{node.name}-{worker}" if node.hosts > 1 else node.name


def instance_id(node: SimNode, worker: int) -> int:
    """The VM's number."""
    return _number(f"{node.path}/{worker}", 19)


def address(node: SimNode, worker: int) -> str:
    """The worker's address in the node's network, as in the Cloud TPU API."""
    first, bits = (_LOOPBACK, 22) if node.played else (_ADDRESSES, 24)
    return str(ipaddress.IPv4Address(first + (zlib.crc32(node.path.encode()) + worker) % (1 << bits)))


def bounds(node: SimNode) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """How a host's chips and the slice's hosts are arranged: three numbers each.

    A slice grows by doubling its shortest side; where the number of hosts is no power of two, along the last side.
    """
    chips = _BOUNDS.get(node.chips_per_host, (node.chips_per_host, 1, 1))
    sides = 3 if node.accelerator_type.split("-")[0] in _CUBES else 2
    hosts = [1, 1, 1]
    while math.prod(hosts) < node.hosts:
        side = min(range(sides), key=lambda at: (chips[at] * hosts[at], -at))
        hosts[side] *= 2
    if math.prod(hosts) != node.hosts:
        hosts = [1, 1, 1]
        hosts[sides - 1] = node.hosts
    return chips, tuple(hosts)


def _tpu_attributes(node: SimNode, worker: int, ports: tuple[int, ...]) -> dict[str, Any]:
    kind = node.accelerator_type.split("-")[0]
    chips, hosts = bounds(node)
    env = {
        "ACCELERATOR_TYPE": node.accelerator_type,
        "ALT": "false",
        "CHIPS_PER_HOST_BOUNDS": _commas(chips),
        "CONSUMER_PROJECT_ID": node.project,
        "CONSUMER_PROJECT_NUMBER": _number(node.project, 12),
        "HOST_BOUNDS": _commas(hosts),
        "NODE_ID": node.name,
        "PREEMPTIBLE": "true" if node.spot else "false",
        "SERVICE_NAME": "tpu.googleapis.com",
        "TOPOLOGY": _topology(chips, hosts),
        "TPU_CHIPS_PER_PROCESS_BOUNDS": _commas(chips),
        "TPU_PROCESS_BOUNDS": _commas(hosts),
        "TPU_RUNTIME_METRICS_PORTS": _commas(ports),
        "TYPE": _TYPES.get(kind, kind.upper()),
        "WORKER_ID": worker,
        "WRAP": "false,false,false",
        "ZONE": node.zone,
    }
    return {
        "accelerator-type": node.accelerator_type,
        "agent-worker-number": str(worker),
        "instance-id": node.name,
        "tpu-env": _lines(env),
        "worker-network-endpoints": ",".join(f"unknown:unknown:{address(node, each)}" for each in range(node.hosts)),
    }


def _compute(node: SimNode, worker: int, ports: tuple[int, ...]) -> dict[str, Any]:
    chips, hosts = bounds(node)
    env = {
        "TPU_WORKER_ID": worker,
        "CONSUMER_PROJECT_ID": node.project,
        "ZONE": node.zone,
        "NODE_ID": 0,
        "TPU_RUNTIME_METRICS_PORTS": _commas(ports),
        "TPU_ACCELERATOR_TYPE": node.accelerator_type,
        "TOPOLOGY": _topology(chips, hosts),
        "WRAP": "false,false,false",
        "ALT": "false",
        "HOST_BOUNDS": _commas(hosts),
        "CHIPS_PER_HOST_BOUNDS": _commas(chips),
    }
    names = (instance_name(node, each, MetadataDialect.COMPUTE) for each in range(node.hosts))
    return {
        "accelerator-type": node.accelerator_type,
        "agent-worker-number": str(worker),
        "tpu-env": _lines(env),
        "worker-network-endpoints": ",".join(names),
    }


def _announced(maintenance: Maintenance | None) -> MetadataRecord:
    if maintenance is None:
        return MetadataRecord()
    times = {
        "latest_window_start_time": maintenance.latest_start,
        "window_end_time": maintenance.end,
        "window_start_time": maintenance.start,
    }
    return MetadataRecord(
        can_reschedule="true" if maintenance.can_reschedule else "false",
        maintenance_status=maintenance.status,
        type=maintenance.kind,
        **{name: _rfc3339(at) for name, at in times.items() if at is not None},
    )


def _rfc3339(at: float) -> str:
    return datetime.fromtimestamp(int(at), timezone.utc).isoformat()


def _topology(chips: tuple[int, ...], hosts: tuple[int, ...]) -> str:
    sides = [chip * host for chip, host in zip(chips, hosts, strict=True)]
    return "x".join(str(side) for side in (sides if sides[2] > 1 else sides[:2]))


def _lines(env: dict[str, Any]) -> str:
    return "".join(f"{name}: '{value}'\n" for name, value in env.items())


def _commas(values: tuple[int, ...]) -> str:
    return ",".join(map(str, values))


def _number(text: str, digits: int) -> int:
    """A number of so many digits that stays the same for the same text."""
    lowest = int(10 ** (digits - 1))
    return lowest + int(_digest(text), 16) % (8 * lowest)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
