"""One HTML page of the advice, self-contained: no script, nothing loaded from anywhere, plots as SVG."""

from __future__ import annotations

from math import log10
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tpuwatch.core import format_seconds, format_size
from tpuwatch.terminal import PROFILE_SHARES

if TYPE_CHECKING:
    from tpuwatch.model import AdviceDocument, AdviceResultDocument

WIDTH: Final = 640  # of a plot, in pixels
HEIGHT: Final = 260
_TENSORS: Final = 12
_ROW: Final = 22  # pixels of a bar
_LEFT: Final = 250  # of bars, for their names
_DECADES: Final = (0, 5)  # of the roofline's intensity: 1 to 100,000 FLOPs a byte
_COLOURS: Final = {
    "weights": "#4c78a8",
    "optimizer": "#72b7b2",
    "state": "#9d755d",
    "inputs": "#54a24b",
    "gradients": "#eeca3b",
    "activations": "#f58518",
}


def advice_page(document: AdviceDocument) -> str:
    """The page of what `tpuwatch advise --json` prints."""
    from jinja2 import Environment

    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters["size"] = format_size
    environment.filters["seconds"] = format_seconds
    template = environment.from_string(Path(__file__).with_name("page.html").read_text(encoding="utf-8"))
    results = [(result, _plots(result), _shares(result)) for result in document.results]
    return template.render(document=document, results=results, width=WIDTH)


def _plots(result: AdviceResultDocument) -> dict[str, Any]:
    return {"memory": _memory(result), "roofline": _roofline(result), "tensors": _tensors(result)}


def _shares(result: AdviceResultDocument) -> list[tuple[str, float]]:
    """Where the steps' time went, as far as the profile shows it."""
    shares = [(words, getattr(result.profile, name, None)) for name, words in PROFILE_SHARES]
    return [(words, share) for words, share in shares if share is not None]


def _memory(result: AdviceResultDocument) -> dict[str, Any] | None:
    """A bar of what fills the HBM, beside what is there."""
    parts = {name: size for name, size in result.memory.items() if size}
    if not parts:
        return None
    whole = max(sum(parts.values()), result.available_bytes)
    bars, at = [], 0.0
    for name, size in parts.items():
        wide = WIDTH * size / whole
        bars.append({"x": at, "width": wide, "name": name, "size": size, "colour": _COLOURS.get(name, "#bab0ac")})
        at += wide
    return {"bars": bars, "limit": WIDTH * result.available_bytes / whole, "available": result.available_bytes}


def _roofline(result: AdviceResultDocument) -> dict[str, Any] | None:
    """The roof, by intensity, and where the program is under it. Both axes are logarithmic."""
    line = result.roofline
    if line is None or not line.intensity or not line.seconds:
        return None
    peak, bandwidth = line.peak_flops, line.hbm_bytes_per_second
    low, high = _DECADES
    floor = log10(bandwidth)

    def place(intensity: float, flops: float) -> tuple[float, float]:
        x = (min(max(log10(intensity), low), high) - low) / (high - low)
        y = (log10(flops) - floor) / (log10(peak) - floor) if peak > bandwidth else 1.0
        return round(40 + x * (WIDTH - 90), 1), round(HEIGHT - 30 - max(0.0, y) * (HEIGHT - 60), 1)

    reached = line.flops / line.seconds
    roof = [place(10**low, bandwidth), place(line.ridge, peak), place(10**high, peak)]
    return {
        "height": HEIGHT,
        "roof": " ".join(f"{x},{y}" for x, y in roof),
        "point": place(line.intensity, max(reached, bandwidth)),
        "ticks": [{"x": place(10**n, peak)[0], "text": f"{10**n:,}"} for n in range(low, high + 1)],
        "peak": f"{peak / 1e12:.0f} TFLOP/s",
        "reached": f"{reached / 1e12:.1f} TFLOP/s at {line.intensity:.0f} FLOPs a byte",
    }


def _tensors(result: AdviceResultDocument) -> dict[str, Any] | None:
    """The largest tensors: their contents, and what they take."""
    shown = sorted(result.tensors, key=lambda one: -one.padded_bytes)[:_TENSORS]
    if not shown or not shown[0].padded_bytes:
        return None
    room = WIDTH - _LEFT - 90
    scale = room / shown[0].padded_bytes
    rows = [
        {
            "y": place * _ROW,
            "name": f"{one.shape} {one.part}",
            "held": one.bytes * scale,
            "taken": one.padded_bytes * scale,
            "text": format_size(one.padded_bytes),
        }
        for place, one in enumerate(shown)
    ]
    return {"rows": rows, "height": len(rows) * _ROW + 4, "left": _LEFT}
