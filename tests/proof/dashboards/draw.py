"""A dashboard drawn by matplotlib: each panel of the JSON in its place, filled with what Prometheus answers."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator
from PIL import Image

Answer = list[dict[str, Any]]  # what Prometheus gives: series with `metric`, and `values` or `value`
Json = dict[str, Any]

DOTS: Final = 100  # per inch
WIDTH: Final = 1280  # of the picture, in dots
COLUMNS, CELL, GAP, HEAD = 24, 30, 6, 44  # columns of the grid; height of its rows, between panels, and of the title
NO_DATA: Final = "no data"
PALETTE: Final = ("#56a64b", "#3274d9", "#f2a900", "#e02f44", "#8f3bb8", "#37872d", "#1f60c4", "#fa6400", "#7c2ea3")
GRAFANA: Final = {  # its names of colours
    "green": "#56a64b",
    "light-blue": "#8ab8ff",
    "blue": "#3274d9",
    "super-light-blue": "#c0d8ff",
    "text": "#9fa7b3",
    "yellow": "#f2cc0c",
    "orange": "#ff780a",
    "dark-orange": "#fa6400",
    "red": "#e02f44",
    "dark-red": "#ad0317",
    "semi-dark-red": "#c4162a",
    "purple": "#a352cc",
    "dark-purple": "#7c2ea3",
}
_INK, _FAINT, _LINE, _GROUND = "#24292e", "#6e7781", "#d8dee4", "#f4f5f5"
_SIZE: Final = 8.0  # of text, in points
_LETTER: Final = 6.6  # the width of one, in dots


@dataclass(frozen=True)
class Answers:
    """What is asked: `over` for a query over the time from `since` to `until`, `now` for one at its end."""

    over: Callable[[str], Answer]
    now: Callable[[str], Answer]
    since: float
    until: float


def draw(document: Json, sections: int, answers: Answers, path: Path) -> None:
    """Write the picture of the first so many sections."""
    canvas = FigureCanvasAgg(paint(document, sections, answers))
    canvas.draw()
    picture = Image.frombytes("RGBA", canvas.get_width_height(), bytes(canvas.buffer_rgba())).convert("RGB")
    # A third of the size. The default method would turn blue into grey.
    picture.quantize(256, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(path, optimize=True)


def paint(document: Json, sections: int, answers: Answers) -> Any:
    """The same as a figure of matplotlib."""
    panels = list(first_sections(document, sections))
    rows = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in panels)
    height = HEAD + rows * CELL + GAP
    figure = Figure(figsize=(WIDTH / DOTS, height / DOTS), dpi=DOTS, facecolor=_GROUND)
    figure.text(0.008, 1 - HEAD / 2 / height, document["title"], size=13, weight="bold", color=_INK, va="center")
    for panel in panels:
        _panel(figure, panel, answers, height)
    return figure


def first_sections(document: Json, count: int) -> Iterator[Json]:
    """The panels of the first sections, with their headings."""
    for panel in document["panels"]:
        count -= panel["type"] == "row"
        if count < 0:
            return
        yield panel


def figure_text(value: float, unit: str) -> str:
    """A value with its unit, roughly as Grafana writes it; `unit` is one of Grafana's names."""
    if math.isnan(value):
        return "-"
    if unit == "percentunit":
        return f"{value * 100:.3g}%"
    if unit == "bytes":
        power = next((power for power in (3, 2, 1) if abs(value) >= 1024**power), 0)
        return f"{value / 1024**power:.3g} {('B', 'KiB', 'MiB', 'GiB')[power]}"
    if unit == "s":
        for name, seconds in (("d", 86_400), ("h", 3600), ("min", 60)):
            if abs(value) >= seconds:
                return f"{value / seconds:.3g} {name}"
        return f"{value:.3g} s" if abs(value) >= 1 or not value else f"{value * 1000:.3g} ms"
    return f"{value:.{3 if abs(value) < 1000 else 4}g}{'/s' if unit == 'reqps' else ''}"


