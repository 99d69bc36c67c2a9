"""Tests of what faults of Google's APIs are called, from the errors that their own packages raise."""

from __future__ import annotations

import concurrent.futures
import contextlib
import socket
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.api_core import exceptions
from google.auth import exceptions as auth
from google.cloud import tpu_v2
from google.cloud.tpu_v2.services.tpu.transports import TpuGrpcTransport
from google.rpc import error_details_pb2

from tests.standins.certificates import make_certificates
from tests.standins.runtime_server import listening
from tests.unit.sim.cloud.servers import PARENT, Cloud, cloud_running
from tpuwatch.google.errors import SCOPE, RequestContext, TokenTimeout, explain
from tpuwatch.google.monitoring import monitoring_call
from tpuwatch.model.answers import Problem
from tpuwatch.sim.cloud.faults import InjectedFault

ASKED = RequestContext(
    what="the nodes of zone us-east5-a in project lab",
    place="zone us-east5-a in project lab",
    project="lab",
    server="tpu.example:443",
    seconds=7.5,
)


@pytest.fixture(scope="module")
def cloud() -> Iterator[Cloud]:
    with cloud_running() as running:
        running.add()
        yield running


@pytest.fixture(autouse=True)
def no_faults(cloud: Cloud) -> Iterator[None]:
    yield
    cloud.world.faults.clear()


def error_of(call: Callable[[], Any]) -> Exception:
    with pytest.raises(Exception) as caught:  # noqa: PT011 # which it is, is what the test is about
        call()
    return caught.value


def served(cloud: Cloud, **fault: Any) -> Exception:
    """What Google's client raises when the server answers with a fault."""
    cloud.world.faults.set(InjectedFault(method="ListNodes", **fault))
    return error_of(lambda: cloud.tpu.list_nodes(request={"parent": PARENT}, retry=None, timeout=20))


@pytest.mark.parametrize(
    ("fault", "problem", "pieces"),
    [
        (
            {"code": "PERMISSION_DENIED", "reason": "ACCESS_TOKEN_SCOPE_INSUFFICIENT"},
            Problem.SCOPE,
            [SCOPE, "--scopes=", "GOOGLE_APPLICATION_CREDENTIALS", "create it again"],
        ),
        (
            {"code": "PERMISSION_DENIED", "message": "Request had insufficient authentication scopes."},
            Problem.SCOPE,
            [SCOPE],
        ),
        (
            {"code": "PERMISSION_DENIED", "reason": "SERVICE_DISABLED"},
            Problem.DISABLED,
            ["`gcloud services enable tpu.googleapis.com --project=lab`"],
        ),
        (
            {
                "code": "PERMISSION_DENIED",
                "message": "Cloud TPU API has not been used in project 1 before or it is off.",
            },
            Problem.DISABLED,
            ["gcloud services enable"],
        ),
        (
            {"code": "PERMISSION_DENIED", "reason": "IAM_PERMISSION_DENIED", "message": "tpu.nodes.list denied"},
            Problem.DENIED,
            ["permission tpu.nodes.list", "roles/tpu.viewer", "add-iam-policy-binding lab"],
        ),
        (
            {"code": "PERMISSION_DENIED", "message": "Location us-x is not found or access is unauthorized."},
            Problem.NOT_FOUND,
            ["knows no zone us-east5-a in project lab", "`zone` under [cloud]", "Location us-x is not found"],
        ),
        (
            {"code": "PERMISSION_DENIED", "message": "Permission denied on 'locations/us-x' (or it may not exist)."},
            Problem.NOT_FOUND,
            ["knows no zone"],
        ),
        ({"code": "PERMISSION_DENIED", "reason": "CONSUMER_INVALID"}, Problem.NOT_FOUND, ["`project`"]),
        ({"code": "NOT_FOUND", "message": "no such location"}, Problem.NOT_FOUND, ["no such location"]),
        ({"code": "INVALID_ARGUMENT", "message": "Location 'x' is malformed"}, Problem.NOT_FOUND, []),
        ({"code": "INVALID_ARGUMENT", "message": "page size"}, Problem.INTERNAL, ["INVALID_ARGUMENT", "page size"]),
        (
            {"code": "UNAUTHENTICATED", "reason": "ACCESS_TOKEN_EXPIRED"},
            Problem.CREDENTIALS,
            ["no valid credentials", "gcloud auth application-default login", "invalid authentication credentials"],
        ),
        ({"code": "UNAUTHENTICATED", "message": "no"}, Problem.CREDENTIALS, []),
        ({"code": "RESOURCE_EXHAUSTED", "message": "Quota exceeded"}, Problem.THROTTLED, ["quota", "poll_seconds"]),
        ({"code": "UNAVAILABLE", "message": "The service is down"}, Problem.SERVER, ["UNAVAILABLE", "service is down"]),
        ({"code": "INTERNAL", "message": "boom"}, Problem.SERVER, ["INTERNAL", "boom"]),
        ({"code": "UNKNOWN", "message": "?"}, Problem.SERVER, ["UNKNOWN"]),
        ({"code": "ABORTED"}, Problem.SERVER, []),
        ({"code": "DATA_LOSS"}, Problem.SERVER, []),
        ({"code": "FAILED_PRECONDITION"}, Problem.SERVER, []),
        ({"code": "DEADLINE_EXCEEDED"}, Problem.TIMEOUT, ["within 7.5 s", "tpu.example:443"]),
        ({"code": "UNIMPLEMENTED"}, Problem.FOREIGN, ["tpu.example:443", "`endpoint`"]),
    ],
)
def test_what_the_server_answers(cloud: Cloud, fault: dict[str, Any], problem: Problem, pieces: list[str]) -> None:
    found = explain(served(cloud, **fault), ASKED)
    assert found.problem is problem, found.sentence
    assert found.code == fault["code"]
    assert found.retry_after is None
    for piece in pieces:
        assert piece in found.sentence
    assert found.sentence.endswith((".", '".'))
    assert "{" not in found.sentence


