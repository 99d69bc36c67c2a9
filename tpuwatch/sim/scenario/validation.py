"""Messages for validation errors of scenarios and requests: the key, the value, and what is allowed."""

from __future__ import annotations

import difflib
import json
from typing import TYPE_CHECKING, Any, get_args

from pydantic.fields import FieldInfo

from tpuwatch.config import ConfigKey, Section
from tpuwatch.sim.scenario.actions import ACTIONS, AnyAction, InvalidActionError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pydantic import ValidationError
    from pydantic_core import ErrorDetails

_MAX_VALUE_CHARS = 60  # characters of a wrong value that a message repeats
_MAX_ERRORS = 20  # further ones are only counted


def describe_errors(error: ValidationError, kind: Any = AnyAction) -> list[str]:
    """Return a line for each error. `kind` is the model that was validated."""
    lines = list(dict.fromkeys(line for problem in error.errors() for line in _describe_error(problem, kind)))
    more = len(lines) - _MAX_ERRORS
    return lines if more <= 0 else [*lines[:_MAX_ERRORS], f"and {more} more of the kind"]


def suggest(word: str, known: Iterable[str]) -> str:
    """Return a suggestion for an unknown word."""
    names = list(known)
    near = difflib.get_close_matches(word, names, n=1)
    return f"did you mean {near[0]}?" if near else f"known are {', '.join(names)}"


def _describe_error(problem: ErrorDetails, kind: Any) -> list[str]:
    context = problem.get("ctx", {})
    name, model, key = _locate(problem["loc"], kind)
    if isinstance(context.get("error"), InvalidActionError):
        return [f"{name}: {line}" if name else line for line in str(context["error"]).splitlines()]
    what = problem["type"]
    if what == "union_tag_not_found":
        return [f"{_join_key(name, 'do')} is missing; give one of {', '.join(ACTIONS)}"]
    if what == "union_tag_invalid":
        return [
            f"{_join_key(name, 'do')} cannot be {_shorten(context['tag'])}; {suggest(str(context['tag']), ACTIONS)}"
        ]
    if what == "extra_forbidden" and model is not None:
        return [f"{name} is not a key{_of(model)}; {suggest(key, model.model_fields)}"]
    if what == "missing":
        return [f"{name} is missing; give {_describe_allowed(model, key)}"]
    return [f"{name or 'it'} cannot be {_shorten(problem['input'])}; give {_describe_allowed(model, key)}"]


def _locate(location: Iterable[int | str], kind: Any) -> tuple[str, type[Section] | None, str]:
    """Return the dotted name of a location, and the model and key there."""
    name, model, key = "", None, ""
    for part in location:
        if isinstance(part, int):
            name += f"[{part}]"
            kind = next(iter(get_args(kind)), None)
            continue
        if kind == AnyAction:  # the word of `do` is no key of its own
            kind = ACTIONS[part]
            continue
        if part == "[key]":  # pydantic's word for a key that is wrong, not its value
            continue
        name = _join_key(name, part)
        if isinstance(kind, type) and issubclass(kind, Section):
            model, key = kind, part
            kind = kind.model_fields[part].annotation if part in kind.model_fields else None
    return name, model, key


def _join_key(name: str, key: str) -> str:
    return f"{name}.{key}" if name else key


def _of(model: type[Section]) -> str:
    words = [word for word, kind in ACTIONS.items() if kind is model]
    return f" of {words[0]!r}" if words else ""


def _describe_allowed(model: type[Section] | None, key: str) -> str:
    field = model.model_fields.get(key) if model is not None else None
    if field is None:
        return "a table"
    if len(choices := get_args(field.annotation)) == 2 and choices[1] is type(None):  # a value or none
        field = FieldInfo.from_annotation(choices[0])
    try:
        return ConfigKey("", key, field).allowed
    except StopIteration:  # a list of tables has no words of its own
        return f"tables [[{key}]]"


def _shorten(given: object) -> str:
    text = json.dumps(given, ensure_ascii=False, default=str)
    return text if len(text) <= _MAX_VALUE_CHARS else text[:_MAX_VALUE_CHARS] + "…"
