"""Calls to the Cloud TPU API by Google's client: each has a deadline, no hidden retries, and its fault is explained.

Imports Google's packages, which takes half a second and 60 MiB: import it only when the API is needed.
"""

from __future__ import annotations

import importlib
import logging
import warnings
from typing import TYPE_CHECKING, Any, Final

from tpuwatch import __version__
from tpuwatch.google.credentials import Tokens
from tpuwatch.google.errors import SCOPE, ApiError, ApiFault, RequestContext, explain
from tpuwatch.google.server_time import ServerTime
from tpuwatch.model import Problem

with warnings.catch_warnings():
    warnings.simplefilter("ignore", FutureWarning)  # Google's packages remark on the age of Python
    import google.auth.transport.grpc
    import google.auth.transport.requests
    import grpc
    from google.api_core.gapic_v1.client_info import ClientInfo

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tpuwatch.config import CloudConfig
    from tpuwatch.core import Clock

logging.getLogger("google.auth").setLevel(logging.ERROR)  # each failed attempt would be a warning

PAGE_SIZE: Final = 1000
MAX_PAGES: Final = 200
GOOGLE: Final = "tpu.googleapis.com:443"
CHANNEL_OPTIONS: Final = (
    ("grpc.max_receive_message_length", 32 << 20),
    # Otherwise gRPC itself retries calls refused with GOAWAY, without a pause: a gigabyte in ten seconds.
    ("grpc.enable_retries", 0),
    ("grpc.use_local_subchannel_pool", 1),  # a new channel is a new connection
)
# After these the connection is not reused: it may be half-open, or in a back-off of gRPC. tpuwatch paces its requests
# itself.
_LOST: Final = (Problem.UNREACHABLE, Problem.TIMEOUT, Problem.FOREIGN, Problem.CREDENTIALS)
# What the alpha may answer to a project that may not use it.
_NOT_FOR_ALL: Final = (Problem.DENIED, Problem.FOREIGN, Problem.NOT_FOUND, Problem.DISABLED)
_ENDED: Final = ApiFault(
    Problem.UNREACHABLE, "CANCELLED", "tpuwatch is being stopped, so the Cloud TPU API is no longer queried."
)

_log = logging.getLogger(__name__)


def insecure_channel(server: str) -> Any:
    """A channel to a simulator, without a proxy."""
    return grpc.insecure_channel(server, options=(*CHANNEL_OPTIONS, ("grpc.enable_http_proxy", 0)))


