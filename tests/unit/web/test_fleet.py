"""Which watched nodes the page shows, and in which order."""

from __future__ import annotations

import pytest

from tests.unit.web import samples
from tpuwatch.model.judged_node import JudgedNode
from tpuwatch.model.verdict import Verdict
from tpuwatch.web.fleet import ROWS, FleetQuery, FleetTable, fleet_table

NODES = [
    samples.node("train-10"),
    samples.node("train-2", zone="us-east5-b"),
    samples.node("lost", Verdict.GONE, cloud=None),
    samples.node("stuck", Verdict.NODE_STUCK, cloud=samples.cloud_node(state="READY", health="TIMEOUT")),
]


def asked(nodes: list[JudgedNode] | None = None, **values: str) -> FleetTable:
    return fleet_table(NODES if nodes is None else nodes, FleetQuery.parse(values))


def names(**values: str) -> list[str]:
    return [node.node for node in asked(**values).rows]


def test_the_worst_come_first_unless_another_order_is_asked_for() -> None:
    assert names() == ["stuck", "lost", "train-10", "train-2"]
    assert names(sort="-urgency")[-1] == "stuck"
    assert names(sort="node") == ["lost", "stuck", "train-2", "train-10"]  # numbers as numbers
    assert names(sort="-node")[0] == "train-10"
    assert names(sort="zone")[-1] == "train-2"
    assert names(sort="cloud") == ["lost", "train-2", "train-10", "stuck"]
    assert names(sort="since")[:2] == ["stuck", "lost"]  # for 12 min, the others for 2 h


def test_words_of_a_row_a_verdict_and_a_zone_narrow_it() -> None:
    assert names(find="TRAIN 10") == ["train-10"]
    assert names(find="timeout") == ["stuck"]
    assert names(verdict="gone") == ["lost"]
    assert names(verdict="bad") == ["stuck", "lost"]
    assert names(zone="us-east5-b") == ["train-2"]
    assert names(find="nothing") == []
    assert (asked(find="nothing").found, asked(find="nothing").watched) == (0, 4)


def test_a_page_has_a_hundred_rows_and_links_keep_what_is_asked_for() -> None:
    many = [samples.node(f"n-{number}") for number in range(2 * ROWS + 50)]
    second = asked(many, find="n-", sort="-node", page="2")
    assert (len(second.rows), second.first) == (ROWS, ROWS + 1)
    assert second.next == "/?find=n-&sort=-node&page=3#fleet"
    assert second.previous == "/?find=n-&sort=-node#fleet"
    assert asked(many, page="99").first == 2 * ROWS + 1  # behind the end is the end
    assert [column.sorted for column in second.columns] == ["none", "descending", "none", "none", "none"]
    assert second.columns[1].link == "/?find=n-&sort=node#fleet"


def test_the_choices_count_all_nodes_and_the_chosen_one_leads_back() -> None:
    choices = {choice.words: choice for choice in asked(verdict="gone", zone="us-central2-b").choices}
    assert {words: choice.number for words, choice in choices.items()} == {
        "all": 4,
        "bad": 2,
        "node_stuck": 1,
        "gone": 1,
        "healthy": 2,
    }
    assert choices["gone"].is_chosen
    assert choices["gone"].link == "/?zone=us-central2-b#fleet"


def test_the_bar_is_filled_and_shows_one_bad_node_among_thousands() -> None:
    shares = asked([samples.node("bad", Verdict.GONE), *(samples.node(f"n{one}") for one in range(5000))]).shares
    assert [share.tone for share in shares] == ["bad", "good"]
    assert shares[0].width > 0.3
    assert sum(share.width for share in shares) == pytest.approx(100)
    assert asked([]).shares == []


@pytest.mark.parametrize("values", [{"sort": "size"}, {"page": "0"}, {"page": "x"}, {"page": "9" * 99}])
def test_what_cannot_be_is_refused(values: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="must be"):
        FleetQuery.parse(values)
