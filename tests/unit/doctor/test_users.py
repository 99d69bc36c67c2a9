"""What a user may do to a file, and who a process runs as."""

from __future__ import annotations

import os

import pytest

from tests.standins.doctor_machine import ME, STATUS, STRANGER, Place
from tpuwatch.doctor.users import User, user_of_status
from tpuwatch.host.users import parse_users


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
    people = (User(1000, frozenset([1000])), User(1001, frozenset([1000])), STRANGER)
    assert [user.may(owner, wanted) for user in people] == [mine, my_groups, others]
    assert User(0).may(owner, wanted)


def test_a_process_by_its_status() -> None:
    user = user_of_status(STATUS.format(uid=1000, state="S", capabilities="0000000000004000"))
    assert user == User(1000, frozenset([7]), may_lock_memory=True)
    assert not user_of_status(STATUS.format(uid=1000, state="S", capabilities="0")).may_lock_memory
    with pytest.raises(ValueError, match="not a status"):
        user_of_status("hello")


def test_names_come_from_files(place: Place) -> None:
    place.write("/etc/passwd", f"root:x:0:0::/:\nfirst:x:{ME.uid + 9}:1::\nsecond:x:{ME.uid + 9}:1::\nbroken\n")
    environment = place.environment()
    assert environment.user_name(ME.uid + 9) == "first"
    assert environment.user_name(54_321) == "54321"
    assert parse_users("a:b\nx:y:not-a-number") == {}