def name_of(metric: dict[str, str], legend: str) -> str:
    """What a series is called."""
    if legend == "__auto":
        return ", ".join(f"{key}={value}" for key, value in metric.items() if key != "__name__")
    return re.sub(r"{{\s*(\w+)\s*}}", lambda label: metric.get(label[1], ""), legend)


def shortened(text: str, dots: float) -> str:
    """As much of a text as there is room for."""
    room = int(dots / _LETTER)
    return text if len(text) <= room else text[: room - 1].rstrip() + "\u2026"


def table_rows(answers: list[Answer]) -> list[dict[str, str | float]]:
    """The answers joined by the labels that they share; the value of the first is "Value #A"."""
    filled = [answer for answer in answers if answer]
    if not filled:
        return []
    shared = sorted(set.intersection(*(set(series["metric"]) for answer in filled for series in answer)))
    rows: dict[tuple[str, ...], dict[str, str | float]] = {}
    for letter, answer in zip("ABCDEFGH", answers, strict=False):
        for series in answer:
            row = rows.setdefault(tuple(series["metric"][label] for label in shared), {})
            row.update(series["metric"])
            row[f"Value #{letter}"] = float(series["value"][1])
    return list(rows.values())


def _panel(figure: Any, panel: Json, answers: Answers, height: int) -> None:
    place = panel["gridPos"]
    column = (WIDTH - GAP) / COLUMNS
    left, top = GAP + place["x"] * column, HEAD + place["y"] * CELL
    wide, high = place["w"] * column - GAP, place["h"] * CELL - GAP

    def area(x: float, y: float, w: float, h: float) -> Any:
        """Axes in dots from the panel's upper left."""
        return figure.add_axes(((left + x) / WIDTH, 1 - (top + y + h) / height, w / WIDTH, h / height))

    whole = area(0, 0, wide, high)
    whole.set(xlim=(0, wide), ylim=(high, 0), xticks=[], yticks=[])
    if panel["type"] == "row":
        whole.axis("off")
        whole.text(2, high / 2, panel["title"], size=10, weight="bold", color=_INK, va="center")
        return
    whole.spines[:].set_color(_LINE)
    whole.text(8, 15, shortened(panel["title"], wide - 12), size=_SIZE + 0.5, color=_INK, va="center")
    try:
        _KINDS[panel["type"]](whole, area, panel, answers, wide, high)
    except _NoDataError:
        whole.text(wide / 2, high / 2 + 8, NO_DATA, size=10, color=_FAINT, ha="center", va="center")


class _NoDataError(Exception):
    """Nothing was answered."""


def _series(panel: Json, answers: Answers) -> list[tuple[str, list[float], list[float]]]:
    """Names, seconds since the begin, and values; where a series has a gap, it is NaN."""
    found = []
    for target in panel["targets"]:
        for series in answers.over(target["expr"]):
            times = [float(at) - answers.since for at, _ in series["values"]]
            found.append(
                (name_of(series["metric"], target["legendFormat"]), times, [float(v) for _, v in series["values"]])
            )
    if not found:
        raise _NoDataError
    return found


def _stat(whole: Any, area: Any, panel: Json, answers: Answers, wide: float, high: float) -> None:
    defaults = panel["fieldConfig"]["defaults"]
    _, times, values = _series(panel, answers)[0]
    color = _limit_color(values[-1], defaults["thresholds"]["steps"])
    filled = panel["options"]["colorMode"] == "background"
    if filled:
        whole.set_facecolor(color)
        whole.texts[0].set_color("white")
    else:
        course = area(1, high * 0.62, wide - 2, high * 0.38 - 1)
        course.fill_between(times, values, min(0, *values), color=color, alpha=0.15, lw=0)
        course.plot(times, values, color=color, lw=1)
        course.set(xlim=(0, answers.until - answers.since))
        course.axis("off")
    shown = figure_text(values[-1], defaults["unit"])
    whole.text(
        wide / 2,
        high * 0.56,
        shown,
        size=22,
        weight="bold",
        color="white" if filled else color,
        ha="center",
        va="center",
    )


