"""What libtpu logs, where, and whether tpuwatch can read it."""

from __future__ import annotations

import os
import stat
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from tpuwatch.core import format_size, installed
from tpuwatch.doctor.check import Area, Check, Result, ok, skipped, unknown, warn, wrong
from tpuwatch.doctor.environment import cut, export
from tpuwatch.doctor.jobs import job_users, variable_sets
from tpuwatch.libtpu import ARGUMENTS, MEASURED, UNBUFFERED, leading_integer, unbuffered
from tpuwatch.logs import JobGlob

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tpuwatch.doctor.environment import Environment
    from tpuwatch.doctor.users import User

_DEFAULT = "/tmp/tpu_logs"  # noqa: S108 (where libtpu writes)
_FALLBACK = "/tmp"  # noqa: S108 (where it writes if it cannot)
_DEFAULT_MAX_MB = 1024
_MAX_OLD_BYTES = 5 << 30
_MAX_FILES = 100_000
_OVERSHOOT = 2  # a fast writer exceeds the limit by far, so there must be room for this many files of full size
_TMPFILES = "https://www.freedesktop.org/software/systemd/man/latest/tmpfiles.d.html"


def directories(environment: Environment) -> Iterator[Result]:
    """The directories that tpuwatch follows: whether it can read them, and the job's user can write to them."""
    for path in environment.config.logs.paths:
        try:
            entry = environment.path(path).lstat()
        except FileNotFoundError:
            yield _missing(environment, path)
            continue
        yield from _directory(environment, path, entry)


def _missing(environment: Environment, path: Path) -> Result:
    parent = environment.path(path.parent)
    if not parent.is_dir():
        return warn(
            f"{path} does not exist, nor does {path.parent}: libtpu creates one level only, and falls back to "
            f"{_FALLBACK}.",
            f"As the job's user: `mkdir -p {path}`",
            MEASURED,
        )
    return ok(f"{path} does not exist yet; libtpu creates it at the first launch.")


def _directory(environment: Environment, path: Path, entry: os.stat_result) -> Iterator[Result]:
    owner = environment.user_name(entry.st_uid)
    if stat.S_ISLNK(entry.st_mode) and entry.st_uid not in (0, environment.me.uid):
        yield wrong(
            f"{path} is a link owned by {owner}; tpuwatch does not follow other users' links.",
            f"`rm {path}`, or use its target in paths under [logs]",
            MEASURED,
        )
        return
    if stat.S_ISLNK(entry.st_mode):
        entry = environment.path(path).stat()
    if not stat.S_ISDIR(entry.st_mode):
        yield wrong(f"{path} is not a directory, so libtpu writes to {_FALLBACK}.", f"`rm {path}`", MEASURED)
        return
    if not environment.me.may(entry, "rx"):
        yield wrong(
            f"{path} cannot be read by {environment.my_name}.",
            f"`sudo tpuwatch run`, or the systemd unit, which can read every log; or `chmod o+rx {path}`",
            installed("docs/operations.md"),
        )
    denied = [environment.user_name(user.uid) for user in job_users(environment) if not user.may(entry, "wx")]
    if denied:
        yield wrong(
            f"{path} belongs to {owner}, and {', '.join(denied)} cannot write to it: libtpu then writes no log file.",
            f"`sudo chmod 1777 {path}`",
            MEASURED,
        )
    if entry.st_mode & stat.S_IWOTH and not entry.st_mode & stat.S_ISVTX:
        yield warn(
            f"Every user can delete the files of others in {path}: it is world-writable and not sticky.",
            f"`sudo chmod +t {path}`",
            MEASURED,
        )


