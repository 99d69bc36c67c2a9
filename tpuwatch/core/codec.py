"""Dataclasses as JSON documents, back again, and the JSON schema of them: one form for all that is served and read.

A document is a dataclass whose fields are, by their annotations: text, numbers, `Time`, `Words`, `Digits`, `Any`, other
dataclasses, enums, bytes, tuples and mappings of these, and each of them or None. What is read may come from others:
keys that are not known are ignored, as those of a newer tpuwatch, unless it is read strictly; a key that is missing has
its field's default.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Mapping
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any, Final, Protocol, TypeVar, Union, get_args, get_origin, get_type_hints

from tpuwatch.core.json_text import iso

if TYPE_CHECKING:
    from collections.abc import Callable

D = TypeVar("D")
Schema = dict[str, Any]

_MAX_NUMBER: Final = 1e300  # one that is larger cannot be reckoned with; logs and jobs may say any
_FIRST, _LAST = -62_135_596_800, 253_402_300_799  # seconds of the years 1 to 9999, which dates have
_EPOCH: Final = "_epoch"
_ABSENT: Final = object()
_REFERENCE: Final = "#/components/schemas/"


class _Mark(Enum):
    TIME = "a time"


Time = Annotated[float, _Mark.TIME]  # seconds since the epoch; as JSON two keys, as `tpuwatch.core.times` gives them


@dataclasses.dataclass(frozen=True)
class Words:
    """Marks text that is one of an enum's values, or newer than that: `Annotated[str, Words(Verdict)]`."""

    enum: type[Enum]


@dataclasses.dataclass(frozen=True)
class Digits:
    """Marks a number that is written with so many digits after its point: `Annotated[float, Digits(3)]`."""

    digits: int


class DocumentError(ValueError):
    """What was read is no such document; the message names the key's path, and what stands there instead."""

    def __init__(self, problem: str, path: str = "") -> None:
        super().__init__(f"{path}: {problem}" if path else problem)
        self._problem, self._path = problem, path

    def within(self, key: str) -> DocumentError:
        """The same error, as the value of that key has it."""
        separator = "" if not self._path or self._path.startswith("[") else "."
        return DocumentError(self._problem, f"{key}{separator}{self._path}")


def like(document: type[D], source: object, **given: Any) -> D:
    """A dataclass with what is given, and else the attributes of `source` of the same names; its `Words` are text."""
    found = {
        one.name: given[one.name] if one.name in given else getattr(source, one.name)
        for one in dataclasses.fields(document)  # type: ignore[arg-type] # a dataclass
    }
    for name, form in _words(document).items():
        text = form.encode(found[name])
        found[name] = tuple(text) if isinstance(text, list) else text
    return document(**found)


def encode(document: Any) -> dict[str, Any]:
    """A dataclass as what `dumps` takes."""
    found: dict[str, Any] = _form(type(document)).encode(document)
    return found


def decode(document: type[D], value: Any, *, strict: bool = False) -> D:
    """The dataclass that a value of JSON holds. Raises DocumentError for any other; `strict`: for unknown keys, too."""
    found: D = _form(document, strict).decode(value)
    return found


def schemas(*documents: type[Any]) -> dict[str, Schema]:
    """The JSON schemas of these dataclasses and of all within them, by their names."""
    found: dict[str, Schema] = {}
    for document in documents:
        _form(document).schema(found)
    return found


def schema_name(document: type[Any]) -> str:
    """The name of a dataclass among schemas."""
    return document.__name__.removesuffix("Document")


class _Form(Protocol):
    """How the values of one type are written, read and described."""

    def encode(self, value: Any) -> Any: ...

    def decode(self, value: Any) -> Any: ...

    def schema(self, found: dict[str, Schema]) -> Schema:
        """Its schema; those of dataclasses go into `found`."""


class _Anything:
    """Values of which nothing is known, as the details of a finding."""

    def encode(self, value: Any) -> Any:
        return value

    def decode(self, value: Any) -> Any:
        return value

    def schema(self, found: dict[str, Schema]) -> Schema:  # noqa: ARG002 # as other forms
        return {}


@dataclasses.dataclass(frozen=True)
class _Scalar(_Anything):
    name: str  # in JSON schema
    types: tuple[type, ...]

    def decode(self, value: Any) -> Any:
        if isinstance(value, float) and self.types == (int,) and value.is_integer():
            value = int(value)  # JSON has one kind of numbers
        if not isinstance(value, self.types) or (isinstance(value, bool) and bool not in self.types):
            raise _wrong(self.name, value)
        if isinstance(value, (int, float)) and not abs(value) < _MAX_NUMBER:  # nor what is none
            raise _wrong(self.name, value)
        return value

    def schema(self, found: dict[str, Schema]) -> Schema:  # noqa: ARG002 # as other forms
        return {"type": self.name}


