"""The catalogue of rules that recognise records of logs, loaded from TOML files.

The built-in rules are in `rules/`, one file per family of causes; users add their own in directories named in the
configuration. A bad rule is refused by name and the others load. Patterns are RE2's, compiled on first use.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import re2
import tomli

from tpuwatch.core import RuleError, other_author
from tpuwatch.logs.rules.literals import MIN_BYTES, Anchor, weak
from tpuwatch.logs.rules.marks import CHAIN_MARKS, HARMLESS
from tpuwatch.logs.rules.rule import MACROS, RemedyRule, Rule, Tentative, compiled
from tpuwatch.logs.rules.rule_literals import PatternError, rule_literals
from tpuwatch.model import Cause, Remedy

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

__all__ = [
    "BUILT_IN",
    "Anchor",
    "Catalogue",
    "Rule",
    "Tentative",
    "for_outputs",
    "for_streams",
    "load_catalogue",
    "with_threshold",
]

BUILT_IN = Path(__file__).parent

_TYPES: dict[str, type] = {
    "id": str,
    "cause": str,
    "mark": str,
    "summary": str,
    "match": list,
    "unless": list,
    "severity": str,
    "capture": list,
    "each": list,
    "report": bool,
    "tentative": dict,
    "above": dict,
    "recovers": bool,
    "continues": bool,
    "kill": bool,
    "enough": int,
    "cleared_by": str,
    "rank": int,
    "any_program": bool,
    "general": bool,
    "whole_text": bool,
    "prose": bool,
    "remedy": list,
    "examples": list,
    "expected": list,
    "counterexamples": list,
}
_TYPE_NAMES = {str: "a string", list: "a list", bool: "true or false", dict: "a table", int: "a whole number"}
_PATTERNS = ("match", "unless", "capture")
_STRINGS = (*_PATTERNS, "each", "examples", "counterexamples")
_MACRO = re.compile("|".join(map(re.escape, MACROS)))
_FAULTS = {cause.value: cause for cause in Cause if cause.is_fault}
_ID = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")


@dataclass(frozen=True, slots=True)
class Catalogue:
    """The loaded rules, the errors of those that were refused, and a sentence on each user's rule that costs time."""

    rules: tuple[Rule, ...]
    refused: tuple[RuleError, ...] = ()
    slow: tuple[str, ...] = ()
    _by_id: dict[str, Rule] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_by_id", {rule.id: rule for rule in self.rules})

    def rule(self, id: str) -> Rule:  # noqa: A002 - the name of a rule is its id everywhere
        """The rule with that id. Raises KeyError if there is none."""
        return self._by_id[id]


def with_threshold(catalogue: Catalogue, cause: Cause, detail: str, minimum: float) -> Catalogue:
    """The catalogue with another threshold for a detail, in those rules of a cause that have one for it."""

    def changed(rule: Rule) -> Rule:
        if rule.cause is not cause or rule.above is None or detail not in rule.above:
            return rule
        return replace(rule, above={**rule.above, detail: minimum})

    return Catalogue(tuple(map(changed, catalogue.rules)), catalogue.refused, catalogue.slow)


def for_streams(catalogue: Catalogue, marks: Collection[str]) -> Catalogue:
    """The rules for logs of libtpu that grow: only these marks, as each hit of a literal costs time, and no general
    rule, as libtpu says exactly what failed.

    The marks that the parser itself needs are kept, and facts of a stream that clear a rule.
    """
    return _growing(catalogue, marks, [rule for rule in catalogue.rules if not rule.general])


def for_outputs(catalogue: Catalogue, marks: Collection[str]) -> Catalogue:
    """The rules for jobs' output that grows: as for libtpu's logs, and the general rules that need no whole text."""
    return _growing(catalogue, marks, [rule for rule in catalogue.rules if not rule.whole_text])


