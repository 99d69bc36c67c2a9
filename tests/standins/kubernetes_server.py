"""Stands in for the API server of Kubernetes: nodes over TLS, for whom shows the token, on a port of this machine."""

from __future__ import annotations

import contextlib
import json
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.standins.certificates import Authority

HOST = "127.0.0.1"
TOKEN = "first.token-of_the.account"  # noqa: S105 (of nothing)


def kubernetes_node(name: str = "gke-tpu-1", **more: Any) -> dict[str, Any]:
    """A node as GKE shows one that is well; `more` are labels, annotations, taints, conditions and allocatable TPUs."""
    well = [
        {"type": "MemoryPressure", "status": "False", "reason": "KubeletHasSufficientMemory"},
        {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "kubelet is posting ready status"},
    ]
    return {
        "kind": "Node",
        "apiVersion": "v1",
        "metadata": {"name": name, "labels": more.get("labels", {}), "annotations": more.get("annotations", {})},
        "spec": {"taints": [{"key": "google.com/tpu", "value": "present"}, *more.get("taints", [])]},
        "status": {
            "conditions": more.get("conditions", well),
            "capacity": {"cpu": "112", "google.com/tpu": "4"},
            "allocatable": {"cpu": "111400m", "google.com/tpu": more.get("allocatable", "4")},
        },
    }


class KubernetesServer:
    """Answers with `nodes`, or with `status` where that is not 200, and knows `token` alone. `asked` are the paths."""

    def __init__(self, directory: Path) -> None:
        self.nodes: dict[str, Any] = {"gke-tpu-1": kubernetes_node()}
        self.status, self.token = 200, TOKEN
        self.arrived, self.answers = threading.Event(), threading.Event()  # it waits for `answers`
        self.answers.set()
        self.asked: list[str] = []
        self.account = directory / "serviceaccount"
        self.account.mkdir(parents=True)
        self._directory = directory
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._http = ThreadingHTTPServer((HOST, 0), self._handler())
        self.renew_certificates()
        self.give(TOKEN)
        self._http.socket = self._context.wrap_socket(self._http.socket, server_side=True)
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    @property
    def environ(self) -> dict[str, str]:
        """What a pod is told."""
        port = str(self._http.server_address[1])
        return {"KUBERNETES_SERVICE_HOST": HOST, "KUBERNETES_SERVICE_PORT": port, "NODE_NAME": "gke-tpu-1"}

    def give(self, token: str) -> None:
        """Mount this token into the pod."""
        _replace(self.account / "token", token.encode())

    def renew_certificates(self, *, mounted: bool = True) -> None:
        """Have another authority and another certificate of it, and mount the authority's into the pod."""
        self.authority = Authority(self._directory / f"authority-{len(list(self._directory.iterdir()))}")
        issued = self.authority.issue(HOST)
        self._context.load_cert_chain(issued.certificate, issued.key)
        if mounted:
            self.mount()

    def mount(self) -> None:
        """Mount the certificate of the server's authority into the pod."""
        _replace(self.account / "ca.crt", self.authority.file.read_bytes())

    def close(self) -> None:
        self.answers.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join(30)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.asked.append(self.path)
                server.arrived.set()
                server.answers.wait(60)
                node = server.nodes.get(self.path.removeprefix("/api/v1/nodes/").partition("?")[0])
                status = server.status if node is not None else 404
                if self.headers["Authorization"] != f"Bearer {server.token}":
                    status = 401
                document = node if status == 200 else {"kind": "Status", "code": status}
                body = json.dumps(document).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        return Handler


def _replace(path: Path, content: bytes) -> None:
    new = path.with_suffix(".new")
    new.write_bytes(content)
    new.replace(path)


@contextlib.contextmanager
def kubernetes_server(directory: Path) -> Iterator[KubernetesServer]:
    """One on a port of this machine, with what it mounts into pods below `directory`."""
    server = KubernetesServer(directory)
    try:
        yield server
    finally:
        server.close()
