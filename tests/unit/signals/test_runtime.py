from __future__ import annotations

import contextlib
import errno
import itertools
import os
import random
import resource
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest

from tests.e2e.daemon_process import wait_for
from tests.standins.runtime_server import RuntimeProcess, listening, refused
from tpuwatch.core.clock import ManualClock, SystemClock
from tpuwatch.libtpu.metrics_values import DUTY_CYCLE, HBM_TOTAL, HBM_USED, HLO_QUEUE, IDLE
from tpuwatch.model.answers import Problem
from tpuwatch.model.signals import Chip
from tpuwatch.signals.runtime import LIST_SECONDS, MAX_JITTER, MAX_PAUSE, RuntimeSignal, probe_ports
from tpuwatch.sim.cloud.nodes import SimNode, Workload, WorkloadPhase
from tpuwatch.sim.cloud.runtime_service import RuntimeService
from tpuwatch.sim.cloud.world import World

GIB = 1 << 30
TRIES = 30  # in one of which a healthy process answers at once, though the machine is loaded
LONG = 60.0  # a timeout that no healthy process reaches, however loaded the machine is

Start = Callable[..., RuntimeProcess]


class Poller:
    """A signal with a clock of its own, and what it counted."""

    def __init__(self, *ports: int, timeout: float = LONG) -> None:
        self.clock = ManualClock()
        self.calls: list[tuple[str, str]] = []
        self.signal = RuntimeSignal(
            lambda: ports,
            clock=self.clock,
            rng=random.Random(1),
            poll_seconds=10,
            timeout_seconds=timeout,
            on_call=lambda method, code: self.calls.append((method, code)),
        )

    def next(self) -> Any:
        """Poll when it is due."""
        self.clock.advance(self.signal.due_in)
        return self.signal.ask()


def of_chip(number: int, **gauge: Any) -> dict[str, Any]:
    return {"attribute": {"key": "device_ordinal", "value": {"int_attr": number}}, "gauge": gauge}


def two_chips() -> dict[str, Any]:
    return {
        HBM_USED: [of_chip(0, as_int=GIB), of_chip(1, as_int=2 * GIB)],
        HBM_TOTAL: [of_chip(0, as_int=16 * GIB), of_chip(1, as_int=16 * GIB)],
        DUTY_CYCLE: [of_chip(0, as_double=87.5), of_chip(1, as_double=0.0)],
        IDLE: [of_chip(0, as_double=0.5), of_chip(1, as_double=700.25)],
        HLO_QUEUE: [of_chip(0, as_int=2), of_chip(1, as_int=1)],
        "megascale.grpc_tcp_min_rtt.microsecond.cumulative.distribution": [],
    }


CHIPS = (Chip("0", GIB, 16 * GIB, 0.875, 0.5), Chip("1", 2 * GIB, 16 * GIB, 0.0, 700.25))


def test_a_process_reports_all_of_its_chips(start: Start) -> None:
    process = start(two_chips())
    poller = Poller(process.port)
    answer = poller.signal.ask()
    assert (answer.problem, answer.at, answer.tried) == (None, poller.clock.time(), poller.clock.time())
    (port,) = answer.value.ports
    assert (port.port, port.chips, port.hlo_queue, port.problem) == (process.port, CHIPS, 3, None)
    assert poller.calls == [("ListSupportedMetrics", "OK")] + [("GetRuntimeMetric", "OK")] * 5


def test_only_metrics_that_are_used_and_supported_are_asked_for(start: Start) -> None:
    process = start({IDLE: [of_chip(0, as_int=9)], "tpu.runtime.new": []})
    (port,) = Poller(process.port).signal.ask().value.ports
    assert [request.metric_name for request in process.asked] == [IDLE]
    assert port.chips == (Chip("0", idle_seconds=9),)
    assert port.hlo_queue is None


def test_a_process_that_knows_none_of_the_metrics_is_no_fault(start: Start) -> None:
    (port,) = Poller(start({"tpu.runtime.new": []}).port).signal.ask().value.ports
    assert (port.chips, port.problem) == ((), None)