def _limit_color(value: float, steps: list[Json]) -> str:
    return GRAFANA[[step["color"] for step in steps if step["value"] is None or value >= step["value"]][-1]]


def _time_axis(axes: Any, answers: Answers) -> None:
    axes.set_xlim(0, answers.until - answers.since)
    axes.xaxis.set_major_locator(MaxNLocator(7, steps=[1, 3, 6, 10], integer=True))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda at, _: f"{at // 60:.0f}:{at % 60:02.0f}"))
    axes.tick_params(labelsize=_SIZE, colors=_FAINT, length=0)
    axes.spines[:].set_visible(False)


def _timeseries(_: Any, area: Any, panel: Json, answers: Answers, wide: float, high: float) -> None:
    found = _series(panel, answers)
    defaults = panel["fieldConfig"]["defaults"]
    unit, custom = defaults["unit"], defaults["custom"]
    axes = area(58, 32, wide * 0.57 - 58, high - 58)
    fixed = _fixed_colors(panel)
    colors = [fixed.get(name) or PALETTE[number % len(PALETTE)] for number, (name, *_) in enumerate(found)]
    if custom.get("stacking", {}).get("mode") == "normal":
        times = sorted(set(itertools.chain.from_iterable(times for _, times, _ in found)))
        points = [dict(zip(at, values, strict=True)) for _, at, values in found]
        stacked = [[of.get(at, 0.0) for at in times] for of in points]
        axes.stackplot(times, stacked, colors=colors, alpha=0.45, lw=0.8)
    else:
        for (_, times, values), color in zip(found, colors, strict=True):
            axes.plot(*_with_gaps(times, values), color=color, lw=1.3)
            axes.fill_between(times, values, color=color, alpha=0.06, lw=0)
    _time_axis(axes, answers)
    bottom, top = axes.get_ylim()
    axes.set_ylim(min(bottom, 0), top if top > 0 else 1)
    if custom.get("thresholdsStyle", {}).get("mode") == "dashed":
        for step in defaults["thresholds"]["steps"]:
            if step["value"] is not None and step["value"] <= max(top, 0) * 1.5:
                axes.axhline(step["value"], color=GRAFANA[step["color"]], lw=1, ls=(0, (4, 3)))
        axes.set_ylim(top=max(axes.get_ylim()[1], top))
    axes.yaxis.set_major_locator(MaxNLocator(5, integer=unit == "short" and top >= 4))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: figure_text(value, unit)))
    axes.grid(color=_LINE, lw=0.6)
    axes.set_axisbelow(True)
    _legend(area, found, colors, unit, wide, high)


