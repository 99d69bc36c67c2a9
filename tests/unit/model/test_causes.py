"""The table of causes: each row is whole, and its fields fit each other."""

from __future__ import annotations

from dataclasses import MISSING, fields

import pytest

from tpuwatch.logs.rules.catalogue import load_catalogue
from tpuwatch.model.causes import MACHINE_FAULT, PROGRAM_FAULT, Cause, CauseRow, Whose

EFFECTS = {one.name for one in fields(CauseRow) if one.default is not MISSING} - {"is_fault"}


@pytest.mark.parametrize("cause", Cause)
def test_each_row_is_whole(cause: Cause) -> None:
    row = cause.row
    assert row.id == cause.value == cause.name.lower()
    assert isinstance(row.whose, Whose)
    for text in (row.who_acts, row.alert, row.meaning):
        assert text == text.strip(" .") != "", text
        assert "|" not in text, "it would end the cell of docs/causes.md"
    assert type(row.recovers) is bool


@pytest.mark.parametrize("missing", [one.name for one in fields(CauseRow) if one.default is MISSING])
def test_a_row_without_a_field_is_no_row(missing: str) -> None:
    row = Cause.HANG.row
    whole = {one.name: getattr(row, one.name) for one in fields(CauseRow)}
    assert CauseRow(**whole) == row
    with pytest.raises(TypeError, match=missing):
        CauseRow(**{name: value for name, value in whole.items() if name != missing})


def test_causes_have_their_rank_by_their_place() -> None:
    assert [cause.rank for cause in Cause] == list(range(len(Cause)))


@pytest.mark.parametrize("cause", Cause)
def test_the_fields_of_a_row_fit_each_other(cause: Cause) -> None:
    row = cause.row
    if not row.is_fault:
        assert row.whose is Whose.NONE
        assert not any(getattr(row, name) for name in EFFECTS)
    assert row.alert != PROGRAM_FAULT or row.whose is Whose.PROGRAM
    assert row.alert != MACHINE_FAULT or row.whose is not Whose.PROGRAM
    assert row.hangs or row.whose is not Whose.OTHER_WORKER, "a worker that waits for another one may wait forever"
    assert not row.of_tpu or row.whose in (Whose.NODE, Whose.UNCLEAR)


def test_each_fault_of_a_training_loop_has_its_rule() -> None:
    loops = {cause: cause.row.loop.rule for cause in Cause if cause.row.loop is not None}
    assert {rule.cause: rule.id for rule in load_catalogue().rules if rule.family == "loops"} == loops
