"""A zone over lists that the test makes up: what did not change is not read again, and that makes no difference."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from google.cloud import tpu_v2

from tpuwatch.core.clock import ManualClock
from tpuwatch.google.errors import ApiError, ApiFault
from tpuwatch.google.tpu_node import NodeConverter
from tpuwatch.model.answers import Problem
from tpuwatch.model.signals import Identity, Known
from tpuwatch.signals.cloud import CloudZone
from tpuwatch.signals.watch import Watch, watches

PARENT = "projects/lab/locations/us-a/nodes/"
QUEUES = "projects/lab/locations/us-a/queuedResources/"


def watch(*names: str) -> Watch:
    (found,) = watches(names, Identity(Known("lab", "config"), Known("us-a", "config")))
    return found


class Service:
    """What the service lists: nodes as fields, in pages of three. Stands in for a CloudClient."""

    def __init__(self) -> None:
        self.nodes: dict[str, dict[str, Any]] = {}
        self.unreachable: list[str] = []
        self.fails_after: int | None = None  # pages
        self.queued: list[tpu_v2.QueuedResource] = []

    def list_nodes(self, _project: str, _zone: str) -> Iterator[Any]:
        nodes = [tpu_v2.Node(name=PARENT + name, **fields) for name, fields in self.nodes.items()]
        for place in range(0, max(1, len(nodes)), 3):
            if self.fails_after is not None and place >= 3 * self.fails_after:
                raise ApiError(ApiFault(Problem.SERVER, "INTERNAL", "It failed."))
            page = tpu_v2.ListNodesResponse(nodes=nodes[place : place + 3], unreachable=self.unreachable)
            yield tpu_v2.ListNodesResponse.pb(page)

    def list_queued_resources(self, _project: str, _zone: str) -> Iterator[Any]:
        found = tpu_v2.ListQueuedResourcesResponse(queued_resources=self.queued)
        yield tpu_v2.ListQueuedResourcesResponse.pb(found)

    def shuffle(self, rng: random.Random) -> None:
        """Let a few things change, as they do between two polls; now and then all of it fails."""
        for _ in range(rng.randrange(3)):
            name = f"n{rng.randrange(8)}"
            if rng.random() < 0.3:
                self.nodes.pop(name, None)
            else:
                self.nodes[name] = {
                    "state": rng.choice(["READY", "READY", "STOPPED", "PREEMPTED"]),
                    "health": rng.choice(["HEALTHY", "TIMEOUT"]),
                    "create_time": {"seconds": rng.choice([10, 20])},
                    "network_endpoints": [{"ip_address": "10.0.0.1"}] * rng.randrange(3),
                    "labels": {"b": "1", "a": "2", "c": rng.choice("xy")},
                }
        self.unreachable = ["us-a"] if rng.random() < 0.1 else []
        self.fails_after = rng.randrange(3) if rng.random() < 0.1 else None


@pytest.fixture
def converted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the nodes that were read, one after the other."""
    names: list[str] = []
    convert = NodeConverter.convert

    def noted(self: NodeConverter, raw: Any, name: str, *args: Any, **kwargs: Any) -> Any:
        names.append(name)
        return convert(self, raw, name, *args, **kwargs)

    monkeypatch.setattr(NodeConverter, "convert", noted)
    return names


def test_what_the_list_repeats_is_not_read_again(converted: list[str]) -> None:
    service, clock = Service(), ManualClock()
    service.nodes = {f"n{number}": {"state": "READY", "labels": {"b": "1", "a": "2"}} for number in range(8)}
    zone = CloudZone(watch("*"), interval=30, clock=clock, rng=random.Random(1))
    zone.poll(service)  # type: ignore[arg-type] # it stands in for one
    before = dict(zone.answers())
    converted.clear()
    clock.advance(30)
    service.nodes["n5"] = {"state": "STOPPED"}
    zone.poll(service)  # type: ignore[arg-type]
    after = dict(zone.answers())
    assert converted == ["n5"]
    same = after.keys() - {"us-a/n5"}
    assert all(after[name].value is before[name].value for name in same)
    assert all(after[name] == replace(before[name], at=clock.time(), tried=clock.time()) for name in same)
    assert after["us-a/n5"].value is not None
    assert (after["us-a/n5"].value.state, after["us-a/n5"].value.changed) == ("STOPPED", clock.time())


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_it_makes_no_difference_to_what_is_known(seed: int) -> None:
    rng, clock, service = random.Random(seed), ManualClock(), Service()
    plain, same = (CloudZone(watch("n*"), interval=30, clock=clock, rng=random.Random(1)) for _ in range(2))
    for _ in range(60):
        service.shuffle(rng)
        wanted = watch(*rng.choice([["n*"], ["n*"], ["n*"], ["n[1]*", "n3", "gone"]]))
        for zone in (plain, same):
            zone.follow(wanted)
        plain._by_text = {}  # reads every node
        for zone in (plain, same):
            zone.poll(service)  # type: ignore[arg-type]
        assert dict(same.answers()) == dict(plain.answers())
        assert same.nodes == plain.nodes
        clock.advance(30)


