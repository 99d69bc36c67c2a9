"""The types of tables and values: validation, and how a message describes what is allowed."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from tpuwatch.config.start import is_override

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


class Section(BaseModel):
    """A table of the file. Frozen: a new configuration is a new object."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)


@dataclass(frozen=True, slots=True)
class Allowed:
    """What a value may be, in words that follow "give"."""

    words: str


def split_listen(listen: str) -> tuple[str, int]:
    """Host and port of "host:port"; an IPv6 address stands in brackets. Raises ValueError for anything else."""
    host, _, port = listen.rpartition(":")
    if not re.fullmatch(r"[0-9]{1,5}", port) or int(port) > 65535:
        raise ValueError("no port")
    if host.startswith("[") and host.endswith("]"):
        return str(ipaddress.IPv6Address(host[1:-1])), int(port)
    if not re.fullmatch(r"[A-Za-z0-9_]([A-Za-z0-9_.-]{0,252})", host):
        raise ValueError("no host")
    return host, int(port)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a listener on this host."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _only(holds: Callable[[Any], object]) -> AfterValidator:
    """Refuse what `holds` denies or raises ValueError for. Messages say what is allowed, and not what was wrong."""

    def check(value: T) -> T:
        if not holds(value):
            raise ValueError("not allowed")
        return value

    return AfterValidator(check)


def _is_absolute(path: Path) -> bool:
    return path.is_absolute() and "\0" not in str(path)


def _is_of_this_machine(url: str) -> bool:
    parts = urlsplit(url)
    if not _is_web_address(url) or parts.scheme != "http" or parts.query or parts.fragment:
        return False
    return parts.hostname == "localhost" or ipaddress.ip_address(parts.hostname or "").is_loopback


def _is_web_address(url: str) -> bool:
    parts = urlsplit(url)
    plain = url.isascii() and url.isprintable() and " " not in url and parts.port != 0
    return plain and parts.scheme in ("http", "https") and bool(parts.hostname) and "@" not in parts.netloc