def _legend(area: Any, found: list[Any], colors: list[str], unit: str, wide: float, high: float) -> None:
    """Each series with its latest and its highest value, as many as there is room for, the highest first."""
    ranked = sorted(zip(found, colors, strict=True), key=lambda one: -max(one[0][2]))
    width = wide * 0.41
    axes = area(wide * 0.585, 30, width, high - 34)
    axes.set(xlim=(0, width), ylim=(high - 34, 0))
    axes.axis("off")
    for x, heading in ((width - 66, "last"), (width - 10, "max")):
        axes.text(x, 6, heading, size=_SIZE, color=_FAINT, ha="right", va="center")
    room = int((high - 34) // 17) - 1
    for place, ((name, _, values), color) in enumerate(ranked[:room]):
        y = 6 + 17 * (place + 1)
        if place == room - 1 and len(found) > room:
            name, values = f"and {len(found) - place} more", []
        else:
            axes.plot([2, 14], [y, y], color=color, lw=3)
        axes.text(19, y, shortened(name, width - 128), size=_SIZE, color=_INK, va="center")
        for x, value in ((width - 66, values[-1:]), (width - 10, [max(values)] if values else [])):
            for one in value:
                axes.text(x, y, figure_text(one, unit), size=_SIZE, color=_INK, ha="right", va="center")


def _with_gaps(times: list[float], values: list[float]) -> tuple[list[float], list[float]]:
    """The same, with NaN wherever points are missing."""
    step = min((after - before for before, after in itertools.pairwise(times)), default=1.0)
    at, of = times[:1], values[:1]
    for before, now, value in zip(times, times[1:], values[1:], strict=False):
        if now - before > 1.5 * step:
            at.append(before + step)
            of.append(math.nan)
        at.append(now)
        of.append(value)
    return at, of


def _fixed_colors(panel: Json) -> dict[str, str]:
    """Of series whose colour, or that of their 1, does not depend on their place."""
    colors = {}
    for override in panel["fieldConfig"]["overrides"]:
        for given in override["properties"]:
            if given["id"] == "color":
                colors[override["matcher"]["options"]] = GRAFANA[given["value"]["fixedColor"]]
            elif given["id"] == "mappings" and "1" in given["value"][0]["options"]:
                colors[override["matcher"]["options"]] = GRAFANA[given["value"][0]["options"]["1"]["color"]]
    return colors


def _timeline(_: Any, area: Any, panel: Json, answers: Answers, wide: float, high: float) -> None:
    found = _series(panel, answers)
    fixed = _fixed_colors(panel)
    (mapping,) = panel["fieldConfig"]["defaults"]["mappings"]
    axes = area(110, 32, wide - 126, high - 58)
    for place, (name, times, _) in enumerate(found):
        step = min((after - before for before, after in itertools.pairwise(times)), default=1.0)
        color = fixed.get(name) or GRAFANA[mapping["options"]["1"]["color"]]
        axes.broken_barh([(at, step) for at in times], (place - 0.4, 0.8), color=color, lw=0, antialiased=False)
    _time_axis(axes, answers)
    axes.set_ylim(len(found) - 0.5, -0.5)
    axes.set_yticks(range(len(found)), [name for name, *_ in found])


def _table(whole: Any, _: Any, panel: Json, answers: Answers, wide: float, high: float) -> None:
    rows = table_rows([answers.now(target["expr"]) for target in panel["targets"]])
    if not rows:
        raise _NoDataError
    (organize,) = (one["options"] for one in panel["transformations"] if one["id"] == "organize")
    headings: dict[str, str] = organize["renameByName"]
    units, colors = {}, {}
    for override in panel["fieldConfig"]["overrides"]:
        for given in override["properties"]:
            if given["id"] == "unit":
                units[override["matcher"]["options"]] = given["value"]
            if given["id"] == "mappings":
                colors = {text: GRAFANA[of["color"]] for text, of in given["value"][0]["options"].items()}
    (sort,) = (one["displayName"] for one in panel["options"]["sortBy"])
    (key,) = (field for field, heading in headings.items() if heading == sort)
    rows.sort(key=lambda row: float(row.get(key, -math.inf)), reverse=True)
    width = (wide - 16) / len(headings)
    for column, (field, heading) in enumerate(headings.items()):
        x = 10 + column * width
        whole.text(x, 44, heading, size=_SIZE + 0.5, weight="bold", color=_FAINT, va="center")
        for place, row in enumerate(rows[: int((high - 60) // 26)]):
            y = 70 + 26 * place
            whole.plot([8, wide - 8], [y - 13, y - 13], color=_LINE, lw=0.6)
            value = row.get(field, "")
            shown = figure_text(value, units.get(heading, "short")) if isinstance(value, float) else value
            whole.text(x, y, shown, size=_SIZE + 0.5, color=colors.get(shown, _INK), va="center")


_KINDS: Final = {"stat": _stat, "timeseries": _timeseries, "state-timeline": _timeline, "table": _table}
