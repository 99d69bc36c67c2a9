"""What the repository promises of itself: documents that match the code, locks that lock, a licence, small files."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

import tpuwatch
from tests.paths import ROOT
from tpuwatch.cli.main import COMMANDS
from tpuwatch.config import load_config
from tpuwatch.config.schema import config_keys
from tpuwatch.logs.rules import catalogue
from tpuwatch.metrics.registry import Metrics
from tpuwatch.model.status import ADDRESS_FILE
from tpuwatch.store.opening import LOCK_NAME
from tpuwatch.store.schema import FILE_NAME

DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
PARTS = ("tpuwatch", "tests", "docs")
SOURCES = sorted(chain.from_iterable((ROOT / part).rglob("*.py") for part in PARTS))
# Not in an address of the web.
FILES = re.compile(
    r"(?<![\w/.-])((?:docs|systemd|tests)/[\w.-]+\.\w+|config\.example\.toml|[A-Z]{4,}\.md|requirements[\w-]*\.lock)"
)
LOCKS = sorted(ROOT.glob("requirements*.lock"))
# Put together here, so that this file does not name them either.
REGISTRIES = tuple(".".join(parts) for parts in (("pypi", "org"), ("pythonhosted", "org"), ("deb", "debian", "org")))


def text(*parts: str) -> str:
    return ROOT.joinpath(*parts).read_text(encoding="utf-8")


def words(pattern: str, *documents: Path) -> set[str]:
    """Every first group of the pattern in the documents."""
    texts = (document.read_text(encoding="utf-8") for document in documents)
    return set(chain.from_iterable(re.findall(pattern, content, re.MULTILINE) for content in texts))


def metric_names() -> set[str]:
    """The metrics as PromQL knows them, without Python's own and the process's."""
    scrape, _ = Metrics(loops=["follow"], refusals=["permission"]).exposition()
    return set(re.findall(r"^# TYPE (tpuwatch_\S+)", scrape.decode(), re.MULTILINE))


def series(name: str) -> str:
    """The metric that a series belongs to: a histogram's parts count as it."""
    return re.sub(r"_(bucket|sum|count)$", "", name)


def test_every_metric_is_documented_and_every_documented_metric_exists() -> None:
    known = metric_names()
    assert len(known) > 15
    assert words(r"\b(tpuwatch_[a-z_]+[a-z])\b", ROOT / "docs" / "metrics.md") >= known
    exported = r"(?<!:)\b(tpuwatch_[a-z_]+[a-z])\b(?!:)"  # what rules record has colons
    named = {series(name) for name in words(exported, *DOCUMENTS)}
    assert named - known == set()


def test_every_key_of_a_rule_is_documented_and_no_other() -> None:
    section = text("docs", "rules.md").partition("## A rule")[2].partition("## Patterns")[0]
    rows = set(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE))
    assert rows == set(catalogue._TYPES)


def test_the_documented_rule_is_in_force(tmp_path: Path) -> None:
    (example,) = re.findall(r"```toml\n(\[\[rule\]\].*?)```", text("docs", "rules.md"), re.DOTALL)
    (tmp_path / "site.toml").write_text(example)
    loaded = catalogue.load_catalogue([tmp_path])
    assert [str(error) for error in loaded.refused if str(tmp_path) in str(error)] == []
    rule = loaded.rule("site-dataset-quota")
    details = rule.details(rule.examples[0].encode())
    assert details == {"shard": "train-00017", "waited_seconds": 123.0}


