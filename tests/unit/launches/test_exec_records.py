"""Records of `tpuwatch exec` as files, and a drop box in which anybody may leave anything."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.unit.tune.recorded import NOW, finding, launch, record
from tpuwatch.launches.exec_records import (
    MAX_BYTES,
    discard_record,
    dumps,
    loads,
    make_drop_box,
    read_records,
    take_records,
    trim_records,
    write_record,
)

if TYPE_CHECKING:
    from collections.abc import Callable

NAME = "1790000000-0123456789abcdef.json"


@pytest.fixture
def tune(tmp_path: Path) -> Path:
    make_drop_box(tmp_path / "tune")
    return tmp_path / "tune"


def put(tune: Path, data: bytes, name: str = NAME) -> Path:
    path = tune / "launches" / name
    path.write_bytes(data)
    return path


def changed(**fields: Any) -> bytes:
    """A record's file in which something is otherwise."""
    return json.dumps({**json.loads(dumps(record(launch()))), **fields}).encode()


def changed_launch(**fields: Any) -> bytes:
    document = json.loads(dumps(record(launch())))
    document["launches"][0].update(fields)
    return json.dumps(document).encode()


# -- one record


def test_what_is_written_is_what_is_read() -> None:
    made = record(launch(), launch(pid=4712, premapped_bytes=None, exit_status=None, ended=None))
    assert loads(dumps(made)) == made


def test_keys_of_a_later_version_are_left_alone() -> None:
    assert loads(changed(colour="green")) == record(launch())
    assert loads(changed_launch(colour="green")) == record(launch())


def changed_finding(**fields: Any) -> bytes:
    document = json.loads(dumps(record(findings=(finding(),))))
    document["findings"][0].update(fields)
    return json.dumps(document).encode()


def test_findings_are_read_as_they_were_written_and_an_older_record_has_none() -> None:
    made = record(findings=(finding(), finding(cause="hang", rule="hang", details={}, count=3)))
    assert loads(dumps(made)) == made
    document = json.loads(dumps(made))
    del document["findings"]
    assert loads(json.dumps(document).encode()) == record()


