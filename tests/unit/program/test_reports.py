"""The sizes of reports that libtpu's compilers wrote, of several versions and generations."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.paths import SHARED
from tpuwatch.program.front import memory
from tpuwatch.program.layout import layout_of_size, parse_tensor

RUNS = SHARED / "libtpu-logs" / "aot-oom"
AVAILABLE = {"v2": 7.48, "v3": 15.48, "v4": 15.25, "v5e": 15.75, "v5p": 95.73, "v6e": 31.24, "tpu7x": 94.74}
UNITS = {"B": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
ALLOCATION = re.compile(
    r"Size: (?P<number>[0-9.]+)(?P<unit>[BKMG])(?:(?!Size:|\. Size).)*?Shape: (?P<shape>\w+\[\S+)", re.S
)

pytestmark = pytest.mark.skipif(not RUNS.is_dir(), reason=f"{RUNS} is not there")


def texts(name: str) -> list[tuple[Path, str]]:
    return [(path, path.read_text(errors="replace")) for path in sorted(RUNS.glob(f"*/{name}")) if path.is_file()]


def test_what_was_needed_and_what_there_was_is_read_of_each_refusal() -> None:
    read = 0
    for path, text in texts("error.txt"):
        if "hbm" not in text.lower() or "exceeds available" not in text:
            continue
        read += 1
        needed, available = memory.needed_bytes(text), memory.available_bytes(text)
        generation = path.parent.name.removeprefix("oom-").partition("_")[0]
        assert available == int(AVAILABLE[generation] * (1 << 30)), path
        assert needed is not None, path
        assert needed > available, path
    assert read >= 10


def test_each_allocation_is_as_large_as_its_layout_says() -> None:
    seen = set()
    for path, text in texts("stderr"):
        for found in ALLOCATION.finditer(text):
            size = float(found["number"]) * UNITS[found["unit"]]
            tensor, _ = parse_tensor(found["shape"])
            layout = layout_of_size(tensor, int(size))
            if layout.padded < 1 << 20:
                continue
            assert layout.padded == pytest.approx(size, rel=0.01), (path, found["shape"])
            seen.add(found["shape"])
    assert len(seen) >= 3
