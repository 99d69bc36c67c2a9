"""The kind of a whole text: output, a report of what happened, the description of a change, a document, source code.

A text is judged by what its writer says. Output that stands in it unquoted, and what happened to the writer, say that
something happened, whatever else it says.
"""

from __future__ import annotations

import re
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING, Final

from tpuwatch.logs.parse.line_kind import is_written
from tpuwatch.model import Cause

if TYPE_CHECKING:
    from tpuwatch.logs.parse.match import Match


class TextKind(Enum):
    """The purpose of a text. The value is what people read."""

    OUTPUT = "output"  # of a program, or nothing else is known of it
    REPORT = "a report"  # of what happened to its writer
    CHANGE = "the description of a change"  # what a change of a program does, or is wanted to do
    DOCUMENT = "a document"  # what may happen, and what is to be done then
    CODE = "source code"  # of a program

    @property
    def tells(self) -> bool:
        """Whether a failure in such a text is one that happened."""
        return self in (TextKind.OUTPUT, TextKind.REPORT)


# Quoted: what stands between fences, and what is indented under a directive or a sentence that ends with two colons.
_QUOTED: Final = re.compile(
    r"""(?msx)
      ^[ >]*(```+|~~~+)[^\n]*\n .*? (?:^[ >]*\1[^\n]*$|\Z)
    | ^\.\.\ code[^\n]*\n (?:\n|[ \t]+[^\n]*\n)+
    | (?<=::\n) (?:\n|[ \t]+[^\n]*\n)+
    """
)
_INLINE: Final = re.compile(r"`[^`\n]*`")
# Of lines that a program printed, with what a launcher or a logger puts before them.
_PRINTED: Final = re.compile(
    r"""(?x)\s*(?:(?:\[[^\]\n]{1,60}\]|\([^)\n]{1,60}\)|[\w./-]{1,40}\ \||>):?\s*){0,4}(?:
      \d{4}[-/]\d\d[-/]\d\d | \d\d:\d\d:\d\d | [IWEFDC]\d{4}\s | (?:INFO|WARNING|ERROR|CRITICAL|DEBUG|FATAL)\b[:\]\s]
    | Hint: | Traceback\ \(most | (?:[a-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Warning):\s | (?:[A-Z]+_)*[A-Z]{5,}:\s
    | \*\*\*\s[A-Z]
    )"""
)
_STATEMENT: Final = re.compile(
    r"""(?x)[+-]?\s*(?:
      def\s\w+\( | class\s\w+ | import\s\w | from\s[\w.]+\simport\b | (?:with|for|if|elif)\s.*:$ | return\b | assert\b
    | else: | try:$ | except\b.*:$ | raise\s\w | self\.\w+
    )"""
)
_TRACED: Final = re.compile(
    r"""(?mx)Traceback\ \(most | \bFile\ " | -{2,}>\ ?[0-9] | \b\w+/[\w/.-]+\.py\b
    | ^(?:[a-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt)\b"""
)
_DIFF: Final = re.compile(r"(?m)^(?:[ >]*(?:```+|~~~+)diff$|@@ -[0-9]|diff --git)")
_HEADING: Final = r"^(?:\#{1,5}\ |\*\*|\d\.\ )[^\w\n]{0,4}(?:\d{1,2}\.?\ )?"
_VERBS: Final = (
    "Fix(?:es)?|Resolves?|Adds?|Skips?|Supports?|Enables?|Updates?|Improves?|Removes?|Implements?|Bumps?|Refactors?"
    "|Allows?|Raises?|Reverts?|Introduces?|Retry|Handles?|Avoids?|Prevents?|Makes?|Resets?|Reduces?|Drops|Pins|Moves"
    "|Replaces|Renames|Migrates|Upgrades|Switches|Extends|Integrates|Regenerates|Refreshes"
)


def _signs(*patterns: str) -> tuple[re.Pattern[str], ...]:
    return tuple(re.compile(pattern, re.VERBOSE | re.MULTILINE | re.IGNORECASE) for pattern in patterns)


