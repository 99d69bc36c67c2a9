"""Pages of a long list. A token names the last item of its page, so that what comes and goes shifts nothing."""

from __future__ import annotations

import base64
import binascii
from bisect import bisect_right
from typing import TYPE_CHECKING

from tpuwatch.sim.cloud.refusal import Refusal

if TYPE_CHECKING:
    from collections.abc import Iterable


def page_of(names: Iterable[str], *, size: int, token: str, limit: int) -> tuple[list[str], str]:
    """The names on the page and the next one's token, "" at the end. A size of 0 leaves it to the limit.

    Raises Refusal.
    """
    if size < 0:
        raise Refusal("INVALID_ARGUMENT", f"Invalid page size: {size}")
    ordered = sorted(names)
    first = bisect_right(ordered, _last_name(token)) if token else 0
    page = ordered[first : first + min(size or limit, limit)]
    more = bool(page) and first + len(page) < len(ordered)
    return page, base64.urlsafe_b64encode(page[-1].encode()).decode() if more else ""


def _last_name(token: str) -> str:
    try:
        return base64.b64decode(token, altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError):
        raise Refusal("INVALID_ARGUMENT", "Invalid page token") from None