def test_what_is_no_longer_watched_is_no_longer_reported_and_may_come_back() -> None:
    service, clock = Service(), ManualClock()
    service.nodes = {"n1": {"state": "READY"}, "n2": {"state": "READY"}}
    zone = CloudZone(watch("*"), interval=30, clock=clock, rng=random.Random(1))
    zone.poll(service)  # type: ignore[arg-type]
    zone.follow(watch("n1"))
    assert dict(zone.answers()).keys() == {"us-a/n1"}
    zone.poll(service)  # type: ignore[arg-type]
    zone.follow(watch("*"))
    assert zone.pacing.due_in == 0
    zone.poll(service)  # type: ignore[arg-type]
    assert dict(zone.answers()).keys() == {"us-a/n1", "us-a/n2"}


def queued_resource(name: str, state: str, *nodes: str) -> tpu_v2.QueuedResource:
    return tpu_v2.QueuedResource(
        name=f"projects/lab/locations/us-a/queuedResources/{name}",
        state={"state": state},
        tpu={"node_spec": [{"node_id": node} for node in nodes]},
    )


@pytest.mark.parametrize("state", ["CREATING", "ACCEPTED", "PROVISIONING", "WAITING_FOR_RESOURCES"])
@pytest.mark.parametrize("first", [True, False])
def test_of_two_queued_resources_of_a_node_the_one_that_waits_counts(state: str, *, first: bool) -> None:
    service = Service()
    both = [queued_resource("old", "SUSPENDED", "n1"), queued_resource("new", state, "n1", "n2")]
    service.queued = both if first else both[::-1]
    zone = CloudZone(watch("n1"), interval=30, clock=ManualClock(), rng=random.Random(1))
    zone.poll(service)  # type: ignore[arg-type]
    ((label, answer),) = zone.queued()
    assert label == "us-a/n1"
    assert answer.value is not None
    assert (answer.value.name, answer.value.state, answer.value.nodes) == ("new", state, ("n1", "n2"))
    (listed,) = (answer for _, answer in zone.answers())
    assert f"Its queued resource new is {state}." in listed.detail
    assert "Check the name" not in listed.detail


# -- which nodes are watched


def identity(project: str = "lab", zone: str = "us-a", node: str = "") -> Identity:
    return Identity(project=Known(project, "config"), zone=Known(zone, "config"), node=Known(node, "metadata"))


def test_the_own_node_is_watched_in_the_home_zone() -> None:
    (watch,) = watches((), identity(node="me"))
    assert (watch.project, watch.zone, watch.names, watch.patterns) == ("lab", "us-a", {"me"}, ())
    assert watch.label("me") == "us-a/me"
    assert watch.placed


def test_nothing_named_is_nothing_watched() -> None:
    assert watches((), identity()) == ()


def test_one_watch_per_zone_however_many_nodes() -> None:
    home, other = watches(("a", "train-*", "us-a/b", "eu-b/*", "eu-b/c"), identity(node="me"))[::-1]
    assert home.names == {"a", "b", "me"}
    assert [home.has(name) for name in ("a", "b", "me", "train-7", "other", "xtrain-1")] == [True] * 4 + [False] * 2
    assert (other.zone, other.names) == ("eu-b", {"c"})
    assert other.has("anything")
    assert other.label("c") == "eu-b/c"
    assert home.label("b") == "us-a/b"


def test_a_question_mark_stands_for_one_character() -> None:
    (watch,) = watches(("n-?",), identity())
    assert [watch.has(name) for name in ("n-1", "n-12", "n-")] == [True, False, False]


def test_without_a_zone_only_nodes_that_name_theirs_have_a_place() -> None:
    nowhere, somewhere = watches(("a", "eu-b/c"), identity(zone=""))
    assert not nowhere.placed
    assert nowhere.label("a") == "a"
    assert somewhere.placed
    assert somewhere.label("c") == "eu-b/c"


def test_without_a_project_nothing_has_a_place() -> None:
    assert [watch.placed for watch in watches(("a", "eu-b/c"), identity(project=""))] == [False, False]


def test_who_is_not_watched_and_shares_a_queued_resource_is_known() -> None:
    service, clock = Service(), ManualClock()
    for name, queue in (("n1", "q1"), ("n2", "q1"), ("n3", "q2"), ("n4", "")):
        service.nodes[name] = {"state": "READY", "queued_resource": queue and f"{QUEUES}{queue}"}
    zone = CloudZone(watch("n1"), interval=30, clock=clock, rng=random.Random(1))

    def beside() -> list[str]:
        clock.advance(30)
        zone.poll(service)  # type: ignore[arg-type]
        assert list(zone.nodes) == ["n1"]
        return [one.name for one in zone.beside]

    assert beside() == ["n2"]
    del service.nodes["n2"]
    service.unreachable = ["us-a"]
    assert beside() == ["n2"]  # the list may lack nodes
    service.unreachable = []
    assert beside() == []


@pytest.mark.parametrize("order", [("TIMEOUT", "HEALTHY"), ("HEALTHY", "TIMEOUT")])
def test_of_a_node_that_is_listed_twice_the_better_word_counts(order: tuple[str, str]) -> None:
    nodes = [tpu_v2.Node(name=f"{PARENT}n1", state="READY", health=health) for health in order]

    class Twice(Service):
        def list_nodes(self, _project: str, _zone: str) -> Iterator[Any]:
            yield tpu_v2.ListNodesResponse.pb(tpu_v2.ListNodesResponse(nodes=nodes))

    zone = CloudZone(watch("n1"), interval=30, clock=ManualClock(), rng=random.Random(1))
    for _ in range(2):
        zone.poll(Twice())  # type: ignore[arg-type]
        assert zone.nodes["n1"].health == "HEALTHY"
