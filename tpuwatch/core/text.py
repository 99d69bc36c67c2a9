"""Text for people. Text from outside is made printable and cut here: it may hold anything, control characters too."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import re
    from collections.abc import Iterable

REDACTED: Final = "[redacted]"
TEXT_LIMIT: Final = 200
_WHOLE: Final = frozenset("0123456789/`")  # what numbers, paths and commands have
_LOOSE: Final = " ,;:(-"  # what no text ends with
_MAX_SECONDS: Final = 100 * 365 * 86_400.0  # a longer duration is shown as this one

# The end of a name whose value is a secret: WANDB_API_KEY, hubToken, "password". Much is called "key" and no secret.
_NAME: Final = (
    r"(?:(?i:passw(?:or)?d|passphrase|[_-]pwd|secret|token|(?:api|access|private|secret|auth|[_-])[_-]?key)|\bKEY)"
    r"(?:_?[0-9]{1,3})?"
)
# A value in quotes, escaped ones too as in JSON within JSON, up to their end or that of the line; else a word, but no
# status ("cannot fetch token: 400").
_VALUE: Final = (
    r"""(?!\[redacted\]|[0-9]{1,3}(?!\S))(?:\\+["'](?:(?!\\+["']).)*|"(?:\\.|[^"\\\n])*|'(?:\\.|[^'\\\n])*|\S+)["']?"""
)
# Between the two: KEY=x, key: x, "key": "x", ("KEY", "x"), "name": "KEY", "value": "x".
_SEPARATOR: Final = (
    r"""(?:(?:\\*["'])?[ \t]{0,8}(?:=>|:=|[:=])[ \t]{0,8}"""
    r"""|\\*["'],[ \t]{0,8}(?:\\*["']value\\*["'][ \t]{0,8}:[ \t]{0,8}|(?!\\*["']value\\*["'][ \t]{0,8}:)))"""
)
# Secrets: parts of which a text with one holds at least one, in lower case; the pattern; what takes its place.
_SECRETS: Final = (
    ("key token secret passw passphrase pwd", rf"({_NAME}{_SEPARATOR}){_VALUE}", rf"\1{REDACTED}"),
    ("--", rf"((?<![\w-])--[\w-]{{0,64}}{_NAME}[ \t]{{1,8}}){_VALUE}", rf"\1{REDACTED}"),
    (
        "authorization cookie",
        rf"((?i:\b(?:(?:proxy-)?authorization|(?:set-)?cookie)){_SEPARATOR}(?:\\*[\"'])?)[^\s\"'\\][^\"'\\\n]*",
        rf"\1{REDACTED}",
    ),
    ("bearer", r"((?i:\bbearer)[ \t]{1,8})(?=\S{20}|\S{0,19}[0-9])[^\s\"']{6,}", rf"\1{REDACTED}"),
    ("://", r"(://)[^/\s\"'@]{1,256}(?:@[^/\s\"'@]{1,256})?(?=@)", rf"\1{REDACTED}"),
    ("://", r"([?&](?i:sig|signature|x-goog-signature|x-amz-signature|key|code)=)[^\s&\"']+", rf"\1{REDACTED}"),
    (  # what issuers mark as theirs: Hugging Face, GitHub, GitLab, Google, OpenAI and others, Slack, AWS, PyPI; a JWT
        "hf_ gh github_ glpat- aiza ya29. gocspx- 1//0 sk- xox akia asia pypi- eyj hooks.slack",
        r"(?<![A-Za-z0-9])(?:hf_[A-Za-z0-9]{20,}|gh[oprsu]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}"
        r"|AIza[\w-]{30,}|ya29\.[\w.-]{10,}|GOCSPX-[\w-]{20,}|1//0[\w-]{20,}|sk-[\w-]{20,}|xox[a-z]-[\w-]{10,}"
        r"|(?:AKIA|ASIA)[A-Z0-9]{16}|pypi-[\w-]{40,}|eyJ[\w-]{10,1024}\.[\w-]+(?:\.[\w-]*)?"
        r"|hooks\.slack\.com/services/[\w/-]+)",
        REDACTED,
    ),
    ("key-----", r"(-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----)[^\n]*", rf"\1{REDACTED}"),
)


def printable(text: str, limit: int | None = None) -> str:
    """Text with a space for each character that does not print, so it is one line and no terminal obeys it.

    With a `limit` it is cut after at most that many characters.
    """
    if limit is not None and len(text) > limit:
        return cut(printable(text[: limit + 1]), limit)
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else " " for char in text)


def printable_lines(text: str) -> str:
    """Text in its lines, each of them printable."""
    return "\n".join(map(printable, text.split("\n")))


def clean(text: str, limit: int = TEXT_LIMIT) -> str:
    """Printable text on one line, without superfluous spaces, of at most `limit` characters."""
    line = " ".join(printable(text[: 4 * limit]).split())
    return line if len(line) <= limit else cut(line, limit - 1)


def cut(text: str, room: int) -> str:
    """At most the first `room` characters of a longer text, and an ellipsis.

    It ends with a whole word, not within a command in backquotes, and not with a number whose unit may follow. Cut is
    only a word that takes more than half of the room and is neither a number nor a path, or is all of the text.
    """
    end = room if text[room : room + 1].isspace() else max(text.rfind(" ", 0, room), 0)
    if end < room // 2 and not _WHOLE.intersection(text[end:room]):
        end = room
    if text.count("`", 0, end) % 2:
        end = text.rfind("`", 0, end)
    kept = text[:end].rstrip()
    before, _, last = kept.rpartition(" ")
    if not last.strip("([0123456789.,"):
        kept = before
    return f"{kept.rstrip(_LOOSE) or text[:room].rstrip()}…"


def redact(text: str) -> str:
    """The text with `[redacted]` for each secret that its name or its form gives away.

    Those are values of keys, tokens and passwords, headers that authorise, users and passwords in URLs, and tokens in
    the form of a known issuer. What is taken for a secret and is none does no harm; the reverse would.
    """
    lowered = text.lower()
    for parts, pattern, replacement in _secrets():
        if any(part in lowered for part in parts):  # most text has none
            text = pattern.sub(replacement, text)
    return text


@cache
def _secrets() -> tuple[tuple[list[str], re.Pattern[str], str], ...]:
    import re

    return tuple((parts.split(), re.compile(pattern), replacement) for parts, pattern, replacement in _SECRETS)


def length(seconds: float) -> str:
    """A duration for people; never negative, never endless."""
    import math

    from tpuwatch.core.units import format_seconds

    bounded = min(max(seconds, 0.0), _MAX_SECONDS) if math.isfinite(seconds) else _MAX_SECONDS
    if bounded < 1:
        return "less than 1 s"
    return format_seconds(round(bounded)) if bounded >= 10 else format_seconds(bounded)


def capital(sentence: str) -> str:
    """The sentence with its first letter in upper case; the rest as it is."""
    return sentence[:1].upper() + sentence[1:]


def ended(sentence: str) -> str:
    """The sentence with a full stop, if it has no end yet."""
    return sentence if sentence.endswith((".", "…")) else f"{sentence}."


def counted(number: int, noun: str) -> str:
    """ "1 restart", "2 restarts"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def listed(parts: Iterable[str]) -> str:
    """ "a", "a and b", "a, b and c"."""
    *most, last = list(parts) or [""]
    return f"{', '.join(most)} and {last}" if most else last
