"""`tpuwatch sim`: a simulated cloud and TPU VM that the real daemon can watch, and the levers to break it."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tpuwatch.cli import options
from tpuwatch.core import ConfigError, printable_lines
from tpuwatch.sim import LAUNCH_OPTIONS, LaunchScript, add_launch_arguments, run_launch

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from tpuwatch.sim import Client, Simulator

    _Steps = queue.SimpleQueue[tuple[float, str] | None]

SIGNAL_SECONDS = 0.2  # how soon one is noticed at the latest
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_SHOWN_NODES = 20
_COMMON = frozenset({"words", "command", "run", "dir", "json"})
_PLAY = frozenset({"speed", "listen", "rest", "nodes"})
_USAGE = """\
tpuwatch sim [SCENARIO | FILE] [--speed F] [--nodes N]
       tpuwatch sim list
       tpuwatch sim state
       tpuwatch sim node NAME hang | lie | preempt | maintain | vanish |
                              restore | phase=PHASE | KEY=VALUE ...
       tpuwatch sim queued-resource NAME state=STATE
       tpuwatch sim launch NAME [phase=PHASE]
       tpuwatch sim launch [--need SIZE] [--init-per-gib S] [--pace F] ...
       tpuwatch sim fault [--method NAME] [--code CODE] ...
       tpuwatch sim clear [METHOD]"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's own arguments."""
    parser.usage = _USAGE
    parser.add_argument(
        "words", nargs="*", metavar="SCENARIO", help="a name that `tpuwatch sim list` shows, a TOML file, or what to do"
    )
    parser.add_argument("--dir", type=Path, metavar="DIR", help="where it runs (default: one of this user's)")
    parser.add_argument("--json", action="store_true", help="print JSON; while it runs, one document per line")
    play = parser.add_argument_group("to run one")
    play.add_argument("--speed", type=float, metavar="F", help="seconds of its time that pass in one (default: 1)")
    play.add_argument("--listen", metavar="HOST:PORT", help="where the Cloud TPU API is served (default: 127.0.0.1:0)")
    play.add_argument("--rest", metavar="HOST:PORT", help="where it is served as REST (default: 127.0.0.1:0)")
    play.add_argument("--nodes", type=int, metavar="N", help="how many nodes the first numbered group has")
    _add_fault(parser.add_argument_group("to set a fault"))
    add_launch_arguments(
        parser.add_argument_group("to be a launch: a job that does what the TPU_* variables say, with no simulator")
    )


def _add_fault(fault: Any) -> None:
    fault.add_argument("--method", metavar="NAME", help="ListNodes, metadata, GetRuntimeMetric, ... or a pattern")
    fault.add_argument("--code", metavar="CODE", help="the gRPC code that is answered, such as UNAVAILABLE")
    fault.add_argument("--message", metavar="TEXT", help="the error's text")
    fault.add_argument("--reason", metavar="REASON", help="of ErrorInfo, such as SERVICE_DISABLED")
    fault.add_argument("--latency-seconds", type=float, metavar="S", help="how long an answer takes")
    fault.add_argument("--retry-after-seconds", type=float, metavar="S", help="when to try again")
    fault.add_argument("--black-hole", action="store_true", help="never answer")
    fault.add_argument(
        "--half-open",
        action="store_true",
        help="connections to the Cloud TPU API stay open, new ones are accepted, and nothing answers (takes no method)",
    )
    fault.add_argument("--wrong-enum", action="store_true", help="states and health that no client knows")
    fault.add_argument("--stale-seconds", type=float, metavar="S", help="show nodes and operations as they were")
    fault.add_argument(
        "--drop", nargs="+", metavar="FIELD", help="fields, or values of the metadata server, that are left out"
    )
    fault.add_argument(
        "--omit", nargs="+", metavar="NODE", help="nodes, or patterns for several, that are missing from lists"
    )
    fault.add_argument("--share", type=float, metavar="F", help="of the calls, 0 to 1")
    fault.add_argument("--times", type=int, metavar="N", help="how often it strikes")
    fault.add_argument("--for-seconds", type=float, metavar="S", help="how long it is set")
    fault.add_argument("--resource", metavar="PATTERN", help="for what is asked, such as */nodes/train-1")
    fault.add_argument("--after-work", action="store_true", help="do what was asked, and lose the answer")


def run(args: argparse.Namespace) -> int:
    """Return 0 on success; a simulator runs until it is ended by a signal."""
    word, rest = (args.words[0], args.words[1:]) if args.words else ("", [])
    given = {name: value for name, value in vars(args).items() if name not in _COMMON and _is_given(value)}
    if word == "fault":
        _only(given, frozenset(given) - _PLAY - LAUNCH_OPTIONS, "fault")
        _no_more(rest)
        return _did(args, _client(args).fault(given))
    if word == "launch" and not rest:
        _only(given, LAUNCH_OPTIONS, "launch")
        return run_launch(LaunchScript(**given), os.environ)
    if word in ("list", "state", "clear", "node", "queued-resource", "launch"):
        _only(given, frozenset(), word)
        return _command(args, word, rest)
    _only(given, _PLAY, "a scenario")
    _no_more(rest)
    return _play(args, word, **given)


def _is_given(value: object) -> bool:
    return value is not None and value is not False


