"""A certificate authority of one's own, so that clients which insist on TLS can talk to the simulator.

It needs the package cryptography, which google-auth brings along.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pathlib import Path

NAMES: Final = ("localhost", "127.0.0.1", "::1")
DAYS: Final = 30


@dataclass(frozen=True, slots=True)
class Certificates:
    """PEM files: the authority's certificate, which clients must trust, and the server's certificate and key."""

    authority: Path
    certificate: Path
    key: Path


def make_certificates(directory: Path, names: tuple[str, ...] = NAMES) -> Certificates:
    """Make an authority and a certificate for these host names and addresses, valid for 30 days from yesterday.

    The authority's key is thrown away. Files of the same names in the directory, which must exist, are replaced.
    """
    from cryptography import x509
    from cryptography.hazmat.primitives import serialization

    authority_key, key = _make_key(), _make_key()
    authority_name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "tpuwatch simulator")])
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, names[0])])
    authority = (
        _certificate(authority_name, authority_name, authority_key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_signs_certificates(), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(authority_key.public_key()), critical=False)
        .sign(authority_key, _hash())
    )
    certificate = (
        _certificate(name, authority_name, key)
        .add_extension(x509.SubjectAlternativeName([_general_name(each) for each in names]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False)
        .sign(authority_key, _hash())
    )
    pem = serialization.Encoding.PEM
    made = Certificates(directory / "authority.pem", directory / "server.pem", directory / "server.key")
    made.authority.write_bytes(authority.public_bytes(pem))
    made.certificate.write_bytes(certificate.public_bytes(pem))
    _write_secret(made.key, key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))
    return made


def _make_key() -> Any:
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP256R1())


def _hash() -> Any:
    from cryptography.hazmat.primitives import hashes

    return hashes.SHA256()


def _certificate(subject: Any, issuer: Any, key: Any) -> Any:
    from cryptography import x509

    yesterday = dt.datetime.now(dt.timezone.utc) - dt.timedelta(days=1)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(yesterday)
        .not_valid_after(yesterday + dt.timedelta(days=DAYS))
    )


def _signs_certificates() -> Any:
    from cryptography import x509

    may = dict.fromkeys(
        (
            "digital_signature",
            "content_commitment",
            "key_encipherment",
            "data_encipherment",
            "key_agreement",
            "key_cert_sign",
            "crl_sign",
            "encipher_only",
            "decipher_only",
        ),
        False,
    )
    return x509.KeyUsage(**{**may, "key_cert_sign": True})


def _general_name(name: str) -> Any:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _write_secret(path: Path, content: bytes) -> None:
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