def test_every_command_is_documented_and_every_documented_one_exists() -> None:
    rows = words(r"^\| `tpuwatch ([a-z]+)", ROOT / "README.md")
    assert rows == set(COMMANDS)
    assert words(r"`(?:\S*/)?tpuwatch ([a-z]+)", *DOCUMENTS) <= set(COMMANDS)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_documented_configuration_is_valid(document: Path, tmp_path: Path) -> None:
    blocks = re.findall(r"^```toml\n(\[[a-z].*?)^```", document.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    for number, block in enumerate(blocks):
        file = tmp_path / f"{number}.toml"
        file.write_text(block)
        assert load_config(file, {}).source == file


def test_documented_keys_exist_in_their_table() -> None:
    known = {(setting.key, setting.table) for setting in config_keys()}
    named = set(chain.from_iterable(key_mentions(document) for document in DOCUMENTS))
    assert len(named) >= 4
    assert named - known == set()


def key_mentions(document: Path) -> set[tuple[str, str]]:
    """Keys that a text names as "`key` under `[table]`", several of them joined by a comma."""
    text = " ".join(document.read_text(encoding="utf-8").split())
    mentions = re.findall(r"((?:`\w+`(?:, | and )?)+) under `\[(\w+)\]`", text)
    return {(key, table) for keys, table in mentions for key in re.findall(r"`(\w+)`", keys)}


def test_documented_files_of_the_state_directory_are_the_real_ones() -> None:
    files = re.findall(r"^\| `([\w.]+)`", text("docs", "operations.md"), re.MULTILINE)
    assert files[:3] == [FILE_NAME, LOCK_NAME, ADDRESS_FILE]


def test_picture_is_whole_and_asks_nobody_for_anything() -> None:
    picture = ET.fromstring(text("docs", "demo.svg"))  # noqa: S314 - our own file
    told = "".join(picture.itertext())
    for words_of_it in (
        "1 of 6",
        "6 of 6",
        "premapped_exhausted",
        "TPU_PREMAPPED_BUFFER_SIZE=5100273664",
        "runtime_stuck",
        "verifying",
    ):
        assert words_of_it in told
    attributes = {name for element in picture.iter() for name in element.attrib}
    assert {name for name in attributes if "href" in name or "src" in name} == set()
    assert "url(" not in text("docs", "demo.svg")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_between_documents_lead_somewhere(document: Path) -> None:
    targets = re.findall(r"\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)", document.read_text(encoding="utf-8"))
    assert [target for target, _ in targets if not (document.parent / target).exists()] == []
    assert [
        (target, place)
        for target, place in targets
        if place and place not in places(document.parent / (target or document))
    ] == []


def places(document: Path) -> set[str]:
    """What links may name in it: its headings, as web pages of repositories call them."""
    headings = words(r"^#+ (.*)$", document)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_make_target_is_explained_and_every_documented_one_exists() -> None:
    makefile = text("Makefile")
    phony = re.findall(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)[0].split()
    explained = re.findall(r"^([a-z0-9-]+):.*## ", makefile, re.MULTILINE)
    assert sorted(phony) == sorted(explained)
    assert words(r"\bmake ([a-z0-9-]+)\b(?= |`|$)", ROOT / "CONTRIBUTING.md") <= {*phony, "by"}


def test_licence_is_apache_2() -> None:
    licence = text("LICENSE")
    assert "Apache License\n                           Version 2.0, January 2004" in licence
    assert "END OF TERMS AND CONDITIONS" in licence


def test_changelog_knows_this_version() -> None:
    assert f"## [{tpuwatch.__version__}]" in text("CHANGELOG.md")


@pytest.mark.slow
def test_messages_name_only_files_that_are_installed() -> None:
    """A file of the repository that a message names is one that the wheel has, by its path on this machine."""
    found = [one for source in (ROOT / "tpuwatch").rglob("*.py") for one in _named_files(source)]
    assert [(place, name) for place, name, is_installed in found if not is_installed] == []
    names = {name for _, name, _ in found}
    assert len(names) > 3
    assert [name for name in sorted(names) if not (ROOT / name).is_file()] == []
    rules = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tpuwatch").rglob("*.toml"))
    assert re.findall(rf'(?:do|source) = "[^"]*{FILES.pattern}', rules) == []


def _named_files(source: Path) -> Iterator[tuple[str, str, bool]]:
    """The files of the repository that strings of the module name, and whether `installed` gives their path."""
    tree = ast.parse(source.read_text(encoding="utf-8"))
    documentation = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]
    given = {id(word) for call in calls if call.func.id == "installed" for word in call.args}  # type: ignore[attr-defined]
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documentation:
            for name in FILES.findall(node.value):
                yield f"{source.name}:{node.lineno}", name, id(node) in given


@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: path.name)
def test_lock_pins_and_hashes_every_package(lock: Path) -> None:
    requirements = re.sub(r"\\\n", "", lock.read_text(encoding="utf-8")).splitlines()
    assert len(requirements) > 10
    assert [line for line in requirements if not re.match(r"[\w.-]+==[\w.!]+ .*--hash=sha256:[0-9a-f]{64}", line)] == []


def test_locks_agree_and_the_core_has_no_tensorflow() -> None:
    core, everything = (pins(ROOT / name) for name in ("requirements.lock", "requirements-dev.lock"))
    assert core <= everything
    assert "editables" not in {name for name, _ in core}  # it is for development
    for extra, package in (("gcs", "google-cloud-storage"), ("plot", "matplotlib")):
        pinned = pins(ROOT / f"requirements-{extra}.lock")
        assert pinned <= everything
        assert package in {name for name, _ in pinned}
    assert {name for name, _ in core} & {"tensorflow", "jax", "jaxlib", "torch", "libtpu"} == set()


def pins(lock: Path) -> set[tuple[str, str]]:
    return set(re.findall(r"^([\w.-]+)==(\S+)", lock.read_text(encoding="utf-8"), re.MULTILINE))


def test_no_file_names_a_package_registry() -> None:
    files = [*DOCUMENTS, *SOURCES, *LOCKS, ROOT / "Makefile", ROOT / "pyproject.toml", ROOT / ".ci" / "run"]
    assert [path.name for path in files if any(name in path.read_text(encoding="utf-8") for name in REGISTRIES)] == []


def test_the_wheel_is_given_every_page() -> None:
    given = words(r'^"(docs/[^"]+)" = "tpuwatch/share/', ROOT / "pyproject.toml")
    assert given == {path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").glob("*.md")}


def test_each_lane_of_ci_has_the_budget_that_is_documented() -> None:
    script = text(".ci", "run")
    steps = re.findall(r'^\s*(?:\[\[.*\]\] \|\| )?step "([^"]+)" ([0-9.]+) make', script, re.MULTILINE)
    budgets = {name: float(minutes) for name, minutes in steps}
    pythons = budgets.pop("unit (3.$1)")
    budgets |= {f"unit (3.{minor})": pythons for minor in re.findall(r"for minor in ([0-9 ]+);", script)[0].split()}
    table = text("CONTRIBUTING.md").split("## Lanes of CI", 1)[1].split("## ", 1)[0]
    rows = re.findall(r"^\| ([a-z][^|]*) \| ([0-9.]+) \|", table, re.MULTILINE)
    documented = {name: float(minutes) for names, minutes in rows for name in names.split(", ")}
    assert documented == budgets
