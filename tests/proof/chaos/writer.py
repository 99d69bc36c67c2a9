"""Writes logs as libtpu and jobs do, at their worst: records cut anywhere, copies that arrive late, files that move."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from random import Random

LETTERS = "IWEF"
SEVERITIES = dict(zip(LETTERS, ("INFO", "WARNING", "ERROR", "FATAL"), strict=True))
PROCESSES = 3  # at a time
RULES = r"""
[[rule]]
id = "chaos-record"
cause = "hang"
summary = "Event {number_count}."
match = ['CHAOS-RECORD [0-9]+ ']
capture = ['CHAOS-RECORD (?P<number_count>[0-9]+) ']

[[rule]]
id = "chaos-line"
cause = "mesh_error"
summary = "Event {number_count}."
match = ['CHAOS-LINE [0-9]+ ']
capture = ['CHAOS-LINE (?P<number_count>[0-9]+) ']
"""
_NOISE = (
    "nothing to see here",
    "żółw 🐢 — two, three and four bytes",
    "Total hbm usage >= 515.04M",
    "\x1b[31mred\x1b[0m",
)
_NUMBERED = "CHAOS-RECORD {number} and no more"
_FLOOD_SIZES = (10, 40, 200, 1000)
# The files of jobs, each written by one of its kind: prints, records of libtpu's, lines of JSON, Docker's json-file.
PRINTED, FRAMED, JSON_LINES, DOCKER = OUTPUTS = ("stdout", "stderr", "steps", "container")
_COPY_BYTES = 256  # that must have been read of a file for its copy to be known as one
# One event of the product's own catalogue; the number is at its end.
_PREMAPPED = (
    "Allocating buffer from premapped region failed with: RESOURCE_EXHAUSTED: Attempting to allocate 1.50G. "
    "That was not possible. There are 512.0M free. CHAOS-REQUEST {number} and no more"
)


@dataclass
class File:
    """A file that is written to, and what its writer has not written yet."""

    path: Path
    pending: bytearray = field(default_factory=bytearray)

    def __post_init__(self) -> None:
        self._descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def write(self, count: int) -> int:
        """Write at most `count` of the bytes that wait; how many it was."""
        size = os.write(self._descriptor, self.pending[:count]) if self.pending else 0
        del self.pending[:size]
        return size

    def rename(self, name: str) -> None:
        """Give it another name, while it is open."""
        self.path = self.path.rename(self.path.with_name(name))

    def cut_off(self) -> None:
        """Truncate it, as copytruncate does."""
        os.ftruncate(self._descriptor, 0)

    def close(self) -> int:
        """Write all that waits; how many bytes it was."""
        size = self.write(len(self.pending))
        os.close(self._descriptor)
        return size


class Process:
    """A process that uses libtpu: really one, whose number its files bear, with its own least severity."""

    def __init__(self, directory: Path, minimum: str) -> None:
        self.alive = subprocess.Popen(["sleep", "3600"])  # noqa: S607 (found on PATH)
        self.directory = directory
        self.files: dict[str, File] = {}
        self.severities = LETTERS[LETTERS.index(minimum) :]  # that it logs
        self._stamp = 0.0

    def record(self, severity: str, text: str) -> None:
        """Have a record written to the files of its own severity and of all lower ones that there are."""
        for letter in self.severities[: self.severities.find(severity) + 1]:
            self._file(letter).pending += text.encode()

    def rotate(self, letter: str) -> int:
        """Begin a new file; how many bytes the old one took at last."""
        file = self.files.pop(letter, None)
        return file.close() if file else 0

    def _file(self, letter: str) -> File:
        if letter not in self.files:
            self._stamp = max(self._stamp + 1, time.time() // 1)  # one name a second
            stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(self._stamp))
            name = f"tpu_driver.t1v-n.vm.root.log.{SEVERITIES[letter]}.{stamp}.{self.alive.pid}"
            self.files[letter] = File(self.directory / name)
            created = time.strftime("Log file created at: %Y/%m/%d %H:%M:%S\n", time.localtime(self._stamp))
            self.files[letter].pending += f"{created}Running on machine: t1v-n.vm\n".encode()
        return self.files[letter]

    def close(self) -> int:
        """End the process, with everything written."""
        size = sum(file.close() for file in self.files.values())
        self.files.clear()
        self.alive.kill()
        self.alive.wait()
        return size


class Writer:
    """Does one random thing at a time. `events` are the numbers written, whether or not they have reached a file."""

    def __init__(
        self, root: Path, random: Random, is_read: Callable[[Path], bool], read_bytes: Callable[[Path], int]
    ) -> None:
        """`is_read`: wait until a file has been read to its end, if that is going to be; whether it has been.

        `read_bytes`: how many bytes of a file have been read for good.
        """
        self.logs, self.jobs, self.old = root / "tpu_logs", root / "jobs", root / "old"
        for directory in (self.logs, self.jobs, self.old):
            directory.mkdir(parents=True)
        self.events = 0
        self.bytes = 0
        self.launched = 0
        self.done: dict[str, int] = {}  # what was done how often
        self._random = random
        self._is_read = is_read
        self._read_bytes = read_bytes
        self._names = self._runs = 0
        self._micro = 0
        self._finished: list[Path] = []  # files that nobody writes to any more
        self._processes = [self._start() for _ in range(PROCESSES)]
        self._jobs = {name: self._job(name) for name in OUTPUTS}

    def history(self, count: int) -> None:
        """What stands there before anybody reads."""
        for _ in range(count):
            self._write_record()
        self.flush()

    def step(self) -> None:
        """Do one thing."""
        weights = {
            self._write_record: 40,
            self._write_flood: 3,
            self._write_printed_flood: 4,
            self._write_line: 20,
            self._write_some: 60,
            self._rotate: 2,
            self._rename: 2,
            self._replace_process: 1,
            self._replace_job: 1,
            self._rotate_job: 2,
            self._copy_and_truncate: 1,
            self._copy_and_truncate_job: 2,
            self._delete: 1,
        }
        action = self._random.choices(list(weights), list(weights.values()))[0]
        action()
        name = action.__name__.strip("_")
        self.done[name] = self.done.get(name, 0) + 1

    def flush(self) -> None:
        """Write all that waits."""
        for file in self._open_files():
            self.bytes += file.write(len(file.pending))

    def close(self) -> None:
        """End everything."""
        for process in self._processes:
            self.bytes += process.close()
        for file in self._jobs.values():
            self.bytes += file.close()

    # -- what it does

    def _write_record(self) -> None:
        """A record of one line or several, in up to four files and, now and then, in a job's output besides."""
        process = self._random.choice(self._processes)
        severity = self._random.choice(process.severities)
        if self._random.random() < 0.4:
            process.record(severity, self._header(severity) + self._random.choice(_NOISE) + "\n")
            return
        self.events += 1
        lines = [self._random.choice((_NUMBERED, _NUMBERED, _PREMAPPED)).format(number=self.events)]
        for _ in range(self._random.choice((0, 0, 0, 1, 5))):
            lines.insert(self._random.randint(0, len(lines)), self._random.choice(("", *_NOISE)))
        text = self._header(severity) + "\n".join(lines) + "\n"
        process.record(severity, text)
        if self._random.random() < 0.2:
            self._jobs[FRAMED].pending += text.encode()

    def _write_flood(self) -> None:
        """Many records that differ in digits alone, in up to four files and, now and then, in a job's output."""
        process = self._random.choice(self._processes)
        severity, printed = self._random.choice(process.severities), self._random.random() < 0.3
        for _ in range(self._random.choice(_FLOOD_SIZES)):
            self.events += 1
            text = self._header(severity) + _NUMBERED.format(number=self.events) + "\n"
            process.record(severity, text)
            if printed:
                self._jobs[FRAMED].pending += text.encode()

    def _write_printed_flood(self) -> None:
        """Many lines that differ in digits alone and are no records of libtpu's; of several ranks, now and then."""
        name = self._random.choice((PRINTED, JSON_LINES, DOCKER))
        ranks = self._random.choice((1, 1, 4))
        for number in range(self._random.choice(_FLOOD_SIZES)):
            self.events += 1
            self._jobs[name].pending += self._printed(name, self.events, number % ranks, ranks).encode()

    def _printed(self, name: str, number: int, rank: int, ranks: int) -> str:
        """A failure as a program reports it in that output."""
        text = f"CHAOS-LINE {number} and no more"
        if name == JSON_LINES:
            return json.dumps({"level": "error", "rank": rank, "event": text}) + "\n"
        if name == DOCKER:
            log = f"jaxlib.xla_extension.XlaRuntimeError: {text}\n" if rank % 2 else f"{self._header('E')}{text}\n"
            return json.dumps({"log": log, "stream": "stderr", "time": "2026-09-01T10:00:00.1Z"}) + "\n"
        prefix = f"[rank{rank}]: " if ranks > 1 else ""
        return f"{prefix}jaxlib.xla_extension.XlaRuntimeError: INTERNAL: {text}\n"

    def _write_line(self) -> None:
        """A line of a job's output; sometimes a progress bar writes over itself before it."""
        bar = "".join(f"\r{percent}%|###" for percent in range(self._random.choice((0, 0, 3)))) + "\r"
        what = self._random.choice(_NOISE)
        if self._random.random() < 0.5:
            self.events += 1
            what = f"step failed: CHAOS-LINE {self.events} and no more"
        self._jobs[PRINTED].pending += f"{bar}{what}\n".encode()

    def _write_some(self) -> None:
        """Let some of what waits reach its file: often whole, sometimes cut at any byte."""
        waiting = [file for file in self._open_files() if file.pending]
        if waiting:
            file = self._random.choice(waiting)
            size = len(file.pending)
            self.bytes += file.write(self._random.choice((size, size, self._random.randint(1, size))))

    def _rotate(self) -> None:
        process = self._random.choice(self._processes)
        if process.files:
            letter = self._random.choice(list(process.files))
            self._finished.append(process.files[letter].path)
            self.bytes += process.rotate(letter)

    def _rename(self) -> None:
        """Give a file another name under which it is followed too; of an open file, or of one that is finished."""
        if self._finished and self._random.random() < 0.5:
            at = self._random.randrange(len(self._finished))
            path = self._finished[at]
            self._finished[at] = path.rename(path.with_name(self._another_name(path)))
            return
        file = self._random.choice(self._open_files())
        file.rename(self._another_name(file.path))

    def _replace_process(self) -> None:
        at = self._random.randrange(PROCESSES)
        self._finished += [file.path for file in self._processes[at].files.values()]
        self.bytes += self._processes[at].close()
        self._processes[at] = self._start()

    def _replace_job(self) -> None:
        name = self._random.choice(OUTPUTS)
        self._finished.append(self._jobs[name].path)
        self.bytes += self._jobs[name].close()
        self._jobs[name] = self._job(name)

    def _rotate_job(self) -> None:
        """As logrotate's create: what the job has not written yet goes to the renamed file, or to the new one.

        Records of several lines stay in one file.
        """
        name = self._random.choice(OUTPUTS)
        old = self._jobs[name]
        path = old.path
        self._make_room(path)
        whole = name == FRAMED or self._random.random() < 0.5
        left = b"" if whole else bytes(old.pending[old.pending.find(b"\n") + 1 :])
        del old.pending[len(old.pending) - len(left) :]
        old.rename(f"{path.name}.1")
        self._finished.append(old.path)
        self.bytes += old.close()
        self._jobs[name] = self._begin(File(path))
        self._jobs[name].pending += left

    def _copy_and_truncate_job(self) -> None:
        """As logrotate's copytruncate; what was not read yet is read of the copy."""
        file = self._jobs[self._random.choice(OUTPUTS)]
        self.bytes += file.write(len(file.pending))
        if self._read_bytes(file.path) >= _COPY_BYTES:
            self._make_room(file.path)
            copy = file.path.with_name(f"{file.path.name}.1")
            shutil.copyfile(file.path, copy)
            file.cut_off()
            self._begin(file)
            self._finished.append(copy)

    def _make_room(self, path: Path) -> None:
        """Give each rotated file of that name the next number."""
        rotated = {one: int(one.suffix[1:]) for one in self._finished if one.stem == path.name}
        for one in sorted(rotated, key=rotated.__getitem__, reverse=True):
            renamed = one.rename(path.with_name(f"{path.name}.{rotated[one] + 1}"))
            self._finished[self._finished.index(one)] = renamed

    def _copy_and_truncate(self) -> None:
        """As logrotate's copytruncate, but only when there is nothing unread that it could lose."""
        file = self._random.choice(self._open_files())
        self.bytes += file.write(len(file.pending))
        if self._is_read(file.path):
            place = self.logs if file.path.parent == self.logs else self.old  # a copy of libtpu's is read again
            shutil.copyfile(file.path, place / self._another_name(file.path))
            file.cut_off()

    def _delete(self) -> None:
        """Delete a finished file that has been read; the next one may get its inode."""
        if self._finished:
            path = self._finished.pop(self._random.randrange(len(self._finished)))
            if self._is_read(path):
                path.unlink()
            else:
                self._finished.append(path)

    # -- its parts

    def _open_files(self) -> list[File]:
        files = [file for process in self._processes for file in process.files.values()]
        return [*files, *self._jobs.values()]

    def _start(self) -> Process:
        process = Process(self.logs, self._random.choice("IIIWE"))
        self.launched += "I" in process.severities
        for text in ("Build label: libtpu_chaos", "Starting premapped memory manager initialization..."):
            process.record("I", f"{self._header('I')}{text}\n")
        return process

    def _job(self, name: str) -> File:
        self._names += 1
        return self._begin(File(self.jobs / f"{name}-{self._names}.log"))

    def _begin(self, file: File) -> File:
        """No two runs of a job begin alike."""
        self._runs += 1
        file.pending += f"run {self._runs} of the job begins\n".encode()
        return file

    def _another_name(self, path: Path) -> str:
        self._names += 1
        return (
            f"moved-{self._names}.log" if path.parent == self.jobs else f"{path.name.partition('~')[0]}~{self._names}"
        )

    def _header(self, severity: str) -> str:
        now = time.time()
        self._micro = (self._micro + 1) % 1_000_000  # no two records alike
        stamp = time.strftime("%m%d %H:%M:%S", time.localtime(now))
        return f"{severity}{stamp}.{self._micro:06d} {self._random.randint(1, 5):7} chaos.cc:{self._micro % 97 + 1}] "
