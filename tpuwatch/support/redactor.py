"""What is taken out before anything leaves the machine: secrets, e-mail addresses, people's names, their directories.

`redact` of tpuwatch.core knows secrets by their names and by the forms of known issuers. Who sends a file to strangers
wants more: whatever looks random is taken for a secret here, of whatever kind. The price is that some harmless number
is lost.
"""

from __future__ import annotations

import ipaddress
import re
from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from tpuwatch.core import REDACTED, redact

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# Users that each machine has: their names say nothing of anybody, and are words of their own.
_SYSTEM_USERS: Final = frozenset(("root", "nobody", "tpuwatch", "ubuntu", "debian", "admin", "tpu", "user", "daemon"))
_MIN_NAME: Final = 3
_PRIVATE_KEY: Final = re.compile(
    r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY.*?(?:-----END [A-Z0-9 ]{0,40}-----|\Z)", re.DOTALL
)
_BLOCK: Final = re.compile(  # of YAML: password: | and lines that are indented
    r"(?i)((?:passw(?:or)?d|passphrase|secret|token|_key)[\"']?[ \t]{0,8}:[ \t]{0,8}[|>][-+]?[ \t]{0,8}\n)"
    r"((?:[ \t]+\S.*(?:\n|\Z))+)"
)
_EMAIL: Final = re.compile(r"[\w.+%-]{1,64}@(?:[A-Za-z0-9-]{1,63}\.){1,8}[A-Za-z]{2,24}\b")
_HOME: Final = re.compile(r"(/(?:home|Users|usr/local/google/home)/)(?!user[0-9]+\b)[^/\s\"':,;]+")
_ADDRESS: Final = re.compile(r"(?<![\d.])(?:\d{1,3}\.){3}\d{1,3}(?![\d.])")
# Names after which a value, or a call with it, is a secret, wherever they stand:
# `session=…`, `AccountKey=…`, "private_key_id": "…", `db_pass=SecretStr('…')`.
_NAMED: Final = re.compile(
    r"(?i)((?:(?:pass(?:w(?:or[dt]|d)|phrase|code)?|pwd|secret|token|credentials?|api_?key|access_?key|account_?key|"
    r"private_?key(?:_?id)?)|(?<![A-Za-z])(?:session(?:_?id)?|sess|sid|csrf\w*|xsrf\w*|jwt|auth|cookie|signature|salt|otp|"
    r"pin|pw|client_?id|dsn|license(?:_?key)?|webhook(?:_?url)?))\\*[\"']?\s*(?::=|=>|[=:])\s*(?:[A-Z]\w{0,64}\()?\\*[\"']?)"
    r"(?!\[redacted\])([^\s\"'\\,;&]{4,})"
)
_SAID: Final = re.compile(  # in a sentence, and as options of one letter
    r"(?i)(\b(?:password|passwd|passphrase|passcode|secret|token|api key|key) (?:is|was|for \S+ is):? )(\S{4,})"
)
_OPTIONS: Final = (
    re.compile(r"(?i)((?:passw(?:or)?d|passphrase|_pass|_token|_secret|_key)\s+)(?![=:|>])(\S{4,})"),
    re.compile(r"(?i)(<[\w:-]{0,64}(?:passw(?:or)?d|secret|token|_key|apikey)[\w:-]{0,64}>)([^<]+)"),
    re.compile(r"(?i)(\b(?:mnemonic|seed[ _-]?phrase|recovery[ _-]?(?:phrase|codes?))[\"']?\s*[:=]?\s*)(\S.*)"),
    re.compile(
        r"(?i)([\"']name[\"']:\s*[\"'][^\"']{0,64}(?:pass|pwd|secret|token|key|cred)[^\"']{0,64}[\"'],\s*[\"']value[\"']:\s*)(\S+)"
    ),
    re.compile(r"(\bsshpass\s+-p\s*)(\S+)"),
    re.compile(r"(\bmysql\b[^\n|]{0,200}?[\"']-p)([^\s\"']+)"),
    re.compile(r"(--from-literal[ =][^\s=]{1,64}=)(\S+)"),
    re.compile(r"(?i)(https?://[^\s/]{0,64}hooks?\.[^\s/]{1,64}/|/(?:web)?hooks?/)([^\s\"']{16,})"),
    re.compile(
        r"(\b(?:mysql|mysqldump|mariadb|psql|redis-cli|smbclient|ldapsearch|7z)\b[^\n|]{0,200}?\s-(?:p|a|w))(\s?[^\s-]\S+)"
    ),
    re.compile(r"(\s(?:-u[ =]?|(?:--user|--proxy-user|--basic)[ =])[^\s:]{1,64}:)(\S+)"),
    re.compile(r"(\bauth ?= ?\([^,()]{0,64},\s*)([^\s)]+)"),
    re.compile(r"(::add-mask::)(.+)"),
    re.compile(r"(\b_auth(?:Token)?\s*=\s*)(\S+)"),
    re.compile(r"(?i)(\b(?:basic|digest|negotiate|apikey|token|x-api-key:?)\s+)([A-Za-z0-9+/=_-]{12,})"),
)
_PGPASS: Final = re.compile(r"^(\s{0,8}[\w.*-]+:(?:\d{3,5}|\*):[\w.*-]+:[\w.*-]+:)(\S+)\s*$")
_WORDS: Final = (  # one of which, in lower case, each of these patterns has
    *("pass", "pwd", "pw", "secret", "token", "cred", "key", "sess", "sid", "csrf", "xsrf", "jwt", "auth", "cookie"),
    *("signature", "salt", "otp", "pin", "client", "dsn", "license", "webhook", "mnemonic", "seed", "recovery", "mask"),
    *("mysql", "mariadb", "psql", "redis", "smbclient", "ldap", "7z", "-u", "--user", "--proxy", "basic", "digest"),
    *("negotiate", "literal", "hook"),
)
# By which issuers mark what is theirs, beyond those of tpuwatch.core.
_PREFIXES: Final = (
    *(
        "npm_",
        "dckr_pat_",
        "dop_v1_",
        "doo_v1_",
        "shpat_",
        "sq0",
        "rk_live_",
        "sk_live_",
        "pk_live_",
        "sk_test_",
        "whsec_",
    ),
    *(
        "xapp-",
        "SG.",
        "lin_api_",
        "hvs.",
        "hvb.",
        "AGE-SECRET-KEY-",
        "glrt-",
        "gldt-",
        "ATATT",
        "nvapi-",
        "r8_",
        "gsk_",
    ),
    *(
        "tskey-",
        "wandb_v1_",
        "ops_",
        "vault:v1:",
        "ABIA",
        "ACCA",
        "AROA",
        "AIPA",
        "ASCA",
        "ANPA",
        "$1$",
        "$5$",
        "$6$",
        "$y$",
    ),
    *("$2a$", "$2b$", "$2y$", "$apr1$"),
)
_ISSUED: Final = re.compile(rf"(?<![A-Za-z0-9])(?:{'|'.join(map(re.escape, _PREFIXES))})[\w+/=.$-]{{8,}}")
_BYTES: Final = re.compile(r"(?i)\b[0-9a-f]{2}(?:[ :][0-9a-f]{2}){15,}\b")
_RANDOM: Final = re.compile(r"[A-Za-z0-9+/_=~-]{16,}")
_HARMLESS: Final = re.compile(  # boots and operations, with which nobody can do anything; addresses in memory
    r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}|0x[0-9a-fA-F]{1,16}"
)
_PART: Final = re.compile(r"[A-Za-z0-9]{16,}")
_PARTS: Final = re.compile(r"[/+_=~-]+")
_CHANGES: Final = 0.28  # of its letters come after one of another kind: words and numbers have fewer
_CAMEL_CHANGES: Final = 0.45  # where it has no number: NamesLikeThis change often
_MAX_LINE: Final = 16_384
_LONGER: Final = 40  # than any number that says something
_LONG: Final = 16
_HEX: Final = re.compile(r"[0-9a-f]{24,}|[0-9A-F]{24,}")


