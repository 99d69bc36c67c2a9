"""Environment files, read back by who will read them: a real shell, systemd's own parser, docker's rules."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given as any_of
from hypothesis import settings
from hypothesis import strategies as st

from tpuwatch.core.errors import TuneError
from tpuwatch.model.tune import SizeDecision, SizeStep, TunePlan, VariableSetting
from tpuwatch.tune import environment as envfile
from tpuwatch.tune.environment import KeptVariable, LaunchEnvironment, launch_environment

DECISION = SizeDecision(SizeStep.GROW, 8 << 30, None, ('It needs 3 GiB more: `x`, $HOME, "y", libtpu\'s.',), trial=True)
AWKWARD = [
    "",
    " ",
    "a b",
    "'",
    '"',
    "\\",
    "$HOME",
    "`id`",
    "a#b",
    "#",
    "; x",
    "\\n",
    "a=b",
    "é",
    "*",
    "~",
    "%h",
    '\\"$',
]
SHELLS = [shell for shell in ("dash", "bash") if shutil.which(shell)]


def plan(*values: str) -> TunePlan:
    found = tuple(VariableSetting(f"TPU_V{number}", value, "it's so.") for number, value in enumerate(values))
    return TunePlan("bert", 1_800_000_000.0, found, DECISION)


def rendered(form: str, *values: str) -> str:
    return envfile.render(plan(*values), launch_environment(plan(*values), {}), form)


def expected(*values: str) -> dict[str, str]:
    return launch_environment(plan(*values), {}).set


# -- a shell


def evaluated(shell: str, text: str, *, quoted: bool = True, **environ: str) -> dict[str, str]:
    """The variables of interest after `eval` of the text."""
    script = 'eval "$TEXT"; unset TEXT; env -0' if quoted else "eval $TEXT; unset TEXT; env -0"
    done = subprocess.run(
        [shell, "-c", script],
        env={"PATH": os.environ["PATH"], **environ, "TEXT": text},
        capture_output=True,
        timeout=60,
        check=True,
    )
    assert done.stderr == b""
    pairs = (entry.partition(b"=") for entry in done.stdout.split(b"\0"))
    return {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs if b"TPU" in name}


@pytest.mark.parametrize("shell", SHELLS)
def test_a_shell_takes_every_value_as_it_is(shell: str) -> None:
    assert evaluated(shell, rendered("shell", *AWKWARD)) == expected(*AWKWARD)


@pytest.mark.parametrize("shell", SHELLS)
def test_it_works_without_quotes_round_it_too(shell: str) -> None:
    values = ["1", "/var/tpu_logs", "--a=1 --b=2", "it's"]
    assert evaluated(shell, rendered("shell", *values), quoted=False) == expected(*values)


lines = st.text(st.characters(codec="utf-8").filter(str.isprintable), max_size=12)


@settings(max_examples=40, deadline=None)
@any_of(st.lists(lines | st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12), max_size=8))
def test_a_shell_takes_any_value(values: list[str]) -> None:
    assert evaluated("sh", rendered("shell", *values)) == expected(*values)


def test_what_is_over_is_unset_and_what_is_kept_is_reported() -> None:
    one = plan("1")
    kept = KeptVariable("TPU_X", "9\nexport TPU_Y=1", "8")
    text = envfile.render(one, LaunchEnvironment({"TPU_V0": "1"}, (kept,), ("TPU_OLD",)), "shell")
    assert evaluated("sh", text, TPU_OLD="x") == {"TPU_V0": "1"}
    assert "# TPU_X is kept as it is set; tpuwatch would have 8\n" in text
    assert "# TPU_V0: it's so.\n" in text


# -- systemd


def systemd_library() -> ctypes.CDLL | None:
    """systemd's own code, where it is installed."""
    for path in (
        one for place in ("", "*/") for one in Path("/usr/lib").glob(f"{place}systemd/libsystemd-shared-*.so")
    ):
        library = ctypes.CDLL(str(path))
        if hasattr(library, "load_env_file"):
            return library
    return None


SYSTEMD = systemd_library()


