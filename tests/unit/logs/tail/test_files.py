"""Names of log files, and opening them safely."""

from __future__ import annotations

import os
import socket
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.unit.logs.sites import NOBODY
from tpuwatch.logs.parse.parser import StreamKind
from tpuwatch.logs.tail import files
from tpuwatch.logs.tail.files import (
    LogFile,
    Refusal,
    RefusedError,
    is_libtpu_name,
    is_on_network,
    libtpu_file,
    open_directory,
    open_directory_below,
    open_log,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[int]:
    descriptor = open_directory(str(tmp_path))
    yield descriptor
    os.close(descriptor)


def test_a_file_system_of_another_machine_is_known_by_its_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(
        "29 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n"
        "51 29 0:43 /a /home/with\\040space rw shared:2 master:1 - nfs4 server:/a rw\n"
        "52 29 0:44 / /gcs rw - fuse.gcsfuse bucket rw\n"
    )
    monkeypatch.setattr(files, "_MOUNTS", str(mounts))
    known = {device: is_on_network(os.makedev(*device)) for device in ((254, 0), (0, 43), (0, 44), (0, 99))}
    assert known == {(254, 0): False, (0, 43): True, (0, 44): True, (0, 99): False}
    mounts.unlink()
    assert not is_on_network(os.makedev(0, 43))


def refusal(directory: int, path: Path, *, follow: bool = False) -> Refusal:
    with pytest.raises(RefusedError) as caught:
        open_log(directory, str(path), follow=follow)
    assert str(path) in str(caught.value)
    return caught.value.reason


def test_a_name_shows_host_user_severity_start_and_process() -> None:
    path = "/logs/tpu_driver.t1v-n-1.us-central2-b.c.p.internal.alice.log.WARNING.20261120-142813.24278"
    started = time.mktime((2026, 11, 20, 14, 28, 13, 0, 0, -1))
    host = "t1v-n-1.us-central2-b.c.p.internal"
    assert libtpu_file(path) == LogFile(path, StreamKind.LIBTPU, host, "alice", "WARNING", started, 24278)


@pytest.mark.parametrize("suffix", [".1", ".old", "-20261121", "~"])
def test_a_name_may_have_got_a_suffix_by_renaming(suffix: str) -> None:
    assert libtpu_file("tpu_driver.vm.root.log.INFO.20261120-142813.24278" + suffix).pid == 24278


def test_an_impossible_time_in_a_name_does_no_harm() -> None:
    assert libtpu_file("tpu_driver.vm.root.log.INFO.00009999-999999.1").pid == 1


@pytest.mark.parametrize(
    ("name", "loose", "strict"),
    [
        ("tpu_driver.vm.root.log.INFO.20261120-142813.24278", True, True),
        ("tpu_driver.vm.root.log.INFO.20261120-142813.24278.1", True, True),
        ("tpu_driver.vm.root.log.INFO.20261120-142813.24278.gz", False, False),
        ("tpu_driver.vm.root.log.DEBUG.20261120-142813.24278", True, False),
        ("tpu_driver.notes", True, False),
        ("tpu_driver.INFO", False, False),
        ("tpu_driver.FATAL", False, False),
        ("libtpu_lockfile", False, False),
        ("xtpu_driver.vm.root.log.INFO.20261120-142813.24278", False, False),
    ],
)
def test_which_names_are_libtpus(name: str, loose: bool, strict: bool) -> None:
    assert is_libtpu_name(name, strict=False) is loose
    assert is_libtpu_name(name, strict=True) is strict


def test_a_regular_file_is_opened(tmp_path: Path, directory: int) -> None:
    (tmp_path / "log").write_text("words")
    descriptor = open_log(directory, str(tmp_path / "log"))
    assert os.read(descriptor, 10) == b"words"
    assert not os.get_inheritable(descriptor)
    os.close(descriptor)


def test_absence_is_no_refusal(tmp_path: Path, directory: int) -> None:
    with pytest.raises(FileNotFoundError):
        open_log(directory, str(tmp_path / "log"))
    with pytest.raises(FileNotFoundError):
        open_directory(str(tmp_path / "none"))


def test_a_fifo_neither_blocks_nor_is_read(tmp_path: Path, directory: int) -> None:
    os.mkfifo(tmp_path / "fifo")
    assert refusal(directory, tmp_path / "fifo") is Refusal.NOT_REGULAR
    with pytest.raises(OSError, match="No such device"):  # no process has the other end open: its writer was not let in
        os.open(tmp_path / "fifo", os.O_WRONLY | os.O_NONBLOCK)


@pytest.mark.parametrize("swapped", ["fifo", "link"])
def test_a_file_swapped_between_look_and_opening_is_refused(
    tmp_path: Path, directory: int, monkeypatch: pytest.MonkeyPatch, swapped: str
) -> None:
    log = tmp_path / "log"
    log.write_text("words")
    really_open = os.open

    def swap_and_open(*arguments: Any, **options: Any) -> int:
        log.unlink()
        if swapped == "fifo":
            os.mkfifo(log)
        else:
            log.symlink_to("/etc/passwd")
        return really_open(*arguments, **options)

    monkeypatch.setattr("tpuwatch.logs.tail.files.os.open", swap_and_open)
    assert refusal(directory, log) is (Refusal.NOT_REGULAR if swapped == "fifo" else Refusal.LINK)


def test_a_socket_is_refused(tmp_path: Path, directory: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # a socket's path must be short
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket")
        assert refusal(directory, tmp_path / "socket") is Refusal.NOT_REGULAR


def test_a_device_is_refused() -> None:
    devices = open_directory("/dev")
    try:
        with pytest.raises(RefusedError) as caught:
            open_log(devices, "/dev/zero")
    finally:
        os.close(devices)
    assert caught.value.reason is Refusal.NOT_REGULAR


def test_a_directory_is_no_log(tmp_path: Path, directory: int) -> None:
    (tmp_path / "sub").mkdir()
    assert refusal(directory, tmp_path / "sub") is Refusal.NOT_REGULAR


def test_a_link_is_refused_wherever_it_leads(tmp_path: Path, directory: int) -> None:
    (tmp_path / "log").write_text("words")
    (tmp_path / "link").symlink_to("log")
    assert refusal(directory, tmp_path / "link") is Refusal.LINK


@pytest.mark.parametrize("target", ["log", "./log", "{here}/log", "../{name}/log"])
def test_a_jobs_link_is_followed_within_its_directory(tmp_path: Path, directory: int, target: str) -> None:
    (tmp_path / "log").write_text("words")
    (tmp_path / "link").symlink_to(target.format(here=tmp_path, name=tmp_path.name))
    descriptor = open_log(directory, str(tmp_path / "link"), follow=True)
    assert os.read(descriptor, 10) == b"words"
    os.close(descriptor)


@pytest.mark.parametrize("target", ["/etc/passwd", "../secret", "sub/log", "other_link", ".."])
def test_a_jobs_link_is_not_followed_out_of_its_directory(tmp_path: Path, target: str) -> None:
    logs = tmp_path / "logs"
    (logs / "sub").mkdir(parents=True)
    (logs / "sub" / "log").write_text("words")
    (tmp_path / "secret").write_text("words")
    (logs / "other_link").symlink_to("../secret")
    (logs / "link").symlink_to(target)
    directory = open_directory(str(logs))
    assert refusal(directory, logs / "link", follow=True) is Refusal.LINK
    os.close(directory)


def test_a_hard_link_in_a_directory_that_all_may_write_to_is_refused(tmp_path: Path, directory: int) -> None:
    (tmp_path / "log").write_text("words")
    os.link(tmp_path / "log", tmp_path / "second")
    os.close(open_log(directory, str(tmp_path / "second")))  # the directory is its owner's alone
    tmp_path.chmod(0o1777)
    assert refusal(directory, tmp_path / "second") is Refusal.HARD_LINK


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_hard_link_to_another_users_file_is_refused(tmp_path: Path, directory: int) -> None:
    (tmp_path / "log").write_text("words")
    os.link(tmp_path / "log", tmp_path / "second")
    os.chown(tmp_path / "log", NOBODY, NOBODY)
    assert refusal(directory, tmp_path / "second") is Refusal.HARD_LINK


def test_a_watched_directory_may_be_our_own_link(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "link").symlink_to("logs")
    os.close(open_directory(str(tmp_path / "link")))


def test_a_file_in_place_of_a_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "logs").write_text("")
    for path in (tmp_path / "logs", tmp_path / "logs" / "sub"):
        with pytest.raises(RefusedError) as caught:
            open_directory(str(path))
        assert caught.value.reason is Refusal.UNREADABLE


def test_a_directory_must_really_be_below_its_root(tmp_path: Path) -> None:
    (tmp_path / "root" / "sub").mkdir(parents=True)
    (tmp_path / "rootlet").mkdir()
    (tmp_path / "root" / "link").symlink_to("../rootlet")
    os.close(open_directory_below(str(tmp_path / "root" / "sub"), str(tmp_path / "root")))
    with pytest.raises(RefusedError) as caught:
        open_directory_below(str(tmp_path / "root" / "link"), str(tmp_path / "root"))
    assert caught.value.reason is Refusal.OUTSIDE
