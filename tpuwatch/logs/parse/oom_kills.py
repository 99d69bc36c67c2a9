"""Joins what the kernel and systemd write of one out-of-memory kill into one match.

The kernel's report names the limit first, then the killed process with its cgroups, then what the process held. Rules
match each of these lines by itself, and other lines may stand between them.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import astuple, dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from tpuwatch.logs.parse.match import Match, match_from_state, match_to_state

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from tpuwatch.logs.rules.catalogue import Rule

_GAP: Final = 256 * 1024  # bytes of others between two lines of one report, which may list thousands of processes
_MAX_KEPT: Final = 32  # kills, and limits, of a stream
_MAX_WAITING: Final = 8
_UNLIMITED: Final = 1 << 50  # bytes: of a cgroup without a limit the kernel writes more
_KEY_BYTES: Final = 16
# The lines of a report, in their order. Those of _WAITS wait for the one that says more.
_BEGUN, _TASK, _CHOSEN, _KILLED, _REAPED, _UNIT = "begun", "task", "chosen", "killed", "reaped", "unit"
_LINES: Final = (
    (_BEGUN, "invoked oom-killer"),
    (_TASK, "oom-kill:constraint="),
    (_KILLED, "Killed process "),
    (_CHOSEN, "Kill process "),
    (_REAPED, "oom_reaper: reaped process"),
)
_WAITS: Final = (_TASK, _CHOSEN)
_OF_CGROUP: Final = ("constraint=CONSTRAINT_MEMCG", "emory cgroup out of memory")
_WRITER: Final = re.compile(r"\s*(?:kernel|systemd(?:\[\d+\])?):\s*$")  # after the machine, in the author of a line
_CONTENT: Final = re.compile(r"(?:oom-kill:|Kill(?:ed)? process|oom_reaper:).*")  # without the prefixes of a log


@dataclass(slots=True)
class _Kill:
    """A kill that was reported."""

    key: str  # of its match
    host: str
    offset: int  # in the stream, of its last line
    pid: int | None
    unit: str
    lines: list[str]


@dataclass(slots=True)
class _Limit:
    """The limit of a cgroup; what was killed for it is still to come."""

    host: str
    offset: int
    limit_bytes: int
    cgroup: str  # empty where it is not known


@dataclass(slots=True)
class _Waiting:
    """A match that waits for the next line of its report."""

    line: str
    host: str
    match: Match


class OomKills:
    """The kills of one stream. It may mix reports of several machines, if a prefix of each line names the machine."""

    def __init__(self, state: Mapping[str, Any], rules: Iterable[Rule]) -> None:
        """`state`: what `state` returned."""
        known = {rule.id: rule for rule in rules if rule.kill} if state else {}
        self._kills = [_Kill(*saved) for saved in state.get("kills", ())]
        self._limits = [_Limit(*saved) for saved in state.get("limits", ())]
        self._waiting = [
            _Waiting(line, host, match_from_state(saved, known[saved["rule"]]))
            for line, host, saved in state.get("waiting", ())
            if saved["rule"] in known
        ]

    @property
    def open(self) -> bool:
        """Whether a match waits that `settle` returns."""
        return any(one.line in _WAITS for one in self._waiting)

    def take(self, match: Match) -> list[Match]:
        """The matches that are certain with this one, of a rule with `kill`."""
        # A record without a header may hold the lines of several kills. Only the match's own lines count.
        match = replace(match, details=match.rule.details(match.text.encode()))
        host = _WRITER.sub("", match.author)
        self._forget(match.offset)
        if match.rule.cause is None:
            self._note_limit(host, match)
            return [match]
        line = next((name for name, text in _LINES if text in match.text), _UNIT)
        if line == _UNIT:
            return [self._of_unit(host, match)]
        return self._wait(line, host, match) if line == _BEGUN else self._of_process(line, host, match)

    def settle(self, *, ended: bool) -> list[Match]:
        """The stream is quiet: the matches that wait. `ended`: a report without a process will not name one."""
        return self._taken(lambda one: ended or one.line in _WAITS)

    def state(self) -> dict[str, Any]:
        """What must be known to go on, in JSON types; empty where nothing is."""
        if not (self._kills or self._limits or self._waiting):
            return {}
        return {
            "kills": [list(astuple(one)) for one in self._kills],
            "limits": [list(astuple(one)) for one in self._limits],
            "waiting": [[one.line, one.host, match_to_state(one.match)] for one in self._waiting],
        }

    def _of_process(self, line: str, host: str, match: Match) -> list[Match]:
        """What comes of a line that names the process."""
        pid = match.details.get("killed_pid")
        waiting: list[Match] = []
        if line == _KILLED:  # what was chosen before is that one, or the kernel killed its child instead
            waiting = self._taken(
                lambda one: (
                    one.host == host
                    and (one.line == _CHOSEN or (one.line == _TASK and one.match.details.get("killed_pid") == pid))
                )
            )
        kill = next((one for one in reversed(self._kills) if (one.host, one.pid) == (host, pid)), None)
        if kill is None or line in kill.lines:
            begun = next((one for one in self._waiting if (one.line, one.host) == (_BEGUN, host)), None)
            self._taken(lambda one: one is begun)  # this is the process of its report
            match = replace(match, key=_key(match), details={**self._limit_of(host, match), **match.details})
            kill = _Kill(match.key.hex(), host, match.offset, pid, str(match.details.get("unit", "")), [line])
            self._kills.append(kill)
            return self._wait(line, host, match) if line in _WAITS else [match]
        kill.lines.append(line)
        kill.offset = match.offset
        first = next((one for one in waiting if one.key.hex() == kill.key), None)
        if first is None:
            return [replace(match, key=bytes.fromhex(kill.key), again=True)]
        joined = replace(
            first,
            text=f"{match.text}\n{first.text}",
            details={**match.details, **first.details},
            key=_key(match),  # a copy of the report may have this line alone
        )
        kill.key = joined.key.hex()
        return [joined]

    def _of_unit(self, host: str, match: Match) -> Match:
        """What comes of a line of systemd's: it may be on a kill that the kernel has reported."""
        unit = str(match.details.get("unit", ""))
        kill = next((one for one in reversed(self._kills) if unit and (one.host, one.unit) == (host, unit)), None)
        if kill is None:
            self._kills.append(_Kill(match.key.hex(), host, match.offset, None, unit, []))
            return match
        kill.offset = match.offset
        return replace(match, key=bytes.fromhex(kill.key), again=True)

    def _note_limit(self, host: str, match: Match) -> None:
        """Keep a limit, or the cgroup that it is of, which is named after it."""
        limit, cgroup = match.details.get("limit_bytes"), match.details.get("limit_cgroup")
        if limit is not None and limit < _UNLIMITED:
            self._limits.append(_Limit(host, match.offset, limit, ""))
        last = next((one for one in reversed(self._limits) if one.host == host), None)
        if cgroup and last is not None and not last.cgroup:
            last.cgroup = cgroup

    def _limit_of(self, host: str, match: Match) -> dict[str, int]:
        """The limit for which the kernel killed, if it is certain which of those before it that is."""
        if not any(text in match.text for text in _OF_CGROUP):
            return {}
        cgroup = match.details.get("limit_cgroup")
        limits = [one for one in self._limits if one.host == host]
        if any(one.cgroup for one in limits) and cgroup:
            limits = [one for one in limits if one.cgroup == cgroup]
        if len(limits) != 1:
            return {}
        self._limits.remove(limits[0])
        return {"limit_bytes": limits[0].limit_bytes}

    def _wait(self, line: str, host: str, match: Match) -> list[Match]:
        """Have a match wait; the one that has waited longest, if there are too many."""
        self._waiting.append(_Waiting(line, host, match))
        return [self._waiting.pop(0).match] if len(self._waiting) > _MAX_WAITING else []

    def _taken(self, which: Callable[[_Waiting], bool]) -> list[Match]:
        taken = [one for one in self._waiting if which(one)]
        self._waiting = [one for one in self._waiting if one not in taken]
        return [one.match for one in taken]

    def _forget(self, offset: int) -> None:
        self._kills = [one for one in self._kills if offset - one.offset <= _GAP][-_MAX_KEPT:]
        self._limits = [one for one in self._limits if offset - one.offset <= _GAP][-_MAX_KEPT:]


def _key(match: Match) -> bytes:
    """A key that is equal for each copy of a line, whatever the prefixes are: syslog and kern.log have the same."""
    found = _CONTENT.search(match.text)
    content = (found.group() if found is not None else match.text).rstrip()
    return hashlib.blake2b(content.encode("utf-8", "replace"), digest_size=_KEY_BYTES).digest()
