"""Log directories, where libtpu writes, what it leaves out."""

from __future__ import annotations

import os
from typing import Any

import pytest

from tests.standins.doctor_machine import ME, STRANGER, Place, described, expect, results, statuses
from tpuwatch.doctor.check import CheckStatus

LOGS = "/tmp/tpu_logs"  # noqa: S108 (below a directory of the test's)


def config(**logs: Any) -> dict[str, Any]:
    return {"cloud": {"enabled": False}, "logs": {"paths": [LOGS], **logs}}


def test_a_directory_that_all_may_use(place: Place) -> None:
    place.folder(LOGS, 0o1777)
    place.process(11, uid=STRANGER.uid)
    assert statuses("log_directory", place.environment(config=config())) == [CheckStatus.OK]


def test_a_directory_that_the_jobs_user_cannot_write_to(place: Place) -> None:
    place.folder(LOGS, 0o755)
    place.write("/etc/passwd", f"owner:x:{ME.uid}:0::\nalice:x:{STRANGER.uid}:0::\n")
    place.process(11, uid=STRANGER.uid)
    assert described("log_directory", place.environment(config=config())) == [
        f"wrong: {LOGS} belongs to owner, and alice cannot write to it: libtpu then writes no log file. | "
        f"sudo chmod 1777 {LOGS}"
    ]


def test_a_directory_that_we_cannot_read(place: Place) -> None:
    place.folder(LOGS, 0o700)
    place.process(11, uid=ME.uid)
    (line,) = described("log_directory", place.environment(config=config(), me=STRANGER))
    assert f"{LOGS} cannot be read by 54321" in line


def test_a_directory_without_the_sticky_bit(place: Place) -> None:
    place.folder(LOGS, 0o777)
    (line,) = described("log_directory", place.environment(config=config()))
    assert line.startswith("warn: Every user can delete the files of others")
    assert line.endswith(f"sudo chmod +t {LOGS}")


def test_no_directory_yet_is_well_and_none_above_it_is_not(place: Place) -> None:
    assert statuses("log_directory", place.environment(config=config())) == [CheckStatus.OK]
    (line,) = described("log_directory", place.environment(config=config(paths=["/data/jobs/logs"])))
    assert line.startswith("warn: /data/jobs/logs does not exist, nor does /data/jobs")
    assert "mkdir -p /data/jobs/logs" in line


def test_a_file_in_its_place(place: Place) -> None:
    place.write(LOGS)
    (line,) = described("log_directory", place.environment(config=config()))
    assert "is not a directory" in line


def test_a_link_is_taken_from_root_and_ourselves_only(place: Place) -> None:
    real = place.folder("/data", 0o1777)
    (place.root / LOGS.lstrip("/")).symlink_to(real)
    assert statuses("log_directory", place.environment(config=config())) == [CheckStatus.OK]
    if ME.uid == 0:
        os.lchown(place.root / LOGS.lstrip("/"), STRANGER.uid, 0)
        (line,) = described("log_directory", place.environment(config=config()))
        assert "is a link owned by 54321" in line


@pytest.mark.parametrize(
    ("value", "status", "said"),
    [
        ("disabled", "warn", "does not turn logging off: the files go to /tmp"),
        ("Disabled", "warn", "does not turn logging off"),
        ("", "warn", "it means /tmp/tpu_logs"),
        ("logs", "warn", "is relative to the directory in which the job is started"),
        ("/data/jobs/logs", "wrong", "the directory above it does not exist, so the files go to /tmp"),
        ("/elsewhere", "wrong", 'paths = ["/elsewhere", "/tmp"] under [logs]'),
    ],
)
def test_where_libtpu_really_writes(place: Place, value: str, status: str, said: str) -> None:
    expect("log_destination", place.environment(config=config(), environ={"TPU_LOG_DIR": value}), f"{status}: ", said)


def test_a_destination_that_is_followed_is_ok(place: Place) -> None:
    environment = place.environment(config=config(), environ={"TPU_LOG_DIR": f"{LOGS}/"})
    assert statuses("log_destination", environment) == [CheckStatus.OK]
    assert statuses("log_destination", place.environment(config=config())) == [CheckStatus.OK]


def test_what_exec_sets_and_what_libtpu_takes_by_itself_must_be_followed_too(place: Place) -> None:
    elsewhere = {"logs": {"paths": ["/data/logs"]}}
    expect(
        "log_destination",
        place.environment(config=elsewhere),
        "wrong: ",
        "set TPU_LOG_DIR=/tmp/tpu_logs (log_dir under [tune]), which is not among the directories that tpuwatch ",
        'log_dir = "/data/logs" under [tune]',
    )
    place.process(11, environ={"TPU_WORKER_ID": "0"})
    tuned = {**elsewhere, "tune": {"log_dir": "/data/logs"}}
    expect("log_destination", place.environment(config=tuned), "wrong: ", "TPU_LOG_DIR is not set in process 11")


