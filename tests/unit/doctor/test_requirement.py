"""Requirements between packages, in the forms that frameworks' metadata really have."""

from __future__ import annotations

import pytest
from packaging.specifiers import SpecifierSet

from tpuwatch.doctor.requirement import Requirement


@pytest.mark.parametrize(
    ("line", "parsed"),
    [
        ("jaxlib<=0.8.1,>=0.8.1", ("jaxlib", "<=0.8.1,>=0.8.1", "")),
        ('libtpu==0.0.30.*; extra == "tpu"', ("libtpu", "==0.0.30.*", "tpu")),
        (
            "libtpu-nightly ==0.1.dev20240617 ; extra == 'tpu'",
            ("libtpu-nightly", "==0.1.dev20240617", "tpu"),
        ),
        ("libtpu~=0.0.14", ("libtpu", "~=0.0.14", "")),
        ("torch_xla (>=2.0)", ("torch-xla", ">=2.0", "")),
        ("requests", ("requests", "", "")),
        ("requests[socks] >=2", ("requests", ">=2", "")),
        ('tensorflow-intel==2.18.0; platform_system == "Windows"', None),
        ("libtpu somehow", None),
        ("@nonsense@", None),
    ],
)
def test_requires_dist_lines_are_parsed(line: str, parsed: tuple[str, str, str] | None) -> None:
    found = Requirement.parse(line)
    assert (found and (found.name, str(found.specifiers), found.extra)) == parsed


@pytest.mark.parametrize(
    ("specifiers", "version", "side"),
    [
        ("==0.0.30.*", "0.0.30", 0),
        ("==0.0.30.*", "0.0.30.1", 0),
        ("==0.0.30.*", "0.0.17", -1),
        ("==0.0.30.*", "0.0.51", 1),
        ("==0.0.2.*", "0.0.23", 1),
        ("<=0.8.1,>=0.8.1", "0.8.1", 0),
        ("<=0.8.1,>=0.8.1", "0.8.0", -1),
        ("<=0.8.1,>=0.8.1", "0.9", 1),
        ("<=0.4.35,>=0.4.34", "0.4.34", 0),
        ("==0.0.21", "0.0.21.0", 0),
        ("~=0.0.14", "0.0.14", 0),
        ("~=0.0.14", "0.0.51", 0),
        ("~=0.0.14", "0.0.8", -1),
        ("~=0.0.14", "0.1.0", 1),
        ("<2", "2.0", 1),
        ("<2", "1.9", 0),
        (">2", "2.0", -1),
        ("", "1.0", 0),
        ("==2.9.0", "2.9.0+cpu", 0),
        ("==0.0.2", "0.0.3.dev20241010", None),
        ("==0.1.dev20240617", "0.1", None),
        ("!=1.0", "1.0", None),
        ("===1.0", "1.0", None),
        ("==1.0", "somehow", None),
    ],
)
def test_versions_are_compared_and_what_cannot_be_judged_is_unknown(
    specifiers: str, version: str, side: int | None
) -> None:
    assert Requirement("libtpu", SpecifierSet(specifiers)).compare(version) == side
