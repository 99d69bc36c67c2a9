"""Tests of who this machine is, against the simulated metadata server and against hostile values."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpuwatch.config.schema import CloudConfig
from tpuwatch.core.clock import ManualClock
from tpuwatch.google.metadata import MetadataClient, MetadataError
from tpuwatch.model.answers import Answer, Problem
from tpuwatch.model.signals import HERE, Identity, Known
from tpuwatch.signals.identity import KNOWN_SECONDS, UNKNOWN_SECONDS, IdentitySignal, kubernetes_node, parse_tpu_env
from tpuwatch.sim.cloud.faults import InjectedFault
from tpuwatch.sim.cloud.metadata_pages import Pages
from tpuwatch.sim.cloud.metadata_server import MetadataServer
from tpuwatch.sim.cloud.metadata_tree import MetadataDialect
from tpuwatch.sim.cloud.nodes import SimNode
from tpuwatch.sim.cloud.world import World


def identify(
    metadata: Any, cloud: CloudConfig | None = None, ports: tuple[int, ...] = ()
) -> tuple[Identity, Answer[Any]]:
    signal = IdentitySignal(cloud or CloudConfig(), metadata, ports, clock=ManualClock(), rng=random.Random(1))
    answer = signal.ask()
    return signal.identity, answer


NODE = SimNode("lab", "us-east5-a", "train-1", "v5litepod-16", hosts=4, chips_per_host=4)


class Site:
    """A worker's metadata server and a client of it."""

    def __init__(self, node: SimNode, worker: int, dialect: MetadataDialect, ports: tuple[int, ...]) -> None:
        self.clock = ManualClock()
        self.world = World(self.clock)
        self.world.add(node)
        self.server = MetadataServer(self.world, Pages(self.world, node.path, worker, dialect, ports))
        self.server.start()
        self.metadata = MetadataClient(self.server.address, clock=self.clock, timeout_seconds=20.0)

    def signal(self, cloud: CloudConfig | None = None) -> IdentitySignal:
        return IdentitySignal(cloud or CloudConfig(), self.metadata, (), clock=self.clock, rng=random.Random(1))

    def identify(self, cloud: CloudConfig | None = None, ports: tuple[int, ...] = ()) -> tuple[Identity, Answer[Any]]:
        return identify(self.metadata, cloud, ports)


@pytest.fixture
def sites() -> Iterator[Any]:
    made: list[Site] = []

    def make(
        node: SimNode = NODE,
        worker: int = 2,
        dialect: MetadataDialect = MetadataDialect.TPU,
        ports: tuple[int, ...] = (8431, 8432),
    ) -> Site:
        made.append(Site(node, worker, dialect, ports))
        return made[-1]

    yield make
    for site in made:
        site.server.close()


def values(identity: Identity) -> dict[str, str]:
    return {name: known["value"] for name, known in asdict(identity).items()}


def sources(identity: Identity) -> set[str]:
    return {known["source"] for known in asdict(identity).values()}


@pytest.mark.parametrize(("dialect", "node"), [(MetadataDialect.TPU, "train-1"), (MetadataDialect.COMPUTE, "")])
def test_a_tpu_vm_reports_everything_and_belongs_to_a_node_unless_compute_engine_made_it(
    sites: Any, dialect: MetadataDialect, node: str
) -> None:
    site = sites(dialect=dialect)
    identity, answer = site.identify()
    assert values(identity) == {
        "project": "lab",
        "zone": "us-east5-a",
        "node": node,
        "worker": "2",
        "accelerator": "v5litepod-16",
        "chips": "4",
        "hosts": "4",
        "spot": "no",
        "instance": site.metadata.get("instance/id"),
        "metrics_ports": "8431,8432",
        "kubernetes": "",
    }
    assert identity.instance.value.isdigit()
    assert sources(identity) == {"metadata", ""}
    assert identity.name == (node or HERE)
    assert answer.problem is None
    assert answer.detail == ""


