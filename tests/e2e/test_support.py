"""`tpuwatch support`: what is in the archive, and what never is."""

from __future__ import annotations

import json
import os
import random
import stat
import string
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tests.standins.http_daemon import answering
from tests.unit.store.make import event as stored_event
from tests.unit.web import samples
from tests.unit.web.samples import SampleView
from tpuwatch.core.clock import ManualClock
from tpuwatch.model.verdict import Verdict
from tpuwatch.store import EventStore

DICE = random.Random(7)


def made(length: int, letters: str = string.ascii_letters + string.digits) -> str:
    return "".join(DICE.choice(letters) for _ in range(length))


HEX = "0123456789abcdef"
SECRETS = {
    "bearer": ("Authorization: Bearer {}", made(40)),
    "gcp key": ('{{"type": "service_account", "private_key_id": "{}"}}', made(40, HEX)),
    "gcp private key": ('"private_key": "-----BEGIN PRIVATE KEY-----\\n{}\\n-----END PRIVATE KEY-----\\n"', made(64)),
    "aws": ("AWS_SECRET_ACCESS_KEY={}", made(40)),
    "aws, bare": ("using {} for s3", made(40)),
    "url": ("postgres://trainer:{}@db.internal/x", made(12)),
    "environment": ("declare -x DATABASE_PASSWORD='{}'", made(10)),
    "huggingface": ("hf_{}", made(34)),
    "wandb": ("wandb login {}", made(40, HEX)),
    "cookie": ("Cookie: session={}; theme=dark", made(20)),
    "option": ("python train.py --api-token {} --steps 10", made(18)),
    "e-mail": ("mailto:{}", "zoe.quinn@example.org"),
    "home": ("open /home/{}/data", "zoequinn"),
    "user": ("launched by {} today", "alicequx"),
    "jwt": ("id {}", f"eyJ{made(20)}.eyJ{made(30)}.{made(30)}"),
    "slack": ("https://hooks.slack.com/services/{}", f"T{made(8)}/B{made(8)}/{made(24)}"),
}
TEXTS = [text.format(secret) for text, secret in SECRETS.values()]


def planted() -> SampleView:
    """A daemon that has all of them wherever text of others gets into its documents."""
    dump = "\n".join(TEXTS)
    event = samples.event(text=f"E1120 13:43:14.250000 4242 a.cc:1] {dump}", file=f"/home/zoequinn/{made(4)}.log")
    command = " ".join(TEXTS)
    return SampleView(
        samples.watching(
            Verdict.RUNTIME_STUCK,
            host=samples.host(holders=(samples.Holder(7, "alicequx", command, samples.NOW, ("/dev/vfio/0",)),)),
            notices=tuple(TEXTS),
        ),
        stored=[event],
        wrong=[samples.finding(event, summary=command[:4000])],
        started=[samples.launch(user="alicequx", environment={"TPU_NAME": command, "TPU_TOKEN": "abcd"})],
        watched=[samples.node(own=True)],
    )


class Machine:
    """A directory with a configuration, and a journal that holds what the tests put into it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "bin").mkdir()
        (root / "journal").write_text("\n".join(f"2026-11-20 vm tpuwatch[1]: {text}" for text in TEXTS))
        journalctl = root / "bin/journalctl"
        journalctl.write_text(f'#!/bin/sh\ncat "{root}/journal"\n')
        journalctl.chmod(0o755)
        for name in ("audit.jsonl", "audit-tune.jsonl"):
            (root / name).write_text("\n".join(json.dumps({"reason": text}) for text in TEXTS))

    def support(self, *words: str) -> subprocess.CompletedProcess[str]:
        environment = {
            **os.environ,
            "PATH": f"{self.root}/bin:{os.environ['PATH']}",
            "HOME": "/home/zoequinn",
            "USER": "alicequx",
            "SOME_TOKEN": made(12),
        }
        command = (sys.executable, "-m", "tpuwatch", "support", *words)
        return subprocess.run(
            command, cwd=self.root, env=environment, capture_output=True, text=True, timeout=120, check=False
        )

    def read(self, name: str) -> dict[str, str]:
        with tarfile.open(self.root / name) as tar:
            files = {member.name.partition("/")[2]: tar.extractfile(member) for member in tar.getmembers()}
            return {name: file.read().decode() for name, file in files.items() if file is not None}


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_it_holds_what_helps_and_none_of_the_planted_secrets(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with answering(planted(), tmp_path, monkeypatch):
        with (tmp_path / "asking.toml").open("a") as file:
            file.write(f'[restart]\nwebhook_url = "https://hooks.example.org/{made(30)}"\n')
        done = machine.support("-o", "a.tar.gz", "--redact-project")
    assert (done.returncode, done.stderr) == (0, "")
    assert stat.S_IMODE((tmp_path / "a.tar.gz").stat().st_mode) == 0o600
    found = machine.read("a.tar.gz")
    assert {name: kind for name, text in found.items() for kind, (_, secret) in SECRETS.items() if secret in text} == {}
    assert [name for name, text in found.items() if "research-7" in text] == []
    assert "webhook_url" in found["configuration.toml"]
    assert "hooks.example.org" not in found["configuration.toml"]

    status, findings = (json.loads(found[name]) for name in ("status.json", "findings.json"))
    assert status["node"]["verdict"] == "runtime_stuck"
    assert findings["findings"][0]["first"]["text"].startswith("E1120 13:43:14.250000 4242 a.cc:1] ")
    assert {"launches.json", "events.json", "nodes.json", "restarts.json", "tune.json", "metrics.txt"} <= set(found)
    assert {"versions.json", "doctor.json", "system.txt", "daemon.log", "kernel.log", "audit.jsonl"} <= set(found)
    manifest = json.loads(found["manifest.json"])
    assert {one["name"] for one in manifest["files"]} == set(found) - {"manifest.json"}
    assert manifest["taken_out"]["secrets"] > len(SECRETS)
    assert all(one["name"] in done.stdout and one["what"].split()[0] in done.stdout for one in manifest["files"])
    assert "Nothing was sent" in done.stdout


def test_without_a_daemon_it_has_the_store_and_says_what_it_lacks(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "c.toml").write_text(f'[state]\ndir = "{tmp_path}/state"\n[http]\nlisten = "127.0.0.1:1"\n')
    monkeypatch.setenv("TPUWATCH_CONFIG", str(tmp_path / "c.toml"))
    store = EventStore.open(tmp_path / "state", ManualClock())
    store.commit([stored_event("a", text="\n".join(TEXTS))], [])
    store.close()
    (tmp_path / "bin/journalctl").write_text(
        "#!/bin/sh\necho 'No journal files were opened: Permission denied' >&2\nexit 1\n"
    )
    done = machine.support("--json", "-o", "b.tar.gz")
    manifest = json.loads(done.stdout)
    missing = {one["name"]: one["why"] for one in manifest["missing"]}
    assert "no daemon answers at" in missing["status.json"]
    assert "Permission denied" in missing["daemon.log"]
    found = machine.read("b.tar.gz")
    assert len(json.loads(found["events.json"])["events"]) == 1
    assert {name: kind for name, text in found.items() for kind, (_, secret) in SECRETS.items() if secret in text} == {}
    again = machine.support("-o", "b.tar.gz")
    assert (again.returncode, "b.tar.gz exists already" in again.stderr) == (3, True)
    (tmp_path / "c.toml").write_text("[stat]\n")
    done = machine.support("-o", "c.tar.gz")
    assert (done.returncode, "configuration.toml" in done.stdout.partition("It lacks")[2]) == (0, True)