# One of these is enough.
_SURE_CHANGE: Final = _signs(
    rf"""{_HEADING}(?:the\ )?(?:solution|fix|changes?|what\ changed|implementation|test\ plan|testing|effect|approach
    |rationale|motivation|impact|acceptance\ criteria|checklist|release\ notes|changelog|breaking\ changes
    |what.s\ new)\b""",
    r"^(?:\*\*)?(?:fix|solution|changes?|test\ plan|tests?|testing|mitigation|effect)(?:\*\*)?:\s+[a-z`]",
    r"\A\s*(?:\[[^\]\n]{1,40}\]\ ?){0,3}reverts?\ ",
    r"\bthis\ (?:PR|pull\ request|patch|CL)\ \w+s\b",
)
# Its headings make a text a document, whatever happened to its writer.
_HEADED: Final = _signs(
    rf"""{_HEADING}[^\n]{{0,30}}\b(?:troubleshooting|common\ (?:errors|issues|problems|failures|mistakes|pitfalls|causes
    |fixes)|known\ (?:issues|limitations)|error\ reference|failure\ modes|frequently\ asked\ questions|FAQ)\b""",
    r"""^\W{0,4}(?:common\ [\w\ ]{0,30}(?:causes|errors|issues|problems|failures|fixes)
    |(?:sample\ error\ message|suggested\ action|desired\ behaviou?r)s?)\W{0,4}:""",
    r"""^\#{1,5}\ [^\n]{0,20}(?:常见问题|常见错误|常见报错|問題排查|故障排查|故障排除
    |よくある質問|よくあるエラー|トラブルシュ)""",
    r"""^\#{1,5}\ [^\n]{0,20}(?:soluci[oó]n\ de\ problemas|problemas\ (?:comunes|conocidos)|errores\ comunes
    |solu[cç][aã]o\ de\ problemas|d[ée]pannage|fehlerbehebung)""",
)
_SURE_DOCUMENT: Final = _signs(
    r"\b(?:OOMKilled|exit\ code\ [0-9]+)\b[^.!?\n]{0,30}\ (?:means|indicates|(?:occurs|happens)\ when)\b",
    r"""\b(?:this|the)\ (?:error|message)\ (?:means|indicates|implies|occurs\ (?:when|if)
    |is\ (?:thrown|raised)\ (?:when|if|on))\b|\bwhich\ (?:implies|indicates|means)\ that\b""",
    r"""^\|[^\n]*\b(?:fix|solution|remedy|meaning|what\ it\ (?:looks\ like|means)|(?:correct\ )?response|action)\b
    [^\n]*\|\s*$""",
    r"\berror\ messages?\ that\ look",
    r"\bOutput\ only\b|\buse\ this\ to\ report\b",
)
# Two of these are.
_CHANGE: Final = _signs(
    rf"""\A\s*(?:\#{{1,4}}\ )?(?:\[[^\]\n]{{1,40}}\]\ ?){{0,3}}(?:[a-z]{{2,8}}(?:\([^)\n]{{1,30}}\))?:\ )?
    (?:{_VERBS})\ [a-z`-]""",
    rf"^[-*]\ (?:{_VERBS})\ [a-z`]",
    r"\bthis\ (?:PR|pull\ request|commit|patch|CL|release|change\ (?!in\b))\b|\bin\ this\ (?:PR|change)\b",
    r"""\b(?:we|it|this|that|which)\ (?:(?:also|now|therefore|then|additionally)\ )?(?:updates?|adds?|removes?|renames?
    |introduces?|extends?|replaces?|restores?|registers|moves?|fix(?:es)?|ensures?|prevents?|installs?)\ """,
    r"""\b(?:no\ longer|previously|the\ previous|the\ existing|from\ now\ on|instead\ of)\b
    |\bnow\ (?:an?|the|runs|raises|uses|works|returns|is)\b""",
    r"""\b(?:would\ be\ (?:nice|great|good|helpful)|would\ (?:like|love)\ to\ see|on\ the\ roadmap
    |please\ (?:add|support)|add(?:ing)?\ support|feature\ request)\b""",
    r"\bwe\ should\b|\bi\ think\ (?:we|i)(?:'d|\ should|\ would)\b|\bi(?:'d|\ would)\ prefer\b",
)
_DOCUMENT: Final = _signs(
    r"^\.\.\ (?:code-block|note|warning|_\w|image|toctree)|^:\w+:(?:\ |$)",
    r"\byou\ (?:can|could|should|may|might|must|need|want|will|would|have\ to|use)\b",
    r"\b(?:for\ example|make\ sure|note\ that)\b",
    r"\bthis\ (?:runbook|tutorial|guide|document|page|section|article|chapter)\b|\bthis\ means\b",
    r"""\b(?:usually|typically|often|generally|commonly)\ (?:means?|indicates?|(?:is\ |are\ )?caused\ by|happens?
    |report|see|run|hit|encounter|repeated)\b""",
    rf"{_HEADING}[^\n]{{0,30}}\b(?:prerequisites|getting\ started|quick\ ?start|overview|install\w*|usage|setup)\b",
    r"\b(?:if|when|whenever)\ (?:you|your|an?|the)\ [^.\n]{1,60},",
    r"^\|[^\n]+\|\s*$\n^\|[-:\ |]+\|\s*$",
)
# What happened to the writer: one of these makes a report.
_REPORT: Final = _signs(
    r"""\b(?:i|we)(?:'(?:m|ve)|\ (?:am|are|have|keep|still|always|also|just|sometimes|often|currently|actually|now|was
    |were))*\ +(?:been\ )?
    (?:get|got|getting|see|saw|seeing|hit|hitting|ran|run|running|fac\w+|receiv\w+|encounter\w*|experienc\w*
    |observ\w*|cannot|can't|could\ ?n[o']t|tr(?:y|ies|ied|ying)|have\ an?)\b""",
    rf"""{_HEADING}.{{0,4}}(?:bug|describe|what\ happened|(?:steps\ )?to\ reproduce|reproduc|repro\b
    |expected\ behaviou?r|environment|system\ info|your\ current|actual|symptoms?|observed|error|evidence|question
    |incident)""",
    r"""\b(?:any\ (?:idea|help|suggestion|advice)|how\ (?:to\ (?:fix|solve)\ (?:this|that|it)|can\ i|do\ i|should\ i)\b
    |what\ am\ i\b|is\ (?:this|there)\s|why\ (?:is|does|am)\s)[^.\n]{0,200}\?""",
    r"^\W{0,4}\[?(?:bug|question|help\ wanted)\b\s?[\]:]",
    r"\b(?:stack\ trace|traceback|log|error)s?:\s*$|\bbut\ (?:got|it\ (?:fails|failed|crashe[sd]))\b",
    r"\b(?:this\ time|once\ again|(?:hit|failed|happened|died|hung|stuck|crashed)\ again|last\ night|yesterday)\b",
)
_ENOUGH: Final = 2
_STATEMENTS: Final = 3  # of a program make its source, if they are a quarter of the lines