def destination(environment: Environment) -> Iterator[Result]:
    """TPU_LOG_DIR: where libtpu writes, and whether tpuwatch reads there."""
    watched = [Path(os.path.normpath(path)) for path in environment.config.logs.paths]
    given = environment.config.tune.log_dir
    if Path(os.path.normpath(given)) not in watched:
        yield wrong(
            f"`tpuwatch exec` and `tpuwatch env` set TPU_LOG_DIR={cut(str(given))} (log_dir under [tune]), which is "
            "not among the directories that tpuwatch follows.",
            f'log_dir = "{watched[0] if watched else _FALLBACK}" under [tune], or add "{given}" to paths under [logs]',
            installed("config.example.toml"),
        )
    for setting in variable_sets(environment):
        value = setting.variables.get("TPU_LOG_DIR")
        if value is None:
            if setting.variables and Path(_DEFAULT) not in watched:
                yield wrong(
                    f"TPU_LOG_DIR is not set in {setting.where}: libtpu writes to {_DEFAULT}, which is not among the "
                    "directories that tpuwatch follows.",
                    f'export TPU_LOG_DIR={watched[0] if watched else _FALLBACK}, or add "{_DEFAULT}" to paths under '
                    "[logs]",
                    installed("config.example.toml"),
                )
            continue
        where, shown = setting.where, cut(value)
        if value.lower() == "disabled":
            yield warn(
                f"TPU_LOG_DIR={shown} in {where} does not turn logging off: the files go to {_FALLBACK}.",
                f"`export TPU_LOG_DIR={_DEFAULT}`",
                MEASURED,
            )
        elif not value:
            yield warn(f"TPU_LOG_DIR is empty in {where}: it means {_DEFAULT}.", "`unset TPU_LOG_DIR`", MEASURED)
        elif not Path(value).is_absolute():
            yield warn(
                f"TPU_LOG_DIR={shown} in {where} is relative to the directory in which the job is started.",
                f"`export TPU_LOG_DIR={_DEFAULT}`, or another absolute path",
                MEASURED,
            )
        elif not environment.path(value).is_dir() and not environment.path(value).parent.is_dir():
            yield wrong(
                f"TPU_LOG_DIR={shown} in {where}: the directory above it does not exist, so the files go to "
                f"{_FALLBACK}.",
                f"`mkdir -p {shown}`",
                MEASURED,
            )
        elif Path(os.path.normpath(value)) not in watched:
            yield wrong(
                f"TPU_LOG_DIR={shown} in {where} is not among the directories that tpuwatch follows.",
                f'paths = ["{shown}", "{_FALLBACK}"] under [logs] of tpuwatch\'s configuration',
                installed("config.example.toml"),
            )


def levels(environment: Environment) -> Iterator[Result]:
    """TPU_MIN_LOG_LEVEL: from 2 on, libtpu does not write what tpuwatch needs."""
    for setting in variable_sets(environment):
        level = leading_integer(setting.variables.get("TPU_MIN_LOG_LEVEL", ""))
        if level is None or level <= 0:
            continue
        hidden = {
            1: "launches and the premapped buffer's setting are not logged",
            2: "only errors are logged: no launches, no warnings",
        }.get(level, "not even an out-of-memory error is logged; it is only on the job's stderr")
        text = f"TPU_MIN_LOG_LEVEL={level} in {setting.where}: {hidden}."
        fix = "`export TPU_MIN_LOG_LEVEL=0`"
        yield wrong(text, fix, MEASURED) if level >= 2 else warn(text, fix, MEASURED)


def buffering(environment: Environment) -> Iterator[Result]:
    """Whether INFO lines reach the file immediately."""
    for setting in variable_sets(environment):
        if None in setting.holders and not setting.variables and len(setting.holders) == 1:
            continue  # a shell without TPU variables starts no TPU job
        given = setting.variables.get(ARGUMENTS, "")
        if not unbuffered(given):
            yield warn(
                f"INFO lines are written in blocks of 4096 bytes in {setting.where}: the last lines of a launch that "
                "hangs or is killed are lost.",
                export(ARGUMENTS, " ".join([*given.split(), UNBUFFERED])),  # the last one applies
                MEASURED,
            )


