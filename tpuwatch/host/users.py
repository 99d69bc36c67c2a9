"""User names, from files only: a name service might ask a server that does not answer."""

from __future__ import annotations

import re
from typing import Final

USER_FILES: Final = ("etc/passwd", "etc/oslogin_passwd.cache")  # below the root; the latter of Google's OS Login
_NAME: Final = re.compile(r"[\w.@-]{1,64}")


def parse_users(text: str) -> dict[int, str]:
    """User names by uid, from the text of a file like /etc/passwd; the first entry of a uid counts."""
    found: dict[int, str] = {}
    for line in text.splitlines():
        fields = line.split(":")
        if len(fields) > 2 and fields[2].isdecimal() and len(fields[2]) <= 10 and _NAME.fullmatch(fields[0]):
            found.setdefault(int(fields[2]), fields[0])
    return found
