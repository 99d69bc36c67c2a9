from __future__ import annotations

import errno
import json
import os
import stat
from pathlib import Path

import pytest

from tpuwatch.sim.directory import INFO, LOCK, DirectoryError, SimulatorDirectory, default_directory, read_info


def test_the_note_is_there_as_long_as_the_simulator(tmp_path: Path) -> None:
    directory = tmp_path / "a" / "b"
    with SimulatorDirectory(directory) as sim_directory:
        sim_directory.write_file(INFO, '{"control": "127.0.0.1:1"}')
        assert read_info(directory) == {"control": "127.0.0.1:1"}
        assert sorted(path.name for path in directory.iterdir()) == [INFO, LOCK]
    with pytest.raises(DirectoryError, match=r"no simulator runs in .*start one with `tpuwatch sim`"):
        read_info(directory)
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700


def test_one_at_a_time(tmp_path: Path) -> None:
    with SimulatorDirectory(tmp_path), pytest.raises(DirectoryError, match="another simulator runs in"):
        SimulatorDirectory(tmp_path)
    SimulatorDirectory(tmp_path).close()


def test_a_directory_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DirectoryError, match=r"cannot use the directory .*give another one by --dir"):
        SimulatorDirectory(tmp_path / "file" / "below")


def test_a_full_disk_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with SimulatorDirectory(tmp_path) as directory:
        monkeypatch.setattr(Path, "write_text", full)
        with pytest.raises(DirectoryError, match=r"cannot write .*sim\.json: No space left on device; give another"):
            directory.write_file(INFO, "{}")


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(DirectoryError, match="not a directory of yours"):
        SimulatorDirectory(tmp_path / "link")
    with pytest.raises(DirectoryError, match="not a directory of yours"):
        read_info(tmp_path / "link")


def test_a_directory_of_another_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: tmp_path.stat().st_uid + 1)
    with pytest.raises(DirectoryError, match="not a directory of yours"):
        SimulatorDirectory(tmp_path)


@pytest.mark.parametrize("text", ["{", "[]", "{}", json.dumps({"control": 7}), "\udcff"])
def test_a_note_that_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / INFO).write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(DirectoryError, match=r"cannot read .*sim.json|is not of a simulator"):
        read_info(tmp_path)


def test_each_user_has_a_directory_of_ones_own() -> None:
    assert default_directory({"XDG_RUNTIME_DIR": "/run/user/7"}) == Path(f"/run/user/7/tpuwatch-sim-{os.getuid()}")
    assert default_directory({}).name == f"tpuwatch-sim-{os.getuid()}"
