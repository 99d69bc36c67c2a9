"""The real texts beside the repository: corpora of errors, and logs of a real libtpu."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.paths import SHARED

needs_texts = pytest.mark.skipif(not SHARED.is_dir(), reason="the real texts are not beside the repository")


def real_texts() -> Iterator[bytes]:
    for pattern in ("corpus*/texts/*", "libtpu-logs/*/*/logs/*", "libtpu-logs/*/*/stderr"):
        yield from (path.read_bytes() for path in sorted(SHARED.glob(pattern)))
