"""The signal of Kubernetes on GKE: what the API says of the node that this pod runs on.

GKE labels a node with the time of its next maintenance, marks one under maintenance, and taints one that is about to
be terminated: https://cloud.google.com/kubernetes-engine/docs/concepts/handle-disruption-gpu-tpu. The node is read
from the API server's cache, which costs it next to nothing, however many nodes ask.
"""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from tpuwatch.core import Pacing
from tpuwatch.model import Answer, Maintenance, Notices, Problem, Signal
from tpuwatch.signals.identity import kubernetes_node
from tpuwatch.signals.kubernetes_api import KubernetesApi, KubernetesError

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator, Mapping

    from tpuwatch.config import KubernetesConfig
    from tpuwatch.core import Clock
    from tpuwatch.signals.sources import SignalSources

SCHEDULED: Final = "cloud.google.com/scheduled-maintenance-time"  # a label: seconds since the epoch
LATEST: Final = "cloud.google.com/scheduled-maintenance-time-latest"  # a label: by then it begins
ACTIVE: Final = "cloud.google.com/active-node-maintenance"  # a label or annotation: ONGOING while it is under way
TERMINATION: Final = "cloud.google.com/impending-node-termination"  # a taint
TPUS: Final = "google.com/tpu"  # a resource: chips that the device plugin has, and those of them that are well
STALE_SECONDS: Final = 3600.0  # a time so long past, with nothing under way, announces nothing
# Conditions that say with True that a node is ill. Of others it is not known which status is the bad one.
_BAD_IF_TRUE: Final = frozenset(
    {
        "MemoryPressure",
        "DiskPressure",
        "PIDPressure",
        "NetworkUnavailable",
        "KernelDeadlock",
        "ReadonlyFilesystem",
        "CorruptDockerOverlay2",
        "FrequentKubeletRestart",
        "FrequentDockerRestart",
        "FrequentContainerdRestart",
        "FrequentUnregisterNetDevice",
    }
)
_MAX_ITEMS: Final = 200  # of each list
_WORD: Final = re.compile(r"[A-Za-z][A-Za-z0-9]{0,63}")
_COUNT: Final = re.compile(r"[0-9]{1,4}")
_EPOCH: Final = re.compile(r"[0-9]{9,11}")
_NO_NAME: Final = "NODE_NAME does not tell the pod which node it runs on; set it as deploy/gke/tpuwatch.yaml does."
_NO_NODE: Final = "What the API of Kubernetes answers is no node."


def in_cluster(config: KubernetesConfig, environ: Mapping[str, str]) -> bool:
    """Whether this is a pod that has a service account's token."""
    return bool(environ.get("KUBERNETES_SERVICE_HOST")) and (config.service_account / "token").exists()


class KubernetesSignal:
    """Reads the node of a pod. `ask` is for one thread, `close` for any. Times in seconds."""

    def __init__(
        self, config: KubernetesConfig, environ: Mapping[str, str], *, clock: Clock, rng: random.Random
    ) -> None:
        self.node = kubernetes_node(environ)
        self._clock = clock
        self._pacing = Pacing(config.poll_seconds, clock=clock, rng=rng)
        self._api = KubernetesApi(environ, config.service_account, clock=clock, timeout_seconds=config.timeout_seconds)
        self._last: Answer[Notices] = Answer()

    @property
    def due_in(self) -> float:
        """Seconds until it wants to be asked again."""
        return self._pacing.due_in

    def ask(self) -> Answer[Notices]:
        """What is announced of the node; takes little more than the timeout at most."""
        now = self._clock.time()
        if not self.node:
            self._pacing.succeeded()
            return self._failed(Problem.UNCONFIGURED, _NO_NAME, now)
        try:
            document = self._api.get(f"/api/v1/nodes/{quote(self.node, safe='')}?resourceVersion=0")
        except KubernetesError as error:
            self._pacing.failed(error.retry_after)
            return self._failed(error.problem, str(error), now)
        notices = parse_node(document, self.node, now)
        if notices is None:
            self._pacing.failed(None)
            return self._failed(Problem.FOREIGN, _NO_NODE, now)
        self._pacing.succeeded()
        self._last = Answer(notices, now, None, "", now)
        return self._last

    def close(self) -> None:
        """End a request that waits, and make no more. May be called from any thread."""
        self._api.close()

    def _failed(self, problem: Problem, detail: str, now: float) -> Answer[Notices]:
        self._last = Answer(self._last.value, self._last.at, problem, detail, now)
        return self._last


