"""The HTTP proxy that the environment names for an address, as other programs understand its variables."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Proxy:
    scheme: str  # how it is spoken to
    host: str
    port: int
    headers: Mapping[str, str] = field(repr=False)  # with which it is asked: its password


def proxy_for(scheme: str, authority: str) -> Proxy | None:
    """The proxy of http_proxy or https_proxy for "host:port", unless no_proxy has it. Raises ValueError."""
    from urllib.request import getproxies, proxy_bypass  # seldom needed

    given = getproxies().get(scheme)
    if not given or proxy_bypass(authority):
        return None
    parts = urlsplit(given if "://" in given else f"http://{given}")
    headers = {}
    if parts.username is not None:
        credentials = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        headers["Proxy-Authorization"] = f"Basic {base64.b64encode(credentials.encode()).decode()}"
    return Proxy(parts.scheme, parts.hostname or "", parts.port or 80, headers)
