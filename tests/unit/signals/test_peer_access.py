"""Peers that are asked over TLS with a token, with the real server at the other end."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.unit.web.test_access import OTHER, Site, serving
from tpuwatch.config.schema import PeersConfig
from tpuwatch.core import HttpClient
from tpuwatch.core.clock import ManualClock, SystemClock
from tpuwatch.model.answers import Problem
from tpuwatch.signals import peer_calls
from tpuwatch.signals.peer_access import PeerAccess
from tpuwatch.signals.peer_calls import PeerError
from tpuwatch.web.server import HEAD_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator

CLOCK = SystemClock()


class HastyClock(ManualClock):
    """By it a connection without a request is over its time whenever it is looked at."""

    def monotonic(self) -> float:
        self.advance(HEAD_SECONDS)
        return super().monotonic()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with serving(tmp_path / "site") as running:
        yield running


def access(site: Site, **keys: Any) -> PeerAccess:
    given = {"tls": True, "ca_file": str(site.authority.file), "token_file": str(site.token_file), **keys}
    return PeerAccess(PeersConfig.model_validate(given))


def ask(site: Site, access: PeerAccess, scheme: str = "https") -> peer_calls.PeerReply:
    url = f"{scheme}://{site.address}"
    return peer_calls.ask(url, HttpClient(CLOCK), seconds=30.0, access=access)


def failure(site: Site, access: PeerAccess, scheme: str = "https") -> tuple[Problem, str, bool]:
    with pytest.raises(PeerError) as caught:
        ask(site, access, scheme)
    return caught.value.problem, str(caught.value), caught.value.silent or caught.value.refused


def test_with_authority_and_token_it_answers(site: Site) -> None:
    assert ask(site, access(site)).node == ""
    assert ask(site, access(site, server_name="tpu.example.org")).node == ""


def test_no_refusal_of_either_side_counts_as_silence(site: Site, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.touch(mode=0o600)
    token.write_text(f"{OTHER}\n")
    cases = [
        ({"server_name": "a.example.org"}, Problem.FOREIGN, "Hostname mismatch"),
        ({"ca_file": ""}, Problem.FOREIGN, "unable to get local issuer certificate. Check `ca_file`"),
        ({"ca_file": str(token)}, Problem.CREDENTIALS, "holds no certificate in PEM"),
        ({"ca_file": "/nowhere"}, Problem.CREDENTIALS, "/nowhere cannot be read: No such file"),
        ({"token_file": ""}, Problem.DENIED, "wants another token"),
        ({"token_file": str(token)}, Problem.DENIED, "wants another token"),
        ({"token_file": "/nowhere"}, Problem.CREDENTIALS, "/nowhere cannot be read"),
    ]
    for keys, problem, text in cases:
        got = failure(site, access(site, **keys))
        assert (got[0], text in got[1], got[2]) == (problem, True, False), (keys, got)
    assert failure(site, access(site), "http")[0] is Problem.FOREIGN  # plain HTTP to its port
    with serving(tmp_path / "plain", tls=False, clock=HastyClock()) as plain:
        with pytest.raises(PeerError) as caught:
            ask(plain, access(site))
        assert not caught.value.silent


def test_both_files_are_read_again(site: Site) -> None:
    asks = access(site)
    assert ask(site, asks).node == ""
    site.write_token(OTHER)
    assert ask(site, asks).node == ""
