from __future__ import annotations

import io

from tpuwatch.sim.host.job import JobOutput
from tpuwatch.sim.host.logwriter import HBM_BYTES
from tpuwatch.sim.scenario.launch import PADDED


def written(*, whole: bool) -> str:
    stream = io.StringIO()
    JobOutput(stream).hbm_oom(PADDED, limit=HBM_BYTES, whole=whole)
    return stream.getvalue()


def test_new_version_gives_the_job_a_coded_error() -> None:
    text = written(whole=True)
    assert text.startswith("Traceback (most recent call last):\n")
    assert "E1000: CompileTimeHbmOom" in text
    assert "HLO temporaries (20.00G) exceeds available HBM (15.75G)" in text


def test_old_version_gives_the_job_the_whole_report() -> None:
    text = written(whole=False)
    assert "Ran out of memory in memory space hbm. Used 20.00G of 15.75G hbm." in text
    assert "Extra memory due to padding: 14.25G (9.1x expansion)" in text