def test_every_code_has_a_sentence(cloud: Cloud) -> None:
    for code in grpc.StatusCode:
        if code is not grpc.StatusCode.OK:
            found = explain(served(cloud, code=code.name, message="m"), ASKED)
            assert found.code == code.name
            assert found.sentence


def test_retry_after_comes_from_the_details(cloud: Cloud) -> None:
    error = served(cloud, code="RESOURCE_EXHAUSTED", retry_after_seconds=12.5)
    assert explain(error, ASKED).retry_after == 12.5
    assert explain(served(cloud, code="UNAVAILABLE", retry_after_seconds=3), ASKED).retry_after == 3.0


def test_a_deadline_that_passes_here(cloud: Cloud) -> None:
    cloud.world.faults.set(InjectedFault(method="ListNodes", black_hole=True))
    error = error_of(lambda: cloud.tpu.list_nodes(request={"parent": PARENT}, retry=None, timeout=0.1))
    assert explain(error, ASKED).problem is Problem.TIMEOUT


def test_errors_of_grpc_itself_are_read_too(cloud: Cloud) -> None:
    cloud.world.faults.set(InjectedFault(method="ListNodes", code="PERMISSION_DENIED", reason="SERVICE_DISABLED"))
    call = cloud.channel.unary_unary("/google.cloud.tpu.v2.Tpu/ListNodes")
    found = explain(error_of(lambda: call(b"", timeout=20)), ASKED)
    assert (found.problem, found.code) == (Problem.DISABLED, "PERMISSION_DENIED")


