"""How series are created: at the start, or from a snapshot at each scrape."""

from __future__ import annotations

import re
from enum import Enum
from itertools import product
from typing import TYPE_CHECKING, Final, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Metric
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

K = TypeVar("K")
L = TypeVar("L")
_NAME: Final = re.compile(r"[A-Za-z0-9._:-]{1,200}")  # what a node or a zone may be called in a series


class Families:
    """Creates metrics in one registry, with every value of their label from the start."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()

    def counter(self, name: str, text: str) -> Counter:
        return Counter(name, text, registry=self.registry)

    def gauge(self, name: str, text: str, *labels: str) -> Gauge:
        """A gauge; one with labels has no series yet."""
        return Gauge(name, text, labels, registry=self.registry)

    def counters(self, name: str, text: str, label: str, values: Iterable[K]) -> dict[K, Counter]:
        """One counter for each value of the label."""
        family = Counter(name, text, [label], registry=self.registry)
        return {value: family.labels(_text(value)) for value in values}

    def counting(self, name: str, text: str, label: str, values: Iterable[K]) -> Callable[[K], None]:
        """A function that counts one value of the label. It raises KeyError for a value that is not declared."""
        series = self.counters(name, text, label, values)
        return lambda value: series[value].inc()

    def counter_pairs(
        self, name: str, text: str, labels: tuple[str, str], first: Iterable[K], second: Iterable[L]
    ) -> dict[tuple[K, L], Counter]:
        """One counter for each pair of values of two labels."""
        family = Counter(name, text, labels, registry=self.registry)
        return {(one, other): family.labels(_text(one), _text(other)) for one, other in product(first, second)}


def _text(value: object) -> object:
    return value.value if isinstance(value, Enum) else value


class FamilyCollector(Collector):
    """Families that are rendered at each scrape, so that what no longer exists has no series and takes no memory."""

    def __init__(self, families: Callable[[], Iterable[Metric]]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families()

    def describe(self) -> list[Metric]:
        return []


class WithoutCreated(Collector):
    """A registry without the `_created` series, which double it and add nothing.

    prometheus_client can only switch them off for a whole process.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def collect(self) -> Iterator[Metric]:
        for family in self._registry.collect():
            family.samples = [sample for sample in family.samples if not sample.name.endswith("_created")]
            yield family

    def describe(self) -> list[Metric]:
        return []


def node_labels(nodes: Iterable[tuple[str, str, K]]) -> Iterator[tuple[dict[str, str], K]]:
    """The labels `zone` and `node` of nodes, given as zone, name and value. The zone is empty while it is not known.

    Each node has them once: Prometheus rejects a scrape with a duplicate series. A name that no node can have, such as
    one with a space, has none.
    """
    seen: set[tuple[str, str]] = set()
    for zone, name, value in nodes:
        if (zone, name) not in seen and _NAME.fullmatch(name) and (not zone or _NAME.fullmatch(zone)):
            seen.add((zone, name))
            yield {"zone": zone, "node": name}, value