def test_of_details_only_what_a_rule_can_have_captured_is_read() -> None:
    allocations = [{"size_bytes": 5, "shape": "f32[8]", "expansion": "2"}, {"shape": "f32[9]"}, "f32[10]", *[{}] * 99]
    given = {
        "requested_bytes": 5,
        "free_bytes": "5 GiB",
        "used_bytes": -1,
        "limit_bytes": 1e300,
        "waited_seconds": True,
        "hosts": "a" * 5000,
        "../x": 1,
        "nested": {"a": 1},
        "listed": [1],
        "allocations": allocations,
        **{f"n{number}_count": number for number in range(100)},
    }
    (read,) = loads(changed_finding(details=given)).findings
    assert read.details["allocations"] == [{"size_bytes": 5, "shape": "f32[8]"}]
    assert {name for name in read.details if not name.startswith("n")} == {"requested_bytes", "hosts", "allocations"}
    assert (len(read.details["hosts"]), len(read.details) < 50) == (400, True)
    assert loads(changed_finding(text="\ud800" + "x" * 9000)).findings[0].text == "?" + "x" * 1999


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        pytest.param(b"", "Expecting value", id="empty"),
        pytest.param(b"\xff\xfe\x00", "codec", id="binary"),
        pytest.param(b"[]", "no table", id="a list"),
        pytest.param(b"[" * 100_000, "deep", id="deep"),
        pytest.param(b'{"version": 1e999}', "version", id="infinite"),
        pytest.param(b'{"version": ' + b"9" * 10_000 + b"}", "version|digits", id="a long number"),
        pytest.param(b'{"version": 1}', "no id", id="nothing in it"),
        pytest.param(changed(version=2), "version", id="of a later form"),
        pytest.param(changed(id="../../etc"), "id", id="a path for an id"),
        pytest.param(changed_finding(cause="tune_change"), "findings", id="a finding of no fault"),
        pytest.param(changed_finding(cause="colour"), "findings", id="a finding of no cause"),
        pytest.param(changed_finding(rule="`reboot`"), "findings", id="a command for a rule"),
        pytest.param(changed_finding(count=0), "findings", id="a finding of nothing"),
        pytest.param(changed_finding(count=1 << 40), "findings", id="a finding without end"),
        pytest.param(changed_finding(last=float("nan")), "findings", id="a finding of no time"),
        pytest.param(changed_finding(details=[]), "findings", id="details that are none"),
        pytest.param(changed(findings=[json.loads(changed_finding())["findings"][0]] * 17), "findings", id="too many"),
        pytest.param(changed(workload="../x"), "workload", id="a path for a workload"),
        pytest.param(changed(workload="a\n"), "workload", id="a newline in the workload"),
        pytest.param(changed(started="now"), "started", id="a word for a time"),
        pytest.param(changed(started=-1), "started", id="before all time"),
        pytest.param(changed(started=True), "started", id="yes for a time"),
        pytest.param(changed(ended=NOW - 1000), "before it starts", id="backwards"),
        pytest.param(changed(exit_status=256), "exit_status", id="no status"),
        pytest.param(changed(exit_status=1.5), "exit_status", id="half a status"),
        pytest.param(changed(given=["PATH"]), "given", id="another variable"),
        pytest.param(changed(given=["TPU_A"] * 101), "given", id="too many variables"),
        pytest.param(changed(causes=["bad_luck"]), "causes", id="no cause"),
        pytest.param(changed(launches=[1]), "launches", id="no launch"),
        pytest.param(changed(launches=[{}]), "launches", id="a launch of nothing"),
        pytest.param(changed(launches=json.loads(changed())["launches"] * 17), "launches", id="too many launches"),
        pytest.param(changed_launch(pid=-1), "launches", id="no pid"),
        pytest.param(changed_launch(pid=1 << 40), "launches", id="a pid too large"),
        pytest.param(changed_launch(started=NOW + 1e6), "another time", id="a launch of another time"),
        pytest.param(changed_launch(premapped_bytes=1 << 60), "launches", id="too large a buffer"),
        pytest.param(changed_launch(premapped_bytes=-1), "launches", id="a negative buffer"),
        pytest.param(changed_launch(init_seconds=1e300), "launches", id="an eternity"),
        pytest.param(changed_launch(outcome="fine"), "launches", id="no outcome"),
        pytest.param(changed_launch(outcome=[]), "launches", id="a list for an outcome"),
        pytest.param(changed_launch(faults={"bad_luck": 1}), "launches", id="an unknown fault"),
        pytest.param(changed_launch(faults={"tune_change": 1}), "launches", id="no fault"),
        pytest.param(changed_launch(environment={"LD_PRELOAD": "x"}), "launches", id="a foreign variable"),
        pytest.param(changed_launch(environment={"TPU_A": "x" * 5000}), "launches", id="a long value"),
    ],
)
def test_what_is_no_record_is_refused_and_says_why(raw: bytes, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        loads(raw)


def test_text_of_others_is_cleaned() -> None:
    made = loads(changed_launch(build="\x1b[31m\nred\ud800" + "x" * 1000, environment={"TPU_A": "a\x07b\n"}))
    (found,) = made.launches
    assert found.build.isprintable()
    assert len(found.build) <= 200
    assert found.environment == {"TPU_A": "a b "}
    assert not loads(changed_launch(history=True, id=7)).launches[0].history


# -- writing


def test_a_record_is_whole_and_readable_by_all_whatever_the_umask_is(tune: Path) -> None:
    before = os.umask(0o077)
    try:
        path = write_record(tune, record(launch()))
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert [one.name for one in path.parent.iterdir()] == [path.name]
    assert loads(path.read_bytes()) == record(launch())


def test_a_users_own_directory_is_made(tmp_path: Path) -> None:
    path = write_record(tmp_path / "own" / "tune", record())
    assert path.parent == tmp_path / "own" / "tune" / "launches"
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_link_in_place_of_the_directory_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "tune").mkdir()
    (tmp_path / "tune" / "launches").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="launches"):
        write_record(tmp_path / "tune", record())
    assert list((tmp_path / "elsewhere").iterdir()) == []
    with pytest.raises(NotADirectoryError):
        make_drop_box(tmp_path / "tune")


