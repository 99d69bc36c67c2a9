"""One rule of the catalogue: what it matches, which details it captures, and its summary and remedy."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, Final

import re2

from tpuwatch.core import format_seconds, format_size, is_possible, listed, parse_seconds, parse_size
from tpuwatch.logs.rules import frameworks, memory_report
from tpuwatch.logs.rules.literals import anchors
from tpuwatch.model import MAX_VALUES, Cause, CauseConfidence, Remedy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from tpuwatch.logs.rules.literals import Anchor

_NUMBER = r"[0-9]+(?:\.[0-9]+)?"
_MACHINE = "VMs?|nodes?|pods?|slices?|workers?|hosts?|machines?|chips?|devices?|cores?|runtimes?|clusters?|instances?"
_PROGRAM = (
    r"(?:pre-?)?training|trainer|pipelines?|process(?:es)?|programs?|jobs?|codes?|scripts?|runs?|commands?|notebooks?|kernel|model|examples?"
    r"|cells?|sessions?|server|engine|calls?|functions?|methods?|xmp\.spawn|spawn|fit|initiali[sz]ation|compil\w+|evaluation|loop|step|tasks?"
    r"|screen|progress|operation|execution|inference|tests?|checkpoint\w*|saving|loading|backend"
)
_ROW = r"(?m:^)[ \t>|]{0,8}[a-z][a-z0-9-]{0,62}[ |]+[a-z]+-[a-z]+[0-9]{1,2}-[a-z][ |]+"
_TYPE = r"(?:v[2-9][a-z]*|tpu[0-9]+x)-[0-9]+\b"
_LINES = r"[^\n]*\n(?:[^\n]*\n){0,36}?[ \t]*"
_NAMED = r"[\x27\"]?name[\x27\"]?: [\x27\"]?projects/[\w:.-]+/locations/[\w-]+"
# Macros that patterns may use.
MACROS = {
    "{SIZE}": r"(?:0x[0-9a-fA-F]+|[0-9][0-9,]*(?:\.[0-9]+)?(?:\s?(?:[KMGTPkm]i?B?|[Bb]ytes|B)\b)?)",
    "{SECONDS}": rf"(?:(?:{_NUMBER}(?:ns|us|ms|h|m|s))+\b|{_NUMBER}(?:\s?(?:hours?|minutes?|mins?|seconds?|secs?)\b)?)",
    "{COUNT}": r"[0-9][0-9,]*",
    # What stands where a number was printed that is none, with what is before and after it: `loss` is in each line.
    "{NAN}": r"[- \t=:(\x27\"`](?:nan|inf)(?:s\b|inity\b|[ ,;)\]}|.!\x27\"\r\n])",
    # The codes of a status that is not OK.
    "{STATUS}": "CANCELLED|UNKNOWN|INVALID_ARGUMENT|DEADLINE_EXCEEDED|NOT_FOUND|ALREADY_EXISTS|PERMISSION_DENIED"
    "|UNAUTHENTICATED|RESOURCE_EXHAUSTED|FAILED_PRECONDITION|ABORTED|OUT_OF_RANGE|UNIMPLEMENTED|INTERNAL|UNAVAILABLE|DATA_LOSS",
    # Packages whose releases must fit together on a TPU.
    "{LIBRARY}": r"jax|jaxlib|libtpu|flax|optax|orbax|chex|haiku|torch_xla|torch_tpu|torchax|torch|tensorflow|vllm"
    r"|tpu_inference|transformers|qwix|tunix|[Mm]ax[Tt]ext|jetstream",
    # What gcloud prints of a node: in a list the row up to its state, in a description all from the first line with the
    # type to the node's name, and the lines from there to its state; of a queued resource the same.
    "{ROW}": _ROW + r"(?:[^0-9\s|][^\n]{0,80}[ |])?" + _TYPE + r"[^\n]{0,200}[ |]",
    "{QUEUED_ROW}": _ROW + r"[0-9]{1,4}[ |]+" + _TYPE + r"[ |]+",
    "{ROW_END}": r"(?: +[A-Za-z][\w-]*)?[ \t|]*(?m:$)",
    "{DESCRIBED}": rf"(?m:^)[ \t]*[\x27\"]?acceleratorType[\x27\"]?: {_LINES}{_NAMED}/nodes/{_LINES}",
    "{QUEUED}": rf"(?m:^)[ \t]*{_NAMED}/queuedResources/{_LINES}",
    # For what people write: a TPU, and what can hang.
    "{TPU}": rf"[\x27\"`*]{{0,2}}\b(?:(?:Cloud ?)?TPUs?(?:[ -]?(?:{_MACHINE}))?|libtpu|v[2-6][ep]?-[0-9]+"
    r"|v[56][ep]|v7x|TPUv?[2-7][\w-]*)\b[\x27\"`*]{0,2}",
    "{THING}": rf"(?:{_MACHINE}|{_PROGRAM}|TPUs?|TPUv[\w-]+|it|this|which|everything)",
}

# A plain space between words; a quantifier or class may not follow, nor an escape or class come before.
_BETWEEN_WORDS = re.compile(r"(?<=[a-z,])(?<!\\[a-z]) (?=[a-zA-Z]|\\[(\[])")
_LINES_BEFORE, _LINES_AFTER, _BYTES_AROUND = 1, 3, 1000  # how far from a match its `unless` looks
MAX_MEMORY = 32 << 20  # bytes for the states of a pattern; where RE2's own 8 MiB are too few it is ten times slower
_MAX_TRIES = 16  # matches that `unless` may reject in one record

_EVIDENCE: Final = {
    CauseConfidence.CERTAIN: "",
    CauseConfidence.LIKELY: "a status and what it is about: its words are not known",
    CauseConfidence.POSSIBLE: "words that programs also print and go on",
}
_OPTIONAL = re.compile(r"\[\[(.*?)\]\]", re.DOTALL)
_NAME = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True, slots=True)
class Tentative:
    """The match counts only if `confirm` is seen later in the stream, and is dropped if `clear` is seen first."""

    confirm: bytes
    clear: bytes

    def is_cleared(self, text: bytes, start: int, stop: int) -> bool:
        """True if `clear` comes first between these positions of the stream."""
        cleared = text.find(self.clear, start, stop)
        return cleared >= 0 and text.find(self.confirm, start, cleared) < 0


@dataclass(frozen=True, slots=True)
class RemedyRule:
    """A remedy, and the thresholds that details must exceed for it to apply (empty: it always applies)."""

    remedy: Remedy
    above: Mapping[str, float]


@dataclass(frozen=True, eq=False)  # compared by identity: as the key of a dict it is hashed often
class Rule:
    """What one kind of record means. Patterns are RE2's, searched in the record's clean text, compiled on first use.

    The patterns in `match` are alternatives, and so are those in `unless`, none of which may be found near the match.
    `above`: details that must exceed a number. `each`: details of which the summary shows the values in all records of
    a finding. `recovers`: if training continues afterwards, it was no fault. `cleared_by`: if this mark is anywhere in
    the same text, it was no fault. `rank` moves the finding up (negative) or down, before the order of causes.
    `better`: the rules of the same cause that rank before this one, of a general rule those of harmless lines too;
    where one of them matches, this one does not.
    `otherwise`: of `any_program`, what its words are where they are no TPU's: the rules of an unknown failure.

    Each of these includes those before it. `any_program`: programs without a TPU print it too, so it counts only in a
    TPU job's output, and in a text that names a TPU. `general`: only the family of causes is certain, so it gives way
    to any other fault in the same lines. `whole_text`: programs print it and go on, so it counts only where the whole
    text is read, and names a TPU. `prose`: what a person writes of a failure; searched in short texts, and counts only
    where nothing else is recognised.
    """

    id: str
    cause: Cause | None
    mark: str | None
    summary: str
    match: tuple[str, ...]
    unless: tuple[str, ...]
    capture: tuple[str, ...]
    anchors: tuple[Anchor, ...]
    severities: frozenset[str] = frozenset()
    each: tuple[str, ...] = ()
    report: bool = False
    tentative: Tentative | None = None
    above: Mapping[str, float] | None = None
    recovers: bool = False
    continues: bool = False  # a match that soon follows one of the same cause is part of that one's report
    kill: bool = False  # a line of the kernel's or systemd's on an out-of-memory kill: those of one kill are one match
    enough: int = 0  # so many matches of a stream, if not 1 after a fault as many again, are looked for; 0: all
    cleared_by: str | None = None
    rank: int = 0
    any_program: bool = False
    general: bool = False
    whole_text: bool = False
    prose: bool = False
    better: tuple[Rule, ...] = ()
    otherwise: tuple[Rule, ...] = ()
    steps: tuple[RemedyRule, ...] = ()
    examples: tuple[str, ...] = ()
    expected: tuple[Mapping[str, Any], ...] = ()  # details of the first examples
    counterexamples: tuple[str, ...] = ()
    family: str = ""

    @cached_property
    def name(self) -> str:
        """What its matches are told apart by: those of rules of the same cause are of one failure."""
        return self.cause.value if self.cause is not None else self.id

    @property
    def confidence(self) -> CauseConfidence:
        """Return how certain it is that what its pattern matches has its cause."""
        if not self.general:
            return CauseConfidence.CERTAIN
        return CauseConfidence.POSSIBLE if self.whole_text else CauseConfidence.LIKELY

    @property
    def evidence(self) -> str:
        """Return why its cause is not certain; empty where it is."""
        if self.prose:
            return "a person's words, and no program's"
        return _EVIDENCE[self.confidence]

    @property
    def remedy(self) -> tuple[Remedy, ...]:
        """The steps that apply whatever the details are."""
        return self.remedy_for({})

    def remedy_for(self, details: Mapping[str, Any]) -> tuple[Remedy, ...]:
        """The steps for a finding with these details, its context among them, those with thresholds first."""
        known = {**frameworks.words(details), **details}
        fitting = [step for step in self.steps if _exceeds(details, step.above)]
        steps = (step.remedy for step in sorted(fitting, key=lambda step: not step.above))
        return tuple(replace(step, do=_filled(step.do, known)) if "{" in step.do else step for step in steps)

    @cached_property
    def has_thresholds(self) -> bool:
        """Whether some steps apply by the details: what is to be done of two events may differ."""
        return any(step.above for step in self.steps)

    @property
    def looks_around(self) -> bool:
        """Whether other lines decide what comes of one."""
        return self.kill or self.tentative is not None

    def search(self, text: bytes, first: int = 0, last: int | None = None) -> tuple[int, int] | None:
        """The span of the first match of which a part is from `first` up to `last`.

        None if there is none, or a threshold is not exceeded.
        """
        at, tries = 0, 0
        while tries < _MAX_TRIES:
            found = self._match.search(text, at)
            if found is None:
                return None
            begin, end = found.span()
            if last is not None and begin >= last:
                return None
            at = max(end, at + 1)
            if end <= first:
                continue
            if not self._excluded(_around(text, begin, end)):
                return None if self.above and not _exceeds(self.details(text), self.above) else (begin, end)
            tries += 1
        return None

    def details(self, text: bytes) -> dict[str, Any]:
        """The captured details of a record, in JSON types: sizes in bytes, durations in seconds."""
        return self.details_at(text, self.places(text))

    def places(self, text: bytes) -> list[tuple[str, int, int]]:
        """Where the captured details are: the name of each, and where it begins and ends."""
        return [place for capture in self._captures for place in capture.search(text)]

    @staticmethod
    def value(name: str, text: bytes) -> Any:
        """The value of a detail that is captured as this text; None if it has none."""
        found: dict[str, Any] = {}
        _keep(found, name, text.decode("utf-8", "replace"))
        return found.get(name)

    def details_at(self, text: bytes, places: Iterable[tuple[str, int, int]]) -> dict[str, Any]:
        """The details that are captured at these places of a record."""
        found: dict[str, Any] = {}
        for name, begin, end in places:
            _keep(found, name, text[begin:end].decode("utf-8", "replace"))
        if self.report:
            found = {**memory_report.parse(text.decode("utf-8", "replace")), **found}
            if "limit_bytes" in found and (owner := memory_report.owner_of(found["limit_bytes"])) is not None:
                found.setdefault("limit_of", owner)
        return found

    def describe(self, details: Mapping[str, Any]) -> str:
        """The summary with the details filled in; a part in [[ ]] is left out if one of its details is missing.

        For a detail a list of its values may be given, as `Event.spread` has.
        """
        return _filled(self.summary, details)

    def _excluded(self, around: bytes) -> bool:
        if self._unless is not None and self._unless.search(around) is not None:
            return True
        return any(rule.search(around) is not None for rule in self.better)

    @cached_property
    def _match(self) -> Any:
        return compiled("|".join(f"(?:{_wrapping(pattern)})" for pattern in self.match))

    @cached_property
    def _unless(self) -> Any:
        return compiled("|".join(f"(?:{_wrapping(pattern)})" for pattern in self.unless)) if self.unless else None

    @cached_property
    def _captures(self) -> list[_Capture]:
        return [_Capture(pattern) for pattern in self.capture]


class _Capture:
    """A pattern with named groups. It is searched only where one of its literals is: that is much faster."""

    def __init__(self, pattern: str) -> None:
        self._pattern = compiled(pattern)
        self._names = [(name.decode(), group) for name, group in self._pattern.groupindex.items()]
        found = anchors(pattern)
        self._literals = [] if any(one.ignore_case for one in found) else [one.literal for one in found]

    def search(self, text: bytes) -> Iterator[tuple[str, int, int]]:
        """The names of the groups of the first match, and where each begins and ends."""
        if self._literals and not any(literal in text for literal in self._literals):
            return
        match = self._pattern.search(text)
        if match is not None:
            spans = ((name, *match.span(group)) for name, group in self._names)
            yield from (span for span in spans if span[1] >= 0)


def _filled(template: str, details: Mapping[str, Any]) -> str:
    def part(match: re.Match[str]) -> str:
        return match[1] if all(name in details for name in _NAME.findall(match[1])) else ""

    return _NAME.sub(lambda m: show(m[1], details.get(m[1])), _OPTIONAL.sub(part, template))


def _around(text: bytes, begin: int, end: int) -> bytes:
    """The lines of a match and a few before and after it."""
    first, last = begin, end
    for _ in range(1 + _LINES_BEFORE):
        first = max(text.rfind(b"\n", 0, first), 0)
    for _ in range(1 + _LINES_AFTER):
        last = text.find(b"\n", last + 1)
        last = len(text) if last < 0 else last
    return text[max(first, begin - _BYTES_AROUND) : min(last, end + _BYTES_AROUND)]


def _wrapping(pattern: str) -> str:
    """The pattern with each space between two words matching a line break too: mail, terminals and Markdown wrap."""
    return _BETWEEN_WORDS.sub(r"(?: |\\s*\\n[\\s>|#*]*)", pattern)


def compiled(pattern: str) -> Any:
    """The pattern as RE2 compiles it, for bytes of UTF-8. Raises re2.error."""
    options = re2.Options()
    options.log_errors = False
    options.max_mem = MAX_MEMORY
    return re2.compile(pattern.encode(), options)


def show(name: str, value: Any) -> str:
    """A detail with its unit, for people."""
    if isinstance(value, list):
        shown = [show(name, one) for one in value]
        if not isinstance(value[0], str):
            return f"{shown[0]} to {shown[-1]}"
        return f"{', '.join(shown[:MAX_VALUES])} and others" if len(shown) > MAX_VALUES else listed(shown)
    if value is None:
        return "an unknown amount" if name.endswith(("_bytes", "_seconds", "_count")) else "unknown"
    if name.endswith("_bytes"):
        return format_size(value)
    if name.endswith("_seconds"):
        return format_seconds(value)
    return f"{value:,}" if name.endswith("_count") else str(value)


_UNITS: dict[str, Callable[[str], Any]] = {
    "_bytes": parse_size,
    "_seconds": parse_seconds,
    "_count": lambda text: int(text.replace(",", "")),
    "_pid": int,
}


@cache
def _unit(name: str) -> Callable[[str], Any]:
    """What reads the text of a detail: as the ending of its name says."""
    return next((read for ending, read in _UNITS.items() if f"_{name}".endswith(ending)), str.strip)


def _keep(details: dict[str, Any], name: str, text: str) -> None:
    """Add a captured text under its name, converted as the ending of the name says, unless the name is there already.

    Impossible numbers are left out: a log may be forged, and views calculate with them.
    """
    try:
        value = _unit(name)(text)
    except ValueError:
        return  # the text has another form than the rule expects: only the detail is left out
    if isinstance(value, str) or is_possible(value):
        details.setdefault(name, value)


def _exceeds(details: Mapping[str, Any], above: Mapping[str, float]) -> bool:
    return all(
        isinstance(details.get(name), (int, float)) and details[name] > minimum for name, minimum in above.items()
    )
