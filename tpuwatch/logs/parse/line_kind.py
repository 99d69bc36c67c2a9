"""The kind of line in which the words of a failure stand: what a program printed, or what somebody wrote about one.

Only what a program prints, and a person's report of it, says that something has failed. A command, source code, and a
sentence about a failure that may be, or is not, say nothing of the kind.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tpuwatch.logs.rules.rule import Rule


class LineKind(Enum):
    """What a line with the words of a failure is."""

    OUTPUT = "output"  # of a program, or a person's report of it
    COMMAND = "command"  # that somebody typed
    CODE = "code"  # a statement, a string or a comment with the words
    MENTION = "mention"  # a sentence that speaks of a failure, of one that may be, or that there is none

    def reports(self, *, of_job: bool) -> bool:
        """Return whether such a line says that something failed. `of_job`: a job printed it, sentences included."""
        return self is LineKind.OUTPUT or (of_job and self is LineKind.MENTION)


# Where one of these begins a line, a program printed it, whatever follows.
_OUTPUT: Final = re.compile(
    r"""
      .{0,40}\d{1,2}:\d{2}:\d{2}
    | [^\n]{0,400}(?:\b[IWEF]\d{4}\s\d\d:|\d:\d\d\.\d{6}:\s[IWEF]\s)  # after a progress bar
    | \W*(?:
        \d{4}[-/]\d\d[-/]\d\d
      | [IWEFDC]\d{4}\s
      | (?:INFO|WARNING|WARN|ERROR|CRITICAL|DEBUG|FATAL|NOTICE|Warning|Error)\b[:\]\s|]
      | [\w.]*(?:Error|Exception|Interrupt|Fault|Exit)(?:\s?\(|:)
      | (?:[A-Z]+_)+[A-Z]+:?
      | \(\S+\s(?:pid|ip)=
      | [\w./-]+\.(?:cc|cpp|py|go|h|c):\d+
      | (?:\S{1,40}\s)?\*\*\*\s
      | tpuwatch\s\w+:\s
      )
    | .*"[\w.]+"\s?:\s?[\[{"\d]  # JSON
    """,
    re.VERBOSE,
)
_TOOLS: Final = (
    r"gcloud|kubectl|gsutil|helm|docker|podman|ssh|scp|pip3?|conda|uv|apt(?:-get)?|python3?|sudo|export|curl|wget|git|make"
    r"|bash|sky|ray|xpk|terraform|systemctl|journalctl|grep|srun|sbatch|nohup|source|lsof|pkill|dmesg|vllm|accelerate"
)
_COMMAND: Final = re.compile(
    rf"""
    \s*(?:
      [$%]\s+\S | >>>\s | !\s?(?:{_TOOLS})\b | [\w.-]+@[\w.-]+:?[^\s$\#]{{0,40}}[$\#]\s | \(\w[\w.-]*\)\s*\$\s
    | (?:\+{{1,3}}|\#)\s(?:{_TOOLS})\s
    | (?:[A-Z][A-Z0-9_]+=\S+\s+)+(?:{_TOOLS})\b
    | (?:sudo\s+)?(?:{_TOOLS})\s+(?:\w[\w./-]*\s+){{0,6}}(?:-{{1,2}}\w|--\s)
    | -{{2}}[\w-]+(?:[=\ ]\S+)?\s*\\?$
    )""",
    re.VERBOSE,
)
# A line of source code with the message: a statement or call with the words in quotes, or a string or comment.
_CODE: Final = re.compile(
    r"""
      \s*(?:raise|throw|return|assert|if|elif|IF|case|const|let|var)\b[^"'`\n]*[=(<>][^"'`\n]*["'`]
    | \s*(?![\w.]*(?:Error|Exception|Warning)\()@?[\w.!:]+\([^"'`\n)]*["'`]
    | \s*(?:if|elif|assert|while)\s+(?:not\s+)?[frbu]{0,2}["'][^\n]*["']\s+(?:not\s+)?in\b
    | \s*(?:case\s+["'] | with\s[^\n]*["'][^\n]*:$ | (?:EXPECT|ASSERT|CHECK|TF)_\w+\()
    | (?:\s{2,}[\w.]+|_?[A-Z][A-Z0-9_]{3,})\ =\ \(?[frbu]{0,2}["']
    | \s{2,}[\w.]+\ =\ [\w.]+\([^"'\n]{0,80}["']
    | \s{2,}\w+=[frbu]{0,2}["'][^\n]{0,300}["'][,)]+$
    | \s*(?:el)?if\s+(?:\[|(?:not\s+)?[\w.]+\s+(?:not\s+)?in\s+[\[({])
    | \s+log\w{0,9}\s+["']
    | [^"'\n]{0,300}\b(?:grep|rg|awk|sed|match|search)\b[^"'\n]{0,80}["'](?:[^"'|\n]{1,80}\|){2,}
    | \s*(?:echo|printf)\s+["']
    | \s*(?:except\b[^\n]*:$|def\ \w+\(|class\ \w+|import\ \w|from\ [\w.]+\ import\b)
    | \s{2,}(?:raise\ [\w.]+\($|[\w.]+(?:Error|Exception|ERROR):\ [Ii]f\b)
    | \s{2,}[\[({]{0,3}(?:[frbu]{0,2}(?:"[^"\n]{0,300}"|'[^'\n]{0,300}')[,()\[\]\s]{0,9}){1,9}$
    | \s{2,}[\w.]+,\ [frbu]{0,2}["'][^"'\n]{0,300}["']\)*:?$
    | \s{2,}\w{1,30}:\ [frbu]{0,2}(?:"[^"\n]{0,300}"|'[^'\n]{0,300}'),$
    | \s{2,}[\[({]{1,3}(?:"[^"\n]{0,300}"|'[^'\n]{0,300}'),\ [\w.]+[\])}]*,$
    | [+-]?\s{2,}(?:\#|//)\s
    | [^"'\n]{0,80}<<\s?["'] | (?!.*Check\ failed)[^"'\n]{0,80}\b(?:absl|std|tensorflow|xla)::[\w:]+\(
    | [^`\n]{0,300}`[^`\n]{1,80}`[^`,\n]{0,20},\ `[^`\n]{1,80}`[^`,\n]{0,20},\ `  # a list of messages in a description
    """,
    re.VERBOSE | re.MULTILINE,
)

# The words of a sentence that say nothing by themselves: where some come before a message, it stands in a sentence.
_FUNCTION_WORDS: Final = re.compile(
    r"(?i)\b(?:the|a|an|no|never|is|are|was|were|be|to|of|and|in|that|it|for|with|as|this|i|we|you|they|if|when|can|not|have|has|my"
    r"|our|your|from|by|at|but|so|there|then|which|will|would|should|could|may|might|do|does|did|how|why|because|after)\b"
)
_WORDS: Final = 3  # so many make a sentence
# A sentence on what may be, on what would help, or on what is not.
_SUPPOSED: Final = re.compile(
    r"""(?ix)
      \b(?:if|unless|whenever|in\ case|should\ you)\b
    | \b(?:may|might|can|could|would|should|will|must)\b
      (?!\s(?:not\s)?(?:find|see|connect|start|open|access|reach|be\s))
    | \bwhen(?:ever)?\ (?:a|an|the|any|some)\b
    | \b(?:indicates|occurs|means\ that|is\ (?:raised|thrown|returned|forced)|refers\ to|usually|typically|commonly)\b
    | \b(?:for\ example|e\.g\.|such\ as)[\s,:`'"(]*$
    | \b(?:no|without|never)\s[`'"(]*$
    | \b(?:oom\w*|errors?|fail\w*|crash\w*|preempt\w*|restarts?|hangs?)\s?[=:]\s?0\b
    | \b(?:instead\ of|rather\ than|in\ order\ to)\b
    | \bto\ (?:avoid|prevent|detect|handle|reproduce)\b
    | \b(?:no|never|without|isn't|aren't|doesn't|don't|didn't|wasn't|none\ of)\b.{0,40}
      \b(?:oom|error|preempt\w*|fail\w*|crash\w*|out\ of\ memory|timeouts?|hang\w*)\b
    | \b(?:fixe[sd]|resolve[sd]|closes|adds?|added|support\ for|propos\w+|feature|todo)\b
    """
)
# A sentence in which a person reports what happened to them: in the first person, and as what a thing did.
_OWN: Final = re.compile(
    r"(?i)\b(?:i|we)(?:'(?:m|ve)|\s(?:am|are|have|keep|still|always|also|just|sometimes|often))?\s+"
    r"(?:been\s)?(?:get|got|getting|see|saw|seeing|hit|hitting|ran|run|running|fac\w+|receiv\w+|encounter\w*|experienc\w*"
    r"|observ\w*|cannot|can't|could\s?n[o']t|tried|trying|have\san?)\b"
)
_HAPPENED: Final = re.compile(
    r"(?i)\b(?:fail(?:s|ed|ing)?|crash\w*|halt\w*|bombed|broke|intermittently|hangs?|hung|stuck|dies|died|killed|abort\w*|exit(?:s|ed)|end(?:s|ed)|thr(?:ows?|ew)|stop(?:s|ped)"
    r"|errors?\sout|reports?|shows?|showed|says|remains?|still)\b"
    r"|\b(?:error|exception|traceback|output|log|message|trace|following)s?\b.{0,20}:"
    r"|\b(?:this|an?|same|below)\s(?:error|exception|failure|problem|issue|crash|message)\b"
)


# What stands before the words that a program or a tool printed.
_SAID: Final = re.compile(r""":[ `'"*]*$|\b(?:is|are|was|were) [`'"] ?$|(?:Error|Exception|available|Reason): |= ?$""")


def is_written(line: str) -> bool:
    """Return whether a person may have written the line: it is no output, command or code."""
    return not (_OUTPUT.match(line) or _COMMAND.match(line) or _CODE.match(line))


def kind_of(text: str, rule: Rule) -> LineKind:
    """The kind of the line of `text` in which a match of the rule begins. The text has no header of a record."""
    data = text.encode()
    begin, end = (len(data[:place].decode("utf-8", "replace")) for place in rule.search(data) or (0, 0))
    start = text.rfind("\n", 0, begin) + 1
    line = text[start:].partition("\n")[0]
    if _COMMAND.match(line):
        return LineKind.COMMAND
    if _CODE.match(text) or _CODE.match(line):
        return LineKind.CODE
    if _OUTPUT.match(line):
        return LineKind.OUTPUT
    mention = _is_mention(line, begin - start, end - start, written=rule.prose)
    return LineKind.MENTION if mention else LineKind.OUTPUT


def _is_mention(line: str, begin: int, end: int, *, written: bool) -> bool:
    """Whether the sentence around the words from `begin` to `end` only speaks of the failure.

    `written`: they are a person's own words, and no program's.
    """
    start = max(line.rfind(f"{mark} ", 0, begin) + 1 for mark in ".?!|")  # 0 without one; cells of a table
    if _OWN.search(line[start:begin]):
        return written and _SUPPOSED.search(line[start:end]) is not None
    for place in (begin, end):
        if line.count("`", 0, place) % 2:  # within a quotation: what comes before it counts
            begin = line.rfind("`", 0, place)
            start = min(start, begin)
            break
    before, after = line[start:begin], re.split(r"[.?!] ", line[end:], maxsplit=1)[0]
    around = line[start:end] + after if written else f"{before} {after}"
    supposed = _SUPPOSED.search(around if written else before) is not None
    happened = _HAPPENED.search(around) is not None
    if written:
        return supposed and not happened
    said = before + "`" * line.startswith("`", begin)
    if _SAID.search(said) or line.endswith(":") or not _FUNCTION_WORDS.search(before):
        return False
    return supposed or (len(before.split()) >= _WORDS and not happened)
