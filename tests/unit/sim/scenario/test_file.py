from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.paths import ROOT
from tpuwatch.core.clock import ManualClock
from tpuwatch.core.errors import ConfigError
from tpuwatch.sim.cloud.world import World
from tpuwatch.sim.scenario.actions import ACTIONS, ON_NODES
from tpuwatch.sim.scenario.file import (
    DEFAULT_SCENARIO,
    MAX_BYTES,
    built_in_scenarios,
    load_scenario,
    match_nodes,
    read_scenario,
)

NODE = '[[nodes]]\nname = "train-{number}"\ncount = 3\n'


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "s.toml"


def wrong(file: Path, text: str) -> list[str]:
    """What is said of a scenario with this text, without the file's name."""
    file.write_text(text)
    with pytest.raises(ConfigError) as told:
        read_scenario(file)
    lines = str(told.value).splitlines()
    assert all(line.startswith(f"{file}: ") for line in lines)
    return [line.removeprefix(f"{file}: ") for line in lines]


@pytest.mark.parametrize("name", built_in_scenarios())
def test_each_built_in_scenario_is_right_and_says_what_it_shows(name: str) -> None:
    scenario = load_scenario(name)
    assert scenario.title
    assert scenario.text
    assert [step.at for step in scenario.steps] == sorted(step.at for step in scenario.steps)


def test_the_default_is_built_in() -> None:
    assert DEFAULT_SCENARIO in built_in_scenarios()
    assert load_scenario(DEFAULT_SCENARIO).steps == ()


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ('titel = "x"\n' + NODE, "titel is not a key; did you mean title?"),
        ("[[nodes]]\ncount = 2\n", "nodes[0].name is missing; give a name in lower-case letters, digits and -, with"),
        ('[[nodes]]\nname = "A"\n', 'nodes[0].name cannot be "A"; give a name in lower-case letters'),
        (NODE + "hosts = 0\n", "nodes[0].hosts cannot be 0; give a whole number from 1 to 4096"),
        (NODE + 'state = "REDY"\n', 'nodes[0].state cannot be "REDY"; give one of STATE_UNSPECIFIED, CREATING, READY'),
        (NODE + "state = true\n", "nodes[0].state cannot be true; give one of"),
        (NODE + 'accelerator = "v9-4"\n', 'nodes[0].accelerator cannot be "v9-4"; give an accelerator type'),
        (NODE + "labels = {UP = 'x'}\n", 'nodes[0].labels.UP cannot be "UP"; give a table of labels'),
        (NODE + '[[steps]]\ndo = "hagn"\nnode = "train-1"\n', 'steps[0].do cannot be "hagn"; did you mean hang?'),
        (NODE + "[[steps]]\nat = 3.0\n", "steps[0].do is missing; give one of hang, lie, preempt"),
        (NODE + '[[steps]]\ndo = "hang"\n', "steps[0].node is missing; give a node's name, which may hold * and ?"),
        (NODE + '[[steps]]\nat = -1\ndo = "hang"\nnode = "*"\n', "steps[0].at cannot be -1; give a number of seconds"),
        (NODE + '[[steps]]\ndo = "fault"\ncode = "NO"\n', 'steps[0].code cannot be "NO"; give one of an empty text, C'),
        (
            NODE + '[[steps]]\ndo = "fault"\nmethod = "GetNode"\n',
            "steps[0]: the fault has no effect; give one of code,",
        ),
        (
            NODE + '[[steps]]\ndo = "fault"\nhalf_open = true\ncode = "ABORTED"\n',
            "steps[0]: half_open strikes all connections to the cloud, no calls; leave out code",
        ),
        (NODE + '[[steps]]\ndo = "launch"\nlaunch = "x"\n', 'steps[0].launch cannot be "x"; give one of healthy, '),
        (NODE + '[[steps]]\ndo = "hang"\nnode = "tain-1"\n', "steps[0].node tain-1 is no node of the scenario; did yo"),
        ('machine = "train-7"\n' + NODE, "machine train-7 is no node of the scenario; did you mean train-"),
        ("worker = 4\n" + NODE, "worker 4 is more than train-1 has; give a number below 1"),
        ('[[nodes]]\nname = "a"\ncount = 2\n', "nodes: 2 are called a; put {number} into the name, or give each a"),
        (
            '[[nodes]]\nname = "x-{number}"\ncount = 40000\n[[nodes]]\nname = "y-{number}"\ncount = 40000\n',
            "there are 8",
        ),
        (
            f'[[nodes]]\nname = "{"n" * 60}-{{number}}"\ncount = 100\n',
            f"nodes[0].name {'n' * 60}-{{number}} has 64 characters with the number 100 in it; give one of at most 63",
        ),
        ('title = "x"\n', "nodes is missing; give tables [[nodes]]"),
        ("nodes = []\n", "nodes: there are 0; give tables [[nodes]] with a count of 1 to 50000 in all"),
        ("nodes = 7\n", "nodes cannot be 7; give tables [[nodes]]"),
        (
            '[[nodes]]\nname = "train-1"\nexists = false\nqueued_resource = "q"\n[[queued_resources]]\nname = "q"\n',
            "machine train-1 does not exist at the beginning; leave exists out of its table",
        ),
        (
            NODE + '[[nodes]]\nname = "b"\nexists = false\n',
            "nodes[1].queued_resource must name a table of queued_resources, which makes it later",
        ),
        (
            NODE + '[[queued_resources]]\nname = "q"\n' * 2,
            "queued_resources: 2 are called q; give each a name of its own",
        ),
        (
            NODE + '[[queued_resources]]\nname = "q"\nstate = "READY"\n',
            'queued_resources[0].state cannot be "READY"; giv',
        ),
        (
            NODE
            + '[[queued_resources]]\nname = "q-1"\n[[steps]]\ndo = "queued_resource"\nname = "q"\nstate = "FAILED"',
            "steps[0].name q is no queued resource of the scenario; known are q-1",
        ),
        ("[timing]\nstopp = 1\n" + NODE, "timing.stopp is not a key; did you mean stop?"),
        ("nodes", "not TOML: "),
        (f"nodes = {'[' * 5000}", "not TOML: "),
    ],
)
def test_each_mistake_is_named_with_what_is_right(file: Path, text: str, answer: str) -> None:
    told = wrong(file, text)
    assert len(told) == 1
    assert answer in told[0]


