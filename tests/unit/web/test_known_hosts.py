from __future__ import annotations

import pytest

from tpuwatch.web.known_hosts import KnownHosts

NAMES = ("t1v-n-1", "Proxy.Example.org")


@pytest.mark.parametrize(
    ("host", "on_loopback", "on_network"),
    [
        ("127.0.0.1:9478", True, True),
        ("10.0.0.5", True, True),
        ("[::1]:9478", True, True),
        ("[fe80::1]", True, True),
        ("localhost:9478", True, True),
        ("LOCALHOST.", True, True),
        ("tpu.localhost", True, True),
        ("t1v-n-1:9478", True, True),
        ("proxy.example.org:443", True, True),
        ("other", False, True),
        ("t1v-n-1.us-central2-b.c.research-7.internal", False, True),
        ("tpuwatch.default.svc.cluster.local:9478", False, True),
        ("", False, True),
        ("rebound.example.net:9478", False, False),
        ("127.0.0.1.example.net", False, False),
        ("localhost.example.net", False, False),
        ("proxy.example.org.example.net", False, False),
        ("internal.example.net", False, False),
    ],
)
def test_names_that_anybody_can_register_are_refused(host: str, *, on_loopback: bool, on_network: bool) -> None:
    for address in ("127.0.0.1", "::1"):
        assert KnownHosts(address, NAMES).allow([host], "/") is on_loopback
    for address in ("0.0.0.0", "::", "10.0.0.5", "fe80::1%eth0"):  # noqa: S104 # nothing is bound
        assert KnownHosts(address, NAMES).allow([host], "/") is on_network


def test_a_scraper_may_use_any_name_where_others_are_served() -> None:
    for path in ("/metrics", "/healthz", "/readyz"):
        assert KnownHosts("10.0.0.5", ()).allow(["tpu.example.net:9478"], path)
        assert not KnownHosts("127.0.0.1", ()).allow(["tpu.example.net:9478"], path)
    assert not KnownHosts("10.0.0.5", ()).allow(["tpu.example.net:9478"], "/api/v1/events")


def test_no_browser_leaves_the_host_out() -> None:
    assert KnownHosts("127.0.0.1", ()).allow([], "/")


def test_every_one_of_several_must_be_known() -> None:
    assert not KnownHosts("127.0.0.1", ()).allow(["localhost", "rebound.example.net"], "/")
