"""A daemon for commands to ask: the real HTTP server over a sample view, in this process."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from tpuwatch.core.clock import SystemClock
from tpuwatch.metrics.registry import Metrics
from tpuwatch.web.server import HttpServer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pytest

    from tests.unit.web.samples import SampleView


@contextmanager
def answering(view: SampleView, directory: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address at which the view is served, and at which commands ask by their configuration."""
    server = HttpServer("127.0.0.1", 0, view=view, metrics=Metrics(loops=(), refusals=()), clock=SystemClock())
    server.start()
    try:
        host, port = server.address
        config = directory / "asking.toml"
        config.write_text(f'[http]\nlisten = "{host}:{port}"\n[state]\ndir = "{directory}"\n')
        monkeypatch.setenv("TPUWATCH_CONFIG", str(config))
        yield f"{host}:{port}"
    finally:
        server.close()