@dataclasses.dataclass(frozen=True)
class _Word(_Scalar):
    enum: type[Enum] = Enum

    def encode(self, value: Any) -> Any:
        return value.value if isinstance(value, Enum) else value

    def schema(self, found: dict[str, Schema]) -> Schema:  # noqa: ARG002 # as other forms
        return {"type": "string", "enum": [one.value for one in self.enum]}


@dataclasses.dataclass(frozen=True)
class _Rounded(_Scalar):
    digits: int = 0

    def encode(self, value: Any) -> Any:
        return round(value, self.digits)


@dataclasses.dataclass(frozen=True)
class _Moment(_Scalar):
    """A time's number. Its text is written beside it, and not read."""

    def decode(self, value: Any) -> Any:
        if not _FIRST <= super().decode(value) <= _LAST:
            raise _wrong("time", value)
        return value


@dataclasses.dataclass(frozen=True)
class _OrNone:
    form: _Form

    def encode(self, value: Any) -> Any:
        return None if value is None else self.form.encode(value)

    def decode(self, value: Any) -> Any:
        return None if value is None else self.form.decode(value)

    def schema(self, found: dict[str, Schema]) -> Schema:
        inner = self.form.schema(found)
        if isinstance(inner.get("type"), str):
            return {
                **inner,
                "type": [inner["type"], "null"],
                **({"enum": [*inner["enum"], None]} if "enum" in inner else {}),
            }
        return {"anyOf": [inner, {"type": "null"}]} if inner else inner


@dataclasses.dataclass(frozen=True)
class _List:
    form: _Form

    def encode(self, value: Any) -> Any:
        return [self.form.encode(one) for one in value]

    def decode(self, value: Any) -> Any:
        if not isinstance(value, list):
            raise _wrong("array", value)
        found = []
        for place, one in enumerate(value):
            try:
                found.append(self.form.decode(one))
            except DocumentError as error:  # noqa: PERF203 # free until it happens
                raise error.within(f"[{place}]") from None
        return tuple(found)

    def schema(self, found: dict[str, Schema]) -> Schema:
        return {"type": "array", "items": self.form.schema(found)}


@dataclasses.dataclass(frozen=True)
class _Map:
    form: _Form

    def encode(self, value: Any) -> Any:
        return {key: self.form.encode(one) for key, one in value.items()}

    def decode(self, value: Any) -> Any:
        if not isinstance(value, dict):
            raise _wrong("object", value)
        return {key: _within(key, self.form.decode, one) for key, one in value.items()}

    def schema(self, found: dict[str, Schema]) -> Schema:
        return {"type": "object", "additionalProperties": self.form.schema(found)}


@dataclasses.dataclass(frozen=True)
class _Member(_Word):
    """One of an enum's values, and no other: what reads it has to know it."""

    def decode(self, value: Any) -> Any:
        try:
            return self.enum(value)
        except ValueError:
            raise _wrong(self.enum.__name__.lower(), value) from None


class _Hexadecimal:
    def encode(self, value: Any) -> Any:
        return value.hex()

    def decode(self, value: Any) -> Any:
        try:
            return bytes.fromhex(value)
        except (TypeError, ValueError):
            raise _wrong("hexadecimal text", value) from None

    def schema(self, found: dict[str, Schema]) -> Schema:  # noqa: ARG002 # as other forms
        return {"type": "string", "pattern": "^([0-9a-f]{2})*$"}