def parse_node(document: Any, name: str, now: float) -> Notices | None:
    """The notices in a Node of the API's v1; None if it is not the node of this name."""
    metadata = _part(document, "metadata")
    if metadata.get("name") != name or document.get("kind", "Node") != "Node":
        return None
    return Notices(
        maintenance=_maintenance(metadata, now),
        terminating=any(taint.get("key") == TERMINATION for taint in _items(_part(document, "spec"), "taints")),
        conditions=tuple(_ill(_part(document, "status"))),
    )


def _maintenance(metadata: dict[str, Any], now: float) -> Maintenance | None:
    labels, annotations = _part(metadata, "labels"), _part(metadata, "annotations")
    start, latest = _epoch(labels.get(SCHEDULED)), _epoch(labels.get(LATEST))
    if "ONGOING" in (labels.get(ACTIVE), annotations.get(ACTIVE)):
        return Maintenance("UNSCHEDULED" if start is None else "SCHEDULED", "ONGOING", start, None, latest)
    if start is None or now - max(start, latest or start) > STALE_SECONDS:
        return None
    return Maintenance("SCHEDULED", "PENDING", start, None, latest)


def _ill(status: dict[str, Any]) -> Iterator[str]:
    """The conditions by which the node is ill. Without their messages, which anything on the node may have written."""
    for condition in _items(status, "conditions"):
        kind, state, why = (_word(condition.get(key)) for key in ("type", "status", "reason"))
        bad = state in ("False", "Unknown") if kind == "Ready" else kind in _BAD_IF_TRUE and state == "True"
        if bad:
            yield f"{kind} is {state}" + (f" ({why})" if why else "")
    there, usable = (_count(_part(status, key).get(TPUS)) for key in ("capacity", "allocatable"))
    if there is not None and usable is not None and usable < there:
        yield f"{usable} of {there} TPUs are allocatable"


def _count(quantity: Any) -> int | None:
    return int(quantity) if isinstance(quantity, str) and _COUNT.fullmatch(quantity) else None


def _epoch(label: Any) -> float | None:
    return float(label) if isinstance(label, str) and _EPOCH.fullmatch(label) else None


def _part(document: Any, name: str) -> dict[str, Any]:
    found = document.get(name) if isinstance(document, dict) else None
    return found if isinstance(found, dict) else {}


def _items(document: dict[str, Any], name: str) -> Iterator[dict[str, Any]]:
    found = document.get(name)
    return (one for one in (found[:_MAX_ITEMS] if isinstance(found, list) else ()) if isinstance(one, dict))


def _word(value: Any) -> str:
    return value if isinstance(value, str) and _WORD.fullmatch(value) else ""


def start(sources: SignalSources) -> None:
    """Add the source that asks the API of Kubernetes, in a cluster."""
    config = sources.config.kubernetes
    if not in_cluster(config, sources.environ):
        sources.post_off(Signal.KUBERNETES)
        return
    source = KubernetesSignal(config, sources.environ, clock=sources.clock, rng=sources.rng)
    sources.add(
        "kubernetes",
        source,
        config.poll_seconds,
        partial(sources.post, Signal.KUBERNETES),
        after="notices",  # a maintenance that both announce is one notice
        calls=config.timeout_seconds,
    )
