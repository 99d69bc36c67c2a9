from __future__ import annotations

from tpuwatch.health.evidence import Answer, CloudNode, Host, Identity, Known, Problem, Runtime, Witness
from tpuwatch.node.board import HERE, Board, Posted

NOW = 1_790_000_000.0


def node(name: str, state: str = "READY") -> Answer[CloudNode]:
    return Answer(CloudNode("p", "z", name, state, "HEALTHY"), NOW, None, tried=NOW)


def test_each_post_is_told_and_leaves_the_rest() -> None:
    told = []
    board = Board(lambda: told.append(board.posted))
    host = Answer(Host("boot", NOW - 60), NOW, None)
    board.post(host=host)
    board.post(runtime=Answer(Runtime(()), NOW, None))
    assert [posted.host is host for posted in told] == [True, True]
    assert told[0].runtime.value is None
    assert board.posted.runtime.value == Runtime(())


def test_the_same_word_again_is_posted_and_not_told() -> None:
    told = []
    board = Board(lambda: told.append(board.posted))
    board.post(host=Answer(Host("boot", NOW - 60), NOW, None, tried=NOW))
    board.post(host=Answer(Host("boot", NOW - 60), NOW + 1, None, tried=NOW + 1))
    assert len(told) == 1
    assert board.posted.host.at == NOW + 1
    board.post(host=Answer(Host("boot", NOW - 60), NOW + 1, Problem.INTERNAL, "It broke.", NOW + 2))
    assert len(told) == 2


def test_a_list_of_nodes_is_news_however_alike_it_is() -> None:
    told = []
    board = Board(lambda: told.append(board.posted))
    nodes = {"a": node("a")}
    board.post(cloud=nodes)
    board.post(cloud=dict(nodes))
    assert len(told) == 2


def test_what_was_posted_before_does_not_change() -> None:
    board = Board(lambda: None)
    before = board.posted
    board.post(cloud={"a": node("a")})
    assert before.cloud == {}


def test_the_own_node_has_all_witnesses_and_the_others_only_the_cloud() -> None:
    posted = Posted(
        identity=Identity(node=Known("b", "metadata")),
        cloud={name: node(name) for name in ("c", "b", "a")},
        api=Answer(3, NOW, None),
        host=Answer(Host("boot", NOW - 60), NOW, None),
    )
    own, others = posted.evidence(NOW), posted.others(NOW)
    assert (own.node, own.own, own.cloud.value and own.cloud.value.name) == ("b", True, "b")
    assert own.host.value is not None
    assert [(one.node, one.own, one.host.problem) for one in others] == [
        ("a", False, Problem.OFF),
        ("c", False, Problem.OFF),
    ]


def test_without_a_name_the_machine_has_a_label_and_the_apis_own_problem() -> None:
    posted = Posted(api=Answer(None, None, Problem.DENIED, "no permission", NOW))
    own = posted.evidence(NOW)
    assert own.node == HERE
    assert (own.cloud.problem, own.cloud.detail, own.cloud.tried) == (Problem.DENIED, "no permission", NOW)


def test_a_machine_that_is_no_node_has_no_word_of_the_cloud_though_the_api_answers() -> None:
    posted = Posted(cloud={"a": node("a")}, api=Answer(1, NOW, None))
    assert posted.evidence(NOW).cloud.problem is Problem.ABSENT
    assert [one.node for one in posted.others(NOW)] == ["a"]


def test_every_witness_has_an_answer() -> None:
    assert set(Posted().answers()) == set(Witness)
