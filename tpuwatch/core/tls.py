"""TLS to servers: whose certificates count."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tpuwatch.core.errors import ConfigError

if TYPE_CHECKING:
    import socket


@dataclass(frozen=True, slots=True)
class Tls:
    """TLS 1.2 or newer. A server is verified before anything is sent to it."""

    context: ssl.SSLContext
    server_name: str = ""  # the name that its certificate must have; "": that of the address
    certificate: bytes = (
        b""  # the only one that counts (DER), whatever it says; b"": those of the context's authorities
    )

    @classmethod
    def trusting(cls, ca_file: str = "", server_name: str = "") -> Tls:
        """Trust the authorities in a file (PEM), or those of this machine. Raises ConfigError."""
        try:
            context = ssl.create_default_context(cafile=ca_file or None)
        except ssl.SSLError as error:
            raise ConfigError(f"{ca_file} holds no certificate in PEM that can be read") from error
        except OSError as error:
            raise ConfigError(f"{ca_file} cannot be read: {error.strerror}") from error
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        return cls(context, server_name)

    @classmethod
    def pinned(cls, file: str) -> Tls:
        """Trust the first certificate in a file (PEM) alone. Raises ConfigError."""
        try:
            pem = Path(file).read_text()
            certificate = pem[pem.index(ssl.PEM_HEADER) :].partition(ssl.PEM_FOOTER)[0] + ssl.PEM_FOOTER
            expected = ssl.PEM_cert_to_DER_cert(certificate)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or "it holds no certificate"
            raise ConfigError(f"{file} cannot be read: {reason}") from error
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # the whole certificate is compared
        return cls(context, certificate=expected)

    def wrap(self, plain: socket.socket, host: str) -> ssl.SSLSocket:
        """The connection over TLS, before its handshake."""
        name = self.server_name or host
        return self.context.wrap_socket(plain, server_hostname=name, do_handshake_on_connect=False)

    def handshake(self, connection: ssl.SSLSocket) -> None:
        """Verify the server. Raises OSError; ssl.SSLCertVerificationError if its certificate does not count."""
        connection.do_handshake()
        if self.certificate and connection.getpeercert(binary_form=True) != self.certificate:
            error = ssl.SSLCertVerificationError("another certificate")
            error.verify_message = "it is another one"
            raise error
