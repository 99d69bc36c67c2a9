"""Who may ask the HTTP server, and how it proves who it is: its certificate and its tokens, as their files are now."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import ssl
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tpuwatch.core import ConfigError, Reloaded, read_tokens, require_private

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterable

    from tpuwatch.config import HttpConfig

_PRIVATE_KEY: Final = "Check that the key is the certificate's, is in PEM, and has no passphrase"


@dataclass(frozen=True, slots=True)
class Certificate:
    """A server's certificate in use."""

    context: ssl.SSLContext
    expires: float  # seconds since the epoch
    names: tuple[str, ...]  # DNS names that it is for, without those with a *


class Access:
    """Made from [http]. Thread-safe: files are looked at for each connection, and read where they changed."""

    def __init__(self, http: HttpConfig | None = None) -> None:
        """Without a configuration everybody may ask, without TLS. Raises ConfigError for files that cannot be used."""
        self._certificate: Reloaded[Certificate] | None = None
        self._tokens: Reloaded[frozenset[bytes]] | None = None
        if http is not None and http.certificate_file:
            paths = (Path(http.certificate_file), Path(http.key_file))
            self._certificate = Reloaded(paths, partial(load_certificate, *paths))
        if http is not None and http.token_file:
            path = Path(http.token_file)
            self._tokens = Reloaded((path,), partial(_hashes, path))

    @property
    def scheme(self) -> str:
        return "http" if self._certificate is None else "https"

    @property
    def certificate(self) -> Certificate | None:
        """The one in use; None without TLS."""
        return None if self._certificate is None else self._certificate.get()

    @property
    def problems(self) -> list[str]:
        """Why a file as it is now is not in use: a sentence each."""
        return [one.problem for one in (self._certificate, self._tokens) if one is not None and one.problem]

    def wrap(self, connection: socket.socket) -> socket.socket:
        """The connection, over TLS where that is spoken. Nothing is read or written yet. Raises OSError."""
        certificate = self.certificate
        if certificate is None:
            return connection
        return certificate.context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)

    def allows(self, authorizations: Iterable[str]) -> bool:
        """Whether these Authorization headers hold a token; how long that takes says nothing of the tokens."""
        if self._tokens is None:
            return True
        known = self._tokens.get()
        given = [hashlib.sha256(token).digest() for header in authorizations if (token := _token(header))]
        return len(given) == 1 and any([hmac.compare_digest(given[0], one) for one in known])  # noqa: C419 # all of them


def load_certificate(certificate: Path, key: Path) -> Certificate:
    """A server's certificate from PEM files. Raises ConfigError."""
    from cryptography import x509  # seldom needed

    require_private(key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(certificate, key, password=lambda: b"")  # else OpenSSL asks the terminal
        leaf = x509.load_pem_x509_certificates(certificate.read_bytes())[0]
        names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        hosts = names.get_values_for_type(x509.DNSName)
    except x509.ExtensionNotFound as error:
        text = f"{certificate} has no subjectAltName, so no client accepts it; have one made that has its names in it"
        raise ConfigError(text) from error
    except ssl.SSLError as error:
        reason = (error.reason or "no PEM").replace("_", " ").lower()
        raise ConfigError(f"{certificate} and {key} cannot be used ({reason}). {_PRIVATE_KEY}") from error
    except OSError as error:
        raise ConfigError(f"{certificate} or {key} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"{certificate} holds no certificate in PEM that can be read") from error
    return Certificate(
        context, leaf.not_valid_after_utc.timestamp(), tuple(one.lower() for one in hosts if "*" not in one)
    )


def _hashes(path: Path) -> frozenset[bytes]:
    """What is kept of the tokens: enough to know one again."""
    return frozenset(hashlib.sha256(token.encode()).digest() for token in read_tokens(path))


def _token(header: str) -> bytes:
    """The token in an Authorization header: of Bearer, or the password of Basic, which browsers can send."""
    scheme, _, value = header.strip().partition(" ")
    if scheme.lower() == "bearer":
        return value.strip().encode("latin-1", "replace")
    if scheme.lower() == "basic":
        try:
            return base64.b64decode(value.strip(), validate=True).partition(b":")[2]
        except (binascii.Error, ValueError):
            return b""
    return b""