def test_what_cannot_be_written_leaves_nothing(tune: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space"):
            write_record(tune, record())
    assert list((tune / "launches").iterdir()) == []


def test_the_drop_box_is_open_to_all_and_shows_nothing(tune: Path) -> None:
    box = tune / "launches"
    assert stat.S_IMODE(box.stat().st_mode) == 0o1733
    assert stat.S_IMODE(tune.stat().st_mode) == stat.S_IMODE((tune / "plans").stat().st_mode) == 0o755
    box.chmod(0o777)
    make_drop_box(tune)
    assert stat.S_IMODE(box.stat().st_mode) == 0o1733


# -- a user's own records


def test_own_records_come_the_oldest_first_and_only_the_newest_are_kept(tmp_path: Path) -> None:
    assert read_records(tmp_path) == []
    for minute in (3, 1, 2):
        at = NOW + 60 * minute
        write_record(tmp_path, record(started=at, ended=at + 1, id=f"r{minute}"))
    (tmp_path / "launches" / NAME).write_bytes(b"{")
    assert [one.id for one in read_records(tmp_path)] == ["r1", "r2", "r3"]
    trim_records(tmp_path, 2)
    assert [one.id for one in read_records(tmp_path)] == ["r2", "r3"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_records_of_strangers_are_not_ones_own(tmp_path: Path) -> None:
    path = write_record(tmp_path, record())
    os.chown(path, 4321, 4321)
    assert read_records(tmp_path) == []
    os.chown(path, 0, 0)
    assert len(read_records(tmp_path)) == 1


# -- the drop box


def test_records_are_taken_the_oldest_first_and_stay_until_they_are_discarded(tune: Path) -> None:
    for minute in (2, 1):
        write_record(tune, record(started=NOW - 600 + minute, id=f"r{minute}"))
    taken = take_records(tune, now=NOW)
    assert ([one.id for one in taken.records], taken.refused, taken.more) == (["r1", "r2"], 0, False)
    names = [one.file for one in taken.records]
    assert [one.id for one in take_records(tune, skip=names[:1], now=NOW).records] == ["r2"]
    discard_record(tune, names)
    discard_record(tune, names)
    assert take_records(tune, now=NOW).records == ()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_it_is_known_whose_a_record_is(tune: Path) -> None:
    os.chown(write_record(tune, record()), 54321, 54321)
    assert take_records(tune, now=NOW).records[0].owner == "54321"


def sparse(path: Path) -> None:
    path.touch()
    os.truncate(path, 1 << 40)


def directory_with_a_file(path: Path) -> None:
    path.mkdir()
    (path / "file").write_text("x")


HOSTILE: dict[str, Callable[[Path, Path], object]] = {
    "broken": lambda path, _: path.write_bytes(b"{"),
    "huge": lambda path, _: path.write_bytes(dumps(record()) + b" " * MAX_BYTES),
    "sparse": lambda path, _: sparse(path),
    "link": lambda path, secret: path.symlink_to(secret),
    "dangling": lambda path, _: path.symlink_to("/nonexistent"),
    "hard link": lambda path, secret: path.hardlink_to(secret),
    "fifo": lambda path, _: os.mkfifo(path),
    "directory": lambda path, _: path.mkdir(),
    "full directory": lambda path, _: directory_with_a_file(path),
    "future": lambda path, _: path.write_bytes(dumps(record(ended=NOW + 301))),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_what_is_no_record_goes_and_holds_up_nothing(tune: Path, tmp_path: Path, kind: str) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(dumps(record(id="secret")))
    HOSTILE[kind](tune / "launches" / NAME, secret)
    write_record(tune, record(id="good"))
    taken = take_records(tune, now=NOW)
    assert ([one.id for one in taken.records], taken.refused) == (["good"], 1)
    assert len(taken.why) == 1
    assert NAME in taken.why[0]
    assert secret.exists()
    assert (tune / "launches" / NAME).exists() == (kind == "full directory")


@pytest.mark.parametrize("name", ["a\nb.json", "no-record", "x" * 200, "1-2.json", "\udcff.json"], ids=ascii)
def test_a_name_that_is_not_a_records_is_refused_and_shown_clean(tune: Path, name: str) -> None:
    put(tune, dumps(record()), name)
    taken = take_records(tune, now=NOW)
    assert (taken.records, taken.refused) == ((), 1)
    assert taken.why[0].isprintable()
    assert list((tune / "launches").iterdir()) == []


def test_ten_thousand_files_are_worked_off_in_steps_and_lose_nothing(tune: Path) -> None:
    box = tune / "launches"
    for number in range(10_000):
        (box / f"junk{number}").touch()
    write_record(tune, record(id="good"))
    found, calls, more = [], 0, True
    while more:
        taken = take_records(tune, now=NOW, limit=2000)
        calls, more = calls + 1, taken.more
        assert len(taken.records) + taken.refused <= 2000
        assert len(taken.why) <= 5
        found += [one.id for one in taken.records]
        discard_record(tune, [one.file for one in taken.records])
    assert (found, calls) == (["good"], 6)
    assert list(box.iterdir()) == []


def test_what_is_being_written_is_left_until_nobody_can_be(tune: Path) -> None:
    path = put(tune, b"{", f".{NAME}")
    written = path.stat().st_ctime
    assert take_records(tune, now=written + 60).refused == 0
    assert path.exists()
    assert take_records(tune, now=written + 3601).refused == 1
    assert not path.exists()


def test_a_drop_box_that_is_gone_is_an_error_of_its_own(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        take_records(tmp_path, now=NOW)