def test_a_version_that_cannot_list_is_asked_for_all(start: Start) -> None:
    poller = Poller(start(two_chips(), lists=False).port)
    assert poller.signal.ask().value.chips == CHIPS
    assert poller.calls[0] == ("ListSupportedMetrics", "UNIMPLEMENTED")


@pytest.mark.parametrize("broken", [grpc.StatusCode.INTERNAL, grpc.StatusCode.NOT_FOUND, b"\xff\xff\xff\xff"])
def test_a_metric_that_fails_is_left_out(start: Start, broken: Any) -> None:
    process = start({**two_chips(), DUTY_CYCLE: broken})
    (port,) = Poller(process.port).signal.ask().value.ports
    assert port.problem is None
    assert [(chip.hbm_used_bytes, chip.duty_cycle) for chip in port.chips] == [(GIB, None), (2 * GIB, None)]


def test_a_process_that_fails_at_every_metric_differs_from_something_else(start: Start) -> None:
    process = start(dict.fromkeys(two_chips(), grpc.StatusCode.INTERNAL))
    (port,) = Poller(process.port).signal.ask().value.ports
    assert (port.problem, port.chips) == (Problem.SERVER, ())
    assert f"port {process.port}" in port.detail


def test_a_closed_port_is_absent_and_keeps_the_last_answer(start: Start) -> None:
    process = start(two_chips())
    poller = Poller(process.port)
    first = poller.signal.ask()
    process.stop()
    answer = poller.next()
    assert answer.problem is Problem.ABSENT
    assert str(process.port) in answer.detail
    assert (answer.value, answer.at) == (first.value, first.at)
    assert answer.tried == poller.clock.time()


def test_a_closed_port_costs_less_than_a_millisecond() -> None:
    with contextlib.ExitStack() as stack:
        poller = Poller(*(stack.enter_context(refused()) for _ in range(4)))
        poller.next()
        before = time.thread_time()
        for _ in range(100):
            assert poller.next().problem is Problem.ABSENT
        assert (time.thread_time() - before) / 100 < 0.001
    assert poller.calls == []


def test_a_machine_without_ports_is_reported() -> None:
    assert Poller().signal.ask().problem is Problem.UNCONFIGURED


def test_ports_that_become_known_later_are_asked_from_then_on(start: Start) -> None:
    known: list[int] = []
    signal = RuntimeSignal(lambda: known, clock=ManualClock(), rng=random.Random(1), timeout_seconds=LONG)
    assert signal.ask().problem is Problem.UNCONFIGURED
    known.append(start(two_chips()).port)
    answer = signal.ask()
    assert answer.value is not None
    assert answer.value.chips == CHIPS


def test_where_nothing_runs_grpc_is_never_loaded() -> None:
    with refused() as port:
        program = (
            "import random, sys\n"
            "from tpuwatch.core.clock import SystemClock\n"
            "from tpuwatch.signals.runtime import RuntimeSignal\n"
            f"signal = RuntimeSignal(lambda: [{port}], clock=SystemClock(), rng=random.Random())\n"
            "print(signal.ask().problem.value)\n"
            "print('grpc' in sys.modules, 'google.protobuf' in sys.modules)"
        )
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == ["absent", "False", "False"]


def test_a_hung_process_neither_hides_the_others_nor_takes_time_from_them(start: Start) -> None:
    with listening() as hung:
        process = start(two_chips())
        for _ in range(TRIES):
            codes: list[str] = []
            signal = RuntimeSignal(
                lambda ports=(hung, process.port): ports,  # type: ignore[misc]
                clock=SystemClock(),
                rng=random.Random(1),
                timeout_seconds=1.5,
                on_call=lambda _, code, codes=codes: codes.append(code),  # type: ignore[misc]
            )
            runtime = signal.ask().value
            assert runtime is not None
            if codes.index("DEADLINE_EXCEEDED") == len(codes) - 1:
                break
    assert codes == ["OK"] * 6 + ["DEADLINE_EXCEEDED"]  # gRPC may answer a moment after the deadline, too
    silent, well = runtime.ports
    assert (silent.port, silent.problem, silent.chips, "1.5 s" in silent.detail) == (hung, Problem.TIMEOUT, (), True)
    assert (well.problem, len(well.chips)) == (None, 2)


