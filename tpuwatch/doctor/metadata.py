"""Values of the metadata server, requested with a short deadline, or why there are none."""

from __future__ import annotations

from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Final

from tpuwatch.core import HttpError, SystemClock
from tpuwatch.doctor.environment import SECONDS, once

if TYPE_CHECKING:
    from collections.abc import Callable

    from tpuwatch.core import HttpReply
    from tpuwatch.doctor.environment import Environment
    from tpuwatch.google import MetadataClient, MetadataError

API: Final = "https://tpu.googleapis.com"


@once
def failure(environment: Environment) -> MetadataError | None:
    """Why the metadata server does not answer; None if it does."""
    from tpuwatch.google import MetadataError

    try:
        client(environment).get("instance/id")
    except MetadataError as error:
        return error
    return None


def value(environment: Environment, path: str) -> str | None:
    """The value at `path` under computeMetadata/v1; None if there is no value, no server, or it is disabled.

    Raises OSError if the server has answered before and does not now.
    """
    if not environment.config.cloud.enabled or failure(environment) is not None:
        return None
    return environment.once(f"metadata {path}", lambda: _get(environment, path))


def seconds_ahead(environment: Environment) -> float | None:
    """How far the server's clock is ahead of ours; None if it is unknown."""
    from tpuwatch.google import FLAVOR, metadata_url

    url = metadata_url(client(environment).host)
    return _ahead(environment, lambda: environment.fetch(url, headers=FLAVOR, head_only=True))


def seconds_ahead_of_api(environment: Environment) -> float | None:
    """The same for Google's API, whose replies have a Date without authentication."""
    if environment.config.cloud.endpoint:
        return None
    return _ahead(environment, lambda: environment.fetch(API, head_only=True))


def _ahead(environment: Environment, ask: Callable[[], HttpReply]) -> float | None:
    try:
        return parsedate_to_datetime(ask().headers["date"]).timestamp() - environment.clock.time()
    except (HttpError, KeyError, TypeError, ValueError):
        return None


def _get(environment: Environment, path: str) -> str | None:
    from tpuwatch.google import MetadataError

    try:
        return client(environment).get(path)
    except MetadataError as error:
        raise OSError(0, str(error), "the metadata server") from error


@once
def client(environment: Environment) -> MetadataClient:
    """The client, with a timeout of 2 s."""
    from tpuwatch.google import MetadataClient, metadata_host

    host = metadata_host(environment.config.cloud.metadata_server, environment.environ)
    return MetadataClient(host, clock=SystemClock(), timeout_seconds=SECONDS)
