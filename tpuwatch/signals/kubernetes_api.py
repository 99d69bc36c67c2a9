"""GET requests to the API of Kubernetes from inside a pod, as the pod's service account: bounded, errors classified.

Kubernetes renews the token about every hour, and the authority's certificates when they are rotated: both are read
again when they change. The official client is not used: one small document is read, and it loads dozens of MiB.
"""

from __future__ import annotations

import re
import ssl
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from tpuwatch.core import ConfigError, HttpClient, HttpError, HttpFault, Reloaded, Tls, TpuwatchError
from tpuwatch.model import Problem

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tpuwatch.core import Clock, HttpReply

MAX_REPLY_BYTES: Final = 4 << 20  # with the head; a node with many images and conditions has some tens of KiB
_MAX_TOKEN_BYTES: Final = 64 * 1024
_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/-]+=*")  # as RFC 6750 has it
_HEADERS: Final = {"Accept": "application/json"}
_FAULTS: Final = {
    HttpFault.TIMEOUT: (Problem.TIMEOUT, "no answer within {}"),
    HttpFault.TOO_LARGE: (Problem.FOREIGN, "the answer is {}"),
    HttpFault.CERTIFICATE: (Problem.FOREIGN, "the server's certificate is not accepted: {}. The pod's ca.crt decides"),
    HttpFault.TLS: (Problem.FOREIGN, "the server does not speak TLS as it should ({})"),
    HttpFault.NOT_HTTP: (Problem.FOREIGN, "what answers is not the API of Kubernetes ({})"),
    HttpFault.NOT_JSON: (Problem.FOREIGN, "what answers is not the API of Kubernetes ({})"),
}
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
        host = environ.get("KUBERNETES_SERVICE_HOST", "").strip("[]")
        port = environ.get("KUBERNETES_SERVICE_PORT_HTTPS") or environ.get("KUBERNETES_SERVICE_PORT") or "443"
        self._token_file = account / "token"
        self._ca_file = account / "ca.crt"
        self._seconds = timeout_seconds
        self._http = HttpClient(clock)
        self._token: Reloaded[str] | None = None
        self._tls: Reloaded[Tls] | None = None
        known = port.isascii() and port.isdigit() and int(port) < 65536
        self.url = f"https://{f'[{host}]' if ':' in host else host}:{int(port) if known else 443}"

    def get(self, path: str) -> Any:
        """The JSON document at `path`. Takes little more than the timeout. Raises KubernetesError."""
        what = f"{self.url}{path.partition('?')[0]}"
        try:
            reply = self._request(path)
            if reply.status != HTTPStatus.OK:
                raise _refused(what, reply)
            return reply.json()
        except ConfigError as error:
            raise KubernetesError(Problem.CREDENTIALS, f"{error}. Kubernetes mounts it into the pod.") from error
        except HttpError as error:
            problem, text = _FAULTS.get(error.fault, (Problem.UNREACHABLE, "the server cannot be asked ({})"))
            raise KubernetesError(problem, f"{what}: {text.format(error.detail)}.") from error

    def close(self) -> None:
        """End a request that waits, and make no more."""
        self._http.close()

    def _request(self, path: str) -> HttpReply:
        if self._token is None:
            self._token = Reloaded((self._token_file,), self._read_token)
        if self._tls is None:
            self._tls = Reloaded((self._ca_file,), self._trust)
        headers = {**_HEADERS, "Authorization": f"Bearer {self._token.get()}"}
        url, tls = f"{self.url}{path}", self._tls.get()
        return self._http.request(url, seconds=self._seconds, max_bytes=MAX_REPLY_BYTES, headers=headers, tls=tls)

    def _trust(self) -> Tls:
        tls = Tls.trusting(str(self._ca_file))
        # Python 3.13 is strict by default, and refuses authorities of clusters that lack a key identifier.
        tls.context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        return tls

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


def _refused(what: str, reply: HttpReply) -> KubernetesError:
    usual = Problem.SERVER if reply.status >= HTTPStatus.INTERNAL_SERVER_ERROR else Problem.FOREIGN
    problem, why = _PROBLEMS.get(reply.status, (usual, "gives no answer"))
    return KubernetesError(problem, f"{what}: Kubernetes {why} (status {reply.status}).", reply.retry_after)