def _growing(catalogue: Catalogue, marks: Collection[str], rules: Collection[Rule]) -> Catalogue:
    cleared_by = {rule.cleared_by for rule in rules}
    clear = (rule.mark for rule in rules if rule.enough == 1 and rule.mark in cleared_by)
    kept = {None, *marks, *CHAIN_MARKS, *clear, *(rule.mark for rule in rules if rule.kill)}
    return Catalogue(tuple(rule for rule in rules if rule.mark in kept), catalogue.refused, catalogue.slow)


def for_programs(catalogue: Catalogue) -> Catalogue:
    """The rules for what programs print: none for what people write, whose words are in many lines of a log."""
    rules = (rule for rule in catalogue.rules if not rule.prose)
    return Catalogue(tuple(rules), catalogue.refused, catalogue.slow)


def load_catalogue(user_dirs: Iterable[Path] = ()) -> Catalogue:
    """The built-in rules, then the `*.toml` of the user's directories; a rule replaces an earlier one of the same id.

    Rules of users are run on their own examples when they are loaded, built-in rules in the project's tests. A file
    that others than root and this user can change is refused.
    """
    rules: dict[str, Rule] = {}
    refused: list[RuleError] = []
    slow: dict[str, str] = {}  # by the rules' ids
    for path in sorted(BUILT_IN.glob("*.toml")):
        _load_file(path, rules, refused, check=None)
    for directory in user_dirs:
        try:
            paths = sorted(path for path in Path(directory).iterdir() if path.suffix == ".toml")
        except OSError as error:
            reason = f"cannot list the rules ({error.strerror})"
            refused.append(RuleError(f"{directory}: {reason}; fix the directory or remove it from the configuration"))
            continue
        for path in paths:
            if changed := other_author(path):
                fix = f"look at what is in it, then `chown root {path}` and `chmod go-w {path}`, or remove it"
                refused.append(RuleError(f"{path}: {changed}, and its remedies are shown as commands; {fix}"))
                continue
            for rule in _load_file(path, rules, refused, _run_examples):
                slow[rule.id] = _slowness(path, rule)
    return Catalogue(tuple(_giving_way(rules.values())), tuple(refused), tuple(filter(None, slow.values())))


def _giving_way(rules: Iterable[Rule]) -> Iterator[Rule]:
    """The rules, each of a higher rank with those of its cause that rank before it, the general with what is harmless,
    and any program's with what they are where no TPU is named.
    """
    rules = list(rules)
    harmless = tuple(rule for rule in rules if rule.mark == HARMLESS)
    unknown = tuple(rule for rule in rules if rule.cause is Cause.UNKNOWN_FAILURE and not rule.prose)
    by_cause: dict[Cause | None, list[Rule]] = {}
    for rule in rules:
        by_cause.setdefault(rule.cause, []).append(rule)
    for rule in rules:
        better = harmless if rule.general else ()
        if rule.cause is not None and rule.rank > 0:
            before = (other for other in by_cause[rule.cause] if other.rank < rule.rank and not other.tentative)
            better = (*before, *better)
        others = unknown if rule.any_program and rule not in unknown else ()
        yield replace(rule, better=better, otherwise=others) if better or others else rule


