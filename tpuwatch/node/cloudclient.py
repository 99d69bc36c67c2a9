"""Calls to the Cloud TPU API by Google's own client: a deadline on each, no hidden retries, every fault explained.

Imports Google's packages, which takes half a second and 60 MiB: import it only when the API is to be asked.
"""

from __future__ import annotations

import importlib
import logging
import warnings
from typing import TYPE_CHECKING, Any, Final

from tpuwatch import __version__
from tpuwatch.health.evidence import Problem
from tpuwatch.node.apifaults import SCOPE, ApiError, Asked, Fault, explain
from tpuwatch.node.tokens import Tokens

with warnings.catch_warnings():
    warnings.simplefilter("ignore", FutureWarning)  # Google's packages remark on the age of Python
    import google.auth.transport.grpc
    import google.auth.transport.requests
    import grpc
    from google.api_core.gapic_v1.client_info import ClientInfo

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tpuwatch.clock import Clock
    from tpuwatch.config.schema import Cloud

logging.getLogger("google.auth").setLevel(logging.ERROR)  # each failed attempt would be a warning

PAGE_SIZE: Final = 1000
MAX_PAGES: Final = 200
GOOGLE: Final = "tpu.googleapis.com:443"
CHANNEL_OPTIONS: Final = (
    ("grpc.max_receive_message_length", 32 << 20),
    # Else gRPC repeats by itself, without a pause, what a server turns away by GOAWAY: a gigabyte in ten seconds.
    ("grpc.enable_retries", 0),
    ("grpc.use_local_subchannel_pool", 1),  # a new channel is a new connection
)
# After these the connection is not used again: it may be half-open, or wait in a back-off of gRPC's own. tpuwatch
# paces its requests itself.
_LOST: Final = (Problem.UNREACHABLE, Problem.TIMEOUT, Problem.FOREIGN, Problem.CREDENTIALS)
# What the alpha may answer to a project that may not use it.
_NOT_FOR_ALL: Final = (Problem.DENIED, Problem.FOREIGN, Problem.NOT_FOUND, Problem.DISABLED)
_ENDED: Final = Fault(
    Problem.UNREACHABLE, "CANCELLED", "tpuwatch is being stopped, so the Cloud TPU API is no longer asked."
)

_log = logging.getLogger(__name__)


def insecure_channel(server: str) -> Any:
    """A channel to a simulator, which no proxy knows the way to."""
    return grpc.insecure_channel(server, options=(*CHANNEL_OPTIONS, ("grpc.enable_http_proxy", 0)))


class CloudClient:
    """One server of the Cloud TPU API, as [cloud] says. Connects at the first call. Used from one thread."""

    def __init__(self, cloud: Cloud, *, clock: Clock, counted: Callable[[str, str], None]) -> None:
        """`counted` is told the method and the code of each call."""
        self.server = cloud.endpoint or GOOGLE
        self._ended = False
        self._cloud = cloud
        self._counted = counted
        self._alpha = cloud.alpha
        self._channel: Any = None
        self._clients: dict[str, Any] = {}
        self._tokens = Tokens([SCOPE], clock)

    def list_nodes(self, project: str, zone: str) -> Iterator[Any]:
        """All nodes of a zone: raw pages, each of them one call. Raises ApiError."""
        if self._alpha:
            try:
                first = self._page("v2alpha1", "ListNodes", project, zone, "")
            except ApiError as error:
                if error.fault.problem not in _NOT_FOR_ALL:
                    raise
                first = self._page("v2", "ListNodes", project, zone, "")  # if it fails too, alpha is not the reason
                self._alpha = False
                _log.warning("v2alpha1 of the Cloud TPU API is not available, v2 is used: %s", error)
            return self._pages("v2alpha1" if self._alpha else "v2", "ListNodes", project, zone, first)
        return self._pages("v2", "ListNodes", project, zone)

    def list_queued_resources(self, project: str, zone: str) -> Iterator[Any]:
        """All queued resources of a zone: raw pages, each of them one call. Raises ApiError."""
        return self._pages("v2", "ListQueuedResources", project, zone)

    def ask(self, method: str, asked: Asked, call: Callable[[Any, float], Any], *, version: str = "v2") -> Any:
        """Make one call, by a function of Google's client and the deadline in seconds. Raises ApiError.

        The deadline is that of `asked`. The error that the fault was told of is the ApiError's cause.
        """
        if self._ended:
            raise ApiError(_ENDED)
        try:
            answer = call(self._client(version), asked.seconds)
        except Exception as error:  # whatever Google's packages raise is explained and told
            if self._ended:
                raise ApiError(_ENDED) from error
            fault = explain(error, asked)
            self._counted(method, fault.code)
            if fault.problem in _LOST:
                self.close()
            if fault.problem is Problem.CREDENTIALS:
                self._tokens.forget()
            if fault.problem is Problem.INTERNAL:
                _log.warning("A call of %s failed in an unforeseen way.", method, exc_info=error)
            raise ApiError(fault) from error
        self._counted(method, "OK")
        return answer

    def end(self) -> None:
        """Break off the call that is under way, and make no other. May be called from any thread.

        The thread that asks calls `close` after that: it may have been about to connect.
        """
        self._ended = True
        self.close()

    def close(self) -> None:
        """Let go of the connection. The next call makes a new one."""
        channel, self._channel, self._clients = self._channel, None, {}
        if channel is not None:
            channel.close()

    def _pages(self, version: str, method: str, project: str, zone: str, first: Any = None) -> Iterator[Any]:
        page = self._page(version, method, project, zone, "") if first is None else first
        for _ in range(MAX_PAGES):
            yield page
            token = page.next_page_token
            if not token:
                return
            page = None  # it may be large: not two at a time
            page = self._page(version, method, project, zone, token)
        # A list that is cut would make nodes look gone.
        sentence = f"The Cloud TPU API does not come to an end of its list for zone {zone} in project {project}."
        raise ApiError(Fault(Problem.SERVER, "OK", f"{sentence} It is asked again."))

    def _page(self, version: str, method: str, project: str, zone: str, token: str) -> Any:
        """One call."""
        parent = f"projects/{project}/locations/{zone}"
        request = {"parent": parent, "page_size": PAGE_SIZE, "page_token": token}

        def call(client: Any, seconds: float) -> Any:
            list_page = client.list_nodes if method == "ListNodes" else client.list_queued_resources
            return next(list_page(request=request, retry=None, timeout=seconds).pages)

        page = self.ask(method, self._asked(method, project, zone), call, version=version)
        return type(page).pb(page)

    def _asked(self, method: str, project: str, zone: str) -> Asked:
        where = f"zone {zone} in project {project}"
        return Asked(
            what=f"the {'nodes' if method == 'ListNodes' else 'queued resources'} of {where}",
            place=where,
            project=project,
            server=self.server,
            seconds=self._cloud.timeout_seconds,
        )

    def _client(self, version: str) -> Any:
        channel = self._channel
        if channel is None:
            channel = self._channel = self._connected()
        elif not self._cloud.insecure:
            self._renewed()
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

    def _connected(self) -> Any:
        if self._cloud.insecure:
            return insecure_channel(self.server)
        request = google.auth.transport.requests.Request()
        return google.auth.transport.grpc.secure_authorized_channel(
            self._renewed(), request, self.server, options=CHANNEL_OPTIONS
        )

    def _renewed(self) -> Any:
        """Credentials with a token for this call. Asked for here, a fault in it is not taken for one of the API."""
        return self._tokens.renew(self._cloud.timeout_seconds)
