"""The first hour, stage by stage. At the end of each, every view is read and checked."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from tests.e2e.daemon_process import SECONDS, wait_for
from tests.proof.first_hour import facts, job
from tests.proof.first_hour.checks import CommandCheck, disagreements, faults, undescribed
from tests.proof.first_hour.machine import ELSEWHERE, OWN, WITH_PEER, Job, Machine, Shown
from tests.proof.first_hour.views import QUICK, look
from tests.proof.monitoring.stack import TARGETS, Inbox, Stack, free_port
from tests.standins.peer_server import peer_server, status
from tests.standins.simulated import ZONE

SCENARIO: Final = """
title = "Three nodes that train"

[timing]
timeout = 2.0
stop = 1.0
start = 1.0

[[zones]]
name = "us-central2-b"

[[nodes]]
name = "train-{number}"
count = 3
phase = "training"
phase_seconds = 3600.0
"""
VMEM: Final = (
    "RESOURCE_EXHAUSTED: Ran out of memory in memory space vmem. Used 20.00M of 16.00M vmem. Exceeded vmem capacity by "
    "4.00M."
)
NEED: Final = "4352M"  # of the premapped buffer: a little more than libtpu makes by itself


class Story:
    """The machine, what was learned of it, and what was wrong with the views so far."""

    def __init__(self, machine: Machine, stack: Stack, say: Callable[[str], None]) -> None:
        self.machine = machine
        self.known: dict[str, Any] = {}
        self.pids: set[int] = set()
        self.wrong: list[str] = []
        self.stack = stack
        self._say = say
        self._commands = CommandCheck(machine)
        self._begun = time.monotonic()

    def check(
        self, stage: str, also: Mapping[str, Shown] | None = None, alert: str = "", *, calm: bool = False
    ) -> None:
        """Read all views, and print what is wrong with them. `alert`: one that fires before; `calm`: none does."""
        if alert:
            wait_for(lambda: any(one["labels"]["alertname"] == alert for one in self.stack.alerts()), alert)
        if calm:
            wait_for(self._is_calm, "all alerts to be over")
        self.judge(stage, {**look(self.machine, self.stack), **(also or {})})

    def _is_calm(self) -> bool:
        """Prometheus reads the daemon where it listens now and nowhere else, and no alert fires or is about to."""
        read = [(one["metric"]["instance"], one["value"][1]) for one in self.stack.query("up")]
        return read == [(self.machine.listen, "1")] and not self.stack.query("ALERTS")

    def judge(self, stage: str, shown: Mapping[str, Shown]) -> None:
        """Print what is wrong with the views of that stage."""
        wrong = [
            *faults(shown),
            *undescribed(self.machine, shown),
            *disagreements(shown),
            *facts.missing(stage, shown, self.known),
            *self._commands.faults(shown, frozenset(self.pids)),
        ]
        seconds = time.monotonic() - self._begun
        self._say(f"{seconds:6.1f} s  {'ok' if not wrong else f'{len(wrong)} faults':<9} {stage}")
        for one in wrong:
            self._say(f"          {one}")
        self.wrong += [f"{stage}: {one}" for one in wrong]

    def starts(self, name: str) -> Job:
        """A job has started, and the daemon sees that its process holds the chips: known["pid"]."""
        job = self.machine.job(name, "python", "train.py")
        job.say("10")

        def new() -> int:
            held = [one["pid"] for one in self.machine.api("status")["host"]["holders"]]
            return next((pid for pid in held if pid not in self.pids), 0)

        self.known["pid"] = wait_for(new, "a process to hold the TPU")
        self.pids.add(self.known["pid"])
        return job

    def does(self, command: str, job: Job) -> None:
        """The command that every view shows is run, and ends that job."""
        subprocess.run(["/bin/bash", "-c", command.format(**self.known)], check=True)
        self.must(f"{command} left the job well", said=job.process.wait(SECONDS) != 0)

    def restarted(self, node: str) -> str:
        """The phase of the node's restart, as the daemon knows it; "" where there is none."""
        records = self.machine.api("restarts")["restarts"]
        return next((str(one["phase"]) for one in records if one["node"] == node), "")

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
    (root / "hour.toml").write_text(SCENARIO)
    with inbox.open(), machine.simulated("hour.toml"), stack.running([]):
        story = Story(machine, stack, say)
        before_the_service(story)
        before_the_first_verdict(story)
        a_job_runs_out_of_hbm(story)
        exec_alone_sees_a_failure(story)
        a_buffer_is_too_small(story)
        a_job_hangs(story)
        a_node_lies(story)
        the_api_is_lost(story)
        a_person_restarts_it(story)
        the_daemon_restarts_one(story)
        the_address_changes(story, moved)
    return story.wrong


