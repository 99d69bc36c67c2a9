"""What is set up wrongly: a line in status, doctor and log, a counter, and one daemon that lives through all of it.

Its way to the cloud is the whole one: a token of the metadata server, TLS, and a server that looks at the token.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.e2e.daemon_in_cloud import DaemonInCloud
from tests.e2e.daemon_process import wait_for
from tests.standins.certificates import make_certificates
from tests.standins.runtime_server import listening
from tests.standins.simulated import PROJECT, ZONE, Site, simulated
from tpuwatch.sim.cloud.metadata_pages import Account
from tpuwatch.sim.cloud.server import CloudServer

CHECKS = ("cloud", "runtime_ports")  # of the doctor's
API_FAILED = 'tpuwatch_api_requests_total{{code="{}",method="{}"}}'


class Secured:
    """A daemon in a cloud that speaks TLS and demands tokens."""

    def __init__(self, site: Site, server: CloudServer, daemon: DaemonInCloud) -> None:
        self.site = site
        self.daemon = daemon
        self._endpoint = {"endpoint": f"localhost:{server.port}", "insecure": False}
        self._configured = 0

    def configure(self, changes: dict[str, dict[str, Any]]) -> None:
        """Another configuration each time, so that all signals begin again."""
        self._configured += 1
        own = {**self._endpoint, "poll_seconds": 1.0 + self._configured / 1000}
        self.daemon.reload(**{**changes, "cloud": {**own, **changes.get("cloud", {})}})

    def account(self, account: Account | None) -> None:
        """Let the VM have this service account, and no token that was given out before be good."""
        pages = self.site.simulator.metadata.pages
        pages.account, pages._issued = account, None
        assert self.site.world.tokens is not None
        self.site.world.tokens.clear()

    def well(self) -> None:
        """All is as it should be, and is seen to be."""
        self.site.do("clear")
        self.account(Account())
        self.configure({})
        wait_for(lambda: not self._troubled(), "all signals to answer")
        self.daemon.judged("train-1", "healthy")
        self.daemon.judged("train-2", "healthy")

    def _troubled(self) -> bool:
        """Whether one of those that are elsewhere does not answer, or has not answered yet."""
        asked = {one["name"]: one for one in self.daemon.api("status")["signals"]}
        remote = (asked[name] for name in ("cloud", "metadata", "runtime"))
        return any(one["problem"] or one["at"] is None for one in remote)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    directory = tmp_path_factory.mktemp("secured")
    certificates = make_certificates(directory)
    with simulated(directory / "sim") as site:
        site.world.tokens = {}
        server = CloudServer(site.world, tls=certificates.server())
        environ = {
            "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH": str(certificates.authority),
            "GCE_METADATA_DETECT_RETRIES": "1",
            "GCE_METADATA_TIMEOUT": "4",
        }
        try:
            with DaemonInCloud(directory / "daemon", site, environ=environ) as daemon:
                daemon.machine.process(4242, files=("/dev/vfio/0",))
                daemon.start()
                yield Secured(site, server, daemon)
        finally:
            server.stop()


Wrong = Callable[[Secured], "contextlib.AbstractContextManager[dict[str, Any]]"]


def cloud(**keys: Any) -> Wrong:
    """Other keys under [cloud]."""
    return lambda _: contextlib.nullcontext({"cloud": keys})


def fault(**words: Any) -> Wrong:
    """A fault of one of the cloud's services."""

    @contextlib.contextmanager
    def wrong(secured: Secured) -> Iterator[dict[str, Any]]:
        secured.site.do("fault", **words)
        yield {}

    return wrong


def account(account: Account | None) -> Wrong:
    """Another service account of this machine."""

    @contextlib.contextmanager
    def wrong(secured: Secured) -> Iterator[dict[str, Any]]:
        secured.account(account)
        yield {}

    return wrong


@contextlib.contextmanager
def foreign_port(_: Secured) -> Iterator[dict[str, Any]]:
    """Something else on the port of the runtime metrics."""

    def other(connection: socket.socket) -> None:
        connection.sendall(b"SSH-2.0-OpenSSH\r\n")

    with listening(other) as port:
        yield {"runtime": {"ports": [port]}}


@dataclass(frozen=True)
class Case:
    """One thing that is set up wrongly, and what is reported of it."""

    wrong: Wrong  # makes it so; gives the changes of the configuration that go with it
    counter: str  # the series that counts it
    status: str
    doctor: str
    log: str
    judged: tuple[str, str] = ("train-2", "unknown")  # a node, and what it is then


