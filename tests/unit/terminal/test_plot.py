"""The plot of initialisation time against size, in signs and as a picture."""

from __future__ import annotations

import builtins
import os
import random
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tpuwatch.model.tune import Fit
from tpuwatch.terminal.plot import FINE, MAX_COLUMNS, MIN_COLUMNS, PLAIN, ROWS, Graph, Point, draw
from tpuwatch.terminal.plot_png import PictureError, save

GIB = 1 << 30
LINE = Fit(6.0, 1.4 / GIB, 5, 1, 0.4)
GRAPH = Graph(
    (
        Point(4 * GIB, 11.9, failed=True),
        Point(5 * GIB, 13.1),
        Point(6 * GIB, 14.2),
        Point(8 * GIB, 17.0),
        Point(4 * GIB, 300.0),
    ),
    LINE,
    15.0,
    6 * GIB + GIB // 4,
)


def test_a_narrow_terminal_with_letters_alone() -> None:
    drawn = draw(GRAPH, columns=40, signs=PLAIN)
    assert drawn == [
        "seconds",
        "20 +               !",
        "   |                                  ..",
        "   |                             ..o..",
        "15 +------------------------.....-------",
        "   |                   o...o",
        "   |              .x...",
        "10 +         .....",
        "   |   ......",
        "   |...",
        " 5 +",
        "   |",
        "   |",
        " 0 ++--------------+---------------+----",
        "    0            4 GiB           8 GiB",
        "             next: 6.25 GiB ^",
        "o launch   x no room in the buffer",
        "! longer, up to 300 s   . fit   - limit",
    ]
    assert "".join(drawn).isascii()


def test_without_a_fit_there_is_no_line_and_no_word_of_one() -> None:
    drawn = draw(Graph([Point(4 * GIB, 3.0)], None, 15.0), columns=60, signs=PLAIN)
    assert drawn[-1] == "o launch   - limit"
    assert "." not in "".join(drawn)
    assert "next" not in "".join(drawn)


def test_a_launch_without_room_is_not_hidden_by_another_one() -> None:
    points = [Point(4 * GIB, 9.0, failed=True), Point(4 * GIB, 9.0)]
    assert any("x" in line for line in draw(Graph(points, None, 15.0), columns=60, signs=PLAIN)[1 : ROWS + 1])


@pytest.mark.parametrize("seed", range(40))
def test_whatever_is_drawn_fits(seed: int) -> None:
    rng = random.Random(seed)
    sizes = [rng.choice((0, 4096, 1 << 28, 1 << 32, 1 << 40)) * rng.randint(1, 9) for _ in range(rng.randint(1, 60))]
    points = [Point(size, 10 ** rng.uniform(-3, 5), rng.random() < 0.3) for size in sizes]
    fit = Fit(rng.uniform(-5, 50), rng.uniform(-1, 5) / GIB, 3, 0, 1.0) if rng.random() < 0.7 else None
    graph = Graph(points, fit, 10 ** rng.uniform(-1, 3), rng.choice((None, 0, 1 << 28, 1 << 36)))
    columns = rng.randint(1, 250)
    drawn = draw(graph, columns=columns, signs=rng.choice((FINE, PLAIN)))
    assert drawn[0] == "seconds"
    assert max(map(len, drawn)) <= max(MIN_COLUMNS, min(columns, MAX_COLUMNS))
    assert len({line[: line.index(sign)] for line in drawn for sign in ("┼", "+") if f" 0 {sign}" in line}) == 1


def test_which_streams_have_the_signs() -> None:
    assert FINE.fit_into("utf-8")
    assert not FINE.fit_into("ascii")
    assert not FINE.fit_into("latin-1")
    assert not FINE.fit_into("no such encoding")
    assert PLAIN.fit_into("ascii")


@pytest.mark.slow
def test_a_picture_is_a_png_of_its_size(tmp_path: Path) -> None:
    save(GRAPH, tmp_path / "fit.png", title="train")
    raw = (tmp_path / "fit.png").read_bytes()
    assert raw[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack(">II", raw[16:24]) == (1200, 675)
    save(Graph([Point(0, 0.2)], None, 15.0), tmp_path / "little.png", title="train")
    assert (tmp_path / "little.png").read_bytes() != raw


def test_a_picture_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(PictureError, match=r"cannot write the picture .*/none/fit\.png: No such file or directory"):
        save(GRAPH, tmp_path / "none" / "fit.png", title="train")


def test_without_matplotlib_it_is_said_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any, **others: Any) -> Any:
        if name.partition(".")[0] == "matplotlib":
            raise ModuleNotFoundError("No module named 'matplotlib'")
        return real(name, *rest, **others)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(PictureError, match=r"needs matplotlib.*pip install 'tpuwatch\[plot\]'"):
        save(GRAPH, tmp_path / "fit.png", title="train")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_matplotlib_is_imported_for_a_picture_alone_and_says_nothing(tmp_path: Path) -> None:
    """In an empty home, where it has to look for fonts, and without a display."""
    program = (
        "import sys, pathlib; from tests.unit.terminal.test_plot import GRAPH;"
        "from tpuwatch.terminal import plot, plot_png;"
        "plot.draw(GRAPH, columns=80); assert 'matplotlib' not in sys.modules;"
        f"plot_png.save(GRAPH, pathlib.Path({str(tmp_path / 'fit.png')!r}), title='train');"
        "assert 'matplotlib.pyplot' not in sys.modules"
    )
    environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path / "nowhere"), "PYTHONPATH": str(Path.cwd())}
    done = subprocess.run([sys.executable, "-c", program], env=environ, capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
