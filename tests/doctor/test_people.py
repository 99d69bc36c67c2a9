"""What a user may do to a file, and who a process runs as."""

from __future__ import annotations

import os

import pytest

from tests.doctor.place import ME, STATUS, STRANGER, Place
from tpuwatch.doctor.people import Person, from_status, names


@pytest.mark.parametrize(
    ("mode", "wanted", "mine", "my_groups", "others"),
    [
        (0o600, "r", True, False, False),
        (0o640, "r", True, True, False),
        (0o644, "r", True, True, True),
        (0o644, "rw", True, False, False),
        (0o060, "rw", False, True, False),
        (0o1777, "rwx", True, True, True),
    ],
)
def test_owner_group_and_others(
    place: Place, mode: int, wanted: str, mine: bool, my_groups: bool, others: bool
) -> None:
    entry = place.write("/file", mode=mode).stat()
    owner = os.stat_result((entry.st_mode, 0, 0, 1, 1000, 1000, 0, 0, 0, 0))
    people = (Person(1000, frozenset([1000])), Person(1001, frozenset([1000])), STRANGER)
    assert [person.may(owner, wanted) for person in people] == [mine, my_groups, others]
    assert Person(0).may(owner, wanted)


def test_a_process_by_its_status() -> None:
    person = from_status(STATUS.format(uid=1000, state="S", capabilities="0000000000004000"))
    assert person == Person(1000, frozenset([7]), pins_freely=True)
    assert not from_status(STATUS.format(uid=1000, state="S", capabilities="0")).pins_freely
    with pytest.raises(ValueError, match="not a status"):
        from_status("hello")


def test_names_come_from_files(place: Place) -> None:
    place.write("/etc/passwd", f"root:x:0:0::/:\nfirst:x:{ME.uid + 9}:1::\nsecond:x:{ME.uid + 9}:1::\nbroken\n")
    environment = place.environment()
    assert environment.user_name(ME.uid + 9) == "first"
    assert environment.user_name(54_321) == "54321"
    assert names(["a:b", "x:y:not-a-number"]) == {}
