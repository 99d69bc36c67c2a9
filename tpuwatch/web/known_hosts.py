"""Which names in a request's Host header are this server's.

A web page can have its own DNS name lead to any address, that of this server too, and the browser then lets it read
what is served here (DNS rebinding). Such a request carries the page's name. Addresses cannot be misused so, nor can
names that nobody can register.
"""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

# Documents for scrapers and probes, without text from logs: a listener that others reach serves them under any name.
_OPEN: Final = frozenset({"/metrics", "/healthz", "/readyz"})
_RESERVED: Final = (".internal", ".local", ".home.arpa")  # top-level names for private networks


class KnownHosts:
    """The names of one server."""

    def __init__(self, address: str, names: Collection[str]) -> None:
        """`address`: the numeric one that is listened on. `names`: of this machine and from the configuration."""
        self._loopback = ipaddress.ip_address(address.partition("%")[0]).is_loopback
        self._names = {"localhost", *(name.lower().removesuffix(".") for name in names)}

    def allow(self, headers: Iterable[str], path: str, certified: Collection[str] = ()) -> bool:
        """Whether to answer a request for `path` with these Host headers; browsers send exactly one.

        `certified`: names in the certificate of this server, which no page elsewhere can lead here.
        """
        names = map(_name, headers)
        return all(name in certified or self._knows(name, path) for name in names)

    def _knows(self, name: str, path: str) -> bool:
        if name in self._names or name.endswith(".localhost") or _is_address(name):
            return True
        return not self._loopback and (path in _OPEN or "." not in name or name.endswith(_RESERVED))


def _name(host: str) -> str:
    """The name or address in a Host header, without the port."""
    host = host.strip().lower()
    name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    return name.removesuffix(".")


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
