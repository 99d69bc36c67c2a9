"""What a start reads of the configuration says the same as the whole configuration."""

from __future__ import annotations

from pathlib import Path

import pytest

from tpuwatch.config import Config, load_config
from tpuwatch.config.file import VARIABLE, stamp
from tpuwatch.config.start import StartConfig, read_config
from tpuwatch.core.errors import ConfigError


def of(config: Config) -> StartConfig:
    """A whole configuration as a start has it."""
    tune, logs = config.tune, config.logs
    return StartConfig(
        config.source,
        config.tune_dir,
        tune.log_dir,
        tune.log_mib,
        tune.stderr_level,
        tune.overrides,
        tuple(logs.rules),
        logs.slow_init_seconds,
        socket=config.heartbeats_socket,
    )


def test_the_defaults_are_the_same(tmp_path: Path) -> None:
    assert read_config(None, {}, system_path=tmp_path / "none") == of(Config()) == StartConfig()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[tune]\n",
        '[state]\ndir = "/s"\n',
        '[state]\ndir = "/s"\n[tune]\ndir = "/t"\n',
        '[tune]\ndir = ""\nlog_dir = "/l"\nlog_mib = 7\nstderr_level = 3\n',
        '[tune.overrides]\nTPU_PREMAPPED_BUFFER_SIZE = "8192"\nLIBTPU_INIT_ARGS = "--a=\'b c\'"\n',
        '[logs]\nrules = ["/etc/rules"]\nslow_init_seconds = 40\n',
        '[state]\ndir = "/s"\n[workload]\nsocket = "/run/h.socket"\n',
        '[workload]\nsocket = ""\n',
    ],
    ids=range(9),
)
def test_a_good_file_is_read_as_the_whole_one_reads_it(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config.toml"
    path.write_text(text)
    assert read_config(path, {}) == of(load_config(path, {}))
    assert read_config(None, {VARIABLE: str(path)}).path == path
    assert read_config(None, {}, system_path=path).path == path


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ('[state]\ndir = "s"\n', "state.dir"),
        ("[tune]\ndir = 1\n", "tune.dir"),
        ('[tune]\nlog_dir = ""\n', "tune.log_dir"),
        ("[tune]\nlog_mib = 0\n", "tune.log_mib"),
        ("[tune]\nlog_mib = true\n", "tune.log_mib"),
        ("[tune]\nstderr_level = 5\n", "tune.stderr_level"),
        ('[tune]\noverrides = {TPU_PREMAPPED_BUFFER_SIZE = "4GB"}\n', "tune.overrides"),
        ('[tune]\noverrides = {TPU_PREMAPPED_BUFFER_SIZE = "4095"}\n', "tune.overrides"),
        ('[tune]\noverrides = {LD_PRELOAD = "/x.so"}\n', "tune.overrides"),
        ('[tune]\noverrides = {TPU_LIBRARY_PATH = "/x.so"}\n', "tune.overrides"),
        ("[tune]\noverrides = {TPU_X = 1}\n", "tune.overrides"),
        ('[tune]\noverrides = {TPU_X = "a\\nb"}\n', "tune.overrides"),
        ("tune = 1\n", "tune"),
    ],
    ids=range(13),
)
def test_a_bad_value_is_refused_as_the_whole_one_refuses_it(tmp_path: Path, text: str, key: str) -> None:
    path = tmp_path / "config.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=f"{key} .*`tpuwatch config check` says what is wrong"):
        read_config(path, {})
    with pytest.raises(ConfigError, match=key):
        load_config(path, {})


@pytest.mark.parametrize("content", [b"[tune", b"\xff", None], ids=["no TOML", "no text", "no file"])
def test_a_file_that_cannot_be_read_is_reported_in_the_same_words(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "config.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError) as short:
        read_config(path, {})
    with pytest.raises(ConfigError) as long:
        load_config(path, {})
    assert str(short.value) == str(long.value)


@pytest.mark.parametrize("logs", ["1", "{rules = 1}", '{slow_init_seconds = "long"}'])
def test_what_is_wrong_under_logs_stops_no_start(tmp_path: Path, logs: str) -> None:
    path = tmp_path / "config.toml"
    path.write_text(f"logs = {logs}\n")
    assert read_config(path, {}) == StartConfig(path)


def test_a_file_without_end_is_not_read_to_its_end() -> None:
    with pytest.raises(ConfigError, match="larger than"):
        read_config(Path("/dev/zero"), {})


def test_a_configuration_is_stamped_with_its_place_and_its_state(tmp_path: Path) -> None:
    path = tmp_path / "c\u0085.toml"
    assert stamp(None) == ""
    missing = stamp(path)
    path.write_text("[tune]\n")
    there = stamp(path)
    path.write_text("[tune]\n\n")
    assert len({missing, there, stamp(path), stamp(None)}) == 4
    assert all(text.isprintable() for text in (missing, there))
    assert stamp(path) == stamp(path)
