"""Each file of deploy/ by its own tool; and that the tool refuses what is wrong."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.paths import ROOT

if TYPE_CHECKING:
    from pathlib import Path

DEPLOY = ROOT / "deploy"
SHELL = [DEPLOY / "startup-script.sh", *sorted((DEPLOY / "deb/scripts").iterdir())]
YAMLLINT = "{extends: default, rules: {document-start: disable, line-length: disable, truthy: {check-keys: false}}}"


def run(tool: str, *words: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """A tool of `make deploy`; the test is skipped where it is not on PATH."""
    program = shutil.which(tool)
    if program is None:
        pytest.skip(f"{tool} is not on PATH; `make deploy` has it")
    return subprocess.run(
        (program, *words),
        cwd=cwd,
        env={**os.environ, "NO_COLOR": "1", "ANSIBLE_LINT_NODEPS": "1"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def accepts(done: subprocess.CompletedProcess[str]) -> bool:
    print(done.stdout, done.stderr)
    return done.returncode == 0


def spoilt(directory: Path, original: Path, good: str, bad: str) -> Path:
    """A copy of a file in which something is wrong."""
    text = original.read_text(encoding="utf-8")
    assert good in text
    copy = directory / original.name
    copy.write_text(text.replace(good, bad), encoding="utf-8")
    return copy


@pytest.mark.parametrize("script", SHELL, ids=lambda path: path.name)
def test_shellcheck_accepts_the_script(script: Path) -> None:
    assert accepts(
        run(
            "shellcheck",
            "--enable=quote-safe-variables,require-double-brackets" if script.suffix else "--",
            str(script),
        )
    )


def test_shellcheck_refuses_a_missing_quote(tmp_path: Path) -> None:
    copy = spoilt(tmp_path, SHELL[0], '"$(dirname "$STAMP")"', "$(dirname $STAMP)")
    assert "SC2086" in run("shellcheck", str(copy)).stdout


def terraform(file: Path) -> dict[str, Any]:
    """A file of Terraform as JSON, in which each string is in quotes."""
    done = run("hcl2tojson", str(file))
    assert accepts(done)
    document: dict[str, Any] = json.loads(done.stdout.replace('\\"', ""))
    return document


@pytest.mark.parametrize("name", ["main.tf", "project/main.tf"])
def test_terraform_parses_and_each_resource_is_one_of_a_required_provider(tmp_path: Path, name: str) -> None:
    main = DEPLOY / "terraform" / name
    document = terraform(main)
    (settings,) = document["terraform"]
    providers = {key for one in settings["required_providers"] for key in one if not key.startswith("__")}
    used = set()
    for resource in document["resource"]:
        ((kind, named),) = ((key, value) for key, value in resource.items() if not key.startswith("__"))
        (body,) = (value for key, value in named.items() if not key.startswith("__"))
        provider = body.get("provider", "google").strip("${}")
        assert (provider == "google-beta") == kind.startswith("google_tpu_v2_"), "google does not have it"
        used.add(provider)
    assert used == providers
    assert run("hcl2tojson", str(spoilt(tmp_path, main, "resource ", "resource {"))).returncode != 0


def test_two_nodes_in_a_project_share_nothing_that_either_would_make() -> None:
    """What has a name for the whole project is made once, in project/."""
    node = [key for one in terraform(DEPLOY / "terraform/main.tf")["resource"] for key in one if "google" in key]
    project = {key for one in terraform(DEPLOY / "terraform/project/main.tf")["resource"] for key in one}
    assert node == ["google_tpu_v2_vm"]
    assert {"google_project_iam_custom_role", "google_service_account", "google_storage_bucket_iam_member"} <= project


def test_hadolint_accepts_the_dockerfile(tmp_path: Path) -> None:
    assert accepts(run("hadolint", "Dockerfile"))
    copy = spoilt(tmp_path, ROOT / "Dockerfile", "FROM python:3.12-slim-bookworm", "FROM python")
    assert "DL3006" in run("hadolint", str(copy)).stdout


def test_ansible_lint_accepts_the_playbook(tmp_path: Path) -> None:
    words = ("--offline", "--profile", "production", "-q")
    assert accepts(run("ansible-lint", *words, "playbook.yml", cwd=DEPLOY / "ansible"))
    copy = spoilt(tmp_path, DEPLOY / "ansible/playbook.yml", "ansible.builtin.apt", "apt")
    assert "fqcn" in run("ansible-lint", *words, copy.name, cwd=tmp_path).stdout


def test_kubernetes_accepts_the_daemon_set(tmp_path: Path) -> None:
    manifest = DEPLOY / "gke/tpuwatch.yaml"
    assert accepts(run("kubernetes-validate", "--strict", str(manifest)))
    copy = spoilt(tmp_path, manifest, "hostPID: true", "hostPid: true")
    assert run("kubernetes-validate", "--strict", str(copy)).returncode != 0


@pytest.mark.parametrize("file", sorted([*DEPLOY.rglob("*.yml"), *DEPLOY.rglob("*.yaml")]), ids=lambda path: path.name)
def test_yaml_is_well_formed(file: Path) -> None:
    assert accepts(run("yamllint", "-d", YAMLLINT, str(file)))


@pytest.mark.parametrize(("warning", "shown"), [("Warning: restart.mode has no effect.", True), ("", False)])
def test_the_playbook_passes_with_a_warning_and_shows_it(tmp_path: Path, warning: str, *, shown: bool) -> None:
    """Its tasks after the configuration is written, with a stand-in for tpuwatch."""
    (play,) = yaml.safe_load((DEPLOY / "ansible/playbook.yml").read_text(encoding="utf-8"))
    names = [task["name"] for task in play["tasks"]]
    checks = play["tasks"][names.index("Check the configuration") :]
    program = tmp_path / "tpuwatch"
    program.write_text(f"#!/bin/sh\necho valid\n[ $1 != config ] || printf '%s' '{warning}'\n")
    program.chmod(0o755)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    local = {"hosts": "localhost", "connection": "local", "gather_facts": False, "environment": environment}
    (tmp_path / "play.yml").write_text(yaml.safe_dump([{**local, "tasks": checks}]))
    done = run("ansible-playbook", str(tmp_path / "play.yml"), cwd=tmp_path)
    assert accepts(done)
    assert ("has no effect" in done.stdout) == shown
