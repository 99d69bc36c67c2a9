"""All checks together: their names, and what each says of an empty machine and of one that is set up wrongly."""

from __future__ import annotations

import re

from tests.paths import ROOT
from tests.standins.doctor_machine import Place
from tpuwatch.doctor.check import Area
from tpuwatch.doctor.checks import CHECKS
from tpuwatch.doctor.run import run_checks
from tpuwatch.libtpu.variables import MEASURED


def test_every_check_is_documented_in_its_order_and_no_other() -> None:
    page = (ROOT / "docs" / "doctor.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \|", page, re.MULTILINE)
    assert rows == [(check.id, check.area.value) for check in CHECKS]


def test_ids_are_names_and_none_is_an_areas() -> None:
    ids = [check.id for check in CHECKS]
    assert len(set(ids)) == len(ids)
    assert not {area.value for area in Area} & set(ids)
    assert [check.area for check in CHECKS] == sorted((check.area for check in CHECKS), key=list(Area).index)


def test_an_empty_machine_breaks_no_check(place: Place) -> None:
    findings = run_checks(CHECKS, place.environment())
    assert {one.id for one in findings} >= {check.id for check in CHECKS} - {"processes"}
    assert [one.text for one in findings if "the check itself failed" in one.text] == []


def test_what_is_not_well_has_a_fix_and_a_source_that_exists(place: Place) -> None:
    place.process(11, environ={"TPU_PRE_MAPPED_BUFFER_SIZE": "abc", "TPU_LOG_DIR": "/x/y", "TPU_MIN_LOG_LEVEL": "3"})
    place.chips()
    place.write("/proc/meminfo", "MemTotal: 1024 kB\nMemAvailable: 1 kB\n")
    bad = [one for one in run_checks(CHECKS, place.environment()) if one.status.value in ("wrong", "warn")]
    assert len(bad) >= 6
    assert [result.text for result in bad if not (result.fix and result.source)] == []
    pages = {result.source for result in bad if not result.source.startswith("https://")}
    assert MEASURED in pages
    assert [page for page in pages if not (ROOT / page).exists()] == []
