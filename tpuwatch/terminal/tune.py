"""What `tpuwatch tune` shows on a terminal: the decision in short, or all that it rests on."""

from __future__ import annotations

import textwrap
import time
from typing import TYPE_CHECKING, Final

from tpuwatch.core import format_seconds, format_size, format_time, listed, printable
from tpuwatch.model import DEFAULT_WORKLOAD, Cause, Outcome, SizeStep
from tpuwatch.terminal.plot import FINE, MAX_COLUMNS, PLAIN, Graph, Point, draw

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from tpuwatch.logs import PruneResult
    from tpuwatch.model import Bounds, Fit, Launch, SizeDecision, TuneHost
    from tpuwatch.terminal.console import Console
    from tpuwatch.tune import FileChange, Outlook

TABLE_WIDTH: Final = 64  # where a terminal is narrower, launches are sentences
SHOWN: Final = 15  # launches
_INDENT: Final = 3
_MIN_CELL: Final = 12  # columns of the last cell
_UNKNOWN: Final = "-"
_MAX_FILES: Final = 20  # of each kind, that --prune-logs lists
_NAMED: Final = 3  # causes of one launch


def headline(decision: SizeDecision, host: TuneHost) -> str:
    """What is done about the premapped buffer, in one line."""
    own = f"libtpu's own {format_size(host.default_bytes)}" if host.default_bytes else "no buffer, as libtpu has it"
    size = own if decision.size_bytes is None else format_size(decision.size_bytes)
    before = "" if decision.before_bytes is None else f" from {format_size(decision.before_bytes)}"
    trial = ", on trial" if decision.trial else ""
    words = {
        SizeStep.START: f"start with {size}",
        SizeStep.KEEP: f"keep {size}",
        SizeStep.GROW: f"grow{before} to {size}",
        SizeStep.SHRINK: f"shrink{before} to {size}",
        SizeStep.BACK: f"back{before} to {size}",
        SizeStep.OVERRIDDEN: f"overridden with {size}",
        SizeStep.UNSATISFIABLE: f"no size would do; the next launch gets {size}",
    }
    return words[decision.step] + trial


def graph_of(outlook: Outlook, bounds: Bounds) -> Graph | None:
    """What is to be drawn; None where no launch has both a size and a time."""
    points = [
        Point(launch.premapped_bytes, launch.init_seconds, launch.premapped_failures > 0)
        for launch in outlook.launches
        if launch.premapped_bytes is not None and launch.init_seconds is not None
    ]
    decision = outlook.plan.decision
    return Graph(points, decision.fit, bounds.init_seconds, decision.size_bytes) if points else None


def print_short(console: Console, outlook: Outlook) -> None:
    """The decision, the first reason, the conflict, the settings."""
    decision = outlook.plan.decision
    style = "bold red" if decision.step is SizeStep.UNSATISFIABLE else "bold"
    console.line(f"{outlook.plan.workload}: {headline(decision, outlook.host)}", style=style, hang=_INDENT)
    for reason in decision.reasons[:1]:
        _print(console, reason)
    if decision.conflict:
        _print(console, decision.conflict, style="yellow")
    _print_environment(console, outlook, whys=False)


def print_explanation(console: Console, outlook: Outlook, bounds: Bounds) -> None:
    """All that the decision rests on, and all that comes of it."""
    decision = outlook.plan.decision
    style = "bold red" if decision.step is SizeStep.UNSATISFIABLE else "bold"
    console.line(f"{outlook.plan.workload}: {headline(decision, outlook.host)}", style=style, hang=_INDENT)
    for reason in decision.reasons:
        _print(console, f"- {reason}", hang=2)
    if decision.conflict:
        _print(console, f"Conflict: {decision.conflict}", hang=2, style="yellow")
    _section(console, "Launches, the newest last")
    if outlook.reset is not None:
        _print(console, f"What was launched before {format_time(outlook.reset)} is forgotten (--reset).", style="dim")
    _print_launches(console, outlook)
    _print_fit(console, outlook, bounds)
    _section(console, "Bounds")
    for line in _bounds(decision, outlook.host, bounds):
        _print(console, line, hang=2)
    _section(console, "Environment of the next launch")
    _print_environment(console, outlook, whys=True)
    if decision.advice:
        _section(console, "What would help, and tpuwatch does not do")
    for number, advice in enumerate(decision.advice, 1):
        _print(console, f"{number}. {advice.do}", hang=3)
        _print(console, advice.source, indent=2 * _INDENT, style="dim")


