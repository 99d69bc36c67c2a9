"""GET requests to the API of Kubernetes from inside a pod, as the pod's service account: bounded, errors classified.

Kubernetes renews the token about every hour, and the authority's certificates when they are rotated: both are read
again when they change. The official client is not used: one small document is read, and it loads dozens of MiB.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import socket
from typing import TYPE_CHECKING, Any, Final

from tpuwatch import __version__
from tpuwatch.core import ConfigError, Reloaded, TpuwatchError
from tpuwatch.google import Connector, DeadlineSocket, TooLargeError, read_whole
from tpuwatch.model import Problem
from tpuwatch.signals.client_tls import trusting

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping
    from pathlib import Path

    from tpuwatch.core import Clock

MAX_REPLY_BYTES: Final = 4 << 20  # with the head; a node with many images and conditions has some tens of KiB
_MAX_TOKEN_BYTES: Final = 64 * 1024
_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/-]+=*")  # as RFC 6750 has it
_HEADERS: Final = {"Accept": "application/json", "User-Agent": f"tpuwatch/{__version__}", "Connection": "close"}
_PROBLEMS: Final = {
    401: (Problem.CREDENTIALS, "does not accept the service account's token"),
    403: (Problem.DENIED, "does not let this service account read it: apply the ClusterRole of deploy/gke"),
    404: (Problem.GONE, "knows no such thing"),
    429: (Problem.THROTTLED, "was asked too often"),
}


class KubernetesError(TpuwatchError):
    """No answer that counts."""

    def __init__(self, problem: Problem, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.problem = problem
        self.retry_after = retry_after  # seconds


class KubernetesApi:
    """Not for several threads at once, but for `close`, which may be called from any. Times in seconds."""

    def __init__(self, environ: Mapping[str, str], account: Path, *, clock: Clock, timeout_seconds: float) -> None:
        """The server is the one of a pod's environment; `account` is the directory of its service account."""
        self._host = environ.get("KUBERNETES_SERVICE_HOST", "").strip("[]")
        port = environ.get("KUBERNETES_SERVICE_PORT_HTTPS") or environ.get("KUBERNETES_SERVICE_PORT") or "443"
        self._port = int(port) if port.isascii() and port.isdigit() and int(port) < 65536 else 443
        self._token_file = account / "token"
        self._ca_file = account / "ca.crt"
        self._clock = clock
        self._seconds = timeout_seconds
        self._connector = Connector(clock)
        self._secure: socket.socket | None = None  # the connection over TLS while there is one
        self._token: Reloaded[str] | None = None
        self._context: Reloaded[ssl.SSLContext] | None = None
        host = f"[{self._host}]" if ":" in self._host else self._host
        self.url = f"https://{host}:{self._port}"

    def get(self, path: str) -> Any:
        """The JSON document at `path`. Takes little more than the timeout. Raises KubernetesError."""
        deadline = self._clock.monotonic() + self._seconds
        what = f"{self.url}{path.partition('?')[0]}"
        try:
            return json.loads(self._fetch(path, what, deadline))
        except ConfigError as error:
            raise KubernetesError(Problem.CREDENTIALS, f"{error}. Kubernetes mounts it into the pod.") from error
        except TimeoutError as error:
            raise KubernetesError(Problem.TIMEOUT, f"{what}: no answer within {self._seconds:g} s.") from error
        except TooLargeError as error:
            text = f"{what}: the answer is larger than {MAX_REPLY_BYTES >> 20} MiB."
            raise KubernetesError(Problem.FOREIGN, text) from error
        except OSError as error:  # before HTTPException: a connection that is closed without an answer is both
            text = f"{what} cannot be asked ({error.strerror or error})."
            raise KubernetesError(Problem.UNREACHABLE, text) from error
        except (http.client.HTTPException, ValueError, RecursionError) as error:
            text = f"{what}: what answers is not the API of Kubernetes ({type(error).__name__})."
            raise KubernetesError(Problem.FOREIGN, text) from error

    def close(self) -> None:
        """End a request that waits, and make no more."""
        self._connector.close()
        secure = self._secure  # has taken over the connector's socket
        if secure is not None:
            with contextlib.suppress(OSError):  # already closed
                # Of the plain socket: that of TLS would take the encryption away from a thread that is about to read.
                socket.socket.shutdown(secure, socket.SHUT_RDWR)

    def _fetch(self, path: str, what: str, deadline: float) -> bytes:
        if self._token is None:
            self._token = Reloaded((self._token_file,), self._read_token)
        headers = {**_HEADERS, "Authorization": f"Bearer {self._token.get()}"}
        with (
            self._connector.connection(self._host, self._port, deadline) as plain,
            self._secured(plain, what) as connection,
        ):
            self._secure = connection
            try:
                request = http.client.HTTPConnection(self._host, self._port)
                request.sock = DeadlineSocket(connection, deadline, self._clock, MAX_REPLY_BYTES)  # has what is used
                request.request("GET", path, headers=headers)
                with request.getresponse() as reply:
                    if reply.status != http.client.OK:
                        raise _refused(what, reply)
                    return read_whole(reply)
            finally:
                self._secure = None

    def _secured(self, plain: socket.socket, what: str) -> socket.socket:
        import ssl  # only in a pod

        if self._context is None:
            self._context = Reloaded((self._ca_file,), self._trust)
        try:
            return self._context.get().wrap_socket(plain, server_hostname=self._host)
        except ssl.SSLCertVerificationError as error:
            text = f"{what}: the server's certificate is not accepted: {error.verify_message}. {self._ca_file} decides."
            raise KubernetesError(Problem.FOREIGN, text) from error
        except ssl.SSLEOFError as error:
            raise http.client.RemoteDisconnected("closed without an answer") from error
        except ssl.SSLError as error:
            reason = (error.reason or "unknown").replace("_", " ").lower()
            text = f"{what}: the server does not speak TLS as it should ({reason})."
            raise KubernetesError(Problem.FOREIGN, text) from error

    def _trust(self) -> ssl.SSLContext:
        import ssl

        context = trusting(str(self._ca_file))
        # Python 3.13 is strict by default, and refuses authorities of clusters that lack a key identifier.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        return context

    def _read_token(self) -> str:
        """The token; its file may be readable for all in the pod, as Kubernetes makes it."""
        try:
            with self._token_file.open("rb") as file:
                token = file.read(_MAX_TOKEN_BYTES).decode("ascii", "replace").strip()
        except OSError as error:
            raise ConfigError(f"{self._token_file} cannot be read: {error.strerror}") from error
        if not _TOKEN.fullmatch(token):
            raise ConfigError(f"{self._token_file} holds no token")
        return token


def _refused(what: str, reply: http.client.HTTPResponse) -> KubernetesError:
    usual = Problem.SERVER if reply.status >= http.client.INTERNAL_SERVER_ERROR else Problem.FOREIGN
    problem, why = _PROBLEMS.get(reply.status, (usual, "gives no answer"))
    after = reply.getheader("Retry-After", "")
    seconds = float(after) if after.isascii() and after.isdigit() and len(after) < 7 else None
    return KubernetesError(problem, f"{what}: Kubernetes {why} (status {reply.status}).", seconds)
