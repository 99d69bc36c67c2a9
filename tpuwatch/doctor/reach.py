"""How the doctor reaches out: one HTTP request, one command, each bounded in time and size."""

from __future__ import annotations

import contextlib
import http.client
import os
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_MAX_BODY = 1 << 18


@dataclass(frozen=True, slots=True)
class Reply:
    """An HTTP reply; header names are in lower case, the body is cut at 256 KiB."""

    status: int
    headers: Mapping[str, str]
    body: str


@dataclass(frozen=True, slots=True)
class Ran:
    """A command that has run."""

    code: int
    output: str


def fetch(
    address: str,
    path: str,
    *,
    headers: Mapping[str, str] | None = None,
    seconds: float = 2.0,
    tls: bool = False,
) -> Reply:
    """GET http(s)://address/path; `seconds` holds for each step. Raises OSError and http.client.HTTPException."""
    kind = http.client.HTTPSConnection if tls else http.client.HTTPConnection
    with contextlib.closing(kind(address, timeout=seconds)) as connection:
        connection.request("GET", path, headers=dict(headers or {}))
        reply = connection.getresponse()
        body = reply.read(_MAX_BODY).decode("utf-8", "replace")
        return Reply(reply.status, {name.lower(): value for name, value in reply.getheaders()}, body)


def run(command: Sequence[str], *, seconds: float = 2.0) -> Ran | None:
    """Run a command without input; None where it is not installed or takes longer."""
    try:
        done = subprocess.run(  # noqa: S603 # fixed words, found on PATH
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=seconds,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return Ran(done.returncode, done.stdout[:_MAX_BODY].decode("utf-8", "replace"))


def glibc() -> str:
    """The C library's version, "2.31"; "" where it is another."""
    with contextlib.suppress(ValueError, OSError):
        name, _, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
        if name == "glibc":
            return version
    return ""
