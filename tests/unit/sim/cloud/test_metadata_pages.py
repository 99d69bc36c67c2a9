"""What the simulated metadata server holds, apart from HTTP."""

from __future__ import annotations

import json
import re
from typing import Any

from tpuwatch.core.clock import ManualClock
from tpuwatch.model.signals import Maintenance
from tpuwatch.sim.cloud.metadata_pages import ROOT, Page, Pages, Query
from tpuwatch.sim.cloud.metadata_tree import MetadataDialect
from tpuwatch.sim.cloud.nodes import SimNode
from tpuwatch.sim.cloud.world import World


def world_of(**fields: Any) -> tuple[World, SimNode]:
    world = World(ManualClock())
    return world, world.add(SimNode(**{"project": "lab", "zone": "us-east5-a", "name": "train-1", **fields}))


def get(pages: Pages, path: str) -> Page:
    return pages.page(Query.parse(ROOT + path))


def text(pages: Pages, path: str) -> str:
    page = get(pages, path)
    assert page.status == 200, (path, page)
    return page.body.decode()


def environment(pages: Pages) -> dict[str, str]:
    lines = text(pages, "instance/attributes/tpu-env").splitlines()
    return dict(re.fullmatch(r"([A-Z_]+): '(.*)'", line).groups() for line in lines)  # type: ignore[union-attr]


def test_the_dialect_of_the_cloud_tpu_api() -> None:
    world, node = world_of(accelerator_type="v4-16", hosts=2, spot=True)
    pages = Pages(world, node.path, 1, ports=(8431, 8432))
    env = environment(pages)
    assert env["NODE_ID"] == "train-1"
    assert env["ZONE"] == "us-east5-a"
    assert env["CONSUMER_PROJECT_ID"] == "lab"
    assert env["ACCELERATOR_TYPE"] == "v4-16"
    assert env["WORKER_ID"] == "1"
    assert env["CHIPS_PER_HOST_BOUNDS"] == "2,2,1"
    assert env["HOST_BOUNDS"] == "1,1,2"
    assert env["TPU_RUNTIME_METRICS_PORTS"] == "8431,8432"
    assert env["PREEMPTIBLE"] == "true"
    assert env["TYPE"] == "V4"
    assert text(pages, "instance/attributes/") == (
        "accelerator-type\nagent-worker-number\ninstance-id\ntpu-env\nworker-network-endpoints\n"
    )
    assert text(pages, "instance/attributes/accelerator-type") == "v4-16"
    assert text(pages, "instance/attributes/agent-worker-number") == "1"
    assert text(pages, "instance/attributes/instance-id") == "train-1"
    endpoints = text(pages, "instance/attributes/worker-network-endpoints").split(",")
    assert len({endpoint.split(":")[2] for endpoint in endpoints}) == 2
    assert re.fullmatch(r"t1v-n-[0-9a-f]{8}-w-1", text(pages, "instance/name"))


def test_the_dialect_of_compute_engine_names_no_node() -> None:
    world, node = world_of(accelerator_type="v6e-8", hosts=2)
    pages = Pages(world, node.path, 1, dialect=MetadataDialect.COMPUTE)
    env = environment(pages)
    assert env["NODE_ID"] == "0"
    assert env["TPU_WORKER_ID"] == "1"
    assert env["TPU_ACCELERATOR_TYPE"] == "v6e-8"
    assert env["TOPOLOGY"] == "2x4"
    assert not {"WORKER_ID", "ACCELERATOR_TYPE", "TYPE", "PREEMPTIBLE"} & env.keys()
    assert "instance-id" not in text(pages, "instance/attributes/").split()
    assert text(pages, "instance/attributes/worker-network-endpoints") == "train-1-0,train-1-1"
    assert text(pages, "instance/name") == "train-1-1"


def test_upcoming_maintenance_is_an_error_while_nothing_is_announced() -> None:
    world, node = world_of()
    pages = Pages(world, node.path)
    page = get(pages, "instance/upcoming-maintenance?alt=json")
    assert page.status == 503
    assert "error" in json.loads(page.body)
    node.maintenance = Maintenance("SCHEDULED", "PENDING", 1_790_000_000.0, None, 1_790_003_600.0, can_reschedule=True)
    assert json.loads(text(pages, "instance/upcoming-maintenance?alt=json")) == {
        "can_reschedule": "true",
        "latest_window_start_time": "2026-09-21T15:13:20+00:00",
        "maintenance_status": "PENDING",
        "type": "SCHEDULED",
        "window_start_time": "2026-09-21T14:13:20+00:00",
    }


def test_directories_paths_and_what_is_not_there() -> None:
    world, node = world_of()
    pages = Pages(world, node.path)
    assert pages.page(Query.parse("/")).body == b"computeMetadata/\n"
    assert text(pages, "") == "instance/\nproject/\nuniverse/\n"
    moved = get(pages, "instance")
    assert (moved.status, moved.location) == (301, f"{ROOT}instance/")
    for path in (
        "instance/nothing",
        "instance/attributes/nothing",
        "instance/name/",
        "instance/name/more",
        "instance/service-accounts/default/token/",
        "../etc",
        "//[",
        "é",
    ):
        assert get(pages, path).status == 404, path
    assert pages.page(Query.parse("/latest/meta-data/")).status == 404
    whole = json.loads(text(pages, "?recursive=true"))
    assert whole["instance"]["maintenanceEvent"] == "NONE"
    assert whole["instance"]["attributes"]["accelerator-type"] == "v5litepod-4"


def test_tokens_are_handed_out_again_until_shortly_before_their_end() -> None:
    world, node = world_of()
    world.tokens = {}
    pages = Pages(world, node.path)
    path = "instance/service-accounts/default/token"
    first = json.loads(text(pages, path))
    assert {**first, "access_token": ""} == {"access_token": "", "expires_in": 3599, "token_type": "Bearer"}
    assert world.tokens == {first["access_token"]: world.clock.time() + 3599}
    world.clock.advance(3000)
    again = json.loads(text(pages, path))
    assert (again["access_token"], again["expires_in"]) == (first["access_token"], 599)
    world.clock.advance(400)
    renewed = json.loads(text(pages, path))
    assert (renewed["access_token"] != first["access_token"], renewed["expires_in"]) == (True, 3599)


def test_a_vanished_node_s_machine_goes_on_to_report_what_was_known() -> None:
    world, node = world_of()
    pages = Pages(world, node.path)
    world.remove(node.path)
    assert environment(pages)["NODE_ID"] == "train-1"
