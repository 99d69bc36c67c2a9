from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tpuwatch.config import Config, load_config
from tpuwatch.config.consistency import inconsistencies


def config(tmp_path: Path, text: str) -> Config:
    path = tmp_path / "config.toml"
    path.write_text(text, encoding="utf-8")
    return load_config(path, {})


def found(tmp_path: Path, text: str, *, installed: bool = True) -> list[str]:
    return inconsistencies(config(tmp_path, text), lambda _: installed)


def test_the_defaults_are_consistent(tmp_path: Path) -> None:
    assert found(tmp_path, "", installed=False) == []


@pytest.mark.parametrize(
    "text",
    [
        '[restart]\nmode = "act"\nend_holder = true\n',
        '[cloud]\nnodes = ["train-*"]\n[restart]\nmode = "act"\nrestart_node = true\n[peers]\nenabled = true\n',
        '[ledger]\nkind = "gcs"\nbucket = "bucket"\n[tune]\nlog_dir = "/data/logs"\n[logs]\npaths = ["/data/logs"]\n',
        '[monitoring]\nread = true\nendpoint = "127.0.0.1:1"\n',
        '[cloud]\nendpoint = "127.0.0.1:1"\ninsecure = true\n[restart]\nstale_seconds = 3\n',
    ],
)
def test_what_has_an_effect_is_consistent(tmp_path: Path, text: str) -> None:
    assert found(tmp_path, text) == []


@pytest.mark.parametrize(
    ("text", "what", "fix"),
    [
        ('[restart]\nmode = "act"', 'restart.mode = "act" has no effect: no action', "Set one of restart.checkpoint,"),
        ("[restart]\nrestart_node = true", "restart.restart_node = true has no effect under", 'Set mode = "act"'),
        (
            '[cloud]\nenabled = false\n[restart]\nmode = "act"\nrestart_node = true',
            "restart.restart_node = true has no effect: cloud.enabled is false",
            "Set it to true",
        ),
        (
            '[restart]\nmode = "act"\nreset_queued_resource = true',
            "restart.reset_queued_resource = true has no effect: no other node is watched",
            "under cloud.nodes",
        ),
        (
            '[workload]\nkind = "interactive"\nmetrics_url = "http://127.0.0.1:8000/metrics"',
            'workload.metrics_url has no effect under workload.kind = "interactive"',
            'Set kind = "serving"',
        ),
        (
            '[restart]\ncheckpoint_signal = "SIGUSR1"',
            "restart.checkpoint_signal has no effect: restart.checkpoint is false",
            "or leave it out",
        ),
        (
            '[restart]\nruntime_command = ["/bin/true"]',
            "restart.runtime_command has no effect: restart.restart_runtime is false",
            "Set it to true",
        ),
        (
            "[restart]\nstale_seconds = 3",
            "restart.stale_seconds = 3 is for simulators",
            "Leave it out",
        ),
        (
            "[restart]\nsettle_seconds = 900\nverify_seconds = 900",
            "restart.settle_seconds = 900 cannot pass within restart.verify_seconds = 900",
            "Give more to verify_seconds",
        ),
        (
            "[restart]\nmax_backoff_seconds = 60",
            "restart.max_backoff_seconds = 60 is less than restart.backoff_seconds = 600",
            "Raise the one",
        ),
        ('[cloud]\nenabled = false\nnodes = ["a"]', "cloud.nodes has no effect: cloud.enabled is false", "Set it"),
        ("[cloud]\ninsecure = true", "cloud.insecure = true has no effect", "Give cloud.endpoint"),
        ("[runtime]\nenabled = false\nports = [1]", "runtime.ports has no effect", "Set it to true"),
        ('[monitoring]\nendpoint = "a:1"', "monitoring.endpoint has no effect", "leave it out"),
        ('[peers]\naddresses = {"a" = "http://10.0.0.1:1"}', "peers.addresses has no effect", "Set it to true"),
        ("[peers]\nenabled = true", "peers.enabled = true has no effect: no other node", "under cloud.nodes"),
        ('[ledger]\nbucket = "bucket"', 'ledger.bucket has no effect under ledger.kind = "sqlite"', 'Set kind = "gcs"'),
        ('[ledger]\nkind = "gcs"', 'ledger.kind = "gcs" needs ledger.bucket', "Name the bucket"),
        ('[ledger]\nkind = "gcs"\nbucket = "bucket"\ndir = "/a"', "ledger.dir has no effect under", "Leave it out"),
        ('[tune]\nlog_dir = "/data"', 'tune.log_dir = "/data"', "is not read. Make them agree"),
    ],
)
def test_what_is_in_vain_is_named_with_what_to_do(tmp_path: Path, text: str, what: str, fix: str) -> None:
    (sentence,) = found(tmp_path, text)
    assert sentence.startswith(what)
    assert fix in sentence


def test_a_package_that_is_missing_is_named_with_its_command(tmp_path: Path) -> None:
    (sentence,) = found(tmp_path, '[ledger]\nkind = "gcs"\nbucket = "bucket"', installed=False)
    assert sentence.endswith("Run: pip install 'tpuwatch[gcs]'")


OPEN = {"listen": "0.0.0.0:9478"}
FILES = {"certificate_file": "/c.pem", "key_file": "/k.pem"}


@pytest.mark.parametrize(
    ("http", "sentence"),
    [
        (OPEN, "unencrypted, to everybody who can reach it: http.certificate_file, http.token_file is not set."),
        ({**OPEN, **FILES}, "lines of logs to everybody who can reach it: http.token_file is not set."),
        ({**OPEN, "token_file": "/t"}, "with a token that can be read on the way: http.certificate_file is not set."),
        ({**OPEN, **FILES, "token_file": "/t"}, ""),
        ({**OPEN, "trusted_network": True}, ""),
        ({"listen": "[::1]:9478"}, ""),
        ({"listen": "localhost:9478"}, ""),
    ],
)
def test_an_address_that_others_reach_lacks_tls_and_a_token(http: dict[str, Any], sentence: str) -> None:
    found = inconsistencies(Config.model_validate({"http": http}))
    assert len(found) == bool(sentence)
    assert all(sentence in one for one in found)


@pytest.mark.parametrize(
    ("peers", "sentence"),
    [
        ({"ca_file": "/ca.pem"}, "peers.ca_file has no effect: no node is asked over TLS."),
        ({"token_file": "/t"}, "peers.token_file is sent where everybody in the network can read it"),
        ({"tls": True, "ca_file": "/ca.pem", "token_file": "/t", "server_name": "tpu.example.org"}, ""),
        ({"addresses": {"a": "https://a:1"}, "ca_file": "/ca.pem"}, ""),
    ],
)
def test_keys_of_tls_without_it(peers: dict[str, Any], sentence: str) -> None:
    given = {"cloud": {"nodes": ["a"]}, "peers": {"enabled": True, **peers}}
    found = inconsistencies(Config.model_validate(given))
    assert len(found) == bool(sentence)
    assert all(one.startswith(sentence) for one in found)