def as_systemd_reads(path: Path) -> dict[str, str]:
    """What EnvironmentFile= makes of a file: it calls this function."""
    assert SYSTEMD is not None
    found = ctypes.POINTER(ctypes.c_char_p)()
    assert SYSTEMD.load_env_file(None, os.fsencode(path), ctypes.byref(found)) == 0
    pairs: dict[str, str] = {}
    for entry in found:
        if entry is None:
            break
        name, _, value = entry.decode().partition("=")
        assert name not in pairs
        pairs[name] = value
    return pairs


def as_the_manual_says(text: str) -> dict[str, str]:
    """The part of systemd's rules that a file in double quotes needs, of systemd.exec(5)."""
    pairs = {}
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        name, _, value = line.partition("=")
        assert (value[0], value[-1], len(value) > 1) == ('"', '"', True)
        inner, plain = iter(value[1:-1]), []
        for char in inner:
            assert char != '"'
            if char == "\\":
                char = next(inner)
                plain.append(char if char in '"\\`$' else f"\\{char}")
            else:
                plain.append(char)
        pairs[name] = "".join(plain)
    return pairs


def test_the_rules_of_systemd_give_every_value_back() -> None:
    assert as_the_manual_says(rendered("systemd", *AWKWARD)) == expected(*AWKWARD)


@pytest.mark.skipif(SYSTEMD is None, reason="systemd's library is not installed")
@settings(max_examples=100, deadline=None)
@any_of(st.lists(lines | st.sampled_from(AWKWARD), max_size=8))
def test_systemd_itself_gives_every_value_back(tmp_path_factory: pytest.TempPathFactory, values: list[str]) -> None:
    path = tmp_path_factory.getbasetemp() / "systemd.env"
    path.write_text(rendered("systemd", *values))
    assert as_systemd_reads(path) == expected(*values) == as_the_manual_says(path.read_text())


# -- docker


def as_docker_reads(text: str) -> dict[str, str]:
    """docker's rules: a line is a comment, or a name, a sign, and all up to the end of the line."""
    found = (line.lstrip() for line in text.split("\n"))
    pairs = (line.partition("=") for line in found if line and not line.startswith("#"))
    return {name: value for name, _, value in pairs}


@settings(max_examples=50, deadline=None)
@any_of(st.lists(lines | st.sampled_from(AWKWARD), max_size=8))
def test_docker_gives_every_value_back(values: list[str]) -> None:
    assert as_docker_reads(rendered("docker", *values)) == expected(*values)


@pytest.mark.parametrize("form", ["docker", "systemd"])
@pytest.mark.parametrize(
    "value", ["a\nb", "a\r", "\x1b[2J", "\u2028"], ids=["newline", "return", "escape", "separator"]
)
def test_a_value_that_is_no_line_is_refused(form: str, value: str) -> None:
    with pytest.raises(TuneError, match="TPU_V0 cannot be written to an environment file"):
        rendered(form, value)


# -- comments


def test_json_holds_all_of_it_in_fields() -> None:
    one = plan("1")
    kept = KeptVariable("TPU_X", "9", "8")
    given = LaunchEnvironment({"TPU_V0": "1", "TPUWATCH_SET": "TPU_V0"}, (kept,), ("TPU_O",))
    document = json.loads(envfile.render(one, given, "json"))
    assert document["set"] == [{"name": "TPU_V0", "value": "1", "why": "it's so."}]
    assert document["marks"] == {"TPUWATCH_SET": "TPU_V0"}
    assert document["kept"] == [{"name": "TPU_X", "value": "9", "ours": "8"}]
    assert (document["workload"], document["step"], document["unset"]) == ("bert", "grow", ["TPU_O"])
    assert document["reasons"] == list(DECISION.reasons)


@pytest.mark.parametrize("form", ["shell", "systemd", "docker"])
def test_comments_say_what_was_decided_when_and_why(form: str) -> None:
    comments = [line for line in rendered(form, "1").splitlines() if line.startswith("#")]
    assert comments[:3] == [
        "# The next launch of the workload bert, as tpuwatch decided it at 2027-01-15 08:00:00 UTC.",
        "# Premapped buffer: grow, 8589934592 bytes, on trial.",
        f"# {DECISION.reasons[0]}",
    ]
    assert any("it's so." in comment for comment in comments[3:])
