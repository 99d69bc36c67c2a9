"""What the simulated metadata server answers to each path: listings, values, JSON, service accounts and their tokens.

Apart from HTTP and its sockets, and so without any I/O.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs

from tpuwatch.sim.cloud.metadata_tree import PORTS, MetadataDialect, MetadataRecord, tree

if TYPE_CHECKING:
    from tpuwatch.sim.cloud.world import World

ROOT: Final = "/computeMetadata/v1/"
TEXT: Final = "application/text"
JSON: Final = "application/json"
_CAMEL: Final = {
    name: re.sub(r"-(\w)", lambda found: found[1].upper(), name)
    for name in (
        "automatic-restart",
        "maintenance-event",
        "numeric-project-id",
        "on-host-maintenance",
        "project-id",
        "service-accounts",
        "universe-domain",
        "upcoming-maintenance",
    )
}
_RENEW_SECONDS: Final = 300  # a token is handed out again until so long before its end
_NO_NOTICE: Final = b'{ "error": "no notifications have been received yet, try again later" }'


@dataclass(frozen=True)
class Page:
    """An HTTP answer."""

    status: int
    body: bytes
    content_type: str = TEXT
    location: str = ""  # a path to go to

    @cached_property
    def etag(self) -> str:
        """16 digits that differ when the body does."""
        return hashlib.sha256(self.body).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Query:
    """A request's path under the root, and its parameters. Unknown parameters are ignored."""

    path: str
    recursive: bool = False
    as_json: bool = False  # a leaf; a directory is shown as JSON whenever it is recursive
    waits: bool = False
    last_etag: str = ""
    timeout_seconds: float = math.inf

    @classmethod
    def parse(cls, target: str) -> Query:
        """From an HTTP request's target."""
        path, _, parameters = target.partition("?")
        values = {name: given[-1] for name, given in parse_qs(parameters).items()}
        timeout = values.get("timeout_sec", "")
        return cls(
            path=path,
            recursive=values.get("recursive", "").lower() == "true",
            as_json=values.get("alt") == "json",
            waits=values.get("wait_for_change", "").lower() == "true",
            last_etag=values.get("last_etag", ""),
            timeout_seconds=int(timeout) if re.fullmatch(r"\d{1,9}", timeout) else math.inf,
        )


@dataclass(frozen=True, slots=True)
class Account:
    """The VM's service account. As on Compute Engine, a token has the account's scopes, whatever a client asks for."""

    email: str = "tpu@simulated.iam.gserviceaccount.com"
    scopes: tuple[str, ...] = ("https://www.googleapis.com/auth/cloud-platform",)
    token_seconds: int = 3599  # how long a new token is good; 0 or less hands out tokens that have expired


@dataclass
class Pages:
    """All pages of one worker's metadata server. What the world says of the node is looked up for each of them."""

    world: World
    node: str  # the resource name
    worker: int = 0
    dialect: MetadataDialect = MetadataDialect.TPU
    ports: tuple[int, ...] = PORTS
    account: Account | None = field(default_factory=Account)  # None: the VM has no service account
    # The token that was handed out last, and its end by the world's clock.
    _issued: tuple[str, float] | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        self._last = self.world.nodes[self.node]

    def page(self, query: Query, drop: tuple[str, ...] = ()) -> Page:
        """The answer to a request that carried the right header, as if the values named in `drop` were not there."""
        if query.path in ("", "/"):
            return Page(200, b"computeMetadata/\n")
        if not (query.path + "/").startswith(ROOT):
            return _missing()
        value: Any = _without(self._tree(), drop) if drop else self._tree()
        for step in filter(None, query.path[len(ROOT) :].split("/")):
            if not isinstance(value, dict) or step not in value:
                return _missing()
            value = value[step]
        if callable(value):
            return _missing() if query.path.endswith("/") else _as_json(value())
        if isinstance(value, dict) and not isinstance(value, MetadataRecord):
            return _directory(value, query)
        return _leaf(value, query)

    def _tree(self) -> dict[str, Any]:
        with self.world.lock:
            self.world.advance()
            # A node that has vanished took its VM along; its last known state is served.
            self._last = self.world.nodes.get(self.node, self._last)
            values = tree(self._last, self.worker, self.dialect, self.ports)
        values["instance"]["service-accounts"] = self._accounts()
        return values

    def _accounts(self) -> dict[str, Any]:
        if self.account is None:
            return {}
        one = {
            "aliases": ["default"],
            "email": self.account.email,
            "scopes": list(self.account.scopes),
            "token": self._hand_out_token,
        }
        return {"default": one, self.account.email: one}

    def _hand_out_token(self) -> dict[str, Any]:
        assert self.account is not None  # noqa: S101 # else there is no path to here
        with self.world.lock:
            now = self.world.clock.time()
            if self._issued is None or self._issued[1] - now < _RENEW_SECONDS:
                self._issued = f"sim.{self.world.rng.getrandbits(64):016x}", now + self.account.token_seconds
            token, expires = self._issued
            if self.world.tokens is not None:
                self.world.tokens[token] = expires
        return {"access_token": token, "expires_in": int(expires - now), "token_type": "Bearer"}


def _without(value: Any, drop: tuple[str, ...]) -> Any:
    if not _is_directory(value):
        return value
    return {name: _without(part, drop) for name, part in value.items() if name not in drop}


def _directory(values: dict[str, Any], query: Query) -> Page:
    if not query.path.endswith("/"):
        return Page(301, f"{query.path}/\n".encode(), location=f"{query.path}/")
    if query.recursive:
        return _as_json(_plain(values))
    names = sorted(name + "/" * _is_directory(value) for name, value in values.items())
    return Page(200, "".join(f"{name}\n" for name in names).encode())


def _leaf(value: Any, query: Query) -> Page:
    if query.path.endswith("/"):
        return _missing()
    if isinstance(value, MetadataRecord) and not value:
        return Page(503, _NO_NOTICE, JSON)
    if query.as_json or isinstance(value, MetadataRecord):
        return _as_json(value)
    if isinstance(value, list):
        return Page(200, "".join(f"{part}\n" for part in value).encode())
    return Page(200, str(value).encode())


def _plain(value: Any) -> Any:
    """As recursive JSON shows it: names in camel case, but for attributes and accounts, whose names are the users'."""
    if not _is_directory(value):
        return value
    return {_CAMEL.get(name, name): _plain(part) for name, part in value.items() if not callable(part)}


def _is_directory(value: Any) -> bool:
    return isinstance(value, dict) and not isinstance(value, MetadataRecord)


def _as_json(value: Any) -> Page:
    return Page(200, json.dumps(value, separators=(",", ":")).encode(), JSON)


def _missing() -> Page:
    return Page(404, b"The requested URL was not found on this server.\n", "text/html; charset=UTF-8")
