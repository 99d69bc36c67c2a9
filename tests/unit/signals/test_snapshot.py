from __future__ import annotations

from tpuwatch.model.answers import Answer, Problem, Signal
from tpuwatch.model.signals import HERE, CloudNode, Host, Identity, Known, Runtime, Snapshot
from tpuwatch.signals.snapshot import SnapshotStore

NOW = 1_790_000_000.0


def node(name: str, state: str = "READY") -> Answer[CloudNode]:
    return Answer(CloudNode("p", "z", name, state, "HEALTHY"), NOW, None, tried=NOW)


def test_each_post_notifies_and_leaves_the_rest() -> None:
    snapshots = []
    store = SnapshotStore(lambda: snapshots.append(store.snapshot))
    host = Answer(Host("boot", NOW - 60), NOW, None)
    store.post(host=host)
    store.post(runtime=Answer(Runtime(()), NOW, None))
    assert [posted.host is host for posted in snapshots] == [True, True]
    assert snapshots[0].runtime.value is None
    assert store.snapshot.runtime.value == Runtime(())


def test_the_same_answer_again_is_posted_without_notice() -> None:
    snapshots = []
    store = SnapshotStore(lambda: snapshots.append(store.snapshot))
    store.post(host=Answer(Host("boot", NOW - 60), NOW, None, tried=NOW))
    store.post(host=Answer(Host("boot", NOW - 60), NOW + 1, None, tried=NOW + 1))
    assert len(snapshots) == 1
    assert store.snapshot.host.at == NOW + 1
    store.post(host=Answer(Host("boot", NOW - 60), NOW + 1, Problem.INTERNAL, "It broke.", NOW + 2))
    assert len(snapshots) == 2


def test_a_list_of_nodes_notifies_even_when_equal() -> None:
    snapshots = []
    store = SnapshotStore(lambda: snapshots.append(store.snapshot))
    nodes = {"a": node("a")}
    store.post(cloud=nodes)
    store.post(cloud=dict(nodes))
    assert len(snapshots) == 2


def test_the_own_node_has_all_signals_and_the_others_only_the_cloud() -> None:
    posted = Snapshot(
        identity=Identity(node=Known("b", "metadata"), zone=Known("z", "metadata")),
        cloud={f"z/{name}": node(name) for name in ("c", "b", "a")},
        api=Answer(3, NOW, None),
        host=Answer(Host("boot", NOW - 60), NOW, None),
    )
    own, others = posted.evidence(NOW), posted.others(NOW)
    assert (own.node, own.own, own.cloud.value and own.cloud.value.name) == ("z/b", True, "b")
    assert own.host.value is not None
    assert [(one.node, one.own, one.host.problem) for one in others] == [
        ("z/a", False, Problem.OFF),
        ("z/c", False, Problem.OFF),
    ]


def test_without_a_name_the_machine_has_a_label_and_the_apis_own_problem() -> None:
    posted = Snapshot(api=Answer(None, None, Problem.DENIED, "no permission", NOW))
    own = posted.evidence(NOW)
    assert own.node == HERE
    assert (own.cloud.problem, own.cloud.detail, own.cloud.tried) == (Problem.DENIED, "no permission", NOW)


def test_a_node_of_kubernetes_is_not_taken_for_one_of_the_api_that_is_called_the_same() -> None:
    posted = Snapshot(
        identity=Identity(kubernetes=Known("a", "kubernetes")), cloud={"a": node("a")}, api=Answer(1, NOW, None)
    )
    own = posted.evidence(NOW)
    assert own.node == posted.own == "a"
    assert own.cloud.problem is Problem.ABSENT


def test_a_machine_that_is_no_node_has_no_word_of_the_cloud_though_the_api_answers() -> None:
    posted = Snapshot(cloud={"a": node("a")}, api=Answer(1, NOW, None))
    assert posted.evidence(NOW).cloud.problem is Problem.ABSENT
    assert [one.node for one in posted.others(NOW)] == ["a"]


def test_every_signal_has_an_answer() -> None:
    assert set(Snapshot().answers()) == set(Signal)