NOT_ENABLED = f"The Cloud TPU API is not enabled in project {PROJECT}. Enable it:"
NO_CREDENTIALS = f"the nodes of zone {ZONE} in project {PROJECT}: there are no valid credentials. On a Google Cloud VM"
NOWHERE = f"The Cloud TPU API knows no zone us-east9-x in project {PROJECT}, or none that the caller may see. Check"
FOREIGN = "Something else than libtpu's runtime metrics is on port"

CASES = {
    "a node that does not exist": Case(
        cloud(nodes=["train-9"]),
        counter='tpuwatch_verdict_changes_total{verdict="misconfigured"}',
        status=f"Other node {ZONE}/train-9: misconfigured. The zone has no node of this name",
        doctor=f"There is no node train-9 in zone {ZONE} of project {PROJECT}. Is train-",
        judged=("train-9", "misconfigured"),
        log=f"warning {ZONE}/train-9 is misconfigured (high): The zone has no node of this name",
    ),
    "a zone that does not exist": Case(
        cloud(zone="us-east9-x"),
        counter=API_FAILED.format("PERMISSION_DENIED", "ListNodes"),
        status=f"cloud: {NOWHERE}",
        doctor=f"wrong: Cloud TPU API (api) {NOWHERE}",
        log=f"warning The signal cloud does not answer (not_found): {NOWHERE}",
    ),
    "a project without the api": Case(
        fault(method="ListNodes", code="PERMISSION_DENIED", reason="SERVICE_DISABLED"),
        counter=API_FAILED.format("PERMISSION_DENIED", "ListNodes"),
        status=f"cloud: {NOT_ENABLED}",
        doctor=f"wrong: Cloud TPU API (api) {NOT_ENABLED}",
        log=f"warning The signal cloud does not answer (disabled): {NOT_ENABLED}",
    ),
    "no credentials": Case(
        account(None),
        counter=API_FAILED.format("UNAUTHENTICATED", "ListNodes"),
        status=f"cloud: The Cloud TPU API could not be asked for {NO_CREDENTIALS}",
        doctor="wrong: credentials (credentials) This VM has no service account, so the metadata server gives no",
        log="warning The signal cloud does not answer (credentials): The Cloud TPU API could not be asked for",
    ),
    "expired credentials": Case(
        account(Account(token_seconds=0)),
        counter=API_FAILED.format("UNAUTHENTICATED", "ListNodes"),
        status=f"cloud: The Cloud TPU API could not be asked for {NO_CREDENTIALS}",
        doctor="wrong: credentials (credentials) The metadata server gives no valid token for tpu@",
        log="warning The signal cloud does not answer (credentials): The Cloud TPU API could not be asked for",
    ),
    "a metadata server that hangs": Case(
        fault(method="metadata", black_hole=True),
        counter='tpuwatch_signal_failures_total{signal="metadata"}',
        status="metadata: The metadata server 127.0.0.1:",
        doctor="wrong: metadata server (metadata) The metadata server 127.0.0.1:",
        log="warning The signal metadata does not answer (timeout): The metadata server 127.0.0.1:",
    ),
    "a port that answers something else": Case(
        foreign_port,
        counter=API_FAILED.format("UNAVAILABLE", "ListSupportedMetrics"),
        status=FOREIGN,
        doctor=f"wrong: ports of runtime metrics (runtime_ports) {FOREIGN}",
        log="warning The signal runtime on port",
        judged=("train-1", "unknown"),
    ),
}


def is_reported(done: tuple[int, str], words: str) -> bool:
    """Whether a command that found something wrong has printed that."""
    status, printed = done
    return status == 1 and words in printed


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_what_is_wrong_is_reported_and_counted_and_never_ends_the_daemon(secured: Secured, case: Case) -> None:
    daemon = secured.daemon
    process, said, counted = daemon.process, len(daemon.said()), daemon.counted(case.counter)
    with case.wrong(secured) as changes:
        secured.configure(changes)
        wait_for(lambda: daemon.counted(case.counter) > counted, case.counter)
        wait_for(lambda: case.log in daemon.said()[said:], case.log)
        wait_for(lambda: case.status in daemon.command("status", "-v")[1], case.status)
        # It has little patience here: who answers late once, on a busy machine, is asked once more.
        wait_for(lambda: is_reported(daemon.command("doctor", "--only", *CHECKS), case.doctor), case.doctor)
        daemon.judged(*case.judged)
    secured.well()
    assert daemon.process is process
    assert process.poll() is None
    assert "Traceback" not in daemon.said()
