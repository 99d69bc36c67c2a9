"""The metadata server, asked with a short deadline: what it says, or why it says nothing."""

from __future__ import annotations

import http.client
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Final

from tpuwatch.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable

    from tpuwatch.doctor.environment import Environment
    from tpuwatch.doctor.reach import Reply
    from tpuwatch.node.metadata import Metadata, MetadataError

SECONDS: Final = 2.0
API: Final = "tpu.googleapis.com"
_FLAVOR: Final = {"Metadata-Flavor": "Google"}


def failure(environment: Environment) -> MetadataError | None:
    """Why the metadata server does not answer; None when it does."""
    return environment.once("metadata", lambda: _failure(environment))


def value(environment: Environment, path: str) -> str | None:
    """The value at `path` under computeMetadata/v1; None where there is none, or no server, or it is not to be asked.

    Raises OSError when the server answers at first and then no more.
    """
    if not environment.config.cloud.enabled or failure(environment) is not None:
        return None
    return environment.once(f"metadata {path}", lambda: _get(environment, path))


def attribute(environment: Environment, name: str) -> str | None:
    """instance/attributes/NAME, as `value`."""
    return value(environment, f"instance/attributes/{name}")


def seconds_ahead(environment: Environment) -> float | None:
    """How far the server's clock is ahead of ours; None when it does not tell."""
    from tpuwatch.node.metadata import ROOT

    return _ahead(environment, lambda: environment.fetch(client(environment).host, ROOT, headers=_FLAVOR))


def seconds_ahead_of_api(environment: Environment) -> float | None:
    """The same for Google's API, which tells the time to everybody, over TLS."""
    if environment.config.cloud.endpoint:
        return None
    return _ahead(environment, lambda: environment.fetch(API, "/", tls=True))


def _ahead(environment: Environment, ask: Callable[[], Reply]) -> float | None:
    try:
        return parsedate_to_datetime(ask().headers["date"]).timestamp() - environment.clock.time()
    except (OSError, http.client.HTTPException, KeyError, TypeError, ValueError):
        return None


def _failure(environment: Environment) -> MetadataError | None:
    from tpuwatch.node.metadata import MetadataError

    try:
        client(environment).get("instance/id")
    except MetadataError as error:
        return error
    return None


def _get(environment: Environment, path: str) -> str | None:
    from tpuwatch.node.metadata import MetadataError

    try:
        return client(environment).get(path)
    except MetadataError as error:
        raise OSError(0, str(error), "the metadata server") from error


def client(environment: Environment) -> Metadata:
    """The client, which waits 2 s at most."""
    from tpuwatch.node.metadata import DEFAULT_HOST, Metadata

    host = environment.environ.get("GCE_METADATA_HOST") or DEFAULT_HOST
    return environment.once("metadata client", lambda: Metadata(host, clock=SystemClock(), timeout_seconds=SECONDS))
