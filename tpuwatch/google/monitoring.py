"""The connection to Cloud Monitoring, which the signal reads from and the export writes to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tpuwatch.google.errors import RequestContext

if TYPE_CHECKING:
    from tpuwatch.core import Clock
    from tpuwatch.google.credentials import Tokens

SERVER: Final = "monitoring.googleapis.com:443"


class MonitoringConnection:
    """Google's client of Cloud Monitoring. `endpoint` "" is Google's own server.

    Connects when it is used, and again after `close`; the credentials stay. Close it between two polls: gRPC's threads
    wake several times a second while a connection is open, which costs more than a new connection.
    """

    def __init__(self, endpoint: str, *, insecure: bool, clock: Clock, timeout_seconds: float) -> None:
        """`timeout_seconds` is the deadline for an access token."""
        self._endpoint = endpoint
        self._insecure = insecure
        self._clock = clock
        self._timeout = timeout_seconds
        self._tokens: Tokens | None = None
        self._client: Any = None

    def client(self) -> Any:
        """The client, with a token that is good for a call. Raises what google.auth raises, and TokenTimeout."""
        client = self._client
        if client is None:
            client = self._client = self._connected()
        elif self._tokens is not None:
            self._tokens.renew(self._timeout)
        return client

    def forget(self) -> None:
        """Drop the credentials: the next call looks for them again. For the thread that makes the calls."""
        self._tokens = None

    def close(self) -> None:
        """Close the connection and cancel calls in progress. The next call connects again. For any thread."""
        client, self._client = self._client, None
        if client is not None:
            client.transport.close()

    def _connected(self) -> Any:
        from google.cloud import monitoring_v3
        from google.cloud.monitoring_v3.services.metric_service.transports import MetricServiceGrpcTransport

        from tpuwatch.google.tpu_client import CHANNEL_OPTIONS, insecure_channel

        if self._insecure and self._endpoint:
            channel = insecure_channel(self._endpoint)
        else:
            from tpuwatch.google.credentials import Tokens

            if self._tokens is None:
                self._tokens = Tokens(MetricServiceGrpcTransport.AUTH_SCOPES, self._clock)
            channel = MetricServiceGrpcTransport.create_channel(
                self._endpoint or SERVER, credentials=self._tokens.renew(self._timeout), options=CHANNEL_OPTIONS
            )
        return monitoring_v3.MetricServiceClient(transport=MetricServiceGrpcTransport(channel=channel))


def monitoring_call(what: str, project: str, endpoint: str, seconds: float, needs: tuple[str, str]) -> RequestContext:
    """Describes a call for the sentence about its fault. `needs` are a permission and a role that has it."""
    permission, role = needs
    return RequestContext(
        what=what,
        place=f"project {project}",
        project=project,
        server=endpoint or SERVER,
        seconds=seconds,
        api="Cloud Monitoring API",
        service="monitoring.googleapis.com",
        permission=permission,
        role=role,
        table="monitoring",
    )
