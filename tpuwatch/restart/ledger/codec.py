"""Records as JSON text, for any ledger. Strict in what it reads: a record that is misread could stop a node twice."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any, Final, TypeVar

from tpuwatch.core import LedgerError, capital
from tpuwatch.core import decode as decode_document
from tpuwatch.model import Action, Fleet, RestartRecord

# Raised with every change of what a record holds: an older tpuwatch would lose what it does not know by writing it.
SCHEMA: Final = 4
_LOOK: Final = (
    "look at your nodes with `gcloud compute tpus tpu-vm list`, and start those that it may have left stopped"
)
LOOK: Final = f"{capital(_LOOK)}."
RECOVER: Final = (
    f"{_LOOK}; the daemon, or without one `tpuwatch restarts reset-breaker`, sets it aside and begins a new one with "
    "its breaker open"
)
Kept = TypeVar("Kept", RestartRecord, Fleet)
MAX_CHARS: Final = 1 << 18  # a record takes some thousand
# Schema 3 has what was begun on a machine among the operations of the cloud. Schema 2 lacks what a restart was decided
# on, too. Schema 1 also had other names for some keys and values.
_ON_MACHINE_3: Final = frozenset({Action.CHECKPOINT.value, Action.END_HOLDER.value, Action.RESTART_RUNTIME.value})
_KEYS_1: Final = {"rung": "action", "witnesses": "signals"}
_VALUES_1: Final = {"action": {"nothing": "none", "ask": "manual"}, "phase": {"needs_person": "needs_operator"}}
_SIGNALS_1: Final = {"agent": "peer"}


class DamagedError(LedgerError):
    """A stored record makes no sense."""


def encode(value: RestartRecord | Fleet) -> str:
    """It as one line of ASCII. Raises LedgerError if it cannot be stored."""
    try:
        text = json.dumps({"schema": SCHEMA, **asdict(value)}, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError) as error:
        raise LedgerError(f"what the ledger is to hold cannot be stored: {error}") from error
    if len(text) > MAX_CHARS:
        raise LedgerError(f"what the ledger is to hold is too large to be stored: {len(text)} characters")
    return text


def decode(kind: type[Kept], text: str, where: str) -> Kept:
    """What is in such a text. Raises LedgerError, with `where` ("ledger.db") as the place it was found in."""
    try:
        value = json.loads(text)
        schema = value.pop("schema")
        if type(schema) is not int:
            raise TypeError("its schema is no whole number")  # noqa: TRY301 (as all else that is damaged)
        if kind is RestartRecord and schema == 1:
            value = _from_schema_1(value)
        if kind is RestartRecord and schema in (1, 2, 3):
            value = _from_schema_3(value)
        if schema in (1, 2, 3, SCHEMA):
            return decode_document(kind, value, strict=True)
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError) as error:
        raise DamagedError(
            f"a record in {where} is damaged ({type(error).__name__}: {str(error)[:200]}): {RECOVER}"
        ) from error
    raise LedgerError(
        f"a record in {where} is of another version of tpuwatch (its schema is {schema}, this one's {SCHEMA}): use "
        "one and the same version wherever this ledger is used"
    )


def _from_schema_1(record: dict[str, Any]) -> dict[str, Any]:
    """A record of schema 1 with the keys and values of today. What is wrong in it is left for the codec to find."""
    record = _renamed(record)
    if isinstance(record.get("signals"), list):
        record["signals"] = [_SIGNALS_1.get(one, one) if isinstance(one, str) else one for one in record["signals"]]
    if isinstance(record.get("history"), list):
        record["history"] = [_renamed(one) if isinstance(one, dict) else one for one in record["history"]]
    return record


def _from_schema_3(record: dict[str, Any]) -> dict[str, Any]:
    """A record of schema 3 with what was begun on a machine in its own place."""
    names = record.get("operations")
    if record.get("action") not in _ON_MACHINE_3 or not isinstance(names, list):
        return record
    machine: dict[str, Any] = {"act": record.get("operation", ""), "processes": [], "invocation": None}
    for kind, _, rest in (name.partition("/") for name in names if isinstance(name, str)):
        pid, _, ticks = rest.partition("/")
        if kind == "invocation":
            machine["invocation"] = rest
        elif kind == "holder" and pid.isdecimal() and ticks.isdecimal():
            machine["processes"].append({"pid": int(pid), "ticks": int(ticks)})
    return {**record, "operation": "", "operations": [], "machine": machine}


def _renamed(value: dict[str, Any]) -> dict[str, Any]:
    """A record or an attempt of schema 1 with the keys, the action and the phase of today."""
    new = {_KEYS_1.get(key, key): given for key, given in value.items()}
    for key, names in _VALUES_1.items():
        if isinstance(new.get(key), str):
            new[key] = names.get(new[key], new[key])
    return new