def _command(args: argparse.Namespace, word: str, rest: list[str]) -> int:
    if word == "node":
        name, fields = _fields(rest, "node")
        return _did(args, _client(args).node(name, fields))
    if word == "queued-resource":
        name, fields = _fields(rest, word)
        return _did(args, _client(args).queued_resource(name, fields))
    if word == "launch":
        name, fields = _fields(rest, "launch")
        return _did(args, _client(args).launch({"launch": name, **fields}))
    if word == "clear":
        _no_more(rest[1:])
        return _did(args, _client(args).clear(*rest))
    _no_more(rest)
    return _list(args) if word == "list" else _state(args)


def _only(given: Mapping[str, object], allowed: frozenset[str], what: str) -> None:
    if wrong := [f"--{name.replace('_', '-')}" for name in given if name not in allowed]:
        raise ConfigError(f"{', '.join(wrong)} does not go with {what}; see `tpuwatch sim --help`")


def _no_more(rest: list[str]) -> None:
    if rest:
        raise ConfigError(f"{' '.join(rest)!r} is too much; see `tpuwatch sim --help`")


def _fields(rest: list[str], word: str) -> tuple[str, dict[str, Any]]:
    """The name and the action's keys: a word alone is what to do, and `phase=…` or `state=…` say it themselves."""
    if not rest:
        raise ConfigError(f"say which {word}: tpuwatch sim {word} NAME …")
    name, *more = rest
    fields: dict[str, Any] = {}
    for each in more:
        key, equals, value = each.partition("=")
        if not equals:
            key, value = "do", each
        if key in fields:
            raise ConfigError(f"{each!r} is too much; do one thing at a time")
        fields[key] = _value(value)
    if word == "node" and "do" not in fields and fields:
        fields["do"] = "workload" if {"phase", "tpuwatch", "cause"} & fields.keys() else "set"
    if word == "node" and not fields:
        raise ConfigError(f"say what {name} shall do: tpuwatch sim node {name} hang")
    return name, fields


def _value(text: str) -> str | int | float:
    """A number where it is one."""
    if text.removeprefix("-").isdecimal():
        return int(text)
    try:
        return float(text)
    except ValueError:
        return text


def _client(args: argparse.Namespace) -> Client:
    from tpuwatch.sim import Client

    return Client(_directory(args))


def _directory(args: argparse.Namespace) -> Path:
    from tpuwatch.sim import default_directory

    return args.dir.absolute() if args.dir else default_directory(os.environ)


def _did(args: argparse.Namespace, done: str) -> int:
    if args.json:
        options.print_json({"done": done})
    else:
        print(printable_lines(done))
    return 0


def _list(args: argparse.Namespace) -> int:
    from tpuwatch.sim import built_in_scenarios, load_scenario
    from tpuwatch.terminal import Console

    found = {name: load_scenario(name) for name in built_in_scenarios()}
    if args.json:
        options.print_json([{"name": name, "title": one.title, "text": one.text} for name, one in found.items()])
        return 0
    console = Console(sys.stdout)
    for name, one in found.items():
        console.line(f"{name:18}{one.title}", hang=18)
    return 0


def _state(args: argparse.Namespace) -> int:
    from tpuwatch.sim import print_state
    from tpuwatch.terminal import Console

    state = _client(args).state()
    if args.json:
        options.print_json(state)
    else:
        print_state(Console(sys.stdout), state, _SHOWN_NODES)
    return 0


def _play(
    args: argparse.Namespace,
    name: str,
    *,
    speed: float = 1.0,
    listen: str = "127.0.0.1:0",
    rest: str = "127.0.0.1:0",
    nodes: int | None = None,
) -> int:
    from tpuwatch.sim import DEFAULT_SCENARIO, Simulator, SimulatorDirectory, load_scenario

    scenario = load_scenario(name or DEFAULT_SCENARIO)
    if nodes is not None:
        scenario = scenario.with_nodes(nodes)
    if not 0.001 <= speed <= 10_000:
        raise ConfigError(f"--speed cannot be {speed:g}; give a number from 0.001 to 10000")
    steps: _Steps = queue.SimpleQueue()
    with (
        SimulatorDirectory(_directory(args)) as directory,
        Simulator(
            scenario, directory, speed=speed, listen=_address("listen", listen), rest=_address("rest", rest)
        ) as simulator,
    ):
        # SimpleQueue is reentrant: a signal handler may add to it while its thread reads from it.
        for number in SIGNALS:
            signal.signal(number, lambda *_: steps.put(None))
        simulator.start(lambda at, what: steps.put((at, what)))
        _print_steps(args, simulator, steps)
    return 0


def _address(option: str, text: str) -> tuple[str, int]:
    from tpuwatch.config import split_listen

    try:
        return split_listen(text)
    except ValueError as error:
        raise ConfigError(f"--{option} cannot be {text!r}; give HOST:PORT, such as 127.0.0.1:0") from error


def _print_steps(args: argparse.Namespace, simulator: Simulator, steps: _Steps) -> None:
    from tpuwatch.sim import print_start, print_step
    from tpuwatch.terminal import Console

    console = Console(sys.stdout)
    if args.json:
        options.print_json(simulator.info(), indent=None)
    else:
        print_start(console, simulator.info(), simulator.directory.path, own_directory=args.dir is not None)
    while (step := _next(steps)) is not None:
        if args.json:
            options.print_json({"at": step[0], "happened": step[1]}, indent=None)
        else:
            print_step(console, *step)


def _next(steps: _Steps) -> tuple[float, str] | None:
    """The next step, or None when a signal has come. One that another thread took wakes nobody: so look for it."""
    while True:
        with contextlib.suppress(queue.Empty):
            return steps.get(timeout=SIGNAL_SECONDS)