def print_warnings(console: Console, outlooks: Iterable[Outlook]) -> None:
    """What somebody should see to, once each."""
    for warning in dict.fromkeys(warning for outlook in outlooks for warning in outlook.warnings):
        _print(console, warning, style="yellow", indent=0)


def print_change(console: Console, change: FileChange) -> None:
    """What was done or would be done to a file, and the text that would be in it."""
    console.row(f"{change.sentence} {change.path}")
    for line in change.text.splitlines():
        console.row(f"{' ' * _INDENT}{printable(line)}", style="dim")


def print_prune(console: Console, result: PruneResult, *, dry_run: bool) -> None:
    """What `--prune-logs` removed or would remove, and what it spared."""
    for old in result.removed[:_MAX_FILES]:
        verb = "would remove" if dry_run else "removed"
        console.row(f"{verb}  {format_time(old.written)}  {format_size(old.size):>10}  {printable(old.path)}")
    if len(result.removed) > _MAX_FILES:
        console.line(f"… and {len(result.removed) - _MAX_FILES} more", style="dim")
    for old in result.spared[:_MAX_FILES]:
        console.line(f"spared {old.path}: {old.spared.value if old.spared else ''}", style="dim", hang=2)
    if len(result.spared) > _MAX_FILES:
        console.line(f"… and {len(result.spared) - _MAX_FILES} more spared", style="dim")
    for problem in result.problems:
        console.line(problem, style="yellow")
    console.line(result.summary().replace("Removed", "Would remove") if dry_run else result.summary())


def print_stored(console: Console, outlooks: Iterable[Outlook], directory: Path, *, advises: bool) -> None:
    """Whether the plans that stand give what is decided now. `advises`: a daemon is here, and writes plans alone."""
    missing = [outlook.plan.workload for outlook in outlooks if outlook.stored is None and not outlook.unusable]
    if missing:
        text = f"No plan of {listed(missing)} is in {directory} yet: --apply writes it."
        _print(console, text, indent=0, style="dim")
    for outlook in outlooks:
        if outlook.unusable:
            _print(console, f"{outlook.unusable}. --apply writes it again.", indent=0, style="yellow")
        if outlook.stored is not None and not outlook.stands:
            when = format_time(outlook.stored.decided)
            name = outlook.plan.workload
            text = f"The plan of {name} in {directory}, of {when}, gives other values: --apply writes this one."
            _print(console, text, indent=0, style="yellow")
    if advises:
        text = 'mode under [tune] is "observe": the daemon writes plans, and no environment files for services.'
        _print(console, text, indent=0, style="dim")


def print_use(console: Console, names: Sequence[str], written: Sequence[Path]) -> None:
    """How the next launch gets what was decided, through the environment files that were written too."""
    for path in written:
        console.row(f"A service gets it with EnvironmentFile=-{path}", style="dim")
    name = next((f" --workload {name}" for name in reversed(names) if name != DEFAULT_WORKLOAD), "")
    _print(console, f"The next launch gets it with `tpuwatch exec{name} -- COMMAND`.", indent=0, style="dim")


def how_it_went(launch: Launch) -> str:
    """A launch's outcome with what went wrong in it, in few words."""
    parts = [_OUTCOMES[launch.outcome]]
    if launch.cause and launch.outcome is not Outcome.SLOW:
        parts[0] += f" ({launch.cause.value})"
    if launch.premapped_failures:
        times = "once" if launch.premapped_failures == 1 else f"{launch.premapped_failures} times"
        parts.append(f"no room in the buffer {times}")
    shown = {launch.cause, Cause.PREMAPPED_EXHAUSTED, Cause.SLOW_INIT}
    others = sorted((seconds, name) for name, seconds in launch.faults.items() if Cause(name) not in shown)
    parts += [name for _, name in others[:_NAMED]]
    if launch.exit_status:
        parts.append(f"exit {launch.exit_status}")
    return ", ".join(parts)


_OUTCOMES: Final = {
    Outcome.STARTING: "is starting",
    Outcome.OK: "came up",
    Outcome.SLOW: "came up late",
    Outcome.FAILED: "failed",
    Outcome.SILENT: "silent",
    Outcome.KILLED: "ended before it was up",
}


def _print(console: Console, text: str, *, style: str = "", indent: int = _INDENT, hang: int = 0) -> None:
    console.line(text, style=style, indent=indent, hang=hang)


def _section(console: Console, title: str) -> None:
    console.line()
    console.line(title, indent=_INDENT, style="bold")


