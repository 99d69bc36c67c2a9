"""The plot of initialisation time against size as a PNG file, drawn with matplotlib, which is an optional extra."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from tpuwatch.core import TpuwatchError, format_size

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tpuwatch.terminal.plot import Graph, Point

_INCHES: Final = (8.0, 4.5)
_DOTS: Final = 150  # per inch
_GIB: Final = 1 << 30
_WORKED, _FAILED, _LINE, _LIMIT, _NEXT = "#1f77b4", "#d62728", "#555555", "#e08214", "#2ca02c"


class PictureError(TpuwatchError):
    """The picture cannot be drawn or written."""


def save(graph: Graph, path: Path, *, title: str) -> None:
    """Write the picture. Raises PictureError where matplotlib is not installed, or the file cannot be written."""
    try:
        logging.getLogger("matplotlib").setLevel(logging.ERROR)  # it logs its search for fonts
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise PictureError(
            f"a picture needs matplotlib, which cannot be imported ({error}): pip install 'tpuwatch[plot]'"
        ) from error
    figure = Figure(figsize=_INCHES, layout="constrained")
    FigureCanvasAgg(figure)  # draws in memory: no display is asked for
    _paint(figure.add_subplot(), graph, title)
    try:
        figure.savefig(path, format="png", dpi=_DOTS, metadata={"Software": "tpuwatch"})
    except OSError as error:
        raise PictureError(f"cannot write the picture {path}: {error.strerror or error}") from error


def _paint(axes: Any, graph: Graph, title: str) -> None:
    near = [point for point in graph.points if point.seconds < graph.top]
    _dots(axes, [point for point in near if not point.failed], "launch", marker="o", color=_WORKED)
    failed = [point for point in near if point.failed]
    _dots(axes, failed, "no room in the buffer", marker="X", color=_FAILED)
    far = [point for point in graph.points if point.seconds >= graph.top]
    if far:
        sizes, edge = [point.size_bytes / _GIB for point in far], [graph.top * 0.98] * len(far)
        label = f"longer, up to {max(point.seconds for point in far):.0f} s"
        axes.scatter(sizes, edge, marker="^", color="#888888", label=label)
    if graph.fit:
        name = f"fit: {graph.fit.base_seconds:.1f} s + {graph.fit.per_byte_seconds * _GIB:.2f} s per GiB"
        ends = (0.0, graph.right)
        axes.plot([end / _GIB for end in ends], [graph.line(end) for end in ends], color=_LINE, lw=1.5, label=name)
    axes.axhline(graph.limit_seconds, color=_LIMIT, ls="--", lw=1.2, label=f"limit: {graph.limit_seconds:g} s")
    if graph.chosen_bytes:
        label = f"next: {format_size(graph.chosen_bytes)}"
        axes.axvline(graph.chosen_bytes / _GIB, color=_NEXT, ls=":", lw=1.8, label=label)
    axes.set(xlim=(0, graph.right / _GIB), ylim=(0, graph.top), title=title)
    axes.set_xlabel("premapped buffer (GiB)")
    axes.set_ylabel("seconds until the TPU was up")
    axes.grid(visible=True, alpha=0.25)
    axes.legend(fontsize="small", framealpha=0.9)


def _dots(axes: Any, points: Sequence[Point], label: str, **style: Any) -> None:
    if points:
        sizes, seconds = [point.size_bytes / _GIB for point in points], [point.seconds for point in points]
        axes.scatter(sizes, seconds, s=48, alpha=0.8, zorder=3, lw=0.5, edgecolors="white", label=label, **style)
