"""What is wrong with a scenario or a request, in one line each: which key, what was given, what is allowed."""

from __future__ import annotations

import difflib
import json
from typing import TYPE_CHECKING, Any, get_args

from pydantic.fields import FieldInfo

from tpuwatch.config.schema import Setting
from tpuwatch.config.section import Section
from tpuwatch.sim.actions import ACTIONS, AnyAction, WrongError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pydantic import ValidationError
    from pydantic_core import ErrorDetails

_SHOWN = 60  # characters of a wrong value that a message repeats
_MAX_PROBLEMS = 20  # more are told by their number


def problems(error: ValidationError, kind: Any = AnyAction) -> list[str]:
    """A line for each thing that is wrong. `kind` is the model that was validated."""
    told = list(dict.fromkeys(line for problem in error.errors() for line in _told(problem, kind)))
    more = len(told) - _MAX_PROBLEMS
    return told if more <= 0 else [*told[:_MAX_PROBLEMS], f"and {more} more of the kind"]


def nearest(word: str, known: Iterable[str]) -> str:
    """What to write instead of a word that is not known."""
    names = list(known)
    near = difflib.get_close_matches(word, names, n=1)
    return f"did you mean {near[0]}?" if near else f"known are {', '.join(names)}"


def _told(problem: ErrorDetails, kind: Any) -> list[str]:
    context = problem.get("ctx", {})
    name, model, key = _place(problem["loc"], kind)
    if isinstance(context.get("error"), WrongError):
        return [f"{name}: {line}" if name else line for line in str(context["error"]).splitlines()]
    what = problem["type"]
    if what == "union_tag_not_found":
        return [f"{_under(name, 'do')} is missing; give one of {', '.join(ACTIONS)}"]
    if what == "union_tag_invalid":
        return [f"{_under(name, 'do')} cannot be {_short(context['tag'])}; {nearest(str(context['tag']), ACTIONS)}"]
    if what == "extra_forbidden" and model is not None:
        return [f"{name} is not a key{_of(model)}; {nearest(key, model.model_fields)}"]
    if what == "missing":
        return [f"{name} is missing; give {_allowed(model, key)}"]
    return [f"{name or 'it'} cannot be {_short(problem['input'])}; give {_allowed(model, key)}"]


def _place(place: Iterable[int | str], kind: Any) -> tuple[str, type[Section] | None, str]:
    """The name of the place as whoever wrote it knows it, and the model and the key that stand there."""
    name, model, key = "", None, ""
    for part in place:
        if isinstance(part, int):
            name += f"[{part}]"
            kind = next(iter(get_args(kind)), None)
            continue
        if kind == AnyAction:  # the word of `do` is no key of its own
            kind = ACTIONS[part]
            continue
        if part == "[key]":  # pydantic's word for a key that is wrong, not its value
            continue
        name = _under(name, part)
        if isinstance(kind, type) and issubclass(kind, Section):
            model, key = kind, part
            kind = kind.model_fields[part].annotation if part in kind.model_fields else None
    return name, model, key


def _under(name: str, key: str) -> str:
    return f"{name}.{key}" if name else key


def _of(model: type[Section]) -> str:
    words = [word for word, kind in ACTIONS.items() if kind is model]
    return f" of {words[0]!r}" if words else ""


def _allowed(model: type[Section] | None, key: str) -> str:
    field = model.model_fields.get(key) if model is not None else None
    if field is None:
        return "a table"
    if len(choices := get_args(field.annotation)) == 2 and choices[1] is type(None):  # a value or none
        field = FieldInfo.from_annotation(choices[0])
    try:
        return Setting("", key, field).allowed
    except StopIteration:  # a list of tables has no words of its own
        return f"tables [[{key}]]"


def _short(given: object) -> str:
    text = json.dumps(given, ensure_ascii=False, default=str)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