@pytest.mark.parametrize(
    ("error", "problem", "code"),
    [
        (exceptions.Forbidden("insufficient authentication scopes"), Problem.SCOPE, "PERMISSION_DENIED"),
        (exceptions.Unauthorized("no"), Problem.CREDENTIALS, "UNAUTHENTICATED"),
        (exceptions.TooManyRequests("slow"), Problem.THROTTLED, "RESOURCE_EXHAUSTED"),
        (exceptions.BadGateway("bad"), Problem.SERVER, "UNKNOWN"),
        (exceptions.from_http_status(418, "teapot"), Problem.SERVER, "UNKNOWN"),
        (exceptions.RetryError("late", exceptions.ServiceUnavailable("x")), Problem.SERVER, "UNAVAILABLE"),
        (TimeoutError("late"), Problem.TIMEOUT, "DEADLINE_EXCEEDED"),
        (concurrent.futures.TimeoutError(), Problem.TIMEOUT, "DEADLINE_EXCEEDED"),
        (ConnectionResetError(104, "reset"), Problem.UNREACHABLE, "UNAVAILABLE"),
        (
            auth.DefaultCredentialsError("Your default credentials were not found."),
            Problem.CREDENTIALS,
            "UNAUTHENTICATED",
        ),
        (auth.RefreshError("invalid_grant: Bad Request", {"error": "x"}), Problem.CREDENTIALS, "UNAUTHENTICATED"),
        (auth.MutualTLSChannelError("cert"), Problem.CREDENTIALS, "UNAUTHENTICATED"),
        (auth.TransportError("Connection refused"), Problem.UNREACHABLE, "UNAVAILABLE"),
        (auth.TransportError("Read timed out."), Problem.TIMEOUT, "DEADLINE_EXCEEDED"),
        (auth.TransportError("Status: 404", object()), Problem.CREDENTIALS, "UNAUTHENTICATED"),
        (TokenTimeout("http://m/ did not answer"), Problem.TIMEOUT, "DEADLINE_EXCEEDED"),
        (TypeError("bad code"), Problem.INTERNAL, "UNKNOWN"),
        (exceptions.GoogleAPICallError("what"), Problem.SERVER, "UNKNOWN"),
    ],
)
def test_other_errors(error: Exception, problem: Problem, code: str) -> None:
    found = explain(error, ASKED)
    assert (found.problem, found.code) == (problem, code), found.sentence


def test_a_refresh_that_failed_for_the_way_there_is_no_lack_of_credentials() -> None:
    error = auth.RefreshError("wrapped")
    error.__cause__ = auth.TransportError("Compute Engine Metadata server unavailable")
    found = explain(error, ASKED)
    assert found.problem is Problem.UNREACHABLE
    assert "issues access tokens" in found.sentence


def test_a_fault_of_the_tokens_in_the_middle_of_a_call() -> None:
    class Broken(grpc.AuthMetadataPlugin):
        def __call__(self, _context: Any, _callback: Any) -> None:
            raise auth.RefreshError("The token has been revoked")

    credentials = grpc.composite_channel_credentials(
        grpc.local_channel_credentials(), grpc.metadata_call_credentials(Broken())
    )
    with grpc_server(grpc.local_server_credentials()) as port:
        found = explain(asked(f"127.0.0.1:{port}", credentials), ASKED)
    assert found.problem is Problem.CREDENTIALS
    assert "has been revoked" in found.sentence


# -- peers that are something else


@contextlib.contextmanager
def peer(answer: bytes) -> Iterator[str]:
    """A port at which something says `answer` to whatever it hears, and closes."""

    def serve(connection: socket.socket) -> None:
        connection.recv(4096)
        connection.sendall(answer)
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(4096):
            pass

    with listening(serve) as port:
        yield f"127.0.0.1:{port}"


@contextlib.contextmanager
def grpc_server(credentials: Any = None, handlers: Sequence[Any] = ()) -> Iterator[int]:
    """The port of another gRPC service."""
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(1), handlers=handlers)
    address = "127.0.0.1:0"
    port = server.add_secure_port(address, credentials) if credentials else server.add_insecure_port(address)
    server.start()
    yield port
    server.stop(0).wait()


