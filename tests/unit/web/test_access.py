"""TLS and tokens of the HTTP server, over real sockets and with an authority made here."""

from __future__ import annotations

import base64
import datetime as dt
import http.client
import json
import socket
import ssl
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.standins.certificates import Authority, Certificates
from tests.unit.web.samples import SampleView
from tests.unit.web.test_server import DEADLINE, read_all
from tpuwatch.config.schema import HttpConfig
from tpuwatch.core.clock import ManualClock
from tpuwatch.core.errors import ConfigError, TpuwatchError
from tpuwatch.metrics.registry import Metrics
from tpuwatch.model.documents.status import StatusDocument
from tpuwatch.web import server as served
from tpuwatch.web.access import Access
from tpuwatch.web.client import DaemonAddress, ask_daemon
from tpuwatch.web.server import HttpServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TOKEN, OTHER = "an-example-token-of-ours", "another-example-of-a-token"  # nobody's
BEARER = {"Authorization": f"Bearer {TOKEN}"}


class Site:
    """A server with TLS and a token, of which the files are in `directory`."""

    def __init__(
        self,
        directory: Path,
        *,
        token: bool = True,
        tls: bool = True,
        clock: ManualClock | None = None,
        view: SampleView | None = None,
    ) -> None:
        self.authority = Authority(directory)
        self.token_file = directory / "token"
        self.write_token(TOKEN)
        self.files = self.authority.issue("localhost", "127.0.0.1", "tpu.example.org")
        keys = {"certificate_file": str(self.files.certificate), "key_file": str(self.files.key)} if tls else {}
        keys |= {"token_file": str(self.token_file)} if token else {}
        self.clock = clock or ManualClock()
        self.metrics = Metrics(loops=(), refusals=())
        self.access = Access(HttpConfig.model_validate(keys))
        self.server = HttpServer(
            "127.0.0.1", 0, view=view or SampleView(), metrics=self.metrics, clock=self.clock, access=self.access
        )
        self.server.start()
        self.address = DaemonAddress(
            "{}:{}".format(*self.server.address), keys.get("certificate_file", ""), keys.get("token_file", "")
        )

    def write_token(self, *tokens: str) -> None:
        new = self.token_file.with_suffix(".new")
        new.touch(mode=0o600)
        new.write_text("".join(f"{token}\n" for token in tokens))
        new.replace(self.token_file)

    def context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=self.authority.file)

    def get(self, path: str, headers: dict[str, str] | None = None) -> tuple[int, bytes, http.client.HTTPMessage]:
        secure = self.access.certificate is not None
        host, port = self.server.address
        connection = (
            http.client.HTTPSConnection(host, port, timeout=DEADLINE, context=self.context())
            if secure
            else http.client.HTTPConnection(host, port, timeout=DEADLINE)
        )
        try:
            connection.request("GET", path, headers=headers or {})
            reply = connection.getresponse()
            return reply.status, reply.read(), reply.headers
        finally:
            connection.close()

    def connect(self) -> socket.socket:
        return socket.create_connection(self.server.address, timeout=DEADLINE)


@contextmanager
def serving(directory: Path, **more: Any) -> Iterator[Site]:
    site = Site(directory, **more)
    try:
        yield site
    finally:
        site.server.close()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with serving(tmp_path) as running:
        yield running


def test_with_the_token_all_is_served_over_tls(site: Site) -> None:
    for path in ("/", "/metrics", "/api/v1/status", "/readyz"):
        assert site.get(path, BEARER)[0] == 200, path
    assert site.server.url.startswith("https://127.0.0.1:")
    host = {**BEARER, "Host": "tpu.example.org"}  # the certificate has the name
    assert site.get("/", host)[0] == 200
    assert site.get("/", {**BEARER, "Host": "rebound.example.org"})[0] == 421


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": f"Bearer {OTHER}"},
        {"Authorization": f"Bearer {TOKEN[:-1]}"},
        {"Authorization": TOKEN},
        {"Authorization": "Bearer "},
        {"Authorization": "Basic ?"},
        {"Authorization": "Basic " + base64.b64encode(TOKEN.encode()).decode()},
    ],
)
def test_without_the_token_only_probes_are_answered(site: Site, headers: dict[str, str]) -> None:
    for path in ("/", "/metrics", "/api/v1/status", "/nothing"):
        status, body, got = site.get(path, headers)
        assert (status, got["WWW-Authenticate"]) == (401, 'Basic realm="tpuwatch"')
        assert "`token_file` under [http]" in json.loads(body)["error"]
    assert site.get("/healthz", headers)[:2] == (200, b"ok\n")
    status, body, _ = site.get("/readyz?x=1", headers)
    assert json.loads(body) == {"ready": status == 200}


def test_a_browser_sends_the_token_as_a_password(site: Site) -> None:
    password = base64.b64encode(f"anybody:{TOKEN}".encode()).decode()
    assert site.get("/", {"Authorization": f"Basic {password}"})[0] == 200


def test_two_headers_are_no_token(site: Site) -> None:
    with site.context().wrap_socket(site.connect(), server_hostname="localhost") as connection:
        head = f"Authorization: Bearer {TOKEN}\r\n"
        connection.sendall(f"GET / HTTP/1.1\r\nHost: localhost\r\n{head}{head}\r\n".encode())
        assert read_all(connection).startswith(b"HTTP/1.1 401 ")