@pytest.mark.parametrize(
    ("level", "status", "said"),
    [
        ("1", "warn", "premapped buffer's setting"),
        ("2", "wrong", "only errors"),
        ("3", "wrong", "only on the job's stderr"),
        ("4", "wrong", "stderr"),
    ],
)
def test_a_level_that_hides_what_is_needed(place: Place, level: str, status: str, said: str) -> None:
    place.process(11, environ={"TPU_MIN_LOG_LEVEL": level})
    (line,) = described("log_level", place.environment())
    assert line.startswith(f"{status}: TPU_MIN_LOG_LEVEL={level} in process 11")
    assert said in line
    assert line.endswith("export TPU_MIN_LOG_LEVEL=0")


def test_a_level_that_hides_nothing(place: Place) -> None:
    assert statuses("log_level", place.environment(environ={"TPU_MIN_LOG_LEVEL": "0"})) == [CheckStatus.OK]


def test_buffered_info(place: Place) -> None:
    place.process(11, environ={"LIBTPU_INIT_ARGS": "--xla_tpu_x=true"})
    (result,) = results("log_buffering", place.environment())
    assert result.status is CheckStatus.WARN
    assert result.fix == "`export LIBTPU_INIT_ARGS='--xla_tpu_x=true --logbuflevel=-1'`"


@pytest.mark.parametrize("flag", ["--logbuflevel=-1", "-logbuflevel=-1", "--x --logbufsecs=1"])
def test_unbuffered_info(place: Place, flag: str) -> None:
    place.process(11, environ={"LIBTPU_INIT_ARGS": flag})
    assert statuses("log_buffering", place.environment()) == [CheckStatus.OK]


def test_a_shell_without_tpu_variables_is_not_warned_of_buffering(place: Place) -> None:
    assert statuses("log_buffering", place.environment(environ={"PATH": "/bin"})) == [CheckStatus.OK]


def test_little_disk_for_logs(place: Place) -> None:
    place.folder(LOGS)
    environment = place.environment(config=config(), disk=lambda _: (100 << 30, 99 << 30, 1 << 30))
    (result,) = results("log_space", environment)
    assert result.status is CheckStatus.WRONG
    assert result.text.startswith(f"1 GiB are free under {LOGS}; a log file grows to 1 GiB")
    assert f"find {LOGS} -maxdepth 1 -name 'tpu_driver.*' -mtime +7 -delete" in result.fix

    smaller = {"TPU_MAX_LOG_SIZE_MB": "64"}
    environment = place.environment(config=config(), environ=smaller, disk=lambda _: (100 << 30, 99 << 30, 1 << 30))
    assert statuses("log_space", environment) == [CheckStatus.OK]


def test_old_logs_that_take_much(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tpuwatch.doctor.checks.logs._MAX_OLD_BYTES", 8192)
    place.folder(LOGS)
    for number in range(3):
        place.write(f"{LOGS}/tpu_driver.vm.me.log.INFO.20261120-13441{number}.11", "x" * 4096)
    place.write(f"{LOGS}/else", "x" * 100_000)
    place.link(f"{LOGS}/tpu_driver.INFO", "else")
    (result,) = results("log_space", place.environment(config=config()))
    assert result.status is CheckStatus.WARN
    assert result.text.startswith(f"3 log files in {LOGS} take 12 KiB")
    assert "tmpfiles.d" in result.fix


def test_the_second_choice_is_to_be_followed(place: Place) -> None:
    assert statuses("log_fallback", place.environment(config=config())) == [CheckStatus.WARN]
    both = config(paths=[LOGS, "/tmp"])  # noqa: S108
    assert statuses("log_fallback", place.environment(config=both)) == [CheckStatus.OK]


def test_job_output(place: Place) -> None:
    assert statuses("job_output", place.environment()) == [CheckStatus.SKIPPED]
    place.write("/jobs/a.log")
    place.write("/jobs/deep/er/b.log", mode=0o600)
    globs = config(job_paths=["/jobs/*.log", "/jobs/**/b.log", "/nothing/*.out"])
    lines = described("job_output", place.environment(config=globs, me=STRANGER))
    assert [line.partition(":")[0] for line in lines] == ["ok", "unknown", "warn"]
    assert "1 of 1 files of /jobs/**/b.log cannot be read by 54321" in lines[1]
    assert "/nothing/*.out matches no file" in lines[2]


def test_links_to_the_directory_itself_do_not_multiply_job_output(place: Place) -> None:
    log = place.write("/jobs/a.log")
    for number in range(2):
        (log.parent / f"again-{number}").symlink_to(".")
    [line] = described("job_output", place.environment(config=config(job_paths=["/jobs/**/*.log"])))
    assert line.startswith("ok: /jobs/**/*.log matches 1 files.")