AbsolutePath = Annotated[Path, _only(_is_absolute), Allowed("an absolute path")]
OptionalPath = Annotated[
    str,
    Field(strict=True),
    _only(lambda path: not path or _is_absolute(Path(path))),
    AfterValidator(lambda path: path and str(Path(path))),
    Allowed("an absolute path, or empty"),
]
Directories = Annotated[
    tuple[Annotated[Path, _only(_is_absolute)], ...], Allowed("a list of absolute paths of directories")
]
Globs = Annotated[
    tuple[Annotated[Path, _only(_is_absolute)], ...],
    Allowed("a list of absolute paths, which may hold *, ?, [...] and **"),
]
Seconds = Annotated[float, Field(strict=True, allow_inf_nan=False), Allowed("a number of seconds")]
Count = Annotated[int, Field(strict=True), Allowed("a whole number")]
Percent = Annotated[float, Field(strict=True, allow_inf_nan=False), Allowed("a share in percent")]
Share = Annotated[float, Field(strict=True, allow_inf_nan=False), Allowed("a share")]
Days = Annotated[int, Field(strict=True), Allowed("a whole number of days")]
Mebibytes = Annotated[int, Field(strict=True), Allowed("a whole number of MiB")]
MaxMebibytes = Annotated[int, Field(strict=True), Allowed("a whole number of MiB, which is not below min_mib,")]
Name = Annotated[
    str, Field(pattern=r"^[a-z0-9-]{0,63}$"), Allowed("a name in lower-case letters, digits and -, or empty")
]
# A project of a company's domain is called "example.com:name".
Project = Annotated[
    str, Field(pattern=r"^([a-z0-9.-]{1,64}:)?[a-z0-9-]{0,63}$"), Allowed("a project's id (not its title), or empty")
]
Nodes = Annotated[
    tuple[Annotated[str, Field(pattern=r"^([a-z0-9-]{1,63}/)?[a-z0-9*?-]{1,63}$")], ...],
    Allowed('a list of node names, which may hold * and ? and begin with a zone: "train-*", "us-central2-b/*"'),
]
Endpoint = Annotated[
    str, Field(pattern=r"^([A-Za-z0-9_.-]+|\[[0-9A-Fa-f:]+\]):[0-9]{1,5}$|^$"), Allowed('"host:port", or empty')
]
Command = Annotated[
    tuple[Annotated[str, Field(strict=True, max_length=4096)], ...],
    Field(max_length=256),
    _only(lambda argv: not argv or (argv[0].startswith("/") and not any("\0" in word for word in argv))),
    Allowed("a list of a program, by its absolute path, and its arguments (no shell reads it), or an empty list"),
]
Unit = Annotated[
    str,
    Field(pattern=r"^([A-Za-z0-9_][A-Za-z0-9_:.@\\-]{0,199}\.service)?$"),
    Allowed(
        'the name of a systemd unit such as "tpu-runtime.service", or empty where restart_runtime is false or '
        "runtime_command is given"
    ),
]
JobSignal = Annotated[
    str,
    Field(pattern=r"^(SIGUSR1|SIGUSR2|SIGHUP|SIGTERM)?$"),
    Allowed(
        '"SIGUSR1", "SIGUSR2", "SIGHUP" or "SIGTERM", or empty where checkpoint is false or checkpoint_command is given'
    ),
]
BucketName = Annotated[
    str,
    Field(pattern=r"^([a-z0-9][a-z0-9._-]{1,220}[a-z0-9])?$"),
    Allowed("a bucket's name without gs://, or empty"),
]
Prefix = Annotated[
    str,
    Field(pattern=r"^([A-Za-z0-9_-][A-Za-z0-9._-]{0,63}/){0,4}$"),
    Allowed('names that each end in /, such as "tpuwatch/", or empty'),
]
WebAddress = Annotated[
    str,
    Field(strict=True, max_length=2000),
    _only(lambda url: not url or _is_web_address(url)),
    Allowed("an address that begins with https:// or http://, without a user in it, or empty"),
]
LocalAddress = Annotated[
    str,
    Field(strict=True, max_length=2000),
    _only(lambda url: not url or _is_of_this_machine(url)),
    Allowed('an http:// address of this machine itself, such as "http://127.0.0.1:8000/metrics", or empty'),
]
NodeAddresses = Annotated[
    dict[Annotated[str, Field(pattern=r"^([a-z0-9-]{1,63}/)?[a-z0-9-]{1,63}$")], WebAddress],
    _only(lambda addresses: all(addresses.values())),
    Allowed('a table of node names and addresses, such as {"train-1" = "http://10.0.0.5:9478"}'),
]
Overrides = Annotated[
    dict[Annotated[str, Field(strict=True)], Annotated[str, Field(strict=True)]],
    _only(lambda overrides: all(is_override(name, value) for name, value in overrides.items())),
    Allowed(
        "a table of TPU_* and LIBTPU_* variables and their values, which are strings: "
        '{"TPU_PREMAPPED_BUFFER_SIZE" = "8589934592"}. That size is a multiple of 4096, and TPU_LIBRARY_PATH is '
        "left to the job"
    ),
]
Port = Annotated[int, Field(strict=True), Allowed("a port number")]
Ports = Annotated[tuple[Annotated[int, Field(strict=True, ge=1, le=65535)], ...], Allowed("a list of port numbers")]
YesNo = Annotated[bool, Field(strict=True), Allowed("true or false")]
HostName = Annotated[
    str, Field(pattern=r"^([A-Za-z0-9_][A-Za-z0-9_.-]{0,252})?$"), Allowed("a name without a port, or empty")
]
HostNames = Annotated[
    tuple[Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,252}$")], ...],
    Allowed('a list of names without ports, such as ["tpu.example.com"]'),
]
Listen = Annotated[
    str, _only(split_listen), Allowed('"host:port", with an IPv6 address in brackets; port 0 takes any free one')
]