def test_a_process_that_hangs_is_asked_ever_less_often_and_noticed_when_it_ends() -> None:
    with listening() as hung:
        poller = Poller(hung, timeout=0.05)
        began = poller.clock.time()
        asked: list[float] = []
        while poller.clock.time() < began + 600:
            before = len(poller.calls)
            (port,) = poller.next().value.ports
            assert (port.problem, port.since) == (Problem.TIMEOUT, began)
            if len(poller.calls) > before:
                asked.append(poller.clock.time())
    gaps = [later - earlier for earlier, later in itertools.pairwise(asked)]
    assert min(gaps) >= 10
    assert 600 / MAX_PAUSE <= len(asked) <= 30
    assert max(gaps) <= MAX_PAUSE + 11  # an end of the hang shows that soon
    assert poller.next().problem is Problem.ABSENT


def test_a_clock_that_jumps_makes_no_hang_longer() -> None:
    with listening() as hung:
        poller = Poller(hung, timeout=0.05)
        poller.next()
        poller.clock.wall += 3600
        for _ in range(5):  # whether it is asked or left to rest
            (port,) = poller.next().value.ports
            assert poller.clock.time() - port.since < 120


def test_after_a_hang_the_process_is_as_good_as_new(start: Start) -> None:
    with listening() as port:
        poller = Poller(port, timeout=0.05)
        assert poller.next().value.ports[0].problem is Problem.TIMEOUT
    poller.signal.timeout_seconds = LONG
    start(two_chips(), port=port)
    poller.clock.advance(MAX_PAUSE)
    (well,) = poller.next().value.ports
    assert (well.problem, well.since, well.chips) == (None, None, CHIPS)


def answer_with(text: bytes) -> Callable[[socket.socket], None]:
    def answer(connection: socket.socket) -> None:
        connection.recv(4096)
        connection.sendall(text)

    return answer


HTTP = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 3\r\nConnection: close\r\n\r\nno\n"


@pytest.mark.parametrize("text", [HTTP, b"SSH-2.0-OpenSSH_9.2p1\r\n", b"", b"\0" * 1000], ids=["http", "ssh", "", "0"])
def test_what_is_not_the_service_is_foreign(text: bytes) -> None:
    with listening(answer_with(text)) as port:
        answer = Poller(port).signal.ask()
    assert answer.problem is None
    assert answer.value.ports[0].problem is Problem.FOREIGN
    assert "[runtime] ports" in answer.value.ports[0].detail


def test_another_grpc_service_is_foreign(start: Start) -> None:
    process = start(two_chips(), service="other.Service")
    assert Poller(process.port).signal.ask().value.ports[0].problem is Problem.FOREIGN


def test_a_known_process_whose_connections_break_is_not_foreign(start: Start) -> None:
    process = start(two_chips())
    poller = Poller(process.port)
    assert poller.next().value.ports[0].problem is None
    process.metrics.update(dict.fromkeys(process.metrics, grpc.StatusCode.UNAVAILABLE))
    assert poller.next().value.ports[0].problem is Problem.UNREACHABLE


def test_processes_that_count_their_chips_from_0_are_kept_apart(start: Start) -> None:
    first, second = start(two_chips()), start(two_chips())
    poller = Poller(first.port, second.port)
    assert [chip.id for chip in poller.next().value.chips] == ["0", "1", "2", "3"]
    assert all(request.skip_node_aggregation for request in first.asked + second.asked)
    first.stop()
    assert [chip.id for chip in poller.next().value.chips] == ["2", "3"]


def test_one_process_alone_may_report_the_whole_host(start: Start) -> None:
    process = start(two_chips())
    with refused() as other:
        Poller(process.port, other).signal.ask()
    assert not any(request.skip_node_aggregation for request in process.asked)


