"""Certificates for servers on this machine that speak TLS: one that is its own authority, or those of an authority."""

from __future__ import annotations

import datetime as dt
import ipaddress
from dataclasses import dataclass
from pathlib import Path

import grpc
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

_PEM = serialization.Encoding.PEM
_USAGES = (
    *("digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement"),
    *("key_cert_sign", "crl_sign", "encipher_only", "decipher_only"),
)


@dataclass(frozen=True, slots=True)
class Certificates:
    """PEM files: a certificate, its key, which is private, and the authority that clients must trust."""

    certificate: Path
    key: Path
    authority: Path

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
    made = Certificates(directory / "server.pem", directory / "server.key", directory / "server.pem")
    made.certificate.write_bytes(certificate.public_bytes(_PEM))
    _write_key(made.key, key)
    return made


class Authority:
    """Signs certificates of servers, as an organisation's own does."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(exist_ok=True)
        self.file = directory / "ca.pem"
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "An authority")])
        made = _builder(self._name, self._name, self._key.public_key(), dt.timedelta(days=300))
        made = made.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        usage = dict.fromkeys(_USAGES, False) | {"key_cert_sign": True, "crl_sign": True}
        made = made.add_extension(x509.KeyUsage(**usage), critical=True)
        made = made.add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False)
        self.file.write_bytes(made.sign(self._key, hashes.SHA256()).public_bytes(_PEM))

    def issue(self, *names: str, to: str = "server", valid: dt.timedelta = dt.timedelta(days=30)) -> Certificates:
        """A certificate for these names in files called `to`; the files of an earlier one are replaced."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, names[0])])
        made = _builder(subject, self._name, key.public_key(), valid)
        made = made.add_extension(x509.SubjectAlternativeName([_general_name(name) for name in names]), critical=False)
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())  # Python 3.13 asks for it
        made = made.add_extension(issuer, critical=False)
        issued = Certificates(self._directory / f"{to}.pem", self._directory / f"{to}.key", self.file)
        _write_key(issued.key, key)
        new = issued.certificate.with_suffix(".new")
        new.write_bytes(made.sign(self._key, hashes.SHA256()).public_bytes(_PEM))
        new.replace(issued.certificate)
        return issued


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, valid: dt.timedelta
) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.timezone.utc)
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key)
    builder = builder.serial_number(x509.random_serial_number())
    return builder.not_valid_before(now - dt.timedelta(days=9)).not_valid_after(now + valid)


def _write_key(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    new = path.with_suffix(".newkey")
    new.touch(mode=0o600)
    new.write_bytes(key.private_bytes(_PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))
    new.replace(path)


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