def _scrape(machine: Machine) -> None:
    """Have Prometheus ask the daemon where it listens now."""
    (machine.root / TARGETS).write_text(json.dumps([{"targets": [machine.listen]}]))


def before_the_service(story: Story) -> None:
    """The commands that a user tries first."""
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
    for _ in range(5):  # it waits ten seconds for its signals, which on a busy machine are soon over
        machine.start()
        shown = look(machine, story.stack, QUICK)
        if not machine.api("status")["judged"]:
            break
        machine.stop()
    story.judge(facts.UNJUDGED, shown)
    machine.stop()
    machine.sim("clear")
    machine.start()
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


def exec_alone_sees_a_failure(story: Story) -> None:
    """Its output is in no file that the daemon follows, and libtpu has logged nothing."""
    machine = story.machine
    ended = machine.job("compiles", "python", "-c", f"raise SystemExit({VMEM!r})").end("")
    machine.found("vmem_oom")
    story.check(facts.UNLOGGED, {"exec": ended})


def a_buffer_is_too_small(story: Story) -> None:
    machine = story.machine
    launch = ("tpuwatch", "sim", "launch", "--need", NEED, "--pace", "0.1")
    story.known["need"] = NEED
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
    training = story.starts("train-2")
    training.say("hang")
    machine.sim("node", OWN, "phase=stuck")
    machine.judged(OWN, "job_stuck")
    story.check(facts.HANGS, alert="TpuwatchJobStuck")
    story.does("kill {pid}", training)
    machine.sim("node", OWN, "restore")
    machine.judged(OWN, "healthy", "idle")


def a_node_lies(story: Story) -> None:
    machine = story.machine
    training = story.starts("train-3")
    machine.sim("node", OWN, "lie")
    node = machine.judged(OWN, "runtime_stuck", "node_stuck")
    story.known["verdict"] = node["verdict"]
    story.check(facts.LIES, alert="TpuwatchRuntimeStuck")
    story.does("kill -9 {pid}", training)
    machine.sim("node", OWN, "restore")
    machine.judged(OWN, "healthy", "idle")


def the_api_is_lost(story: Story) -> None:
    machine = story.machine
    machine.sim("node", ELSEWHERE, "hang")
    node = wait_for(lambda: (one := machine.node(ELSEWHERE))["verdict"] not in ("healthy", "unknown") and one, "it")
    story.known["verdict"] = node["verdict"]
    story.check(facts.DEAD, alert="TpuwatchNodeStuck")
    machine.sim("fault", "--method", "google.cloud.tpu.*", "--code", "PERMISSION_DENIED", "--message", "Not you.")
    wait_for(lambda: machine.api("status")["problem_counts"].get("signal"), "the signal cloud to count as a problem")
    story.check(facts.BLIND, alert="TpuwatchSignalFailing")
    machine.sim("clear")
    machine.judged(ELSEWHERE, node["verdict"])


def a_person_restarts_it(story: Story) -> None:
    """By the command that all views show."""
    machine = story.machine
    named = f"{ZONE}/{ELSEWHERE}"
    done = machine.run("restart", named, "--project=sim-project", "--yes", "--reason", "It hangs.")
    story.must(f"the restart ends with {done.code}: {done.text}{done.errors}", said=done.code == 3)  # not verified
    machine.judged(ELSEWHERE, "healthy", "idle")
    wait_for(lambda: story.restarted(ELSEWHERE) == "not_verified", "the daemon to know of it")
    story.check(facts.RESTARTED, {"restart": done}, calm=True)


def the_daemon_restarts_one(story: Story) -> None:
    """The cloud and the node's own tpuwatch say that it is stuck."""
    machine = story.machine
    with peer_server() as its_own:
        its_own.reply = status(WITH_PEER, "healthy")
        machine.reload(
            restart={"mode": "act", "restart_node": True},
            peers={"enabled": True, "poll_seconds": 1.0, "timeout_seconds": 1.0},
            **{"peers.addresses": {WITH_PEER: its_own.url}},
        )
        its_own.reply = status(WITH_PEER, "node_stuck", "restart_node", sources=["kernel", "runtime"])
        machine.sim("node", WITH_PEER, "hang")
        machine.judged(WITH_PEER, "node_stuck")
        wait_for(lambda: story.restarted(WITH_PEER) not in ("", "requested"), "the daemon to begin")
        its_own.reply = status(WITH_PEER, "healthy")
        wait_for(lambda: story.restarted(WITH_PEER) == "done", "the daemon to restart it")
        machine.judged(WITH_PEER, "healthy", "idle")
        story.check(facts.HEALED, calm=True)


def the_address_changes(story: Story, moved: str) -> None:
    story.machine.listen = moved
    story.machine.reload()
    _scrape(story.machine)
    story.check(facts.MOVED, calm=True)
