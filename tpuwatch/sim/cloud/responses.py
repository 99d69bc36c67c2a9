"""Errors and pages, as all simulated services return them."""

from __future__ import annotations

import base64
import binascii
from bisect import bisect_right
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class ServiceError(Exception):  # it is no error of the program, but the service's answer
    """An error response: gRPC code, message and details."""

    def __init__(
        self,
        code: str,
        message: str,
        *,
        reason: str = "",
        resource: str = "",
        retry_after_seconds: float | None = None,
    ) -> None:
        """`code` is a gRPC code's name, `reason` goes into ErrorInfo, `resource` (a name) into ResourceInfo."""
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.reason = reason
        self.resource = resource
        self.retry_after_seconds = retry_after_seconds


def not_found(resource: str) -> ServiceError:
    """Return the Cloud TPU API's error for a missing resource."""
    return ServiceError("NOT_FOUND", f"Resource '{resource}' was not found", resource=resource)


def page_of(names: Iterable[str], *, size: int, token: str, limit: int) -> tuple[list[str], str]:
    """Return the names on the page and the next page's token, "" on the last one. A size of 0 means `limit`.

    A token encodes the last name of its page, so that insertions and deletions do not shift later pages.

    Raises ServiceError.
    """
    if size < 0:
        raise ServiceError("INVALID_ARGUMENT", f"Invalid page size: {size}")
    ordered = sorted(names)
    first = bisect_right(ordered, _last_name(token)) if token else 0
    page = ordered[first : first + min(size or limit, limit)]
    more = bool(page) and first + len(page) < len(ordered)
    return page, base64.urlsafe_b64encode(page[-1].encode()).decode() if more else ""


def _last_name(token: str) -> str:
    try:
        return base64.b64decode(token, altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError):
        raise ServiceError("INVALID_ARGUMENT", "Invalid page token") from None