def space(environment: Environment) -> Iterator[Result]:
    """Free disk space for logs, and the space that old ones take."""
    limit = max((_max_log_bytes(setting.variables) for setting in variable_sets(environment)), default=0)
    for path in environment.config.logs.paths:
        real = environment.path(path)
        if not real.is_dir():
            continue
        total, _, free = environment.disk(real)
        if free < min(_OVERSHOOT * limit, total // 10):
            yield wrong(
                f"{format_size(free)} are free under {path}; a log file grows to {format_size(limit)} or more "
                "before the next one begins.",
                f"`{_delete(path)}`; or `export TPU_MAX_LOG_SIZE_MB=64`",
                MEASURED,
            )
        count, size = _old_logs(real)
        if size > _MAX_OLD_BYTES:
            yield warn(
                f"{count} log files in {path} take {format_size(size)}; libtpu never deletes old ones.",
                f"`{_delete(path)}`; permanently: `echo 'e {path} - - - 30d' | sudo tee /etc/tmpfiles.d/tpu_logs.conf`",
                _TMPFILES,
            )


def _max_log_bytes(variables: Mapping[str, str]) -> int:
    megabytes = leading_integer(variables.get("TPU_MAX_LOG_SIZE_MB", ""))
    return (megabytes if megabytes and megabytes > 0 else _DEFAULT_MAX_MB) << 20


def _delete(path: Path) -> str:
    return f"find {path} -maxdepth 1 -name 'tpu_driver.*' -mtime +7 -delete"


def _old_logs(directory: Path) -> tuple[int, int]:
    """The number of libtpu's log files in a directory, and the disk space that they take."""
    count = size = 0
    with os.scandir(directory) as entries:
        for entry in islice(entries, _MAX_FILES):
            if entry.name.startswith("tpu_driver.") and entry.is_file(follow_symlinks=False):
                count += 1
                size += entry.stat(follow_symlinks=False).st_blocks * 512
    return count, size


def fallback(environment: Environment) -> Iterator[Result]:
    """Whether the directory that libtpu falls back to is followed too."""
    if Path(_FALLBACK) not in [Path(os.path.normpath(path)) for path in environment.config.logs.paths]:
        yield warn(
            f"{_FALLBACK} is not followed; libtpu writes there when it cannot write to its directory.",
            f'Add "{_FALLBACK}" to paths under [logs] of tpuwatch\'s configuration.',
            MEASURED,
        )


def job_output(environment: Environment) -> Iterator[Result]:
    """Whether the patterns of job output match files that can be read."""
    if not environment.config.logs.job_paths:
        yield skipped("No job output is followed (job_paths under [logs]); some faults are only reported there.")
    for pattern in environment.config.logs.job_paths:
        walk = JobGlob(f"{str(environment.root).rstrip('/')}/{str(pattern).lstrip('/')}", environment.clock)
        found = walk.find()
        while walk.unfinished:
            found = walk.find()
        matches = [Path(path) for path in islice(found, _MAX_FILES)]
        if not matches:
            yield warn(
                f"{pattern} matches no file.",
                "Correct it in job_paths under [logs], or send the job's output there: python3 train.py > FILE 2>&1",
                installed("config.example.toml"),
            )
            continue
        hidden = [match for match in matches if not _readable(match, environment.me)]
        if hidden:
            yield unknown(
                f"{len(hidden)} of {len(matches)} files of {pattern} cannot be read by {environment.my_name}."
            )
        else:
            yield ok(f"{pattern} matches {len(matches)} files.")


def _readable(path: Path, person: User) -> bool:
    try:
        return person.may(path.stat(), "r")
    except OSError:
        return False


CHECKS = (
    Check(
        "log_directory",
        "log directories",
        Area.LOGS,
        directories,
        essential=True,
        fine="They can be read and written.",
    ),
    Check(
        "log_destination",
        "where libtpu writes (TPU_LOG_DIR)",
        Area.LOGS,
        destination,
        fine="libtpu writes where tpuwatch reads.",
    ),
    Check("log_fallback", "libtpu's fallback directory", Area.LOGS, fallback, fine=f"{_FALLBACK} is followed as well."),
    Check("log_level", "log level (TPU_MIN_LOG_LEVEL)", Area.LOGS, levels, fine="Everything is logged."),
    Check("log_buffering", "buffered INFO", Area.LOGS, buffering, fine="No TPU process buffers its log."),
    Check("log_space", "disk for logs", Area.LOGS, space, fine="There is room for logs, and old ones take little."),
    Check("job_output", "job output", Area.LOGS, job_output),
)
