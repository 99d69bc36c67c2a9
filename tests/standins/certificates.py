"""A certificate for servers on this machine that speak TLS: clients that are to trust it get it as their authority."""

from __future__ import annotations

import datetime as dt
import ipaddress
from dataclasses import dataclass
from pathlib import Path

import grpc
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec


@dataclass(frozen=True, slots=True)
class Certificates:
    """PEM files: the certificate, which signs itself, and its key."""

    certificate: Path
    key: Path

    @property
    def authority(self) -> Path:
        """What clients must trust."""
        return self.certificate

    def server(self) -> grpc.ServerCredentials:
        """For a server."""
        return grpc.ssl_server_credentials([(self.key.read_bytes(), self.certificate.read_bytes())])


def make_certificates(directory: Path, names: tuple[str, ...] = ("localhost", "127.0.0.1")) -> Certificates:
    """Make a certificate for these host names and addresses, valid for 30 days from yesterday."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, names[0])])
    yesterday = dt.datetime.now(dt.timezone.utc) - dt.timedelta(days=1)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(yesterday)
        .not_valid_after(yesterday + dt.timedelta(days=30))
        .add_extension(x509.SubjectAlternativeName([_general_name(name) for name in names]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    made = Certificates(directory / "server.pem", directory / "server.key")
    pem = serialization.Encoding.PEM
    made.certificate.write_bytes(certificate.public_bytes(pem))
    made.key.write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))
    return made


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
