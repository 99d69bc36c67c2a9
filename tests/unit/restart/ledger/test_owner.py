"""Tests of who drives a record: names of drivers, whether they are gone for sure, and when a lease may be taken."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.restart.records import record
from tpuwatch.core.clock import ManualClock
from tpuwatch.model.restart import Lease
from tpuwatch.restart.ledger.base import Stored
from tpuwatch.restart.ledger.owner import LeaseWatch, ThisMachine, owner_words, parse

NAMED = """
from tpuwatch.restart.ledger.owner import ThisMachine
print(ThisMachine().new_owner(), flush=True)
input()
"""


@pytest.fixture
def here() -> ThisMachine:
    return ThisMachine()


def test_the_daemon_of_this_machine_is_called_so() -> None:
    python = [sys.executable, "-c", "import sys; print(flush=True); sys.stdin.read()"]
    for words, is_daemon in ((["/usr/bin/tpuwatch", "run"], True), (["tpuwatch", "restart", "run"], False)):
        with subprocess.Popen([*python, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()  # it runs
            owner = replace(ThisMachine().new_owner(), pid=process.pid)
            assert owner_words(str(owner)).startswith("the daemon (process ") is is_daemon
            assert owner_words(str(replace(owner, boot="another"))) == owner.text


def test_a_name_is_read_back(here: ThisMachine) -> None:
    owner = here.new_owner()
    assert parse(str(owner)) == owner
    assert owner.pid == os.getpid()
    assert owner_words(str(owner)) == f"process {os.getpid()} on {owner.host}"


@pytest.mark.parametrize("text", ["", "vm-1", "a/b/c/d/e", "a/b/1/2", "a/b/1/2/3/4", "a//1/2/3", "a/b/-1/2/3"])
def test_names_of_other_forms_are_nobody_here(here: ThisMachine, text: str) -> None:
    assert parse(text) is None
    assert not here.is_gone(text)
    assert owner_words(text) == f'"{text}"'


def test_two_drivers_in_one_process_are_two(here: ThisMachine) -> None:
    assert str(here.new_owner()) != str(here.new_owner())


def test_a_live_process_is_not_gone_and_a_dead_one_is(here: ThisMachine) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", NAMED], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        name = process.stdout.readline().strip()
        assert not here.is_gone(name)
        process.kill()
        process.wait()
        assert here.is_gone(name)


def test_a_later_process_of_its_number_is_not_the_owner(here: ThisMachine) -> None:
    own = here.new_owner()
    assert not here.is_gone(str(own))
    assert here.is_gone(str(replace(own, started=own.started - 1)))


def test_of_other_boots_and_other_machines_nothing_is_known(here: ThisMachine) -> None:
    dead = replace(here.new_owner(), started=1)
    assert here.is_gone(str(dead))
    assert not here.is_gone(str(replace(dead, boot="another-boot")))


def test_what_could_not_be_found_out_of_oneself_is_not_held_against_one(here: ThisMachine, tmp_path: Path) -> None:
    blind = ThisMachine(tmp_path)  # no /proc
    owner = blind.new_owner()
    assert owner.started == 0
    assert parse(str(owner)) == owner
    assert not blind.is_gone(str(owner))
    assert not here.is_gone(str(owner))
    assert owner.boot != blind.new_owner().boot


def test_the_boot_tells_namespaces_of_processes_apart(tmp_path: Path) -> None:
    (tmp_path / "sys/kernel/random").mkdir(parents=True)
    (tmp_path / "sys/kernel/random/boot_id").write_text("b00b\n")
    (tmp_path / "self/ns").mkdir(parents=True)
    boots = set()
    for number in (4026531836, 4026532001):
        (tmp_path / "self/ns/pid").unlink(missing_ok=True)
        (tmp_path / "self/ns/pid").symlink_to(f"pid:[{number}]")
        boots.add(ThisMachine(tmp_path).new_owner().boot)
    assert boots == {"b00b.pid4026531836", "b00b.pid4026532001"}


def held(version: int, owner: str = "other") -> Stored:
    return Stored(record(lease=Lease(owner, 60.0)), version)


def test_a_lease_holds_while_its_version_changes_and_no_longer() -> None:
    clock = ManualClock()
    watch = LeaseWatch(clock, lambda _: False)
    assert watch.remaining(held(1)) == 60
    clock.advance(59)
    assert watch.remaining(held(1)) == pytest.approx(1)
    assert watch.remaining(held(2)) == 60
    clock.advance(30)
    assert watch.remaining(held(2)) == pytest.approx(30)
    clock.advance(31)
    assert watch.remaining(held(2)) == 0
    assert watch.remaining(held(3)) == 60  # it was not dead after all


def test_a_jump_of_the_wall_clock_does_not_end_a_lease() -> None:
    clock = ManualClock()
    watch = LeaseWatch(clock, lambda _: False)
    watch.remaining(held(1))
    clock.wall += 1e6
    assert watch.remaining(held(1)) == 60


def test_nobody_and_the_dead_hold_nothing() -> None:
    watch = LeaseWatch(ManualClock(), lambda owner: owner == "dead")
    assert watch.remaining(held(1, "")) == 0
    assert watch.remaining(held(1, "dead")) == 0
    assert watch.remaining(held(1, "alive")) == 60


def test_each_node_has_its_own_lease() -> None:
    clock = ManualClock()
    watch = LeaseWatch(clock, lambda _: False)
    watch.remaining(held(1))
    clock.advance(40)
    other = Stored(record("train-2", lease=Lease("other")), 1)
    assert (watch.remaining(held(1)), watch.remaining(other)) == (pytest.approx(20), 60)
