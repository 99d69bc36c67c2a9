"""How series are made: each there from the start, or rendered from a snapshot at the scrape."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Metric
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

K = TypeVar("K")


class Families:
    """Makes metrics in one registry, with every value of their label there from the start."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()

    def counter(self, name: str, text: str) -> Counter:
        """A counter without labels."""
        return Counter(name, text, registry=self.registry)

    def gauge(self, name: str, text: str) -> Gauge:
        """A gauge without labels."""
        return Gauge(name, text, registry=self.registry)

    def counters(self, name: str, text: str, label: str, values: Mapping[K, str]) -> dict[K, Counter]:
        """One counter for each label value, under the key that stands for it."""
        family = Counter(name, text, [label], registry=self.registry)
        return {key: family.labels(value) for key, value in values.items()}

    def gauges(self, name: str, text: str, label: str, values: Iterable[str]) -> dict[str, Gauge]:
        """One gauge for each label value."""
        family = Gauge(name, text, [label], registry=self.registry)
        return {value: family.labels(value) for value in values}


class Snapshot(Collector):
    """Families that are made anew for each scrape, so that what is no longer there leaves no series and no memory."""

    def __init__(self, families: Callable[[], Iterable[Metric]]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families()

    def describe(self) -> list[Metric]:
        return []


class WithoutCreated(Collector):
    """A registry without the `_created` series, which double it and say nothing that a scrape does not know.

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
