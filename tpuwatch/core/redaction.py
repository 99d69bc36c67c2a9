"""Secrets are taken out of text that others may see."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import re

REDACTED: Final = "[redacted]"

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
