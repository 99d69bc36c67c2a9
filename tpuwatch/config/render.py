"""The configuration as text: the example file, and the effective values with their origin."""

from __future__ import annotations

import json
import textwrap
from typing import TYPE_CHECKING, Any

from tpuwatch.config.schema import Config, config_keys, tables

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

HIDDEN = "(secret)"  # replaces the value of a secret
_WIDTH = 98
_HEAD = """\
# The configuration of tpuwatch: every key, with its meaning, what it allows, and its default.
# Generated from the schema by `python -m tpuwatch.config`. Keys that are left out have their defaults;
# to change one, remove the "#" before it.
"""


def render_example() -> str:
    """The text of config.example.toml: every key with its default, commented out."""
    values = as_dict(Config())["values"]
    lines = [_HEAD]
    for table, section in tables().items():
        lines += [*_comment(" ".join((section.__doc__ or "").split())), f"[{table}]", ""]
        for setting in config_keys():
            if setting.table == table:
                lines += [
                    *_comment(setting.meaning),
                    *_comment(f"Give {setting.allowed}."),
                    f"#{setting.key} = {_toml(values[table][setting.key])}",
                    "",
                ]
    return "\n".join(lines)


def show(config: Config) -> str:
    """All effective values as TOML, each with its origin: the file or the default."""
    shown = as_dict(config)
    lines = [
        f"# read from {json.dumps(shown['source'])}" if shown["source"] else "# no configuration file: all defaults"
    ]
    for table, values in shown["values"].items():
        lines += ["", f"[{table}]"]
        lines += [
            f"{key} = {_toml(value)}  # {'file' if f'{table}.{key}' in shown['from_file'] else 'default'}"
            for key, value in values.items()
        ]
    return "\n".join(lines) + "\n"


def as_dict(config: Config) -> dict[str, Any]:
    """For JSON: {"source": path or None, "values": {table: {key: value}}, "from_file": [the keys that it sets]}."""
    given: Mapping[str, Iterable[str]] = {
        table: getattr(config, table).model_fields_set for table in config.model_fields_set
    }
    values = config.model_dump(mode="json")
    for setting in config_keys():
        if setting.secret and values[setting.table][setting.key]:
            values[setting.table][setting.key] = HIDDEN
    return {
        "source": None if config.source is None else str(config.source),
        "values": values,
        "from_file": [setting.name for setting in config_keys() if setting.key in given.get(setting.table, ())],
    }


def _comment(text: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH, initial_indent="# ", subsequent_indent="# ", break_on_hyphens=False)


def _toml(value: Any) -> str:
    """A TOML value. Strings, numbers and lists are written as in JSON, except for one character."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_toml(key)} = {_toml(one)}" for key, one in value.items()) + "}"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