def _load_file(
    path: Path, rules: dict[str, Rule], refused: list[RuleError], check: Callable[[Rule], None] | None
) -> Iterable[Rule]:
    """Add the file's valid rules to `rules` and the errors of the others to `refused`; the valid ones."""
    try:
        tables = _tables(tomli.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        refused.append(RuleError(f"{path}: cannot be read ({error.strerror}); make it readable or remove it"))
        return ()
    except (ValueError, RecursionError) as error:  # bad TOML, bad UTF-8, no rules, or too deeply nested
        refused.append(RuleError(f"{path}: {error}; fix the file, none of its rules is loaded"))
        return ()
    loaded: dict[str, Rule] = {}
    for number, table in enumerate(tables, start=1):
        name = table.get("id") if isinstance(table.get("id"), str) else f"number {number}"
        try:
            rule = _rule(table, path.stem, taken=loaded)
            if check is not None:
                check(rule)
        except _FaultError as fault:
            refused.append(RuleError(f"{path}: rule {name}: {fault}"))
        else:
            loaded[rule.id] = rule
    rules.update(loaded)
    return loaded.values()


def _slowness(path: Path, rule: Rule) -> str:
    """What to do where the fixed texts by which the rule is looked for are in many lines of a training log."""
    texts = weak(rule.anchors)
    if not texts:
        return ""
    return (
        f"{path}: rule {rule.id}: it is looked for by {' and '.join(map(repr, texts))}, which stands in many lines "
        "of a training log, and slows the reading of such logs; match a longer text that is rare in them"
    )


class _FaultError(Exception):
    """An error in one rule, with what to do."""


def _tables(document: dict[str, Any]) -> list[dict[str, Any]]:
    tables = document.pop("rule", [])
    if document or not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise ValueError("a file of rules holds [[rule]] tables and nothing else")
    return tables


def _rule(table: Mapping[str, Any], family: str, taken: Mapping[str, Rule]) -> Rule:
    _check_keys(table, _TYPES)
    for key in ("id", "summary", "match"):
        if not table.get(key):
            raise _FaultError(f"it has no {key!r}; add one")
    if not _ID.fullmatch(table["id"]):
        raise _FaultError("its id must be lower-case words joined by '-'")
    if table["id"] in taken:
        raise _FaultError("its id is used twice in this file; give each rule its own id")
    patterns = {key: tuple(_expanded(text) for text in table.get(key, ())) for key in _PATTERNS}
    cause = _cause(table)
    return Rule(
        id=table["id"],
        cause=cause,
        mark=table.get("mark"),
        summary=table["summary"],
        match=patterns["match"],
        unless=patterns["unless"],
        capture=patterns["capture"],
        anchors=_anchors(table["id"], patterns, whole=cause is None or table.get("report", False)),
        severities=_severities(table.get("severity", "")),
        each=tuple(table.get("each", ())),
        report=table.get("report", False),
        tentative=_tentative(table.get("tentative")),
        above=_thresholds(table.get("above")),
        recovers=table.get("recovers", cause is not None and cause.row.recovers),
        continues=table.get("continues", False),
        kill=table.get("kill", False),
        enough=table.get("enough", 0),
        cleared_by=table.get("cleared_by"),
        rank=table.get("rank", 0),
        any_program=any(table.get(key, False) for key in ("any_program", "general", "whole_text", "prose")),
        general=any(table.get(key, False) for key in ("general", "whole_text", "prose")),
        whole_text=any(table.get(key, False) for key in ("whole_text", "prose")),
        prose=table.get("prose", False),
        steps=tuple(_steps(table.get("remedy", ()))),
        examples=tuple(table.get("examples", ())),
        expected=_expected(table),
        counterexamples=tuple(table.get("counterexamples", ())),
        family=family,
    )


def _check_keys(table: Mapping[str, Any], types: Mapping[str, type]) -> None:
    for key, value in table.items():
        if key not in types:
            known = f"known are {', '.join(types)}"
            raise _FaultError(f"unknown key {key!r}; {_nearest(key, types, known)}")
        if type(value) is not types[key]:
            raise _FaultError(f"{key!r} must be {_TYPE_NAMES[types[key]]}")
        if isinstance(value, list) and key in _STRINGS and not all(isinstance(item, str) for item in value):
            raise _FaultError(f"{key!r} must be a list of strings")


def _cause(table: Mapping[str, Any]) -> Cause | None:
    if ("cause" in table) == ("mark" in table):
        raise _FaultError("it needs either 'cause' (a fault) or 'mark' (a fact), and not both")
    if "mark" in table:
        return None
    if table["cause"] not in _FAULTS:
        hint = _nearest(table["cause"], _FAULTS, "see the list of causes in the documentation")
        raise _FaultError(f"unknown cause {table['cause']!r}; {hint}")
    return _FAULTS[table["cause"]]


def _nearest(word: str, known: Iterable[str], otherwise: str) -> str:
    """The known word that may have been meant, as a hint."""
    import difflib

    near = difflib.get_close_matches(word, known, n=1)
    return f"did you mean {near[0]!r}?" if near else otherwise


def _expanded(pattern: str) -> str:
    return _MACRO.sub(lambda match: MACROS[match[0]], pattern)


def _anchors(name: str, patterns: Mapping[str, tuple[str, ...]], *, whole: bool) -> tuple[Anchor, ...]:
    try:
        return rule_literals(name, patterns["match"], patterns["unless"], whole=whole)
    except PatternError as error:
        raise _FaultError(str(error)) from None


def _severities(letters: str) -> frozenset[str]:
    if not set(letters) <= set("IWEF"):
        raise _FaultError(f"'severity' is {letters!r}; use letters of I, W, E and F")
    return frozenset(letters)


def _tentative(table: Mapping[str, Any] | None) -> Tentative | None:
    if table is None:
        return None
    _check_keys(table, {"confirm": str, "clear": str})
    if not all(len(table.get(key, "")) >= MIN_BYTES for key in ("confirm", "clear")):
        raise _FaultError(f"'tentative' needs 'confirm' and 'clear', each a fixed text of at least {MIN_BYTES} bytes")
    return Tentative(table["confirm"].encode(), table["clear"].encode())


def _expected(table: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    expected, examples = table.get("expected", ()), table.get("examples", ())
    if not all(isinstance(details, dict) for details in expected):
        raise _FaultError("'expected' must be a list of tables of details, one for each example")
    if len(expected) > len(examples):
        raise _FaultError(f"'expected' has {len(expected)} tables for {len(examples)} examples; give one for each")
    return tuple(expected)


def _thresholds(table: Mapping[str, Any] | None) -> dict[str, float]:
    if table is not None and not all(type(value) in (int, float) for value in table.values()):
        raise _FaultError("'above' must give a number for each detail")
    return dict(table or {})


def _steps(tables: Iterable[object]) -> Iterator[RemedyRule]:
    for table in tables:
        if not isinstance(table, dict):
            raise _FaultError("'remedy' must be a list of tables with 'do' and 'source'")
        _check_keys(table, {"do": str, "source": str, "above": dict})
        if not table.get("do"):
            raise _FaultError("a step of its 'remedy' has no 'do'; say what to do")
        yield RemedyRule(Remedy(table["do"], table.get("source", "")), _thresholds(table.get("above")))


def _run_examples(rule: Rule) -> None:
    """Compile a rule and run its examples. Not done for built-in rules: it would cost a second at every start."""
    try:
        for pattern in (*rule.match, *rule.unless, *rule.capture):
            compiled(pattern)
    except re2.error as error:
        reason = error.args[0].decode("utf-8", "replace") if isinstance(error.args[0], bytes) else error
        raise _FaultError(f"its pattern is not valid for RE2: {reason}") from None
    for text in rule.examples:
        if rule.search(text.encode()) is None:
            raise _FaultError(f"it does not recognise its own example {text[:60]!r}; fix the pattern or the example")
    for text, expected in zip(rule.examples, rule.expected, strict=False):
        details = rule.details(text.encode())
        for name, value in expected.items():
            if details.get(name) != value:
                fault = f"gives {name} = {details.get(name)!r} and not {value!r} for its example {text[:60]!r}"
                raise _FaultError(f"it {fault}; fix the capture or what is expected")
    for text in rule.counterexamples:
        if rule.search(text.encode()) is not None:
            raise _FaultError(f"it recognises its own counterexample {text[:60]!r}; narrow the pattern")
