"""What must hold of restarts, by the stand-in's log of calls, the ledger and the audits: nothing else is believed."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from itertools import pairwise, takewhile
from typing import TYPE_CHECKING, Final, TypeVar

from tests.proof.chaos.command_nest import BESIDE, PARENT, PROJECT, ZONE
from tests.standins.tpu_nodes import Health, RefusalError, State
from tpuwatch.core.errors import LedgerError
from tpuwatch.model.restart import TOUCHED, Phase, RestartRecord, Target

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.proof.chaos.common import Tally
    from tests.standins.tpu_api import Call, TpuApi
    from tests.standins.tpu_nodes import Event
    from tpuwatch.restart.ledger.base import Ledger

_T = TypeVar("_T")

SEEN_SECONDS: Final = 10.0  # what is shown for so long could be seen: half a second of real time
HEARD_SECONDS: Final = 45.0  # by then each daemon has asked the node's own tpuwatch, and judged what it says
LOOK_SECONDS: Final = 60.0  # a look before a call is not older
REWOUND_SECONDS: Final = 120.0  # after that the driver has written its record again
STORY_SECONDS: Final = 900.0
PATIENCE_SECONDS: Final = 60.0  # of real time: a ledger under chaos may not answer at once
# Before a call is carried out, the record's phase says that it is about to be made.
INTENTS: Final = {
    "StopNode": {Phase.INTENT, Phase.STOPPING},  # the second, where it is not known what came of the first
    "ResetQueuedResource": {Phase.INTENT},
    "StartNode": TOUCHED - {Phase.VERIFYING},  # also where the API shows READY what may be stopped
}


def target(node: str) -> Target:
    """The node of that name."""
    return Target(PROJECT, ZONE, node)


class CommandAudit:
    """Looks on while commands are killed. Thread-safe."""

    def __init__(self, api: TpuApi, ledger: Ledger, root: Path, tally: Tally) -> None:
        """`root` holds the state directories, each with its audit, and the logs of all commands."""
        self._api = api
        self._ledger = ledger
        self._root = root
        self._tally = tally
        self._lock = threading.Lock()  # for the tally
        self._downs: list[tuple[Call, str, float]] = []  # stops and resets, with the node and the time of the request
        self.is_reset_named = False  # whether an operator has named the reset of the slice
        self.rewound: dict[str, float] = {}  # when an older record of a node was put back

    @property
    def downs(self) -> int:
        """How many stops and resets were called so far."""
        return len(self._downs)

    @property
    def events(self) -> int:
        """How much has happened to nodes so far."""
        return len(self._api.nodes.events)

    def count(self, what: str) -> None:
        """One more of these."""
        with self._lock:
            self._tally.counts[what] += 1

    def fault(self, sentence: str) -> None:
        """Something did not hold."""
        with self._lock:
            self._tally.faults.append(sentence)

    def record(self, node: str) -> RestartRecord | None:
        """As the ledger holds it."""
        stored = patiently(lambda: self._ledger.read(target(node)))
        return stored.record if stored is not None else None

    def requested(self, node: str) -> float:
        """When the node's latest restart was requested; 0 if it never had one."""
        record = self.record(node)
        return record.requested if record is not None else 0.0

    def has_begun(self, node: str, before: float) -> bool:
        """Whether there is a restart that was requested after `before`, and not given up with nothing done."""
        record = self.record(node)
        return record is not None and record.requested > before and record.phase is not Phase.CANCELLED

    def has_ended(self, node: str, before: float) -> bool:
        """Whether it has ended."""
        return self.has_begun(node, before) and not self.is_open(node)

    def is_open(self, node: str) -> bool:
        """Whether a restart of the node is wanted, or in progress."""
        record = self.record(node)
        return record is not None and record.open

    def state(self, node: str) -> str:
        """The node's state, now."""
        try:
            return State(self._api.nodes.get(f"{PARENT}/nodes/{node}").state).name
        except RefusalError:
            return "DELETING"

    def boots(self, node: str) -> int:
        """How often it has booted."""
        return self._api.nodes.boots(f"{PARENT}/nodes/{node}")

    # -- one call

    def before_a_change(self, call: Call) -> RestartRecord | None:
        """What must hold when a call has come, and is not carried out yet; the record."""
        node = call.resource.rpartition("/")[2]
        record = self.record(node)
        phase = record.phase if record is not None else None
        is_rewound = call.at - self.rewound.get(node, float("-inf")) < REWOUND_SECONDS
        if phase not in INTENTS[call.method] and not is_rewound:
            self.fault(f"{call.method} of {node} came while the ledger had {phase.value if phase else 'no record'}.")
        if call.method != "StartNode":
            with self._lock:
                self._downs.append((call, node, record.requested if record is not None else 0.0))
            if record is not None:
                self._judge_harm(call, node, record)
        return record

    def _judge_harm(self, call: Call, node: str, record: RestartRecord) -> None:
        """Nothing is taken down that could be seen to be well.

        An operator may have a node restarted that is well: but not one that was restarted, or created again, since that
        was asked for.
        """
        path = f"{PARENT}/nodes/{node}"
        truth = self._api.nodes.truth(path)
        well = 0.0 if truth.well_since is None else call.at - truth.well_since
        is_decided = bool(record.signals)
        if is_decided:
            self.count("by policy")
        is_renewed = any(
            one.node == path and one.what in _RENEWING and record.requested < one.at < truth.booted
            for one in self._api.nodes.events[:]
        )
        if well > 0 and (is_decided or is_renewed):
            look = self._last_look(call, path)
            shown = f"{State(look.node.state).name}, {Health(look.node.health).name}" if look is not None else "nothing"
            since = f"{call.method} of {node}, which had been well for {well:.1f} s"
            by = "by policy" if is_decided else "by an operator who had asked before it was renewed"
            if is_decided and (look is None or look.node.health != Health.TIMEOUT):
                self._fault_of(node, call, f"{since}, {by}, though the look before showed {shown}")
            elif is_decided and well > SEEN_SECONDS and look is not None and not look.age:
                self._fault_of(node, call, f"{since}, {by}: it was shown {shown}")
            elif well > HEARD_SECONDS and (is_decided or self._lists_are_fresh(path)):
                self._fault_of(node, call, f"{since}, {by}, though its own tpuwatch, or the operations, said so")
            else:
                self.count("taken down, and well unseen")
        if call.method == "ResetQueuedResource" and not (self.is_reset_named and not is_decided):
            beside = self._api.nodes.truth(f"{PARENT}/nodes/{BESIDE}")
            well = 0.0 if beside.well_since is None else call.at - beside.well_since
            if well > SEEN_SECONDS and not self._api.age("ListNodes", f"{PARENT}/nodes/{BESIDE}"):
                by = "by policy" if is_decided else "by an operator who did not name it"
                self._fault_of(node, call, f"{call.method} {by}, though {BESIDE} had been well for {well:.1f} s")

    def _lists_are_fresh(self, path: str) -> bool:
        return not any(self._api.age(method, path) for method in ("GetNode", "ListOperations"))

    def _last_look(self, call: Call, path: str) -> Call | None:
        """The last GetNode of the node that was answered before the call, by the same connection if there is one."""
        looks = [
            one
            for one in takewhile(lambda one: one.at > call.at - LOOK_SECONDS, reversed(self._api.calls[:]))
            if one.method == "GetNode" and one.resource == path and one.code == "OK" and one.at <= call.at
        ]
        return next((one for one in looks if one.connection == call.connection), looks[0] if looks else None)

    def _fault_of(self, node: str, call: Call, sentence: str) -> None:
        self.fault(f"{sentence}. {self.story(node, call.at)}")

    def story(self, node: str, at: float) -> str:
        """What was called and shown of a node, and what happened to it, in the last minutes before `at`."""
        path = f"{PARENT}/nodes/{node}"
        lines = [
            (one.at, f"{'another' if one.by == 'another' else 'tpuwatch'}: {one.what}")
            for one in self._api.nodes.events
            if one.node == path and at - STORY_SECONDS < one.at <= at
        ]
        shown = ""
        for one in self._api.calls[:]:
            if one.resource.rpartition("/")[2] != node or not at - STORY_SECONDS < one.at <= at:
                continue
            if one.method == "GetNode" and one.node is not None:
                was, shown = shown, f"{State(one.node.state).name}/{Health(one.node.health).name}"
                if shown != was:
                    lines.append((one.at, f"GetNode: {shown}" + (f", {one.age:.0f} s old" if one.age else "")))
            elif one.method != "GetNode":
                lines.append((one.at, f"{one.method} ({one.fault.value if one.fault else 'no fault'}): {one.code}"))
        return "; ".join(f"{when - at:+.1f} {what}" for when, what in sorted(lines))

    # -- one restart

    def judge(self, node: str, *, boots: int, events: int, before: float, strict: bool = True) -> bool:
        """How the restart ended that was requested after `before`; whether another client has left the node stopped.

        `boots` and `events` are how many there were when it was requested. Where the API shows more than is assumed
        of what was, a restart may end with nothing done: then it is not `strict`.
        """
        record = self.record(node)
        if record is None or record.open or record.requested <= before:
            now = f"{record.phase.value}: {record.note}" if record is not None else "there is none"
            self.fault(f"{node}: its restart has not ended. {now} {self.story(node, self._api.now())}")
            return False
        self.count("restarts")
        self.count(record.phase.value)
        wait_until(lambda: not self.state(node).endswith("ING"), PATIENCE_SECONDS)
        story = [one for one in self._api.nodes.events[events:] if one.node == f"{PARENT}/nodes/{node}"]
        state, others = self.state(node), any(one.by == "another" for one in story)
        last = next((one for one in reversed(story) if one.what == "stop"), None)
        left = state == "STOPPED" and last is not None and last.by == "another"
        wrong = {
            "it does not run": state != "READY" and not left,
            "another client left it stopped, and nobody is notified": left and record.phase is not Phase.NEEDS_OPERATOR,
            "it has not booted": record.phase is Phase.DONE and not others and self.boots(node) == boots,
            "nobody has done anything, and it was given up": strict
            and not others
            and record.phase is Phase.NEEDS_OPERATOR,
        }
        for what in (what for what, is_so in wrong.items() if is_so):
            words = f"{record.phase.value}, {state}: {record.note} Its story: {_told(story)}"
            self.fault(f"{node}: {what}. {words} {self.story(node, record.entered)}")
        return left

    # -- all of it

    def end(self, *, strict: bool = True) -> None:
        """What holds of all calls, records, audits and logs together.

        Where the API shows more than is assumed of what was, it may hide that a stop has failed, or that the node
        has booted since: then it is not `strict`.
        """
        self._count_events()
        self._end_stops(strict=strict)
        done: Counter[str] = Counter()
        for stored in patiently(self._ledger.records):
            record = stored.record
            if record.open:
                self.fault(f"{record.target.node} is left {record.phase.value}: {record.note}")
            for attempt in record.history:
                done[record.target.path] += attempt.phase.value in _VERIFIED
                if attempt.stops > 1 or attempt.ended < attempt.began:
                    self.fault(f"{record.target.node}: its history is not coherent: {attempt}")
        self._end_audits(done)
        for log in sorted(self._root.glob("*.log")):
            text = log.read_text(errors="replace")
            if "Traceback" in text:
                self.fault(f"{log.name}: {text[text.index('Traceback') :][:2000]}")

    def _end_stops(self, *, strict: bool) -> None:
        stops: dict[tuple[str, float], list[Call]] = {}
        for call, node, requested in self._downs:
            if call.done_at is not None:
                stops.setdefault((node, requested), []).append(call)
        for (node, requested), calls in stops.items():
            for before, after in pairwise(calls):
                if strict or not self._is_up_again(node, before.at, after.at):
                    self._fault_of(
                        node, after, f"{node} was stopped again for the restart requested at {requested:.3f}"
                    )

    def _is_up_again(self, node: str, since: float, until: float) -> bool:
        path, ends = f"{PARENT}/nodes/{node}", ("booted", "stop failed", "reset failed")
        return any(one.node == path and one.what in ends and since < one.at < until for one in self._api.nodes.events)

    def _count_events(self) -> None:
        events = self._api.nodes.events
        ours = Counter(one.what for one in events if one.by != "another")
        for name, what in (("stops", "stop"), ("resets", "reset"), ("starts", "start")):
            self._tally.counts[name] = ours[what]
            self._tally.counts[f"{name} that failed"] = ours[f"{what} failed"]
        self._tally.counts["by others"] = sum(one.by == "another" and one.what in _BEGUN for one in events)
        for call in self._api.calls:
            if call.fault is not None:
                self._tally.counts["calls with a fault"] += 1

    def _end_audits(self, done: Counter[str]) -> None:
        """Each line is whole, and all say no more than the ledger. They may say less, for a writer may die before it.

        Whoever drove a restart to its end tells of it, and nobody else.
        """
        audited: Counter[str] = Counter()
        for file in sorted(self._root.glob("*/audit.jsonl")):
            for line in file.read_text("ascii").splitlines():
                try:
                    document = json.loads(line)
                    audited[document["node"]] += document["result"] in _VERIFIED
                except (ValueError, KeyError):  # noqa: PERF203 (each line is looked at)
                    self.fault(f"{file}: a line that cannot be read: {line!r}")
        if more := audited - done:
            self.fault(f"The audits tell of more restarts that were carried out than the ledger: {dict(more)}")


_VERIFIED: Final = (Phase.DONE.value, Phase.NOT_VERIFIED.value)  # how restarts end that were carried out
_RENEWING: Final = ("start", "reset", "create")
_BEGUN: Final = ("stop", "start", "reset", "delete", "create")


def wait_until(look: Callable[[], object], seconds: float) -> None:
    """Look until it is so, or the seconds are over."""
    deadline = time.monotonic() + seconds
    while not look() and time.monotonic() < deadline:
        time.sleep(0.005)


def patiently(do: Callable[[], _T]) -> _T:
    """Do it again after faults of the ledger."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            return do()
        except LedgerError:  # noqa: PERF203 (it is the loop's purpose)
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def _told(story: list[Event]) -> list[str]:
    return [f"{'another' if one.by == 'another' else 'tpuwatch'}: {one.what}" for one in story]
