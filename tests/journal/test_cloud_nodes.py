from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.journal.make import NOW
from tpuwatch.health.evidence import CloudNode
from tpuwatch.journal import Journal, schema, store

if TYPE_CHECKING:
    from pathlib import Path

    from tpuwatch.clock import ManualClock

NODE = CloudNode("p", "z", "train-1", "READY", "TIMEOUT", hosts=4, created=NOW - 9000, changed=NOW - 60)


def test_a_node_comes_back_as_far_as_it_was_stored(journal: Journal) -> None:
    other = replace(NODE, name="train-2", created=None, changed=None, changed_unseen=True)
    journal.put_cloud_nodes([replace(NODE, labels=(("a", "b"),), accelerator="v4-8"), other])
    assert journal.cloud_nodes() == [NODE, other]


def test_the_latest_word_on_a_node_counts(journal: Journal) -> None:
    journal.put_cloud_nodes([NODE, replace(NODE, zone="y")])
    journal.put_cloud_nodes([replace(NODE, state="STOPPED")])
    assert [(one.zone, one.state) for one in journal.cloud_nodes()] == [("y", "READY"), ("z", "STOPPED")]


@pytest.mark.parametrize(("seconds", "known"), [(store.CLOUD_NODES_SECONDS - 1, True), (86_400, False)])
@pytest.mark.parametrize("clean", [True, False])
def test_a_later_run_knows_it_after_a_short_break_only(
    tmp_path: Path, clock: ManualClock, seconds: float, known: bool, clean: bool
) -> None:
    with closing(Journal.open(tmp_path, clock)) as journal:
        journal.commit([], [])
        journal.put_cloud_nodes([NODE])
        clock.advance(7 * 86_400)  # at work all the time
        journal.prune(1e9, 1 << 40)
        if clean:
            clock.advance(3600)  # the end itself counts as work
        journal.close(clean=clean)
    clock.advance(seconds)
    with closing(Journal.open(tmp_path, clock)) as journal:
        assert journal.cloud_nodes() == ([NODE] if known else [])
        clock.advance(60)
        journal.put_cloud_nodes([replace(NODE, name="new")])
        assert [one.name for one in journal.cloud_nodes()] == (["new", "train-1"] if known else ["new"])


def test_they_are_bounded_in_number(journal: Journal, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "KEPT_CLOUD_NODES", 2)
    for number in range(5):
        journal.put_cloud_nodes([replace(NODE, name=f"n{number}")])
        clock.advance(1)
    journal.prune(1e9, 1 << 40)
    assert [one.name for one in journal.cloud_nodes()] == ["n3", "n4"]


def test_what_a_later_version_stores_besides_is_left_out(journal: Journal) -> None:
    journal.put_cloud_nodes([NODE])
    journal._connection.execute("UPDATE cloud_nodes SET facts = json_set(facts, '$.mood', 'good')")
    assert journal.cloud_nodes() == [NODE]


def test_a_journal_in_memory_begins_with_them(tmp_path: Path, clock: ManualClock) -> None:
    with closing(Journal.open(tmp_path, clock)) as journal:
        journal.commit([], [])
        journal.put_cloud_nodes([NODE])
    (tmp_path / "journal.lock").unlink()
    (tmp_path / "journal.lock").symlink_to("elsewhere")  # so that the directory cannot be had
    with closing(Journal.open(tmp_path, clock)) as journal:
        assert not journal.durable
        assert journal.cloud_nodes() == [NODE]
    assert (tmp_path / schema.FILE_NAME).exists()
