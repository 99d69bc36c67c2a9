"""Of which rules a stream has enough matches, so that they are not looked for."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tpuwatch.logs.parse.scan import Scanner
    from tpuwatch.logs.rules.catalogue import Rule


class Enough:
    """Facts of a stream are looked for until they are known, and other marks until the next fault."""

    def __init__(self, scanner: Scanner, *, of_process: bool) -> None:
        """`of_process`: the stream is one process's file of libtpu's, which says of it once what a process says."""
        self._scanner = scanner
        self._of_process = of_process
        self._matched: Counter[Rule] = Counter()  # since the last fault
        # What exceptions are recognised by libtpu does not write.
        self.rules: set[Rule] = {*scanner.chain_marks} if of_process else set()
        self.ignored = frozenset(self.rules)  # those that the last bytes are not searched for

    def begin(self) -> None:
        """Other bytes have come."""
        self.ignored = frozenset(self.rules)

    @property
    def ignores_too_much(self) -> bool:
        """Whether a rule is ignored that is looked for again since a fault."""
        return not self.ignored <= self.rules

    def count(self, rules: Iterable[Rule]) -> None:
        """Take matches of these."""
        for rule in rules:
            if rule.cause is not None:
                self._matched.clear()
                self.rules &= self._scanner.settled
            elif number := 1 if self._of_process and rule in self._scanner.of_process else rule.enough:
                self._matched[rule] += 1
                if self._matched[rule] >= number:
                    self.rules.add(rule)
                    self.rules |= self._scanner.clears.get(rule, frozenset())
