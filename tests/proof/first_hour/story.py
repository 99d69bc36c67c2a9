"""The first hour, stage by stage. At the end of each, every view is read and checked."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from tests.e2e.daemon_process import wait_for
from tests.proof.first_hour import facts, job
from tests.proof.first_hour.checks import CommandCheck, disagreements, faults
from tests.proof.first_hour.machine import ELSEWHERE, OWN, Machine, Shown
from tests.proof.first_hour.views import look
from tests.proof.monitoring.stack import TARGETS, Inbox, Stack, free_port

NEED: Final = "4352M"  # of the premapped buffer: a little more than libtpu makes by itself


class Story:
    """The machine, what was learned of it, and what was wrong with the views so far."""

    def __init__(self, machine: Machine, stack: Stack, say: Callable[[str], None]) -> None:
        self.machine = machine
        self.known: dict[str, Any] = {}
        self.pids: set[int] = set()
        self.wrong: list[str] = []
        self._stack = stack
        self._say = say
        self._commands = CommandCheck(machine)
        self._begun = time.monotonic()

    def check(self, stage: str, also: Mapping[str, Shown] | None = None, alert: str = "") -> None:
        """Read all views, and print what is wrong with them. `alert`: one that has to have fired before."""
        if alert:
            wait_for(lambda: any(one["labels"]["alertname"] == alert for one in self._stack.alerts()), alert)
        shown = {**look(self.machine, self._stack), **(also or {})}
        wrong = [
            *faults(shown),
            *disagreements(shown),
            *facts.missing(stage, shown, self.known),
            *self._commands.faults(shown, frozenset(self.pids)),
        ]
        seconds = time.monotonic() - self._begun
        self._say(f"{seconds:6.1f} s  {'ok' if not wrong else f'{len(wrong)} faults':<9} {stage}")
        for one in wrong:
            self._say(f"          {one}")
        self.wrong += [f"{stage}: {one}" for one in wrong]

    def must(self, about: str, *, said: bool) -> None:
        """Something that has to be so beside what views show."""
        if not said:
            self._say(f"          {about}")
            self.wrong.append(about)


def tell(root: Path, commands: Path, say: Callable[[str], None]) -> list[str]:
    """Play the story; what was wrong."""
    machine = Machine(root, commands)
    moved = f"127.0.0.1:{free_port()}"
    shutil.copy(job.__file__, root / "train.py")
    inbox = Inbox()
    stack = Stack(root, inbox)
    _scrape(machine)
    with inbox.open(), machine.simulated("quiet"), stack.running([]):
        story = Story(machine, stack, say)
        before_the_service(story)
        before_the_first_verdict(story)
        a_job_runs_out_of_hbm(story)
        a_buffer_is_too_small(story)
        a_job_hangs(story)
        a_node_lies(story)
        the_api_is_lost(story)
        the_address_changes(story, moved)
    return story.wrong


def _scrape(machine: Machine) -> None:
    """Have Prometheus ask the daemon where it listens now."""
    (machine.root / TARGETS).write_text(json.dumps([{"targets": [machine.listen]}]))


def before_the_service(story: Story) -> None:
    """What a user tries first."""
    for words in (("version",), ("help",), ("config", "check"), ("doctor",), ("status",)):
        done = story.machine.run(*words)
        wanted = {"doctor": (0, 1), "status": (3,)}.get(words[0], (0,))
        story.must(
            f"tpuwatch {' '.join(words)} ends with {done.code}: {done.text}{done.errors}", said=done.code in wanted
        )


def before_the_first_verdict(story: Story) -> None:
    machine = story.machine
    for method in ("google.cloud.tpu.*", "GetRuntimeMetric", "metadata"):
        machine.sim("fault", "--method", method, "--black-hole")
    machine.start()
    story.check(facts.UNJUDGED)
    machine.sim("clear")
    machine.judged(OWN, "healthy", "idle")
    machine.judged(ELSEWHERE, "healthy", "idle")


def a_job_runs_out_of_hbm(story: Story) -> None:
    machine = story.machine
    training = machine.job("train", "python", "train.py")
    training.say("40")
    wait_for(lambda: any(one["step"] == 40 for one in machine.api("status")["training"]), "step 40")
    story.known["step"] = 40
    story.check(facts.TRAINING)
    training.say("evaluate")
    story.check(facts.EVALUATING)
    ended = training.end("run out of HBM")
    story.must(f"the job's exit status is {ended.code}", said=ended.code == 1)
    machine.found("hbm_oom_compile")
    story.check(facts.OUT_OF_HBM, {"exec": ended}, alert="TpuwatchHbmOomAtCompile")


def a_buffer_is_too_small(story: Story) -> None:
    machine = story.machine
    launch = ("tpuwatch", "sim", "launch", "--need", NEED, "--pace", "0.1")
    failed = machine.job("launch-1", *launch).end("")
    machine.found("premapped_exhausted")
    decided = (one["decision"] for one in iter(lambda: machine.api("tune")["workloads"][0], None))
    story.known["size"] = wait_for(lambda: (one := next(decided))["need_bytes"] and one["size_bytes"], "a size")
    story.check(facts.TOO_SMALL, {"exec": failed})
    tuned = machine.job("launch-2", *launch).end("")
    story.must(f"the tuned launch ends with {tuned.code}: {tuned.text}", said=tuned.code == 0)
    wait_for(lambda: machine.api("launches")["launches"][0]["exit_status"] == 0, "the launch to be recorded")
    story.check(facts.TUNED, {"exec": tuned})


def a_job_hangs(story: Story) -> None:
    machine = story.machine
    training = machine.job("train-2", "python", "train.py")
    training.say("10")
    training.say("hang")
    machine.sim("node", OWN, "phase=stuck")
    machine.judged(OWN, "job_stuck")
    (holder,) = machine.api("status")["host"]["holders"]
    story.known["pid"] = holder["pid"]
    story.pids.add(holder["pid"])
    story.check(facts.HANGS, alert="TpuwatchJobStuck")
    # What every view says is to be done.
    done = subprocess.run(["bash", "-c", f"kill {holder['pid']}"], check=False)
    story.must("the job that was killed has not ended", said=done.returncode == 0 and training.process.wait(60) != 0)
    machine.sim("node", OWN, "restore")
    machine.judged(OWN, "healthy", "idle")


def a_node_lies(story: Story) -> None:
    machine = story.machine
    machine.sim("node", OWN, "lie")
    node = machine.judged(OWN, "runtime_stuck", "node_stuck")
    story.known["verdict"] = node["verdict"]
    story.check(facts.LIES, alert="TpuwatchRuntimeStuck")


def the_api_is_lost(story: Story) -> None:
    machine = story.machine
    machine.sim("fault", "--method", "google.cloud.tpu.*", "--code", "PERMISSION_DENIED", "--message", "Not you.")
    wait_for(lambda: any(one["problem"] for one in machine.api("status")["signals"] if one["name"] == "cloud"), "it")
    story.check(facts.BLIND)
    machine.sim("clear")


def the_address_changes(story: Story, moved: str) -> None:
    story.machine.move(moved)
    _scrape(story.machine)
    story.check(facts.MOVED)
