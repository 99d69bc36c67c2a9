"""Matches that count only if something else is said later in the stream."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tpuwatch.logs.parse.match import Match, match_from_state, match_to_state

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping

    from tpuwatch.logs.rules.catalogue import Rule

_MOST: Final = 8  # matches of a stream that may wait at the same time


@dataclass(slots=True)
class _Tentative:
    """A match that counts only if its rule's `confirm` comes before its `clear`."""

    match: Match
    scanned: int  # offset in the stream up to which neither was found


class TentativeMatches:
    """Those of one stream that are not decided yet."""

    def __init__(self, saved: Iterable[Mapping[str, Any]], rules: Iterable[Rule]) -> None:
        """`saved`: what `state` returned."""
        known = {rule.id: rule for rule in rules} if saved else {}
        self._waiting = [_from_state(one, known[one["rule"]]) for one in saved if one["rule"] in known]

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, match: Match, scanned: int) -> None:
        """Wait for what decides a match; below the offset `scanned` it is not."""
        self._waiting = [*self._waiting[1 - _MOST :], _Tentative(match, scanned)]

    def give_way(self, names: Container[str]) -> None:
        """Drop those of these names: a certain match makes a tentative one unnecessary."""
        self._waiting = [one for one in self._waiting if one.match.rule.name not in names]

    def resolve(self, data: bytes, offset: int, upto: int) -> list[Match]:
        """Decide by the text below position `upto` of `data`, which begins at `offset`; those that are confirmed."""
        confirmed, waiting = list[Match](), list[_Tentative]()
        for one in self._waiting:
            tentative = one.match.rule.tentative
            start = max(one.scanned - offset, 0)
            if tentative is None or start >= upto:
                waiting.append(one)
                continue
            if tentative.is_cleared(data, start, upto):
                continue
            if data.find(tentative.confirm, start, upto) >= 0:
                confirmed.append(one.match)
            else:
                one.scanned = offset + upto
                waiting.append(one)
        self._waiting = waiting
        return confirmed

    def state(self) -> list[dict[str, Any]]:
        """What must be known to go on, in JSON types."""
        return [_to_state(one) for one in self._waiting]


def _to_state(one: _Tentative) -> dict[str, Any]:
    return {**match_to_state(one.match), "scanned": one.scanned}


def _from_state(saved: Mapping[str, Any], rule: Rule) -> _Tentative:
    return _Tentative(match_from_state(saved, rule), saved["scanned"])
