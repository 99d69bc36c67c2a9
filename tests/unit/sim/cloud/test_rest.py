"""The simulated Cloud TPU API as REST, asked by Google's own client and as a program without one asks."""

from __future__ import annotations

import http.client
import importlib
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from google.api_core import exceptions
from google.api_core.client_options import ClientOptions
from google.auth.credentials import AnonymousCredentials
from google.cloud import tpu_v2
from google.longrunning import operations_pb2
from google.rpc import error_details_pb2

from tests.unit.sim.cloud.servers import DEADLINE, PARENT, Cloud, cloud_running
from tpuwatch.model.signals import Symptom
from tpuwatch.sim.cloud.faults import InjectedFault
from tpuwatch.sim.cloud.rest import RULES, RestServer

NODE = f"{PARENT}/nodes/train-1"


class Site:
    """A cloud that is served as REST too."""

    def __init__(self, cloud: Cloud) -> None:
        self.cloud = cloud
        self.server = RestServer(cloud.server.address)
        self.server.start()
        options = ClientOptions(api_endpoint=f"http://{self.server.address}")
        self.tpu = tpu_v2.TpuClient(transport="rest", client_options=options, credentials=AnonymousCredentials())

    def ask(self, verb: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        """The status and the document, as a program without Google's client gets them."""
        connection = http.client.HTTPConnection(self.server.address, timeout=DEADLINE)
        try:
            sent = body if isinstance(body, (str, type(None))) else json.dumps(body)
            connection.request(verb, path, sent, {"Content-Type": "application/json", **headers})
            response = connection.getresponse()
            return response.status, json.loads(response.read())
        finally:
            connection.close()

    def ended(self, operation: str) -> Any:
        return self.tpu.get_operation(operations_pb2.GetOperationRequest(name=operation), timeout=DEADLINE)


@pytest.fixture
def site() -> Iterator[Site]:
    with cloud_running() as cloud:
        running = Site(cloud)
        yield running
        running.server.close()


def test_the_rules_are_those_of_googles_own_client() -> None:
    generated = importlib.import_module("google.cloud.tpu_v2.services.tpu.transports.rest_base")
    for name, (verb, path, body) in RULES.items():
        (rule,) = vars(vars(generated)["_BaseTpuRestTransport"])[f"_Base{name}"]._get_http_options()
        assert rule == {"method": verb.lower(), "uri": f"/v2/{path}", **({"body": body} if body else {})}, name


def test_nodes_are_listed_page_by_page_and_shown_as_by_grpc(site: Site) -> None:
    site.cloud.world.page_limit = 2
    for number in range(3):
        site.cloud.add(f"train-{number}", labels={"team": "vision"}, symptoms=[Symptom("OUT_OF_MEMORY", 1e9, "2", "")])
    listed = list(site.tpu.list_nodes(parent=PARENT, timeout=DEADLINE))
    assert listed == list(site.cloud.tpu.list_nodes(parent=PARENT, timeout=DEADLINE))
    assert len(listed) == 3
    assert site.tpu.get_node(name=NODE, timeout=DEADLINE) == listed[1]
    assert not list(site.tpu.list_queued_resources(parent=PARENT, timeout=DEADLINE))


def test_a_node_is_stopped_and_started_and_the_operation_ends(site: Site) -> None:
    site.cloud.add()
    for call, state in (
        (site.tpu.stop_node, tpu_v2.Node.State.STOPPED),
        (site.tpu.start_node, tpu_v2.Node.State.READY),
    ):
        operation = call(request={"name": NODE}, timeout=DEADLINE).operation
        assert not operation.done
        site.cloud.pass_time(1000)
        shown = site.ended(operation.name)
        assert shown.done
        assert shown.response.type_url.endswith("tpu.v2.Node")
        assert site.tpu.get_node(name=NODE, timeout=DEADLINE).state == state
    assert site.cloud.happened() == ["stop", "stopped", "start", "boot"]


def test_errors_have_the_code_the_words_and_the_details(site: Site) -> None:
    site.cloud.add()
    with pytest.raises(exceptions.NotFound, match="nodes/none' was not found"):
        site.tpu.get_node(name=f"{PARENT}/nodes/none", timeout=DEADLINE)
    site.cloud.world.faults.set(
        InjectedFault(method="StopNode", code="RESOURCE_EXHAUSTED", message="Quota.", retry_after_seconds=30.0)
    )
    status, document = site.ask("POST", f"/v2/{NODE}:stop", {})
    assert (status, document["error"]["status"], document["error"]["message"]) == (429, "RESOURCE_EXHAUSTED", "Quota.")
    (detail,) = document["error"]["details"]
    assert detail == {
        "@type": f"type.googleapis.com/{error_details_pb2.RetryInfo.DESCRIPTOR.full_name}",
        "retryDelay": "30s",
    }


@pytest.mark.parametrize(
    ("verb", "path", "body", "status", "words"),
    [
        ("GET", f"/v2/{PARENT}/nodes?pageSize=-1", None, 400, "Invalid page size"),
        ("GET", f"/v2/{PARENT}/nodes?colour=red", None, 400, "colour"),
        ("POST", f"/v2/{NODE}:stop", "{", 400, "Invalid JSON payload"),
        ("POST", f"/v2/{NODE}:stop", "[]", 400, "must be an object"),
        ("POST", f"/v2/{NODE}:stop", {"colour": "red"}, 400, "colour"),
        ("POST", f"/v2/{NODE}:explode", {}, 501, "has no POST"),
        ("GET", "/v3/x", None, 501, "has no GET /v3/x"),
        ("GET", "/v2/projects/lab/locations/us-east5-x/nodes", None, 403, "us-east5-x"),
    ],
)
def test_bad_requests_are_refused_in_words(
    site: Site, verb: str, path: str, body: Any, status: int, words: str
) -> None:
    site.cloud.add()
    found, document = site.ask(verb, path, body)
    assert (found, document["error"]["code"]) == (status, status)
    assert words in document["error"]["message"]


def test_json_is_the_api_s_own(site: Site) -> None:
    site.cloud.add()
    status, node = site.ask("GET", f"/v2/{NODE}?alt=json&$.xgafv=1")
    assert status == 200
    assert (node["state"], node["acceleratorType"], node["apiVersion"]) == ("READY", "v5litepod-4", "V2")
    assert site.ask("GET", f"/v2/{NODE}?$alt=json;enum-encoding=int")[1]["state"] == 2
    site.cloud.world.maintain(site.cloud.world.nodes[NODE], in_seconds=600, lasts_seconds=60)
    assert site.ask("GET", f"/v2alpha1/{NODE}")[1]["upcomingMaintenance"]["maintenanceStatus"] == "PENDING"


def test_an_operation_whose_metadata_nobody_knows_is_shown_all_the_same(site: Site) -> None:
    site.cloud.add()
    site.cloud.world.common_metadata = True
    status, operation = site.ask("POST", f"/v2/{NODE}:stop", {})
    assert (status, operation["metadata"]["verb"]) == (200, "stop")
    assert len(site.ask("GET", f"/v2/{PARENT}/operations")[1]["operations"]) == 1


def test_access_tokens_are_checked_as_over_grpc(site: Site) -> None:
    site.cloud.add()
    site.cloud.world.tokens = {"good": site.cloud.clock.time() + 60}
    assert site.ask("GET", f"/v2/{NODE}")[0] == 401
    assert site.ask("GET", f"/v2/{NODE}", Authorization="Bearer good")[0] == 200


def test_close_ends_a_call_that_nobody_answers() -> None:
    with cloud_running() as cloud:
        site = Site(cloud)
        cloud.add()
        cloud.world.faults.set(InjectedFault(method="GetNode", black_hole=True))
        answers: list[Any] = []
        asking = threading.Thread(target=lambda: answers.append(_outcome(lambda: site.ask("GET", f"/v2/{NODE}"))))
        asking.start()
        struck = threading.Event()
        while not cloud.world.calls:
            struck.wait(0.005)
        site.server.close()
        asking.join(DEADLINE)
        assert answers[0] in (499, ConnectionError)


def _outcome(ask: Any) -> Any:
    try:
        return ask()[0]
    except (OSError, http.client.HTTPException):
        return ConnectionError
