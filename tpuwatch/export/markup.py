"""HTML that is safe by construction: whatever is not markup already is escaped when it is put into an element."""

from __future__ import annotations

from html import escape
from typing import Final

_VOID: Final = frozenset({"meta"})  # elements without an end


class Markup(str):
    """A string that is HTML. Only this module makes it, besides those who vouch for a constant."""

    __slots__ = ()


def element(tag: str, /, *children: str, **attributes: str) -> Markup:
    """One element. Strings that are no Markup become text; `class_` stands for `class`, `data_name` for `data-name`."""
    given = "".join(f' {name.rstrip("_").replace("_", "-")}="{text(value)}"' for name, value in attributes.items())
    if tag in _VOID:
        return Markup(f"<{tag}{given}>")
    return Markup(f"<{tag}{given}>{join(*children)}</{tag}>")


def join(*children: str) -> Markup:
    """Several pieces one after the other."""
    return Markup("".join(child if isinstance(child, Markup) else text(child) for child in children))


def text(value: str) -> Markup:
    """Any string as text or as an attribute's value; control characters, which could hide or reorder it, show."""
    shown = (char if char.isprintable() or char in "\n\t" else "\N{REPLACEMENT CHARACTER}" for char in value)
    return Markup(escape("".join(shown)))