def test_all_mistakes_are_reported_at_once_but_not_without_end(file: Path) -> None:
    assert len(wrong(file, NODE + "x = 1\ny = 2\n")) == 2
    told = wrong(file, NODE + "".join(f"x{number} = 1\n" for number in range(500)))
    assert len(told) == 21
    assert told[-1] == "and 480 more of the kind"


def test_the_longest_name_that_a_node_can_have(file: Path) -> None:
    file.write_text(f'[[nodes]]\nname = "{"n" * 60}-{{number}}"\ncount = 99\n')
    scenario = read_scenario(file)
    assert max(map(len, scenario.nodes[0].names)) == 63
    with pytest.raises(ConfigError, match="has 64 characters with the number 100 in it"):
        scenario.with_nodes(100)


def test_a_file_that_cannot_be_read(file: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read the scenario .*No such file"):
        load_scenario(str(file))
    with pytest.raises(ConfigError, match=r"cannot read the scenario .*Is a directory"):
        load_scenario(str(tmp_path))
    file.write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="not UTF-8 text"):
        load_scenario(str(file))
    file.write_bytes(b"#" * (MAX_BYTES + 1))
    with pytest.raises(ConfigError, match="larger than 1 MiB"):
        load_scenario(str(file))


def test_a_name_that_is_none_has_a_near_one() -> None:
    with pytest.raises(ConfigError, match=r"there is no scenario 'quite'; did you mean quiet\?"):
        load_scenario("quite")


def test_nodes_begin_as_they_are_described(file: Path) -> None:
    file.write_text(
        'project = "p"\nzone = "z"\n[[nodes]]\nname = "a"\naccelerator = "v5litepod-16"\nstate = 42\nhealth = ""\n'
        'zone = "other"\nspot = true\nlabels = {team = "x"}\nphase = "stuck"\nphase_seconds = 100.0\n'
    )
    scenario = read_scenario(file)
    node = scenario.nodes[0].build("a", scenario, 1000.0)
    assert node.path == scenario.own_path == "projects/p/locations/other/nodes/a"
    assert (node.hosts, node.chips_per_host, node.hbm_bytes) == (4, 4, 16 << 30)
    assert (node.state, node.health, node.spot, node.labels) == (42, "", True, {"team": "x"})
    assert [(work.phase.value, work.since) for work in node.workloads] == [("stuck", 900.0)] * 4


def test_a_scenario_furnishes_its_world(file: Path) -> None:
    file.write_text(
        'common_metadata = true\n[[zones]]\nname = "full"\ncapacity = 0\n[[zones]]\nname = "empty"\n'
        "[timing]\nstop = 1.5\n" + NODE
    )
    world = World(ManualClock())
    read_scenario(file).configure(world)
    assert world.capacity == {"full": 0}
    assert world.zones == {"full", "empty"}
    assert (world.timing.stop, world.timing.start) == (1.5, World(ManualClock()).timing.start)
    assert world.common_metadata


def test_the_number_of_nodes_can_be_changed(file: Path) -> None:
    assert sum(spec.count for spec in load_scenario("fleet").with_nodes(7).nodes) == 18
    with pytest.raises(ConfigError, match=r"with 0 nodes: nodes.0..count cannot be 0; give a whole number from 1"):
        load_scenario("fleet").with_nodes(0)
    file.write_text('[[nodes]]\nname = "a"\n')
    with pytest.raises(ConfigError, match="no nodes of the scenario are numbered"):
        read_scenario(file).with_nodes(3)


def test_the_documented_scenario_is_right(file: Path) -> None:
    page = ROOT / "docs" / "simulator.md"
    (example,) = re.findall(r"```toml\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    file.write_text(example)
    scenario = read_scenario(file)
    assert scenario.own_node == "slice-1"
    words = re.findall(r"^`do` is one of (.*?)\.", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    assert re.findall(r"`(\w+)`", words[0]) == list(ACTIONS)


@pytest.mark.parametrize(
    ("pattern", "names"), [("a-1", ["a-1"]), ("a-*", ["a-1", "a-2"]), ("?-2", ["a-2", "b-2"]), ("c", []), ("c*", [])]
)
def test_patterns_mean_nodes(pattern: str, names: list[str]) -> None:
    assert match_nodes(pattern, ["a-1", "a-2", "b-2"]) == names


def test_actions_on_nodes_are_those_that_name_one() -> None:
    assert ON_NODES == ("hang", "lie", "preempt", "maintain", "vanish", "restore", "workload", "set")