class _Dataclass:
    def __init__(self, document: type[Any], strict: bool) -> None:
        self._document = document
        self._strict = strict
        self._forms = {name: _form_of(hint, strict) for name, hint in _hints(document).items()}
        self._times = frozenset(name for name, form in self._forms.items() if _is_time(form))
        self._required = [
            one.name
            for one in dataclasses.fields(document)
            if one.default is dataclasses.MISSING and one.default_factory is dataclasses.MISSING
        ]

    def encode(self, value: Any) -> Any:
        found: dict[str, Any] = {}
        for name, form in self._forms.items():
            one = getattr(value, name)
            if name in self._times:
                found[name], found[name + _EPOCH] = iso(one), one
            else:
                found[name] = form.encode(one)
        return found

    def decode(self, value: Any) -> Any:
        if not isinstance(value, dict):
            raise _wrong("object", value)
        found: dict[str, Any] = {}
        for name, form in self._forms.items():
            key = name + _EPOCH if name in self._times else name
            one = value.get(key, _ABSENT)
            if one is not _ABSENT:
                found[name] = _within(key, form.decode, one)
            elif name in self._required:
                raise DocumentError("is missing", key)
        if self._strict and (unknown := value.keys() - self._forms.keys()):
            raise DocumentError("is not known", min(unknown))
        return self._document(**found)

    def schema(self, found: dict[str, Schema]) -> Schema:
        name = schema_name(self._document)
        if name not in found:
            found[name] = {}  # it may be within itself
            properties: dict[str, Schema] = {}
            for key, form in self._forms.items():
                shape = form.schema(found)
                if key in self._times:
                    text = ["string", "null"] if isinstance(shape["type"], list) else "string"
                    properties[key] = {"type": text, "format": "date-time"}
                    properties[key + _EPOCH] = shape
                else:
                    properties[key] = shape
            found[name] = {"type": "object", "properties": properties, "required": list(properties)}
        return {"$ref": _REFERENCE + name}


_SCALARS: Final[dict[Any, _Form]] = {
    Any: _Anything(),
    str: _Scalar("string", (str,)),
    int: _Scalar("integer", (int,)),
    float: _Scalar("number", (int, float)),
    bool: _Scalar("boolean", (bool,)),
    bytes: _Hexadecimal(),
}


_FORMS: dict[tuple[type[Any], bool], _Dataclass] = {}  # made when they are first needed


def _form(document: type[Any], strict: bool = False) -> _Dataclass:
    if (document, strict) not in _FORMS:
        _FORMS[document, strict] = _Dataclass(document, strict)
    return _FORMS[document, strict]


_WORDS: dict[type[Any], dict[str, _Form]] = {}  # the same


def _words(document: type[Any]) -> dict[str, _Form]:
    """The fields that are `Words`; none of plain data, whose enums stay what they are."""
    if document not in _WORDS:
        hints = {one.name: one.type for one in dataclasses.fields(document) if not isinstance(one.type, str)}
        forms = {name: _form_of(hint) for name, hint in hints.items()}
        _WORDS[document] = {name: form for name, form in forms.items() if _is_words(form)}
    return _WORDS[document]


def _hints(document: type[Any]) -> dict[str, Any]:
    """The annotations of its fields. Those that are text are slow to read: documents' own modules have none."""
    hints = {one.name: one.type for one in dataclasses.fields(document)}
    if any(isinstance(one, str) for one in hints.values()):
        hints.update(get_type_hints(document, include_extras=True))
    return hints


def _form_of(hint: Any, strict: bool = False) -> _Form:
    """The form of an annotation. Raises TypeError for one that documents do not have."""
    if hint in _SCALARS:
        return _SCALARS[hint]
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _marked(arguments[0], arguments[1])
    if origin in (Union, types.UnionType) and len(arguments) == 2 and arguments[1] is type(None):
        return _OrNone(_form_of(arguments[0], strict))
    if origin is tuple and arguments[1] is not Ellipsis:
        return _SCALARS[Any]  # a pair is as it stands
    if origin is tuple:
        return _List(_form_of(arguments[0], strict))
    if origin in (Mapping, dict) and arguments[0] is str:
        return _Map(_form_of(arguments[1], strict))
    if dataclasses.is_dataclass(hint):
        return _form(hint, strict)  # type: ignore[arg-type] # of a class
    if isinstance(hint, type) and issubclass(hint, Enum):
        return _Member("string", (str,), hint)
    raise TypeError(f"a document has no {hint}")


def _marked(hint: Any, mark: Any) -> _Form:
    if mark is _Mark.TIME:
        return _Moment("number", (int, float))
    if isinstance(mark, Words):
        return _Word("string", (str,), mark.enum)
    if isinstance(mark, Digits):
        return _Rounded("number", (int, float), mark.digits)
    raise TypeError(f"a document has no {hint} with {mark}")


def _is_time(form: _Form) -> bool:
    return isinstance(form.form if isinstance(form, _OrNone) else form, _Moment)


def _is_words(form: _Form) -> bool:
    return type(form.form if isinstance(form, (_OrNone, _List)) else form) is _Word


def _within(key: str, read: Callable[[Any], Any], value: Any) -> Any:
    try:
        return read(value)
    except DocumentError as error:
        raise error.within(key) from None


def _wrong(wanted: str, value: Any) -> DocumentError:
    text = repr(value) if isinstance(value, (int, float, str)) else type(value).__name__
    return DocumentError(f"is no {wanted}, but {'null' if value is None else text[:40]}")
