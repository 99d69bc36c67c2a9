"""Tells a line of source code that holds the words of a failure from the failure."""

from __future__ import annotations

import re
from typing import Final

# A line of source code with the message: a statement or call with the words in quotes, or a string or comment.
_SOURCE_CODE: Final = re.compile(
    r"""
      \s*(?:raise|throw|return|assert|if|elif|IF|case|const|let|var)\b[^"'`\n]*[=(<>][^"'`\n]*["'`]
    | \s*(?![\w.]*(?:Error|Exception|Warning)\()@?[\w.!:]+\([^"'`\n)]*["'`]
    | \s*(?:if|elif|assert|while)\s+(?:not\s+)?[frbu]{0,2}["'][^"'\n]*["']\s+(?:not\s+)?in\b
    | (?:\s{2,}[\w.]+|_?[A-Z][A-Z0-9_]{3,})\ =\ \(?[frbu]{0,2}["']
    | \s{2,}[\w.]+\ =\ [\w.]+\([^"'\n]{0,80}["']
    | \s{2,}\w+=[frbu]{0,2}["'][^"'\n]{0,300}["'][,)]+$
    | \s*(?:el)?if\s+(?:\[|(?:not\s+)?[\w.]+\s+(?:not\s+)?in\s+[\[({])
    | \s+log\w{0,9}\s+["']
    | [^"'\n]{0,300}\b(?:grep|rg|awk|sed|match|search)\b[^"'\n]{0,80}["'](?:[^"'|\n]{1,80}\|){2,}
    | \s*(?:echo|printf)\s+["']
    | \s*(?:except\b[^\n]*:$|def\ \w+\(|class\ \w+|import\ \w|from\ [\w.]+\ import\b)
    | \s{2,}(?:raise\ [\w.]+\($|[\w.]+(?:Error|Exception|ERROR):\ [Ii]f\b)
    | \s{2,}[\[({]{0,3}(?:[frbu]{0,2}(?:"[^"\n]{0,300}"|'[^'\n]{0,300}')[,()\[\]\s]{0,9}){1,9}$
    | \s{2,}[\w.]+,\ [frbu]{0,2}["'][^"'\n]{0,300}["']\)*:?$
    | \s{2,}[\[({]{1,3}(?:"[^"\n]{0,300}"|'[^'\n]{0,300}'),\ [\w.]+[\])}]*,$
    | [+-]?\s{2,}(?:\#|//)\s
    | [^`\n]{0,300}`[^`\n]{1,80}`[^`,\n]{0,20},\ `[^`\n]{1,80}`[^`,\n]{0,20},\ `  # a list of messages in a description
    """,
    re.VERBOSE | re.MULTILINE,
)


def is_source_code(text: str) -> bool:
    """Whether the lines of a match are source code."""
    return _SOURCE_CODE.match(text) is not None
