"""The fast pass: finds the literals of all rules in a block of bytes.

Hyperscan searches for all literals at once, at several gigabytes a second, whatever the text is. Its hits are
candidates: the parser frames the record around each, and the rule's own patterns decide.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import hyperscan

if TYPE_CHECKING:
    from tpuwatch.logs.rules.catalogue import Catalogue, Rule


class Scanner:
    """The compiled literals of a catalogue, for all parsers of one thread: they share Hyperscan's scratch space."""

    def __init__(self, catalogue: Catalogue) -> None:
        self.catalogue = catalogue
        rules: dict[tuple[bytes, bool], list[Rule]] = {}
        for rule in catalogue.rules:
            for anchor in rule.anchors:
                rules.setdefault((anchor.literal, anchor.ignore_case), []).append(rule)
        self.rules: list[tuple[Rule, ...]] = [tuple(found) for found in rules.values()]
        self.lengths: list[int] = [len(literal) for literal, _ in rules]
        self._database = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK) if rules else None
        if self._database is not None:
            self._database.compile(
                expressions=[literal for literal, _ in rules],
                ids=list(range(len(rules))),
                elements=len(rules),
                flags=[hyperscan.HS_FLAG_CASELESS if ignore_case else 0 for _, ignore_case in rules],
                literal=True,
            )

    def scan(self, block: bytes) -> list[tuple[int, int]]:
        """Each literal found, as (offset of its end, index into `rules`), in order of the offset."""
        hits: list[tuple[int, int]] = []
        if self._database is None:
            return hits
        append = hits.append

        def found(index: int, _start: int, end: int, _flags: int, _context: object) -> None:
            append((end, index))

        self._database.scan(block, match_event_handler=found)
        return hits

    def literals_of(self, rule: Rule) -> set[int]:
        """The indices of the literals that belong to this rule only."""
        return {index for index, called in enumerate(self.rules) if called == (rule,)}
