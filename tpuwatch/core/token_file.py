"""Files that only their owner and group may read: tokens, of which each line holds one, and private keys."""

from __future__ import annotations

import re
import stat
from typing import TYPE_CHECKING, Final

from tpuwatch.core.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

MIN_CHARS: Final = 16  # of a token: shorter ones can be guessed
_MAX_BYTES: Final = 64 * 1024
_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/-]+=*")  # as RFC 6750 has it
_MAKE: Final = "make one with `openssl rand -hex 32`"


def require_private(path: Path) -> None:
    """Raises ConfigError if the file is not there, or if users beside its owner and group may read or change it."""
    try:
        mode = path.stat().st_mode
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    if not stat.S_ISREG(mode):
        raise ConfigError(f"{path} is not a regular file; give one")
    if mode & (stat.S_IRWXO | stat.S_IWGRP):
        raise ConfigError(f"{path} is not private: its mode is {stat.S_IMODE(mode):04o}; run `chmod g-w,o= {path}`")


def read_tokens(path: Path) -> list[str]:
    """The tokens in a private file, the first of them the one to send.

    Raises ConfigError, which never quotes what the file holds.
    """
    require_private(path)
    try:
        with path.open("rb") as file:
            text = file.read(_MAX_BYTES).decode("ascii", "replace")
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    tokens = [token for line in text.splitlines() if (token := line.strip())]
    if not tokens:
        raise ConfigError(f"{path} holds no token; {_MAKE}")
    for number, token in enumerate(tokens, 1):
        if len(token) < MIN_CHARS or not _TOKEN.fullmatch(token):
            raise ConfigError(
                f"{path}: token {number} is no token of at least {MIN_CHARS} letters, digits and . _ ~ + / - =; {_MAKE}"
            )
    return tokens
