"""The TPU's devices, their holders, the lock file, memory."""

from __future__ import annotations

import os

import pytest

from tests.standins.doctor_machine import ME, STRANGER, Place, described, expect, serving, statuses
from tpuwatch.doctor.check import CheckStatus
from tpuwatch.doctor.users import User

LOCK = "/tmp/libtpu_lockfile"  # noqa: S108 (below a directory of the test's)
GIB = 1 << 30


def meminfo(place: Place, total: int, available: int) -> None:
    place.write("/proc/meminfo", f"MemTotal: {total >> 10} kB\nMemFree: 1 kB\nMemAvailable: {available >> 10} kB\n")


def locks(place: Place, pid: int) -> None:
    """/proc/locks as it is while the process holds the lock file."""
    entry = (place.root / LOCK.lstrip("/")).stat()
    where = f"{os.major(entry.st_dev):02x}:{os.minor(entry.st_dev):02x}:{entry.st_ino}"
    place.write("/proc/locks", f"1: FLOCK  ADVISORY  WRITE {pid} {where} 0 EOF\n")


def test_devices_that_the_jobs_user_may_open(place: Place) -> None:
    place.chips()
    for name in ("0", "1", "2", "3", "vfio"):
        place.write(f"/dev/vfio/{name}", mode=0o666)
    place.process(11, uid=STRANGER.uid)
    assert described("devices", place.environment()) == ["ok: 4 TPU devices (v5e), open to the job's user. | "]


def test_devices_that_the_jobs_user_may_not_open(place: Place) -> None:
    place.chips(device="0x005e")
    place.write("/dev/accel0", mode=0o660)
    place.process(11, uid=STRANGER.uid)
    assert described("devices", place.environment()) == [
        "wrong: 54321 cannot open /dev/accel0. | sudo chmod a+rw /dev/accel0"
    ]


def test_chips_without_device_nodes_as_in_a_container(place: Place) -> None:
    place.chips()
    expect("devices", place.environment(), "wrong: 4 TPU chips (v5e) are on the PCI bus", "docker run --privileged")


def test_no_tpu_is_wrong_only_where_there_should_be_one(place: Place) -> None:
    place.chips(device="0x0042")  # Google's network card
    assert statuses("devices", place.environment()) == [CheckStatus.SKIPPED]
    root = "/computeMetadata/v1/instance/"
    with serving({f"{root}id": "1", f"{root}attributes/accelerator-type": "v5litepod-4"}) as address:
        environment = place.environment(config={}, environ={"GCE_METADATA_HOST": address})
        expect("devices", environment, "wrong: This is a TPU VM (v5litepod-4), but it has no TPU on its PCI bus")
        (line,) = described("devices", environment)
        fixes = (
            "docker run --privileged",
            "systemctl --failed",
            "sudo reboot",
            "delete the node",
        )  # the likeliest first
        assert [line.index(fix) for fix in fixes] == sorted(line.index(fix) for fix in fixes)


def test_holders_of_the_tpu(place: Place) -> None:
    place.process(1, command=("init",))
    assert described("holders", place.environment()) == ["ok: No process holds the TPU. | "]
    place.process(11)
    place.link("/proc/11/fd/3", "/dev/vfio/0")
    (line,) = described("holders", place.environment())
    assert line.startswith("ok: Process 11 of ")
    assert line.endswith("(python3 train.py) holds /dev/vfio/0. | ")


@pytest.mark.parametrize(("state", "how"), [("T (stopped)", "is stopped"), ("Z (zombie)", "has ended")])
def test_a_holder_that_does_no_work(place: Place, state: str, how: str) -> None:
    place.process(1, command=("init",))
    place.process(11, state=state)
    place.link("/proc/11/fd/3", "/dev/accel0")
    (line,) = described("holders", place.environment())
    assert line.startswith("wrong: ")
    assert f"{how}" in line
    assert line.endswith("sudo kill -9 11")


def test_no_lock_file(place: Place) -> None:
    assert statuses("lock_file", place.environment()) == [CheckStatus.OK]


def test_a_lock_file_that_is_held(place: Place) -> None:
    place.process(1, command=("init",))
    place.process(11)
    place.write(LOCK, mode=0o600)
    place.link("/proc/11/fd/4", str(place.root / LOCK.lstrip("/")))
    locks(place, 11)
    (line,) = described("lock_file", place.environment(me=STRANGER))
    assert f"{LOCK} is held by process 11" in line


def test_a_lock_file_that_another_user_left(place: Place) -> None:
    place.process(1, command=("init",), uid=0)
    place.process(11, uid=STRANGER.uid)
    place.write(LOCK, mode=0o644)
    place.write("/proc/locks")
    (line,) = described("lock_file", place.environment())
    assert line.startswith(f"wrong: {LOCK} was left by ")
    assert "and 54321 cannot open it" in line
    assert f"sudo rm {LOCK}" in line