def asked(server: str, credentials: Any = None) -> Exception:
    options = [("grpc.use_local_subchannel_pool", 1)]
    channel = (
        grpc.secure_channel(server, credentials, options)
        if credentials
        else grpc.insecure_channel(server, [*options, ("grpc.enable_http_proxy", 0)])
    )
    with channel:
        client = tpu_v2.TpuClient(transport=TpuGrpcTransport(channel=channel))
        return error_of(lambda: client.list_nodes(request={"parent": PARENT}, retry=None, timeout=20))


@pytest.mark.parametrize(
    "answer",
    [b"HTTP/1.1 400 Bad Request\r\nContent-Length: 2\r\n\r\nno", b"SSH-2.0-OpenSSH_9.2p1 Debian\r\n", b"\0" * 100],
    ids=["http", "ssh", "zeros"],
)
def test_a_port_that_answers_something_else(answer: bytes) -> None:
    with peer(answer) as server:
        found = explain(asked(server), ASKED)
    assert found.problem is Problem.FOREIGN, found.sentence
    assert "is not the Cloud TPU API" in found.sentence


def test_a_port_that_hangs_up_at_once() -> None:
    with peer(b"") as server:
        assert explain(asked(server), ASKED).problem is Problem.UNREACHABLE


def test_a_port_where_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        server = f"127.0.0.1:{free.getsockname()[1]}"
    assert explain(asked(server), ASKED).problem is Problem.UNREACHABLE


def test_another_grpc_service_and_one_whose_messages_are_no_nodes() -> None:
    class Junk(grpc.GenericRpcHandler):
        def service(self, _details: Any) -> Any:
            return grpc.unary_unary_rpc_method_handler(lambda _request, _context: b"\xff\xff\xff")

    for handlers in ([], [Junk()]):
        with grpc_server(handlers=handlers) as port:
            found = explain(asked(f"127.0.0.1:{port}"), ASKED)
        assert found.problem is Problem.FOREIGN, found.sentence


def test_tls_where_there_is_none_and_certificates_that_are_not_trusted(tmp_path: Path) -> None:
    mine, other = tmp_path / "mine", tmp_path / "other"
    mine.mkdir()
    other.mkdir()
    certificates = make_certificates(mine, ("localhost",))
    trusted = grpc.ssl_channel_credentials(certificates.authority.read_bytes())
    stranger = grpc.ssl_channel_credentials(make_certificates(other).authority.read_bytes())
    with cloud_running() as plain:
        assert explain(asked(plain.server.address, trusted), ASKED).problem is Problem.FOREIGN
    with grpc_server(certificates.server()) as port:
        unknown = explain(asked(f"localhost:{port}", stranger), ASKED)
        other_name = explain(asked(f"127.0.0.1:{port}", trusted), ASKED)
        untrusted_plain = explain(asked(f"127.0.0.1:{port}"), ASKED)
    assert unknown.problem is Problem.FOREIGN, unknown.sentence
    assert other_name.problem is Problem.FOREIGN, other_name.sentence
    assert untrusted_plain.problem in (Problem.FOREIGN, Problem.UNREACHABLE), untrusted_plain.sentence


# -- texts


def test_what_servers_say_is_cleaned_cut_and_quoted() -> None:
    found = explain(exceptions.InternalServerError("a\x1b[2J\n\n{project} " + "b" * 5000), ASKED)
    assert 'The reply was: "a [2J {project} bbb' in found.sentence
    assert found.sentence.endswith('b…".')
    assert len(found.sentence) < 500


def test_details_of_another_kind_are_no_retry_after() -> None:
    error = exceptions.TooManyRequests("slow", details=[error_details_pb2.QuotaFailure(), "text"])
    assert explain(error, ASKED).retry_after is None


def test_another_api_has_its_own_words() -> None:
    needs = ("monitoring.timeSeries.list", "roles/monitoring.viewer")
    monitoring = monitoring_call("idle durations", "lab", "", 5, needs)
    found = explain(exceptions.Forbidden("denied"), monitoring)
    assert found.problem is Problem.DENIED
    assert "Cloud Monitoring API refused idle durations" in found.sentence
    assert "monitoring.timeSeries.list" in found.sentence
    assert "roles/monitoring.viewer" in found.sentence
