from __future__ import annotations

import pytest

from tests.unit.web import samples
from tpuwatch.config import Config
from tpuwatch.daemon.targets import scrape_targets
from tpuwatch.model.judged_node import JudgedNode
from tpuwatch.model.signals import CloudNode

LOCAL, ANY = ("127.0.0.1", 9000), ("0.0.0.0", 9000)  # noqa: S104 # what a daemon may listen on


def node(name: str, *addresses: str, own: bool = False, state: str = "READY") -> JudgedNode:
    cloud = CloudNode("p", "z", name, state, "", addresses=addresses)
    return JudgedNode(name, "p", "z", own, samples.node(name).judgement, cloud)


def urls(
    *nodes: JudgedNode, serves: tuple[str, int] = LOCAL, worker: str = "", addresses: dict[str, str] | None = None
) -> list[str]:
    peers = Config.model_validate({"peers": {"addresses": addresses or {}}}).peers
    found = scrape_targets(nodes, peers, serves=serves, worker=worker)
    return [f"{target.node} {target.worker} {target.url}" for target in found]


def test_each_machine_of_a_slice_is_a_target() -> None:
    assert urls(node("a", "10.0.0.1", "10.0.0.2"), node("b", "fd00::7")) == [
        "a 0 http://10.0.0.1:9478",
        "a 1 http://10.0.0.2:9478",
        "b 0 http://[fd00::7]:9478",
    ]


def test_a_machine_without_an_address_is_none() -> None:
    assert urls(node("a", "", "10.0.0.2"), node("b")) == ["a 1 http://10.0.0.2:9478"]


def test_the_configuration_of_peers_says_where_a_node_is() -> None:
    given = {"a": "https://proxy.example:8443/a", "z/b": "http://10.9.9.9:80"}
    assert urls(node("a", "10.0.0.1", "10.0.0.2"), node("b"), addresses=given) == [
        "a 0 https://proxy.example:8443/a",
        "a 1 http://10.0.0.2:9478",
        "b 0 http://10.9.9.9:80",
    ]


@pytest.mark.parametrize("state", ["STOPPED", "PREEMPTED", "CREATING", "DELETING"])
def test_a_machine_that_is_down_is_none(state: str) -> None:
    assert urls(node("a", "10.0.0.1", state=state), addresses={"a": "http://10.0.0.1:9478"}) == []


def test_the_own_machine_is_where_the_daemon_listens() -> None:
    own = node("a", "10.0.0.1", "10.0.0.2", own=True)
    assert urls(own, worker="1") == ["a 0 http://10.0.0.1:9478", "a 1 http://127.0.0.1:9000"]
    assert urls(own, worker="1", serves=ANY) == ["a 0 http://10.0.0.1:9478", "a 1 http://10.0.0.2:9000"]
    assert urls(own, worker="7", serves=ANY)[2:] == []
    assert urls(node("this-vm", own=True)) == ["this-vm 0 http://127.0.0.1:9000"]
    assert urls(node("this-vm", own=True), serves=("::", 9000)) == []


def test_those_who_are_asked_over_tls_are_scraped_so() -> None:
    peers = Config.model_validate({"peers": {"enabled": True, "tls": True}}).peers
    own = node("a", "10.0.0.1", own=True)
    found = scrape_targets([own, node("b", "10.0.0.2")], peers, serves=LOCAL, worker="0", scheme="http")
    assert [target.url for target in found] == ["http://127.0.0.1:9000", "https://10.0.0.2:9478"]
    found = scrape_targets([own], peers, serves=ANY, worker="0", scheme="https")
    assert [target.url for target in found] == ["https://10.0.0.1:9000"]