class CloudClient:
    """A client of the Cloud TPU API that [cloud] names. Connects at the first call. Used from one thread."""

    def __init__(self, cloud: CloudConfig, *, clock: Clock, on_call: Callable[[str, str], None]) -> None:
        """`on_call` is called with the method and the code of each call."""
        self.server = cloud.endpoint or GOOGLE
        self._ended = False
        self._cloud = cloud
        self._on_call = on_call
        self._alpha = cloud.use_v2alpha1
        self._channel: Any = None
        self._clients: dict[str, Any] = {}
        self._tokens = Tokens([SCOPE], clock)
        self._server_time = ServerTime(clock)

    @property
    def server_epoch(self) -> float | None:
        """The service's time at the zero of the monotonic clock; None before an answer of it that has a date."""
        return self._server_time.epoch

    def list_nodes(self, project: str, zone: str) -> Iterator[Any]:
        """All nodes of a zone: raw pages, each of them one call. Raises ApiError."""
        if not self._alpha:
            return self._pages("v2", "ListNodes", project, zone)
        first = self._by_version(lambda version: self._page(version, "ListNodes", project, zone, ""))
        return self._pages("v2alpha1" if self._alpha else "v2", "ListNodes", project, zone, first)

    def get_node(self, project: str, zone: str, name: str) -> Any:
        """One node, raw, by its short name. Raises ApiError."""
        asked = self._asked("GetNode", project, zone, f"the node {name} in ")
        request = {"name": f"projects/{project}/locations/{zone}/nodes/{name}"}

        def call(client: Any, seconds: float) -> Any:
            return client.get_node(request=request, retry=None, timeout=seconds)

        node = self._by_version(lambda version: self.ask("GetNode", asked, call, version=version))
        return type(node).pb(node)

    def list_queued_resources(self, project: str, zone: str) -> Iterator[Any]:
        """All queued resources of a zone: raw pages, each of them one call. Raises ApiError."""
        return self._pages("v2", "ListQueuedResources", project, zone)

    def ask(self, method: str, asked: RequestContext, call: Callable[[Any, float], Any], *, version: str = "v2") -> Any:
        """Make one call, by a function of Google's client and the deadline in seconds. Raises ApiError.

        The deadline is that of `asked`. The original error is the cause of the ApiError.
        """
        if self._ended:
            raise ApiError(_ENDED)
        try:
            answer = call(self._client(version), asked.seconds)
        except Exception as error:  # every exception of Google's packages is explained
            if self._ended:
                raise ApiError(_ENDED) from error
            fault = explain(error, asked)
            self._on_call(method, fault.code)
            if fault.problem in _LOST:
                self.close()
            if fault.problem is Problem.CREDENTIALS:
                self._tokens.forget()
            if fault.problem is Problem.INTERNAL:
                _log.warning("A call of %s failed in an unforeseen way.", method, exc_info=error)
            raise ApiError(fault) from error
        self._on_call(method, "OK")
        return answer

    def end(self) -> None:
        """Cancel the pending call, and make no other. May be called from any thread.

        The calling thread calls `close` after that: it may have been about to connect.
        """
        self._ended = True
        self.close()

    def close(self) -> None:
        """Close the connection. The next call opens a new one."""
        channel, self._channel, self._clients = self._channel, None, {}
        if channel is not None:
            channel.close()

    def _by_version(self, call: Callable[[str], Any]) -> Any:
        """Make a call about nodes by v2alpha1, if that is configured and available, else by v2."""
        if not self._alpha:
            return call("v2")
        try:
            return call("v2alpha1")
        except ApiError as error:
            if error.fault.problem not in _NOT_FOR_ALL:
                raise
            answer = call("v2")  # if it fails too, v2alpha1 is not the reason
            self._alpha = False
            _log.warning("v2alpha1 of the Cloud TPU API is not available, v2 is used: %s", error)
            return answer

    def _pages(self, version: str, method: str, project: str, zone: str, first: Any = None) -> Iterator[Any]:
        page = self._page(version, method, project, zone, "") if first is None else first
        for _ in range(MAX_PAGES):
            yield page
            token = page.next_page_token
            if not token:
                return
            page = None  # freed first, because it may be large
            page = self._page(version, method, project, zone, token)
        # An incomplete list would make nodes look deleted.
        sentence = f"The Cloud TPU API returns an endless list for zone {zone} in project {project}."
        raise ApiError(ApiFault(Problem.SERVER, "OK", f"{sentence} It is tried again."))

    def _page(self, version: str, method: str, project: str, zone: str, token: str) -> Any:
        """One call."""
        parent = f"projects/{project}/locations/{zone}"
        request = {"parent": parent, "page_size": PAGE_SIZE, "page_token": token}

        def call(client: Any, seconds: float) -> Any:
            list_page = client.list_nodes if method == "ListNodes" else client.list_queued_resources
            return next(list_page(request=request, retry=None, timeout=seconds).pages)

        what = "the nodes of " if method == "ListNodes" else "the queued resources of "
        page = self.ask(method, self._asked(method, project, zone, what), call, version=version)
        return type(page).pb(page)

    def _asked(self, method: str, project: str, zone: str, what: str) -> RequestContext:
        where = f"zone {zone} in project {project}"
        return RequestContext(
            what=f"{what}{where}",
            place=where,
            project=project,
            server=self.server,
            seconds=self._cloud.timeout_seconds,
            permission="tpu.nodes.get" if method == "GetNode" else "tpu.nodes.list",
        )

    def _client(self, version: str) -> Any:
        channel = self._channel
        if channel is None:
            channel = self._channel = self._connect()
        elif not self._cloud.insecure:
            self._renew_token()
        clients = self._clients
        if version not in clients:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", FutureWarning)
                package = importlib.import_module(f"google.cloud.tpu_{version}")
                transports = importlib.import_module(f"google.cloud.tpu_{version}.services.tpu.transports")
            info = ClientInfo(user_agent=f"tpuwatch/{__version__}")
            transport = transports.TpuGrpcTransport(channel=channel, client_info=info)
            clients[version] = package.TpuClient(transport=transport, client_info=info)
        return clients[version]

    def _connect(self) -> Any:
        if self._cloud.insecure:
            channel = insecure_channel(self.server)
        else:
            request = google.auth.transport.requests.Request()
            channel = google.auth.transport.grpc.secure_authorized_channel(
                self._renew_token(), request, self.server, options=CHANNEL_OPTIONS
            )
        return grpc.intercept_channel(channel, _DateReader(self._server_time.on_answer))

    def _renew_token(self) -> Any:
        """Credentials with a valid token. Renewed here, so that a failure is not attributed to the API."""
        return self._tokens.renew(self._cloud.timeout_seconds)


class _DateReader(grpc.UnaryUnaryClientInterceptor):  # type: ignore[misc]
    """Google's servers date their answers; a call that failed may have no such header."""

    def __init__(self, on_answer: Callable[[str], None]) -> None:
        self._on_answer = on_answer

    def intercept_unary_unary(self, continuation: Any, details: Any, request: Any) -> Any:
        """Called by grpc around each call."""
        call = continuation(details, request)
        if call.code() is grpc.StatusCode.OK:
            self._on_answer(dict(call.initial_metadata()).get("date", ""))
        return call
