"""Where faults were found in a stream that text after them only continues. Places are offsets in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tpuwatch.logs.rules.catalogue import Rule

_GAP: Final = 64 * 1024  # bytes that other streams may put between the parts of one report


class Reports:
    """The last report of each cause, and the last header that it was found under."""

    def __init__(self, state: Mapping[str, Any]) -> None:
        """`state`: what `state` returned."""
        self._upto: dict[str, int] = {}  # by cause: the place up to which unframed text is reported
        self._under: dict[str, int] = dict(state.get("under", {}))
        self._ended: dict[str, int] = dict(state.get("ended", {}))

    def state(self, place: int) -> dict[str, Any]:
        """What must be known to go on from a place, in JSON types."""
        ended = {name: stop for name, stop in self._ended.items() if stop > place}
        under = {name: start for name, start in self._under.items() if start >= place}
        return {name: some for name, some in (("ended", ended), ("under", under)) if some}

    def may_continue(self, rule: Rule, place: int) -> bool:
        """Whether what a rule matches there may be a part of the last report."""
        return rule.continues and place <= self._ended.get(rule.name, -1)

    def continues(self, rules: Iterable[Rule], place: int) -> bool:
        """Whether what these rules match there is no more than a part of the last report, which goes on so."""
        if not all(self.may_continue(rule, place) for rule in rules):
            return False
        for rule in rules:
            self.end(rule.name, place)
        return True

    def end(self, name: str, stop: int) -> None:
        """A report of a cause has ended there."""
        self._ended[name] = stop + _GAP

    def is_reported(self, name: str, place: int) -> bool:
        """Whether a match of unframed text has the cause for its text up to beyond a place."""
        return place < self._upto.get(name, 0)

    def report(self, name: str, upto: int) -> None:
        """A match of unframed text has the cause for its text up to there."""
        self._upto[name] = upto

    def last_header(self, rules: Iterable[Rule]) -> int:
        """The place of the last header that a cause of these rules was found under; -1 if there is none."""
        return max(self._under.get(rule.name, -1) for rule in rules)

    def is_first_under(self, rule: Rule, place: int) -> bool:
        """Whether the cause has not been found under the header there before; it has now, if that is certain."""
        before = self._under.get(rule.name)
        if rule.tentative is None:
            self._under[rule.name] = place
        return before != place
