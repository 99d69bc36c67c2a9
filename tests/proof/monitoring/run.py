"""Fault after fault, until its alert has come to the webhook, and until that has heard that it is over."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.e2e.daemon_in_cloud import AS_IT_WAS
from tests.e2e.daemon_process import wait_for
from tests.proof.monitoring.dashboards import STEP_SECONDS, queries, without_data
from tests.proof.monitoring.fleet import NODE, Restarts, restarts
from tests.proof.monitoring.stack import Inbox, Labels, Stack
from tests.proof.monitoring.watch import FULL, HALTED, NAN, NODES, OOM, Watch
from tests.standins.simulated import ZONE, simulated
from tests.unit.deploy.alerts import rules

PATIENCE_SECONDS: Final = 60.0  # for one message


@dataclass(frozen=True)
class Scene:
    """A fault, and the alerts that it has to cause, by their labels; some are not sent because others say it all."""

    name: str
    fault: Callable[[], AbstractContextManager[None]]
    alerts: dict[str, Labels]
    inhibited: tuple[str, ...] = ()
    ready: Callable[[], None] = lambda: None  # waits until it can go wrong
    lasting: tuple[str, ...] = ()  # those that are over only after some later act


@dataclass(frozen=True)
class Row:
    """How long one alert took, in seconds."""

    scene: str
    alert: str
    fired: float
    resolved: float


class Proof:
    """Plays acts, each of several scenes at once, and keeps how long each alert took."""

    def __init__(self, stack: Stack, inbox: Inbox, print_line: Callable[[str], None]) -> None:
        self.rows: list[Row] = []
        self._ends: list[Callable[[], None]] = []
        self._stack = stack
        self._inbox = inbox
        self._print_line = print_line

    def play(self, scenes: Sequence[Scene]) -> None:
        """Let it all go wrong, wait for all messages, put it right, and wait until all is over."""
        fired: dict[tuple[str, str], float] = {}
        ends: dict[str, ExitStack] = {}
        with ExitStack() as unfinished:
            begun = {}
            for scene in scenes:
                scene.ready()
                begun[scene.name] = time.monotonic()
                ends[scene.name] = unfinished.enter_context(ExitStack())
                ends[scene.name].enter_context(scene.fault())
            for scene in scenes:
                for alert, labels in scene.alerts.items():
                    at = self._wait("firing", alert, labels, begun[scene.name])
                    fired[scene.name, alert] = at - begun[scene.name]
                for alert in scene.inhibited:
                    self._check_inhibited(alert, scene)
            over = {}
            for scene in scenes:
                over[scene.name] = time.monotonic()
                ends[scene.name].close()
            for scene in scenes:
                for alert in scene.alerts:
                    end = functools.partial(
                        self._wait_for_end, scene, alert, fired[scene.name, alert], begun[scene.name], over[scene.name]
                    )
                    self._ends.append(end) if alert in scene.lasting else end()

    def finish(self) -> None:
        """Wait for what lasts."""
        for end in self._ends:
            end()

    def _wait_for_end(self, scene: Scene, alert: str, fired: float, begun: float, over: float) -> None:
        at = self._wait("resolved", alert, scene.alerts[alert], begun)
        self._report(Row(scene.name, alert, fired, max(0.0, at - over)))

    def _wait(self, status: str, alert: str, labels: Labels, since: float) -> float:
        wanted = {"alertname": alert, **labels}
        return (
            wait_for(lambda: self._inbox.became(status, wanted, since), f"{wanted} to be {status}", PATIENCE_SECONDS)
            or 0.0
        )

    def _check_inhibited(self, alert: str, scene: Scene) -> None:
        labels = next(iter(scene.alerts.values()))
        text = ",".join(f'{key}="{value}"' for key, value in labels.items())
        wait_for(
            lambda: self._stack.query(f'ALERTS{{alertname="{alert}",alertstate="firing",{text}}}'),
            f"{alert} to fire in Prometheus",
            PATIENCE_SECONDS,
        )
        assert not self._inbox.heard({"alertname": alert, **labels}), f"{alert} was sent beside {scene.alerts}"

    def _report(self, row: Row) -> None:
        self.rows.append(row)
        self._print_line(f"{row.alert:<32} {row.fired:>6.1f} s {row.resolved:>6.1f} s   {row.scene}")


HEADING: Final = f"{'alert':<32} {'fired':>8} {'over':>8}   fault"


def run(scratch: Path, print_line: Callable[[str], None], only: str = "") -> list[Row]:
    """Play all of it, or the acts with `only` in the name of a fault; raises AssertionError with what is missing."""
    inbox, since = Inbox(), time.time()
    with inbox.open(), ExitStack() as started:
        site = started.enter_context(simulated(scratch / "sim", **NODES))
        watch = started.enter_context(Watch(scratch, site).running())
        fleet = started.enter_context(restarts(scratch / "fleet"))
        stack = Stack(scratch, inbox)
        started.enter_context(stack.running([watch.listen[watch.outside], fleet.outside.address]))
        own = {"node": "job-1", "instance": watch.listen[watch.inside]}
        proof = Proof(stack, inbox, print_line)
        for text in recorded_and_named(own["instance"]):
            wait_for(lambda text=text: stack.query(text), text, PATIENCE_SECONDS)  # type: ignore[misc]
        print_line(HEADING)
        for act in [*acts_of_fleet(fleet), *acts_of_watch(watch, own)]:
            if any(only in scene.name for scene in act):
                proof.play(act)
        proof.finish()
        if not only:
            watch.train()
            text = f'tpuwatch_workload_input_wait_ratio{{instance="{own["instance"]}"}}'
            wait_for(lambda: stack.range(text, since, time.time(), STEP_SECONDS), text, PATIENCE_SECONDS)
            places = [(own["instance"], "job-1"), (fleet.outside.address, NODE)]
            choices = [{"instance": instance, "zone": ZONE, "node": node} for instance, node in places]
            lacking = without_data(stack, since, time.time(), choices)
            assert not lacking, "panels without data:\n" + "\n".join(lacking)
            print_line(f"{len(list(queries()))} queries of the dashboards have data.")
        proof.play(act_of_all(watch, fleet))
    return proof.rows


def recorded_and_named(instance: str) -> list[str]:
    """Queries that have a result only where a rule records, and the loops that an alert names are those of a daemon."""
    loops = next(rule["expr"] for rule in rules() if rule.get("alert") == "TpuwatchLoopStale")
    names = loops.partition('loop=~"')[2].partition('"')[0]
    of_daemon = f'tpuwatch_loop_last_success_timestamp_seconds{{instance="{instance}",loop=~"{names}"}} > 0'
    return [
        f"count({of_daemon}) == {len(names.split('|'))}",
        f'instance:tpuwatch_availability:ratio1h{{instance="{instance}"}} > 0',
        f'chip:tpuwatch_hbm_utilization:ratio{{instance="{instance}"}} > 0',
    ]


def acts_of_watch(watch: Watch, own: Labels) -> list[list[Scene]]:
    """What goes wrong with nodes, jobs and daemons; scenes of one act do not touch each other."""

    def node(number: int) -> Labels:
        return {"node": f"job-{number}"}

    return [
        [
            Scene("no logs", watch.no_logs, {"TpuwatchNoLogs": own}),
            Scene(
                "preempted",
                lambda: watch.fault_of_node("preempt", "job-2"),
                {"TpuwatchNodePreempted": node(2), "TpuwatchPersonNeeded": node(2)},
            ),
            Scene(
                "hang",
                lambda: watch.fault_of_node("hang", "job-3"),
                {"TpuwatchNodeStuck": node(3)},
                inhibited=("TpuwatchNodeUnhealthy",),
            ),
            Scene(
                "stop", lambda: watch.fault_of_node("set", "job-4", state="STOPPED"), {"TpuwatchNodeStopped": node(4)}
            ),
            Scene("full HBM", watch.full_hbm, {"TpuwatchHbmNearFull": own}),
            Scene(
                "bad configuration",
                lambda: watch.configuration(AS_IT_WAS, log={"no_such_key": 1}),
                {"TpuwatchConfigRejected": own},
            ),
        ],
        [
            Scene("hbm-oom", lambda: watch.launch("hbm-oom"), {"TpuwatchHbmOomAtCompile": own}),
            Scene("slow-init", lambda: watch.launch("slow-init"), {"TpuwatchSlowStart": own}),
            Scene(
                "premapped",
                lambda: watch.launch("premapped"),
                {"TpuwatchPremappedExhausted": own},
            ),
            Scene("job output", lambda: watch.job_output(OOM), {"TpuwatchHbmOomAtRunTime": own}),
            Scene("host out of memory", watch.host_oom, {"TpuwatchHostOom": own}),
            Scene("full disk", lambda: watch.job_output(FULL), {"TpuwatchDiskFull": own}),
            Scene("vanish", lambda: watch.fault_of_node("vanish", "job-3"), {"TpuwatchNodeGone": node(3)}),
        ],
        [
            Scene(
                "maintain",
                lambda: watch.fault_of_node("maintain", "job-1", in_seconds=1800.0),
                {"TpuwatchNodeMaintenance": node(1), "TpuwatchMaintenanceAhead": own},
            ),
            Scene(
                "hide", lambda: watch.fault_of_node("set", "job-2", state="HIDDEN"), {"TpuwatchNodeUnknown": node(2)}
            ),
        ],
        [
            Scene("silent API", watch.silent_api, {"TpuwatchSignalFailing": {"signal": "cloud"}}),
        ],
        [Scene("no state directory", watch.no_state_directory, {"TpuwatchNotReady": own})],
        # These let the clock jump: some loops are not fresh for a while afterwards.
        [Scene("lie", watch.dead_runtime, {"TpuwatchRuntimeStuck": node(1)})],
        [
            Scene(
                "finding of the machine",
                lambda: watch.finding(HALTED),
                {"TpuwatchMachineFault": {**own, "cause": "core_halted"}},
            ),
            Scene(
                "finding of the program",
                lambda: watch.finding(NAN),
                {"TpuwatchProgramFault": {**own, "cause": "numeric_fault"}},
            ),
        ],
        [Scene("stuck", watch.stuck_job, {"TpuwatchJobStuck": node(1)})],
        [Scene("silent launch", watch.silent_launch, {"TpuwatchSilentStart": own})],
        [Scene("killed daemon", watch.dead_daemon, {"TpuwatchDown": own})],
    ]


def acts_of_fleet(fleet: Restarts) -> list[list[Scene]]:
    """What goes wrong with restarts."""
    daemon = {"instance": fleet.outside.address}
    return [
        [
            Scene(
                "no capacity",
                fleet.no_capacity,
                {"TpuwatchWaitingForCapacity": {}, "TpuwatchRestartNotFinishing": {"node": NODE}},
            ),
            Scene(
                "no ledger",
                fleet.no_ledger,
                {"TpuwatchLedgerDown": daemon, "TpuwatchRestartUnrecorded": daemon},
                ready=fleet.wait_for_stockout,
                lasting=("TpuwatchLedgerDown",),
            ),
        ],
        [
            Scene(
                "refused stop",
                fleet.refused_stop,
                {
                    "TpuwatchRestartFailing": {**daemon, "action": "restart_node"},
                    "TpuwatchBreakerOpen": {},
                    "TpuwatchWebhookFailing": daemon,
                },
                lasting=("TpuwatchBreakerOpen",),  # the ledger is read again when it is needed, or after a while
            )
        ],
    ]


def act_of_all(watch: Watch, fleet: Restarts) -> list[Scene]:
    """What goes wrong when nobody is left."""

    @contextmanager
    def all_dead() -> Iterator[None]:
        fleet.outside.kill()
        with watch.dead_daemons():
            yield

    return [Scene("killed daemons", all_dead, {"TpuwatchAbsent": {}})]