class WholeText:
    """A text, the lines that its writer wrote, and its kind: each is found once."""

    def __init__(self, text: bytes) -> None:
        self._shown = text.decode("utf-8", "replace")
        self._lines = [line for line in _QUOTED.sub("\n", self._shown).splitlines() if line.strip()]  # unquoted

    @cached_property
    def kind(self) -> TextKind:
        """The kind of the whole text."""
        if _DIFF.search(self._shown):
            return TextKind.CHANGE
        statements = sum(_STATEMENT.match(line) is not None for line in self._lines)
        if statements >= max(_STATEMENTS, len(self._lines) / 4) and not _TRACED.search(self._shown):
            return TextKind.CODE
        own = _INLINE.sub("", "\n".join(self._own))
        printed = any(_PRINTED.match(line) for line in self._lines)
        if not printed and _number(_HEADED, own):
            return TextKind.DOCUMENT
        if _number(_REPORT, own):
            return TextKind.REPORT
        if printed:
            return TextKind.OUTPUT
        if _number(_SURE_CHANGE, own) or _number(_CHANGE, own) >= _ENOUGH:
            return TextKind.CHANGE
        if _number(_SURE_DOCUMENT, own) or _number(_DOCUMENT, own) >= _ENOUGH:
            return TextKind.DOCUMENT
        return TextKind.OUTPUT

    def tells(self, match: Match) -> bool:
        """Return whether a match in this text is a mark, or a failure that happened.

        That something fails, in a person's words of which no rule knows more, counts where that person reports it.
        """
        rule = match.rule
        if rule.cause is None or not self.kind.tells:
            return rule.cause is None
        if not (rule.prose and rule.cause is Cause.UNKNOWN_FAILURE):
            return True
        return self.kind is TextKind.REPORT and match.text.partition("\n")[0] in self._own_lines

    @cached_property
    def _own_lines(self) -> frozenset[str]:
        return frozenset(self._own)

    @cached_property
    def _own(self) -> list[str]:
        return list(filter(is_written, self._lines))


def _number(signs: tuple[re.Pattern[str], ...], text: str) -> int:
    return sum(sign.search(text) is not None for sign in signs)