def test_polls_come_no_faster_than_allowed_and_not_in_step() -> None:
    with refused() as port:
        poller = Poller(port)
        assert poller.signal.due_in == 0
        dues = set()
        for _ in range(20):
            poller.next()
            dues.add(poller.signal.due_in)
    assert len(dues) > 10
    assert all(10 <= due <= 10 + MAX_JITTER for due in dues)


def none_left(_ports: Any, _seconds: float) -> Any:
    raise OSError(24, "Too many open files")


def test_a_shortage_of_descriptors_is_no_word_on_the_runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tpuwatch.signals.runtime.probe_ports", none_left)
    answer = Poller(8431).signal.ask()
    assert (answer.problem, "Too many open files" in answer.detail) == (Problem.INTERNAL, True)


def test_a_proxy_in_the_environment_is_not_used(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    with refused() as port:
        for name in ("http_proxy", "https_proxy", "grpc_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{port}")
        assert Poller(start(two_chips()).port).signal.ask().value.chips == CHIPS


def test_nothing_grows_over_many_polls(start: Start) -> None:
    process = start(two_chips())
    with listening(answer_with(HTTP)) as foreign:
        poller = Poller(process.port, foreign)
        for _ in range(5):
            poller.next()
        most = [one + 8 for one in _resources()]
        for _ in range(40):
            poller.next()
        # gRPC's own threads come and go; what is left behind by each poll would be forty.
        wait_for(lambda: all(now <= one for now, one in zip(_resources(), most, strict=True)), f"at most {most}")


def _resources() -> tuple[int, int, int]:
    return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task")), threading.active_count()  # noqa: PTH208


def test_it_agrees_with_the_simulator_through_all_phases() -> None:
    clock = SystemClock()
    world = World(clock)
    node = world.add(SimNode("project", "zone", "node", chips_per_host=4, workloads=[Workload()]))
    service = RuntimeService(world, node.path)
    try:
        poller = Poller(*service.ports)

        def become(phase: WorkloadPhase) -> Any:
            node.workloads[0] = Workload(phase, clock.time() - 1000)
            service.advance()
            return poller.next()

        assert become(WorkloadPhase.NONE).problem is Problem.ABSENT
        idle = become(WorkloadPhase.COMPILING).value
        assert [chip.id for chip in idle.chips] == ["0", "1", "2", "3"]
        assert all(chip.duty_cycle == 0 and (chip.idle_seconds or 0) >= 1000 for chip in idle.chips)
        assert all((chip.duty_cycle or 0) > 0.8 for chip in become(WorkloadPhase.TRAINING).value.chips)
        poller.signal.timeout_seconds = 0.2
        assert [port.problem for port in become(WorkloadPhase.HUNG).value.ports] == [Problem.TIMEOUT]
        assert become(WorkloadPhase.NONE).problem is Problem.ABSENT
    finally:
        service.close()


# -- what a poll asks for, and what a port owes while it does not answer


def test_a_port_owes_an_answer_from_the_question_on_until_it_has_given_it(start: Start) -> None:
    asked, go_on = threading.Event(), threading.Event()

    def late() -> list[dict[str, Any]]:
        asked.set()
        go_on.wait(LONG)
        return [of_chip(0, as_int=9)]

    process = start({IDLE: late})
    poller = Poller(process.port)
    assert poller.signal.pending() == {process.port: 0.0}
    thread = threading.Thread(target=poller.signal.ask)
    thread.start()
    assert asked.wait(LONG)
    poller.clock.advance(2.5)
    assert poller.signal.pending() == {process.port: 2.5}
    go_on.set()
    thread.join()
    assert poller.signal.pending() == {process.port: 0.0}


def test_one_that_hangs_owes_its_answer_until_it_ends_however_rarely_it_is_asked() -> None:
    with listening() as hung, refused() as closed:
        poller = Poller(hung, closed, timeout=0.05)
        began = poller.clock.monotonic()
        for _ in range(5):
            poller.next()
            assert poller.signal.pending() == {hung: poller.clock.monotonic() - began, closed: 0.0}
    poller.next()
    assert poller.signal.pending() == {hung: 0.0, closed: 0.0}


@pytest.mark.parametrize("text", [HTTP, b""], ids=["http", "nothing"])
def test_what_answers_something_else_owes_no_answer(text: bytes) -> None:
    with listening(answer_with(text)) as foreign:
        poller = Poller(foreign)
        poller.next()
        poller.clock.advance(5)
        assert poller.signal.pending() == {foreign: 0.0}


def test_where_no_port_can_be_asked_none_owes_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    with listening() as hung:
        poller = Poller(hung, timeout=0.05)
        poller.next()
        monkeypatch.setattr("tpuwatch.signals.runtime.probe_ports", none_left)
        poller.next()
        assert poller.signal.pending() == {hung: 0.0}


def test_which_metrics_there_are_is_asked_now_and_then(start: Start) -> None:
    process = start(two_chips())
    poller = Poller(process.port)
    polls = 0
    while poller.calls.count(("ListSupportedMetrics", "OK")) < 2:
        assert poller.next().value.chips == CHIPS
        polls += 1
    assert LIST_SECONDS / 11 < polls - 1 <= LIST_SECONDS / 10


def test_which_metrics_there_are_is_asked_again_when_one_fails(start: Start) -> None:
    process = start(two_chips())
    poller = Poller(process.port)
    for broken in ([], grpc.StatusCode.NOT_FOUND, []):
        process.metrics[DUTY_CYCLE] = broken
        poller.next()
    full = ["ListSupportedMetrics"] + ["GetRuntimeMetric"] * 5
    assert [method for method, _ in poller.calls] == [*full, *full[2:], *full]


def test_what_does_not_change_is_asked_for_with_the_list_alone(start: Start) -> None:
    process = start(two_chips())
    poller = Poller(process.port)
    assert poller.next().value.chips == poller.next().value.chips == CHIPS
    assert [request.metric_name for request in process.asked].count(HBM_TOTAL) == 1


# -- which ports are open


def test_only_ports_that_a_process_listens_on_are_found_in_the_order_asked() -> None:
    with listening() as one, refused() as none, listening() as other:
        found = probe_ports([other, none, one], 5)
    assert list(found.items()) == [(other, "127.0.0.1"), (one, "127.0.0.1")]


def test_a_port_that_listens_on_ipv6_alone_is_found() -> None:
    with contextlib.ExitStack() as stack:
        try:
            port = stack.enter_context(refused())  # so that no other program listens on it by IPv4
            stack.enter_context(socket.create_server(("::1", port), family=socket.AF_INET6))
        except OSError:
            pytest.skip("no IPv6 here")
        assert probe_ports([port], 5) == {port: "::1"}


@contextlib.contextmanager
def full_queue() -> Iterator[int]:
    """A port to which no further connection comes through."""
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        port: int = server.getsockname()[1]
        for _ in range(8):  # the kernel takes one or two more than the backlog
            caller = stack.enter_context(socket.socket())
            caller.setblocking(False)
            assert caller.connect_ex(("127.0.0.1", port)) in (0, errno.EINPROGRESS)
        yield port


def test_a_port_whose_queue_is_full_is_open_but_silent() -> None:
    with full_queue() as port, listening() as other:
        assert probe_ports([port, other], 0.2) == {port: None, other: "127.0.0.1"}


def test_a_port_whose_queue_is_full_takes_no_time_from_the_others(start: Start) -> None:
    process = start(two_chips())
    with full_queue() as full:
        for _ in range(TRIES):
            signal = RuntimeSignal(
                lambda: (full, process.port), clock=SystemClock(), rng=random.Random(1), timeout_seconds=1.5
            )
            runtime = signal.ask().value
            assert runtime is not None
            silent, other = runtime.ports
            assert (silent.port, silent.problem) == (full, Problem.TIMEOUT)
            if other.problem is None:
                break
    assert (other.problem, len(other.chips)) == (None, 2)


def test_without_descriptors_it_reports_that_and_never_closed_ports() -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    with refused() as port:
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
        try:
            with pytest.raises(OSError, match="Too many open files"):
                probe_ports([port], 5)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