def test_a_lock_file_of_ones_own(place: Place) -> None:
    place.process(1, command=("init",))
    place.write(LOCK, mode=0o644)
    place.write("/proc/locks")
    assert statuses("lock_file", place.environment()) == [CheckStatus.OK]


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file away")
@pytest.mark.parametrize(("protected", "status"), [("0", CheckStatus.OK), ("1", CheckStatus.WRONG)])
def test_not_even_root_opens_a_strangers_lock_file_in_a_protected_tmp(
    place: Place, protected: str, status: CheckStatus
) -> None:
    place.process(1, command=("init",))
    os.chown(place.write(LOCK, mode=0o666), STRANGER.uid, STRANGER.uid)
    place.write("/proc/sys/fs/protected_regular", f"{protected}\n")
    place.write("/proc/locks")
    assert statuses("lock_file", place.environment(me=User(0))) == [status]


def test_something_else_in_the_lock_files_place(place: Place) -> None:
    place.link(LOCK, "/etc/passwd")
    (line,) = described("lock_file", place.environment())
    assert "is not a regular file" in line


@pytest.mark.parametrize(
    ("size", "status", "said"),
    [
        ("4294967296", "ok", "200 GiB of 256 GiB are available"),
        ("137438957568", "warn", "pins more than half of the host's 256 GiB"),
        ("214748372992", "wrong", "200 GiB are available"),
        ("274877911040", "wrong", "this host has 256 GiB"),
    ],
)
def test_memory_for_the_premapped_buffer(place: Place, size: str, status: str, said: str) -> None:
    meminfo(place, 256 * GIB, 200 * GIB)
    (line,) = described("memory", place.environment(environ={"TPU_PREMAPPED_BUFFER_SIZE": size}))
    assert line.startswith(f"{status}: ")
    assert said in line
    if status != "ok":
        assert "export TPU_PREMAPPED_BUFFER_SIZE=137438953472" in line


def test_a_running_job_has_its_buffer_already(place: Place) -> None:
    meminfo(place, 256 * GIB, 20 * GIB)
    place.process(11, environ={"TPU_PREMAPPED_BUFFER_SIZE": str(100 * GIB)})
    assert statuses("memory", place.environment()) == [CheckStatus.OK]


def test_hardly_any_memory_left(place: Place) -> None:
    meminfo(place, 256 * GIB, 5 * GIB)
    assert statuses("memory", place.environment()) == [CheckStatus.WARN]
    place.write("/proc/meminfo", "nothing\n")
    assert statuses("memory", place.environment()) == [CheckStatus.UNKNOWN]


@pytest.mark.parametrize(
    ("locked", "capabilities", "status"),
    [
        ("8388608", "0", CheckStatus.WARN),
        ("unlimited", "0", CheckStatus.OK),
        ("8388608", "4000", CheckStatus.OK),
        ("8589934592", "0", CheckStatus.OK),
    ],
)
def test_the_limit_of_locked_memory(place: Place, locked: str, capabilities: str, status: CheckStatus) -> None:
    place.chips()
    place.write("/dev/vfio/0")
    place.process(11, uid=STRANGER.uid, locked=locked, capabilities=capabilities)
    environment = place.environment(pids=(11,))
    assert statuses("memlock", environment) == [status]
    if status is CheckStatus.WARN:
        assert "8 MiB of memory may be locked; the premapped buffer is 4 GiB" in described("memlock", environment)[0]


def test_the_limit_does_not_matter_without_vfio(place: Place) -> None:
    assert statuses("memlock", place.environment()) == [CheckStatus.SKIPPED]


@pytest.mark.parametrize(
    ("text", "status"), [("[always] madvise never", CheckStatus.OK), ("always [madvise] never", CheckStatus.WARN)]
)
def test_huge_pages(place: Place, text: str, status: CheckStatus) -> None:
    place.chips()
    place.write("/sys/kernel/mm/transparent_hugepage/enabled", f"{text}\n")
    assert statuses("hugepages", place.environment()) == [status]


def test_huge_pages_matter_from_v5_on(place: Place) -> None:
    place.chips(device="0x005e")
    assert statuses("hugepages", place.environment()) == [CheckStatus.SKIPPED]


def test_ourselves_are_the_user_where_there_is_no_job(place: Place) -> None:
    place.chips()
    place.write("/dev/accel0", mode=0o600)
    assert statuses("devices", place.environment(me=ME)) == [CheckStatus.OK]
    assert statuses("devices", place.environment(me=STRANGER)) == [CheckStatus.WRONG]


def test_a_machine_with_devices_of_another_vendor_has_no_tpu(place: Place) -> None:
    place.write("/dev/vfio/1", mode=0o600)
    place.write("/dev/accel/accel0", mode=0o600)
    place.write("/sys/kernel/iommu_groups/1/devices/0000:01:00.0/vendor", "0x15b3\n")
    place.write("/sys/class/accel/accel0/device/vendor", "0x1022\n")
    place.process(11, uid=STRANGER.uid)
    place.link("/proc/11/fd/3", "/dev/vfio/1")
    assert statuses("devices", place.environment()) == [CheckStatus.SKIPPED]
    assert not any("holds" in line for line in described("holders", place.environment()))
    assert statuses("memlock", place.environment()) == [CheckStatus.SKIPPED]
