"""Addresses of host names, with a time limit. A lookup cannot be cancelled, so it runs in a thread of its own."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import threading
from typing import Any, TypeAlias

Addresses: TypeAlias = "list[tuple[int, Any]]"  # family and address, as `socket` takes them


class Lookups:
    """Looks up names. Thread-safe. A lookup that hangs costs one thread, however often its name is asked for."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pending: dict[tuple[str, int], _Lookup] = {}

    def addresses(self, host: str, port: int, seconds: float) -> Addresses:
        """The addresses of a host. Raises socket.gaierror, also after `seconds`."""
        with contextlib.suppress(ValueError):
            family = socket.AF_INET6 if ipaddress.ip_address(host).version == 6 else socket.AF_INET
            return [(family, (host, port))]
        place = (host, port)
        with self._lock:
            self._pending = {key: one for key, one in self._pending.items() if not one.done.is_set()}
            lookup = self._pending.get(place) or _Lookup(*place)
            self._pending[place] = lookup
        if not lookup.done.wait(seconds):
            raise socket.gaierror(socket.EAI_AGAIN, "no answer in time")
        if lookup.error is not None:
            raise lookup.error
        return lookup.found


class _Lookup:
    def __init__(self, host: str, port: int) -> None:
        self.done = threading.Event()
        self.found: Addresses = []
        self.error: OSError | None = None
        self._place = (host, port)
        threading.Thread(target=self._run, name="lookup", daemon=True).start()

    def _run(self) -> None:
        try:
            found = socket.getaddrinfo(*self._place, type=socket.SOCK_STREAM)
            self.found = [(family, address) for family, _, _, _, address in found]
        except UnicodeError:  # not a valid DNS name
            self.error = socket.gaierror(socket.EAI_NONAME, "not a host's name")
        except OSError as error:
            self.error = error
        finally:
            self.done.set()