def test_a_token_is_renewed_without_a_restart(site: Site) -> None:
    site.write_token(OTHER, TOKEN)
    assert [site.get("/", {"Authorization": f"Bearer {one}"})[0] for one in (OTHER, TOKEN)] == [200, 200]
    site.write_token(OTHER)
    assert [site.get("/", {"Authorization": f"Bearer {one}"})[0] for one in (OTHER, TOKEN)] == [200, 401]
    site.token_file.chmod(0o644)
    assert site.get("/", {"Authorization": f"Bearer {OTHER}"})[0] == 200  # the one before stays in use
    assert "is not private: its mode is 0644; run `chmod g-w,o=" in site.access.problems[0]
    site.token_file.unlink()
    assert site.get("/")[0] == 401
    site.write_token(TOKEN)
    assert site.get("/", BEARER)[0] == 200
    assert site.access.problems == []


def test_a_certificate_is_renewed_without_a_restart(site: Site) -> None:
    before = site.access.certificate
    assert before is not None
    site.authority.issue("localhost", "127.0.0.1", valid=dt.timedelta(days=90))
    assert site.get("/", BEARER)[0] == 200
    after = site.access.certificate
    assert after is not None
    assert 59 * 86_400 < after.expires - before.expires < 61 * 86_400
    site.files.key.write_text("broken")
    assert site.get("/", BEARER)[0] == 200
    assert "stays in use" in site.access.problems[0]


def test_plain_http_is_told_to_speak_tls(site: Site) -> None:
    with site.connect() as plain:
        plain.sendall(f"GET /metrics HTTP/1.1\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode())
        answer = read_all(plain)
    assert answer.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert json.loads(answer.partition(b"\r\n\r\n")[2]) == {"error": "Here TLS is spoken: ask by https://."}
    with pytest.raises(TpuwatchError, match=r"cannot serve its status: Here TLS is spoken"):
        ask_daemon(site.address.listen, "status", StatusDocument)


def test_old_versions_of_tls_are_refused(site: Site) -> None:
    context = site.context()
    context.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning, match="deprecated"):
        context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    with site.connect() as plain, pytest.raises(ssl.SSLError, match=r"(?i)alert protocol.version"):
        context.wrap_socket(plain, server_hostname="localhost")


def test_handshakes_that_do_not_end_keep_nobody_out(site: Site) -> None:
    with ExitStack() as stack:
        slow = [stack.enter_context(site.connect()) for _ in range(3 * served.MAX_CONNECTIONS)]
        for connection in slow[::2]:
            with suppress(ConnectionError):  # where there are too many, the first ones are closed
                connection.sendall(b"\x16\x03\x01\x02\x00\x01")  # the beginning of a ClientHello
        for _ in range(3):
            assert site.get("/metrics", BEARER)[0] == 200
        site.clock.advance(served.HEAD_SECONDS + 0.1)
        assert read_until_closed(slow[-2]) == b""  # its time is over


def test_a_handshake_alone_is_no_request(site: Site) -> None:
    with site.context().wrap_socket(site.connect(), server_hostname="localhost") as connection:
        assert site.get("/healthz")[0] == 200  # both are admitted
        site.clock.advance(served.HEAD_SECONDS + 0.1)
        assert read_until_closed(connection) == b""


def read_until_closed(connection: socket.socket) -> bytes:
    try:
        return read_all(connection)
    except OSError:  # cut, without the end that TLS has
        return b""


def test_commands_know_the_daemon_by_its_certificate(site: Site, tmp_path: Path) -> None:
    assert ask_daemon(site.address, "status", StatusDocument).version
    other = Authority(tmp_path / "other").issue("localhost")
    wrong = DaemonAddress(site.address.listen, str(other.certificate), site.address.token_file)
    with pytest.raises(TpuwatchError, match="another certificate than"):
        ask_daemon(wrong, "status", StatusDocument)
    site.write_token("short")
    with pytest.raises(TpuwatchError, match=r"wants a token: .* token 1 is no token of at least 16"):
        ask_daemon(site.address, "status", StatusDocument)


def test_a_token_alone_and_tls_alone(tmp_path: Path) -> None:
    with serving(tmp_path / "a", tls=False) as site:
        assert (site.get("/")[0], site.get("/", BEARER)[0]) == (401, 200)
        assert site.server.url.startswith("http://")
        assert ask_daemon(site.address, "status", StatusDocument).version
    with serving(tmp_path / "b", token=False) as site:
        assert site.get("/")[0] == 200


def broken(files: Certificates, token: Path, what: str) -> None:
    ways: dict[str, Callable[[], object]] = {
        "no key": files.key.unlink,
        "open key": lambda: files.key.chmod(0o644),
        "other key": lambda: files.key.write_bytes(Authority(token.parent / "x").issue("a").key.read_bytes()),
        "no certificate": lambda: files.certificate.write_text("-"),
        "empty token": lambda: token.write_text("\n"),
        "open token": lambda: token.chmod(0o604),
    }
    ways[what]()


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("no key", r"server\.key cannot be read: No such file"),
        ("open key", r"server\.key is not private: its mode is 0644"),
        ("other key", r"cannot be used \(key values mismatch\)\. Check that the key is the certificate's"),
        ("no certificate", r"server\.pem and .*server\.key cannot be used"),
        ("empty token", r"token holds no token; make one with `openssl rand -hex 32`"),
        ("open token", r"token is not private: its mode is 0604"),
    ],
)
def test_files_that_cannot_be_used_are_named(tmp_path: Path, what: str, message: str) -> None:
    files = Authority(tmp_path).issue("localhost")
    token = tmp_path / "token"
    token.touch(mode=0o600)
    token.write_text(f"{TOKEN}\n")
    broken(files, token, what)
    with pytest.raises(ConfigError, match=message):
        Access(HttpConfig(certificate_file=str(files.certificate), key_file=str(files.key), token_file=str(token)))