@pytest.mark.parametrize(
    ("dialect", "name"), [(MetadataDialect.COMPUTE, "gke-pool-1"), (MetadataDialect.TPU, "train-1")]
)
def test_in_a_pod_the_node_of_kubernetes_names_what_the_cloud_tpu_api_does_not_know(
    sites: Any, dialect: MetadataDialect, name: str
) -> None:
    metadata = sites(dialect=dialect).metadata
    common: dict[str, Any] = {"clock": ManualClock(), "rng": random.Random(1)}
    signal = IdentitySignal(CloudConfig(), metadata, (), kubernetes="gke-pool-1", **common)
    assert signal.identity.name == "gke-pool-1"  # before any answer
    signal.ask()
    assert signal.identity.kubernetes == Known("gke-pool-1", "kubernetes")
    assert signal.identity.name == name


@pytest.mark.parametrize(
    ("environ", "name"),
    [
        ({"NODE_NAME": "gke-pool-1", "KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "gke-pool-1"),
        ({"NODE_NAME": "ip-10-0-0-1.ec2.internal", "KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "ip-10-0-0-1.ec2.internal"),
        ({"NODE_NAME": "gke-pool-1"}, ""),  # no pod: the name may mean anything
        ({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, ""),
        ({"NODE_NAME": "../x", "KUBERNETES_SERVICE_HOST": "10.0.0.1"}, ""),
        ({"NODE_NAME": "a" * 254, "KUBERNETES_SERVICE_HOST": "10.0.0.1"}, ""),
    ],
)
def test_the_node_of_kubernetes_is_told_by_the_pods_environment(environ: dict[str, str], name: str) -> None:
    assert kubernetes_node(environ) == name


def test_spot_and_single_host(sites: Any) -> None:
    identity, _ = sites(SimNode("lab", "us-east5-a", "one", "v6e-8", chips_per_host=8, spot=True), worker=0).identify()
    assert (identity.spot.value, identity.hosts.value, identity.chips.value) == ("yes", "1", "8")


def test_the_configuration_wins(sites: Any) -> None:
    identity, _ = sites().identify(CloudConfig(project="lab", zone="us-east5-a"), (9000, 9001))
    assert identity.project == Known("lab", "config")
    assert identity.zone == Known("us-east5-a", "config")
    assert identity.metrics_ports == Known("9000,9001", "config")
    assert identity.node == Known("train-1", "metadata")


@pytest.mark.parametrize(
    ("cloud", "wrong"), [(CloudConfig(zone="us-central2-b"), "us-central2-b"), (CloudConfig(project="other"), "other")]
)
def test_another_place_in_the_configuration_does_not_pass_for_this_node(
    sites: Any, cloud: CloudConfig, wrong: str
) -> None:
    identity, answer = sites().identify(cloud)
    assert identity.node == Known("", "")
    assert wrong in answer.detail
    assert "is not watched" in answer.detail


def test_a_projects_number_is_not_compared_with_its_id(sites: Any) -> None:
    identity, answer = sites().identify(CloudConfig(project="123456789012"))
    assert identity.node.value == "train-1"
    assert answer.detail == ""


def test_switched_off_no_server_is_asked(sites: Any) -> None:
    site = sites()
    identity, answer = site.identify(CloudConfig(enabled=False, project="p", zone="z"))
    assert (identity.project, identity.node) == (Known("p", "config"), Known())
    assert answer.problem is Problem.OFF
    signal = site.signal(CloudConfig(enabled=False))
    assert signal.ask().problem is Problem.OFF
    assert signal.due_in > KNOWN_SECONDS / 2
    assert [call.method for call in site.world.calls if call.method == "metadata"] == []


def test_without_a_metadata_server_the_configuration_stands_alone() -> None:
    identity, answer = identify(None, CloudConfig(project="p", zone="z"))
    assert values(identity)["project"] == "p"
    assert answer.problem is Problem.OFF


class FakeMetadata:
    """A metadata server as a dictionary."""

    def __init__(self, pages: dict[str, str] | MetadataError) -> None:
        self.pages = pages
        self.asked: list[str] = []

    def get(self, path: str) -> str | None:
        self.asked.append(path)
        if isinstance(self.pages, MetadataError):
            raise self.pages
        return self.pages.get(path)

    def close(self) -> None:
        self.asked.append("closed")


def identity_from(pages: dict[str, str]) -> Identity:
    return identify(FakeMetadata(pages))[0]


def env(**pairs: str) -> dict[str, str]:
    return {"instance/attributes/tpu-env": "".join(f"{key}: '{value}'\n" for key, value in pairs.items())}


def test_a_machine_without_tpu_env_is_identified_by_the_attributes() -> None:
    identity = identity_from(
        {
            "project/project-id": "lab",
            "instance/zone": "projects/1234/zones/us-central2-b",
            "instance/attributes/instance-id": "train-9",
            "instance/attributes/agent-worker-number": "3",
            "instance/attributes/accelerator-type": "v4-32",
            "instance/attributes/worker-network-endpoints": "a:b:10.0.0.1,a:b:10.0.0.2,a:b:10.0.0.3,a:b:10.0.0.4",
            "instance/scheduling/preemptible": "TRUE",
            "instance/id": "7208041612345678901",
        }
    )
    assert values(identity) == {
        "project": "lab",
        "zone": "us-central2-b",
        "node": "train-9",
        "worker": "3",
        "accelerator": "v4-32",
        "chips": "4",
        "hosts": "4",
        "spot": "yes",
        "instance": "7208041612345678901",
        "metrics_ports": "",
        "kubernetes": "",
    }
    assert identity.metrics_ports == Known("", "")


def test_a_plain_vm_knows_its_project_and_zone_only() -> None:
    identity = identity_from({"project/project-id": "lab", "instance/zone": "projects/1/zones/europe-west4-a"})
    assert {name: value for name, value in values(identity).items() if value} == {
        "project": "lab",
        "zone": "europe-west4-a",
    }


def test_the_consumers_project_counts_not_that_of_the_vm() -> None:
    identity = identity_from({**env(CONSUMER_PROJECT_ID="mine"), "project/project-id": "tenant-of-google"})
    assert identity.project.value == "mine"


@pytest.mark.parametrize(
    ("accelerator", "hosts", "chips"),
    [
        ("v2-8", "1,1,1", "4"),
        ("v3-32", "2,2,1", "4"),
        ("v5p-8", "1,1,1", "4"),
        ("v6e-1", "1,1,1", "1"),
        ("v5litepod-8", "1,1,1", "8"),
        ("tpu7x-8", "1,1,1", "4"),
        ("tpu7x-32", "1,1,4", "4"),
        ("v99-8", "1,1,1", ""),
        ("v4-8", "3,1,1", ""),
        ("v4-8", "", ""),
    ],
)
def test_chips_follow_from_the_type_where_they_are_not_reported(accelerator: str, hosts: str, chips: str) -> None:
    assert identity_from(env(ACCELERATOR_TYPE=accelerator, HOST_BOUNDS=hosts)).chips.value == chips


@pytest.mark.parametrize(
    ("pairs", "field"),
    [
        ({"CONSUMER_PROJECT_ID": 'evil"} 1\nx'}, "project"),
        ({"ZONE": "../../etc"}, "zone"),
        ({"NODE_ID": "a" * 64}, "node"),
        ({"NODE_ID": "0"}, "node"),
        ({"NODE_ID": ""}, "node"),
        ({"NODE_ID": "Train"}, "node"),
        ({"WORKER_ID": "-1"}, "worker"),
        ({"WORKER_ID": "one"}, "worker"),
        ({"WORKER_ID": "²"}, "worker"),
        ({"ACCELERATOR_TYPE": "<b>"}, "accelerator"),
        ({"CHIPS_PER_HOST_BOUNDS": "2,x"}, "chips"),
        ({"CHIPS_PER_HOST_BOUNDS": "0,2,1"}, "chips"),
        ({"CHIPS_PER_HOST_BOUNDS": "999999,999999,999999"}, "chips"),
        ({"HOST_BOUNDS": "2;2"}, "hosts"),
        ({"PREEMPTIBLE": "maybe"}, "spot"),
        ({"TPU_RUNTIME_METRICS_PORTS": "8431,0"}, "metrics_ports"),
        ({"TPU_RUNTIME_METRICS_PORTS": "70000"}, "metrics_ports"),
    ],
)
def test_a_value_that_cannot_be_is_unknown(pairs: dict[str, str], field: str) -> None:
    assert getattr(identity_from(env(**pairs)), field) == Known("", "")


def test_a_worker_number_is_a_number() -> None:
    assert identity_from(env(WORKER_ID="007")).worker.value == "7"


def test_tpu_env_is_read_with_tolerance() -> None:
    text = "\n".join(
        [
            "# comment",
            "A: 'x'",
            'B: "y: z"',
            "  C :  bare  ",
            "D:",
            "E: ''",
            "no pair",
            "f: 'lower'",
            "A: 'again'",
            "\0: '",
        ]
    )
    assert parse_tpu_env(text) == {"A": "again", "B": "y: z", "C": "bare", "D": "", "E": ""}


@given(st.text(max_size=400))
def test_no_tpu_env_breaks_it(text: str) -> None:
    assert all(key and isinstance(value, str) for key, value in parse_tpu_env(text).items())
    identity = identity_from({"instance/attributes/tpu-env": text})
    assert all(known["source"] in ("", "metadata") for known in asdict(identity).values())


def test_no_more_lines_are_read_than_allowed() -> None:
    assert len(parse_tpu_env("\n".join(f"K{n}: 'v'" for n in range(5000)))) == 2000


def test_the_signal_asks_rarely_once_it_knows(sites: Any) -> None:
    signal = sites().signal()
    assert signal.due_in == 0.0
    assert values(signal.identity)["node"] == ""
    answer = signal.ask()
    assert answer.problem is None
    assert answer.value is signal.identity
    assert signal.identity.node.value == "train-1"
    assert KNOWN_SECONDS * 0.9 <= signal.due_in <= KNOWN_SECONDS


def test_a_server_that_does_not_report_the_hardware_yet_is_asked_again_soon(sites: Any) -> None:
    site = sites()
    site.world.faults.set(InjectedFault(method="metadata", drop=("attributes",)))
    signal = site.signal()
    answer = signal.ask()
    assert (answer.problem, answer.value.project.value, answer.value.accelerator.value) == (None, "lab", "")
    assert signal.due_in <= UNKNOWN_SECONDS
    site.world.faults.clear()
    assert signal.ask().value.accelerator.value == "v5litepod-16"
    assert signal.due_in > KNOWN_SECONDS / 2


def test_a_hanging_metadata_server_is_a_problem_and_the_configuration_stays(sites: Any) -> None:
    site = sites()
    site.metadata = MetadataClient(site.server.address, clock=site.clock, timeout_seconds=0.1)
    site.world.faults.set(InjectedFault(method="metadata", black_hole=True))
    signal = site.signal(CloudConfig(project="p"))
    answer = signal.ask()
    assert answer.problem is Problem.TIMEOUT
    assert site.server.address in answer.detail
    assert signal.identity.project == Known("p", "config")
    assert signal.due_in <= UNKNOWN_SECONDS


def test_it_recovers_and_then_stays_known_through_faults(sites: Any) -> None:
    site = sites()
    site.world.faults.set(InjectedFault(method="metadata", code="UNAVAILABLE"))
    signal = site.signal()
    for _ in range(30):
        answer = signal.ask()
        assert (answer.problem, answer.at) == (Problem.SERVER, None)
        assert signal.due_in <= 2 * UNKNOWN_SECONDS
        site.clock.advance(signal.due_in)
    site.world.faults.clear()
    good = signal.ask()
    assert good.problem is None
    site.clock.advance(KNOWN_SECONDS)
    site.world.faults.set(InjectedFault(method="metadata", drop=("Metadata-Flavor",)))
    answer = signal.ask()
    assert answer.problem is Problem.FOREIGN
    assert answer.value == good.value
    assert answer.at == good.at
    assert answer.tried == site.clock.time()
    assert signal.due_in <= UNKNOWN_SECONDS


def test_retry_after_is_honoured() -> None:
    clock = ManualClock()
    slow = FakeMetadata(MetadataError(Problem.THROTTLED, "Too often.", retry_after=240.0))
    signal = IdentitySignal(CloudConfig(), slow, (), clock=clock, rng=random.Random(1))  # type: ignore[arg-type]
    assert signal.ask().problem is Problem.THROTTLED
    assert signal.due_in >= 240.0
    signal.close()
    assert slow.asked[-1] == "closed"


def test_what_is_found_in_one_place_is_not_asked_for_in_another(sites: Any) -> None:
    site = sites()
    site.identify()
    metadata = FakeMetadata(env(CONSUMER_PROJECT_ID="p", ZONE="z", NODE_ID="n", WORKER_ID="0", ACCELERATOR_TYPE="v4-8"))
    identify(metadata)
    assert metadata.asked == [
        "instance/attributes/tpu-env",
        "instance/attributes/worker-network-endpoints",
        "instance/scheduling/preemptible",
        "instance/id",
    ]
