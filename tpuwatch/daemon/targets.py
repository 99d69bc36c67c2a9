"""Where Prometheus finds the tpuwatch of each machine of the watched nodes."""

from __future__ import annotations

from ipaddress import ip_address
from typing import TYPE_CHECKING

from tpuwatch.core import host_port
from tpuwatch.model import ScrapeTarget

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tpuwatch.config import PeersConfig
    from tpuwatch.model import JudgedNode


def scrape_targets(
    nodes: Sequence[JudgedNode], peers: PeersConfig, *, serves: tuple[str, int], worker: str, scheme: str = "http"
) -> list[ScrapeTarget]:
    """A target for each machine that is up, at the address and port that [peers] says; none where no address is known.

    `serves` is where this daemon listens, `scheme` how it is asked there, and `worker` the number of its machine in its
    node, "" if it has none.
    """
    return [target for node in nodes for target in _targets(node, peers, serves, worker, scheme)]


def _targets(
    node: JudgedNode, peers: PeersConfig, serves: tuple[str, int], worker: str, scheme: str
) -> Iterator[ScrapeTarget]:
    own = (int(worker) if worker.isdecimal() else 0) if node.own else None
    up = node.cloud is not None and node.cloud.runs
    addresses = node.cloud.addresses if node.cloud is not None and up else ()
    urls = {number: peers.url(address) for number, address in enumerate(addresses) if address}
    for name in (node.node, f"{node.zone}/{node.node}"):
        if up and name in peers.addresses:
            urls[0] = peers.addresses[name]
    if own is not None:
        host, port = serves
        known = addresses[own] if own < len(addresses) else ""
        urls.pop(own, None)
        if address := known if _takes_all(host) else host:
            urls[own] = f"{scheme}://{host_port(address, port)}"
    for number, url in sorted(urls.items()):
        yield ScrapeTarget(url, node.zone, node.node, number)


def _takes_all(host: str) -> bool:
    """Whether a listener on this address takes connections to all of the machine's."""
    try:
        return ip_address(host).is_unspecified
    except ValueError:
        return False