def _print_launches(console: Console, outlook: Outlook) -> None:
    launches = outlook.launches
    if not launches:
        _print(console, "They cannot be read here." if outlook.unseen else "None yet.")
        return
    if len(launches) > SHOWN:
        _print(console, f"{len(launches) - SHOWN} older ones count too: --json shows them.", style="dim")
    rows = [_row(launch) for launch in launches[-SHOWN:]]
    if console.width < TABLE_WIDTH:
        for row in rows:
            _print(console, _sentence(*row), hang=2)
        return
    heads = ("started (UTC)", "size", "up after", "need", "how it went")
    widths = [max(len(row[column]) for row in (heads, *rows)) for column in range(4)]
    margin = _INDENT + sum(widths) + 2 * len(widths)
    for number, row in enumerate((heads, *rows)):
        cells = "  ".join([f"{row[0]:<{widths[0]}}", *(f"{row[column]:>{widths[column]}}" for column in (1, 2, 3))])
        went, *rest = textwrap.wrap(row[4], max(_MIN_CELL, console.width - margin))
        console.row(f"{' ' * _INDENT}{cells}  {went}", style="" if number else "dim")
        for line in rest:
            console.row(" " * margin + line)


def _row(launch: Launch) -> tuple[str, str, str, str, str]:
    when = _when(launch.started)
    size = _UNKNOWN if launch.premapped_bytes is None else format_size(launch.premapped_bytes)
    seconds = _UNKNOWN if launch.init_seconds is None else format_seconds(launch.init_seconds)
    need = "" if launch.premapped_need_bytes is None else format_size(launch.premapped_need_bytes)
    return when, size, seconds, need, printable(how_it_went(launch))


def _when(epoch: float) -> str:
    """A time in UTC, which the column's head says, without the year: a row has little room."""
    return time.strftime("%m-%d %H:%M:%S", time.gmtime(epoch))


def _sentence(when: str, size: str, seconds: str, need: str, went: str) -> str:
    up = "" if seconds == _UNKNOWN else f", up after {seconds}"
    return f"{when}: {size}{up}{f', needed {need}' if need else ''}: {went}"


def _print_fit(console: Console, outlook: Outlook, bounds: Bounds) -> None:
    graph = graph_of(outlook, bounds)
    if graph is None:
        return
    _section(console, "Initialisation time and size")
    signs = FINE if FINE.fit_into(console.stream.encoding or "ascii") else PLAIN
    for line in draw(graph, columns=min(console.width, MAX_COLUMNS) - _INDENT, signs=signs):
        console.row(" " * _INDENT + line)
    _print(console, _fit(outlook.plan.decision.fit))


def _fit(fit: Fit | None) -> str:
    if fit is None:
        return "No fit: too few launches, or too few sizes, show how time depends on size."
    left_out = f", {fit.left_out} left out" if fit.left_out else ""
    return (
        f"Fit: {fit.base_seconds:.1f} s and {fit.per_byte_seconds * (1 << 30):.2f} s for each GiB, by {fit.launches} "
        f"launches{left_out}; half of them within {fit.spread_seconds:.1f} s of it."
    )


def _bounds(decision: SizeDecision, host: TuneHost, bounds: Bounds) -> Iterator[str]:
    yield f"Configured: {format_size(bounds.min_bytes)} to {format_size(bounds.max_bytes)}" + (
        ", powers of two." if bounds.power_of_two else "."
    )
    if host.total_bytes is None:
        yield "How much memory the host has is not known."
    else:
        share = f"{bounds.memory_share * 100:g} % of the host's {format_size(host.total_bytes)}"
        taken = f", less {format_size(host.taken_bytes)} of other launches' buffers" if host.taken_bytes else ""
        yield f"Memory: {share}{taken}."
    if decision.ceiling_bytes is not None:
        yield f"So at most {format_size(decision.ceiling_bytes)}."
    if decision.need_bytes is not None:
        yield f"Needed, as failures showed: {format_size(decision.need_bytes)}."
    if decision.fast_bytes is not None:
        limit = format_seconds(bounds.init_seconds)
        yield f"Up within {limit}, by the fit: to {format_size(decision.fast_bytes)}."


def _print_environment(console: Console, outlook: Outlook, *, whys: bool) -> None:
    """The variables as a launch from here would have them. What is set here already stays."""
    kept = {one.name: one for one in outlook.given.kept}
    for setting in outlook.plan.settings:
        own = kept.get(setting.name)
        value = own.value if own else outlook.given.set.get(setting.name, setting.value)
        console.row(f"{' ' * _INDENT}{printable(setting.name)}={printable(value)}", style="yellow" if own else "")
        if own:
            _print(console, f"It is set here already, and stays; else it would be {own.ours}.", indent=2 * _INDENT)
        elif whys:
            _print(console, setting.why, indent=2 * _INDENT, style="dim")
