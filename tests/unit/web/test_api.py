from __future__ import annotations

import pytest

from tests.unit.web import samples
from tests.unit.web.samples import SampleView
from tpuwatch.core.loop import LoopStatus
from tpuwatch.model.causes import Cause
from tpuwatch.model.documents.logs import EventsDocument
from tpuwatch.model.status import StoreStatus
from tpuwatch.model.verdict import Verdict
from tpuwatch.web.routes import Api, BadRequestError


def test_events_are_selected_by_the_query() -> None:
    view = SampleView(stored=[samples.event()])
    document = Api(view).events("since=2026-11-20T13:00:00Z&cause=hang&after=5&limit=1000")
    assert view.asked == [{"since": 1795179600.0, "cause": Cause.HANG, "after_id": 5, "limit": 1000}]
    assert [event.id for event in document.events] == [7]


def test_without_a_query_the_newest_hundred_are_asked_for() -> None:
    view = SampleView()
    assert Api(view).events("") == EventsDocument(events=(), last_id=0)
    assert view.asked == [{"since": None, "cause": None, "after_id": None, "limit": 100}]


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("limit=0", "limit must be a whole number from 1 to 1000, not '0'."),
        ("limit=1001", "limit must be a whole number from 1 to 1000, not '1001'."),
        ("limit=1e2", "limit must be a whole number from 1 to 1000, not '1e2'."),
        ("limit=", "limit must be a whole number from 1 to 1000, not ''."),
        ("limit=%C2%B2", "limit must be a whole number from 1 to 1000, not '²'."),
        ("after=-1", "after must be a whole number from 0 to 9223372036854775807, not '-1'."),
        ("after=9223372036854775808", "after must be a whole number from 0 to .*"),
        ("after=" + "9" * 5000, "after must be a whole number .*"),
        ("cause=hbm_oom_compil", "There is no cause 'hbm_oom_compil'. Did you mean hbm_oom_compile?"),
        ("cause=zzz", "There is no cause 'zzz'. Known are: host_oom, .*"),
        ("since=yesterday", "since must be seconds since the epoch or an ISO 8601 time .*, not 'yesterday'."),
        ("since=2026-11-20T13:44:14+01:00", r"since must be .*write the \+ of a zone as %2B.*"),
        ("since=nan", "since must be .*"),
        ("cuase=hang", "There is no parameter 'cuase' here. Did you mean cause?"),
        ("limit=1&limit=2", "The parameter limit is given twice; give it once."),
        ("&".join(f"a{number}=1" for number in range(100)), "The query has too many parameters."),
    ],
)
def test_an_invalid_query_is_answered_with_what_would_be_right(query: str, message: str) -> None:
    view = SampleView()
    with pytest.raises(BadRequestError, match=f"^{message.replace('?', '[?]')}$"):
        Api(view).events(query)
    assert view.asked == []


def test_goodput_is_asked_for_by_time_and_workload() -> None:
    view = SampleView(samples.watching(goodput=samples.goodput()))
    document = Api(view).goodput("since=2026-11-20T13:00:00Z&workload=train")
    assert Api(view).goodput("") == document
    assert view.asked == [{"since": 1795179600.0, "workload": "train"}, {"since": None, "workload": ""}]
    assert round(sum(one.share for one in document.states), 9) == 1.0
    assert document.sentence.startswith("Lost so far: 1 h of 3 h 30 min (28.57 %): stuck 20 min, ")
    with pytest.raises(BadRequestError, match="since must be seconds"):
        Api(view).goodput("since=7d")


def test_documents_without_parameters_take_none() -> None:
    with pytest.raises(BadRequestError, match=r"There is no parameter 'x' here\. This document takes none\."):
        Api(SampleView()).findings("x=1")


def test_a_status_of_a_daemon_that_cannot_work() -> None:
    status = samples.status(
        reading=False,
        loops=(LoopStatus("follow", None, fresh=False), LoopStatus("store", samples.NOW - 99, fresh=False)),
        store=StoreStatus("/x", durable=False, events=0, detail="The disk is full."),
        last_launch=None,
        started=samples.NOW + 60,  # the clock has jumped back
    )
    document = samples.as_json(samples.status_document(status))
    assert document["ready"] is False
    assert document["not_ready"] == [
        "No log can be read.",
        "Events are held in memory only. The disk is full.",
        "The loop follow has not finished a turn yet.",
        "The loop store has not finished a turn for too long.",
    ]
    assert (document["last_launch"], document["uptime_seconds"]) == (None, 0)


# -- nodes


def test_nodes_come_worst_first_and_are_counted() -> None:
    watched = [samples.node(), samples.node("train-2"), samples.node("train-3", Verdict.GONE)]
    document = samples.as_json(Api(SampleView(watched=watched)).nodes(""))
    assert [node["node"] for node in document["nodes"]] == ["train-3", "train-1", "train-2"]
    assert (document["watched"], document["verdicts"]) == (3, {"gone": 1, "healthy": 2})
    assert list(document["verdicts"]) == ["gone", "healthy"]
    assert document["now_epoch"] == samples.NOW
    assert [node.node for node in watched] == ["train-1", "train-2", "train-3"]  # the view's own order stays


def test_a_limit_never_hides_a_bad_node_behind_a_good_one() -> None:
    watched = [*(samples.node(f"n{number}") for number in range(150)), samples.node("z", Verdict.NODE_STUCK)]
    api = Api(SampleView(watched=watched))
    assert [node.node for node in api.nodes("limit=1").nodes] == ["z"]
    document = api.nodes("")
    assert (len(document.nodes), document.watched) == (100, 151)


def test_one_node_by_its_name() -> None:
    api = Api(SampleView(watched=[samples.node(), samples.node("train-2")]))
    assert [node.node for node in api.nodes("node=train-2").nodes] == ["train-2"]
    document = api.nodes("node=train-%2A")
    assert (document.nodes, document.watched) == ((), 2)


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("limit=10001", "limit must be a whole number from 1 to 10000, not '10001'."),
        ("name=x", "There is no parameter 'name' here. "),
    ],
)
def test_a_wrong_query_for_nodes(query: str, message: str) -> None:
    with pytest.raises(BadRequestError, match=f"^{message}"):
        Api(SampleView()).nodes(query)