class Redactor:
    """Takes out of texts and documents what is not to be sent; counts what it has taken, by kind."""

    def __init__(self, users: Iterable[str] = (), projects: Iterable[str] = ()) -> None:
        """`users` become user1, user2 and so on, the same everywhere; `projects` [project]."""
        self.taken: Counter[str] = Counter()
        names = sorted({name for name in users if _is_name(name)}, key=lambda name: (-len(name), name))
        self._users = {name.casefold(): f"user{number}" for number, name in enumerate(names, 1)}
        self._projects = sorted({project for project in projects if len(project) >= _MIN_NAME}, key=len, reverse=True)
        self._user_pattern, self._project_pattern = _words(self._users), _words(self._projects)

    def text(self, text: str) -> str:
        """The text without it."""
        text = self._replaced("private keys", _PRIVATE_KEY, REDACTED, text)
        text = self._replaced("secrets", _BLOCK, rf"\1  {REDACTED}\n", text)
        return "\n".join(self._line(line) for line in text.split("\n"))

    def document(self, value: Any) -> Any:
        """A JSON document without it: keys are names of what they hold."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            if isinstance(value.get("name"), str) and "value" in value:  # a variable
                value = {**value, "value": self._member(value["name"], value["value"])}
            return {self.text(str(key)): self._member(str(key), one) for key, one in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.document(one) for one in value]
        return value

    def _member(self, key: str, value: Any) -> Any:
        if isinstance(value, str) and value:
            named = f"{key}=value"
            if self._secrets(named) != named:
                self.taken["secrets"] += 1
                return REDACTED
        return self.document(value)

    def _line(self, line: str) -> str:
        if len(line) > _MAX_LINE:
            line = f"{line[:_MAX_LINE]}… [cut]"
        without = self._secrets(line)
        if without != line:
            self.taken["secrets"] += 1
        line = self._replaced("e-mail addresses", _EMAIL, "[e-mail]", without) if "@" in without else without
        if self._user_pattern is not None:
            line, found = self._user_pattern.subn(lambda match: self._users[match[0].casefold()], line)
            self.taken["user names"] += found
        line = self._replaced("home directories", _HOME, r"\1[user]", line)
        if self._project_pattern is not None:
            line = self._replaced("project ids", self._project_pattern, "[project]", line)
        return _ADDRESS.sub(self._address, line)

    def _secrets(self, line: str) -> str:
        line = redact(line)
        lowered = line.lower()
        if any(word in lowered for word in _WORDS):  # most lines have none
            for pattern in (_NAMED, _SAID, *_OPTIONS):
                line = pattern.sub(rf"\1{REDACTED}", line)
        if any(prefix in line for prefix in _PREFIXES):
            line = _ISSUED.sub(REDACTED, line)
        line = _BYTES.sub(REDACTED, line)
        line = _PGPASS.sub(rf"\1{REDACTED}", line)
        return _RANDOM.sub(lambda match: _without_random(match[0]), line)

    def _replaced(self, kind: str, pattern: re.Pattern[str], replacement: str, text: str) -> str:
        text, found = pattern.subn(replacement, text)
        self.taken[kind] += found
        return text

    def _address(self, match: re.Match[str]) -> str:
        """Addresses of the Internet are taken out; those of a VPC say nothing outside of it."""
        try:
            public = ipaddress.ip_address(match[0]).is_global
        except ValueError:
            return match[0]
        if public:
            self.taken["addresses"] += 1
        return "[address]" if public else match[0]


def _is_name(name: str) -> bool:
    return len(name) >= _MIN_NAME and name.casefold() not in _SYSTEM_USERS and not name.isdecimal()


def _words(words: Iterable[str] | Mapping[str, str]) -> re.Pattern[str] | None:
    """Any of these words, with no letter or digit on either side."""
    escaped = [re.escape(word) for word in words]
    if not escaped:
        return None
    return re.compile(rf"(?<![A-Za-z0-9])(?:{'|'.join(escaped)})(?![A-Za-z0-9])", re.IGNORECASE)


def _without_random(word: str) -> str:
    """The word, or what is left of it where it or a part of it looks random."""
    if _HARMLESS.fullmatch(word):
        return word
    parts = _PARTS.split(word)
    joined = "".join(parts)
    mixed = len({_kind(char) for char in joined}) == 3
    if mixed and len(parts) <= 1 + len(word) // 8 and not _is_path(word) and _is_random(joined):
        return REDACTED
    return _PART.sub(lambda match: REDACTED if _is_random(match[0]) else match[0], word)


def _is_path(word: str) -> bool:
    """Whether words of people are in it, between slashes."""
    return "/" in word and any(len(part) > 1 and part.isalpha() and part.islower() for part in word.split("/"))


def _is_random(word: str) -> bool:
    if len(word) < _LONG or (word.isdecimal() and len(word) < _LONGER):
        return False
    if _HEX.fullmatch(word):
        return True
    changes = sum(_kind(one) != _kind(other) for one, other in pairwise(word)) / len(word)
    return changes >= (_CHANGES if sum(map(str.isdecimal, word)) > 1 else _CAMEL_CHANGES)


def _kind(char: str) -> str:
    return "9" if char.isdecimal() else "a" if char.islower() else "A"
