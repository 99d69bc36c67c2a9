"""HTML documents: the templates, and the one style and the one script that the browser may use.

Jinja2 is imported when the first page is asked for.
"""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from tpuwatch.core import counted, format_age, format_seconds, format_size, format_time, iso, redact
from tpuwatch.libtpu import counted as counted_chips
from tpuwatch.libtpu import unit
from tpuwatch.model import cloud_words, is_bad, queued_words, tone, verdict_words
from tpuwatch.web.launch_chart import launch_tone, launch_words
from tpuwatch.web.sentences import describe_buffer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jinja2 import Environment


def _own(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


_STYLE: Final = _own("page.css")
_SCRIPT: Final = _own("page.js")
# The style and the script are known by their hashes: no other one runs, whatever stands in a page. The picture is the
# icon, which is part of the page; the script asks for the page again, and nobody else for anything.
POLICY: Final = (
    f"default-src 'none'; style-src {_hash(_STYLE)}; script-src {_hash(_SCRIPT)}; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
_MAX_LINE: Final = 160  # characters of a record in a list


def document(template: str, context: Mapping[str, Any]) -> str:
    """The document that a template makes of its context."""
    return _environment().get_template(template).render(context)


@cache
def _environment() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    def shown(value: Any) -> Any:
        """Text without secrets; control characters, which could hide or reorder text, become visible."""
        if not isinstance(value, str) or isinstance(value, Markup):
            return value
        text = redact(value)
        if text.isprintable():
            return text
        return "".join(char if char.isprintable() or char in "\n\t" else "\N{REPLACEMENT CHARACTER}" for char in text)

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).with_name("templates")),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=shown,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.globals.update(
        style=Markup(_STYLE),  # noqa: S704 # a file of this package
        script=Markup(_SCRIPT),  # noqa: S704 # the same
        cloud_words=cloud_words,
        queued_words=queued_words,
        verdict_words=verdict_words,
    )
    environment.tests["bad"] = is_bad
    environment.filters.update(
        counted_chips=counted_chips,
        unit=unit,
        age=_age,
        brief=format_age,
        buffer=describe_buffer,
        clock=format_time,
        counted=counted,
        duration=format_seconds,
        first_line=_first_line,
        iso=iso,
        launch_tone=launch_tone,
        launch_words=launch_words,
        percent="{:.0%}".format,
        size=format_size,
        tone=tone,
        url_quoted=lambda text: quote(text, safe=""),
    )
    return environment


def _age(epoch: float, now: float) -> str:
    age = now - epoch
    return format_time(epoch) if age < 0 else "just now" if age < 1 else f"{format_seconds(age)} ago"


def _first_line(text: str) -> str:
    """The first line of a record that is not empty, without secrets and then cut."""
    line = redact(next((line for line in text.splitlines() if line.strip()), ""))
    return line if len(line) <= _MAX_LINE else f"{line[:_MAX_LINE]}…"
