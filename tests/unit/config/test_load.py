from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tpuwatch.config import Config, load_config
from tpuwatch.config.load import RENAMED_KEYS, RENAMED_VALUES
from tpuwatch.config.schema import LOOK_SECONDS, config_keys, tables
from tpuwatch.core.errors import ConfigError
from tpuwatch.restart.cloud_api import MAX_SECONDS

TABLES = (
    "logs, cloud, kubernetes, peers, runtime, workload, health, monitoring, restart, ledger, "
    "tune, http, state, host, log"
)


def load(tmp_path: Path, text: str) -> Config:
    path = tmp_path / "config.toml"
    path.write_text(text, encoding="utf-8")
    return load_config(path, {})


def refusal(tmp_path: Path, text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text)
    return str(caught.value).replace(f"{tmp_path / 'config.toml'}: ", "")


def test_the_option_goes_before_the_variable_before_the_system_file_before_defaults(tmp_path: Path) -> None:
    option, variable, system = (tmp_path / name for name in ("option", "variable", "system"))
    for age, path in enumerate((option, variable, system), 1):
        path.write_text(f"[state]\nmax_age_days = {age}\n")
    environ = {"TPUWATCH_CONFIG": str(variable)}
    chosen = [
        load_config(option, environ, system_path=system),
        load_config(None, environ, system_path=system),
        load_config(None, {"TPUWATCH_CONFIG": ""}, system_path=system),
        load_config(None, {}, system_path=tmp_path / "none"),
        load_config(None, {}, system_path=option / "none"),
    ]
    assert [config.state.max_age_days for config in chosen] == [1, 2, 3, 30, 30]
    assert [config.source for config in chosen] == [option, variable, system, None, None]


def test_values_of_the_file_apply(tmp_path: Path) -> None:
    config = load(
        tmp_path,
        """
        [logs]
        paths = ["/a"]
        job_paths = ["/jobs/**/*.log"]
        poll_seconds = 2
        [http]
        listen = "[::1]:0"
        [log]
        format = "json"
        """,
    )
    assert config.logs.paths == (Path("/a"),)
    assert config.logs.job_paths == (Path("/jobs/**/*.log"),)
    assert config.logs.poll_seconds == 2.0
    assert config.logs.slow_init_seconds == 15.0
    assert config.http.address == ("::1", 0)
    assert config.log.format == "json"


@pytest.mark.parametrize(
    "url", ["", "http://127.0.0.1:8000/metrics", "http://[::1]:9090/", "http://localhost:30000/metrics"]
)
def test_metrics_of_a_server_are_of_this_machine(tmp_path: Path, url: str) -> None:
    assert load(tmp_path, f"[workload]\nkind = 'serving'\nmetrics_url = '{url}'").workload.metrics_url == url


def test_a_configuration_does_not_change(tmp_path: Path) -> None:
    config = load(tmp_path, "")
    with pytest.raises(ValueError, match="frozen"):
        config.state.max_mib = 99  # type: ignore[misc]  # what is tested


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[logs]\npol_seconds = 1", "logs.pol_seconds is not a key of tpuwatch; did you mean logs.poll_seconds?"),
        ("[log]\npoll_seconds = 1", "log.poll_seconds is not a key of tpuwatch; did you mean logs.poll_seconds?"),
        ("poll_seconds = 1", "poll_seconds is not a key of tpuwatch; did you mean logs.poll_seconds?"),
        ("[htttp]", "htttp is not a key of tpuwatch; did you mean http?"),
        ("[zebra]", f"zebra is not a key of tpuwatch; known are {TABLES}"),
        (
            "[http]\nqqqqqqqqqqqq = 1",
            "http.qqqqqqqqqqqq is not a key of tpuwatch; known are http.listen, http.certificate_file, http.key_file, "
            "http.token_file, http.trusted_network, http.hosts",
        ),
        ("source = '/x'", f"source is not a key of tpuwatch; known are {TABLES}"),
    ],
)
def test_an_unknown_key_is_answered_with_the_nearest_one(tmp_path: Path, text: str, message: str) -> None:
    assert refusal(tmp_path, text) == message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[tune]\nleast_mib = 1", "tune.least_mib is now tune.min_mib"),
        ("[restart]\nbreaker_last = 9", "restart.breaker_last is now restart.breaker_window_restarts"),
        ("[agents]\nenabled = true", "agents is now peers"),
        ("[tune]\nmode = 'apply'", 'tune.mode = "apply" is now "act"'),
    ],
)
def test_what_was_renamed_is_answered_with_its_new_name(tmp_path: Path, text: str, message: str) -> None:
    assert refusal(tmp_path, text) == message


def test_old_names_are_unknown_and_new_ones_known() -> None:
    known = {*tables(), *(key.name for key in config_keys())}
    assert known.isdisjoint(RENAMED_KEYS)
    assert known.issuperset(RENAMED_KEYS.values())
    allowed = {key.name: key.allowed for key in config_keys()}
    for (name, old), new in RENAMED_VALUES.items():
        assert f'"{new}"' in allowed[name]
        assert f'"{old}"' not in allowed[name]


SECONDS = "logs.poll_seconds cannot be {}; give a number of seconds from 0.05 to 60"
LISTEN = 'http.listen cannot be {}; give "host:port", with an IPv6 address in brackets; port 0 takes any free one'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[logs]\npoll_seconds = 0", SECONDS.format("0")),
        ("[logs]\npoll_seconds = 61", SECONDS.format("61")),
        ("[logs]\npoll_seconds = nan", SECONDS.format("NaN")),
        ("[logs]\npoll_seconds = '1'", SECONDS.format('"1"')),
        ("[logs]\npoll_seconds = true", SECONDS.format("true")),
        ("[logs]\npoll_seconds = 1979-05-27", SECONDS.format('"1979-05-27"')),
        ("[state]\nmax_mib = 20.5", "state.max_mib cannot be 20.5; give a whole number of MiB from 16 to 16384"),
        ("[state]\nmax_age_days = 0", "state.max_age_days cannot be 0; give a whole number of days from 1 to 3650"),
        ("[state]\ndir = 'here'", 'state.dir cannot be "here"; give an absolute path'),
        ('[state]\ndir = "/a\\u0000b"', 'state.dir cannot be "/a\\u0000b"; give an absolute path'),
        ("[logs]\npaths = '/a'", 'logs.paths cannot be "/a"; give a list of absolute paths of directories'),
        ("[logs]\npaths = ['/a', 'b']", 'logs.paths[1] cannot be "b"; give a list of absolute paths of directories'),
        (
            "[logs]\njob_paths = ['*.log']",
            'logs.job_paths[0] cannot be "*.log"; give a list of absolute paths, which may hold *, ?, [...] and **',
        ),
        *(
            (
                f"[workload]\nmetrics_url = '{url}'",
                f'workload.metrics_url cannot be "{url}"; give an http:// address of this machine itself, such as '
                '"http://127.0.0.1:8000/metrics", or empty',
            )
            for url in (
                "http://10.0.0.2:8000/metrics",
                "http://server.example/metrics",
                "https://127.0.0.1:8000/metrics",
                "http://127.0.0.1:8000/metrics?a=b",
                "http://user@127.0.0.1:8000/",
                "http://169.254.169.254/",
                "127.0.0.1:8000",
            )
        ),
        (
            "[workload]\nkind = 'batch'",
            'workload.kind cannot be "batch"; give "" or "training" or "serving" or "interactive"',
        ),
        ("[log]\nformat = 'xml'", 'log.format cannot be "xml"; give "line" or "json"'),
        ("logs = 3", "logs cannot be 3; give a table [logs]"),
        ("[http]\nlisten = 9478", LISTEN.format("9478")),
        ("[http]\nlisten = '" + "x" * 100 + "'", LISTEN.format('"' + "x" * 59 + "…")),
        ("[restart]\nrestart_node = 1", "restart.restart_node cannot be 1; give true or false"),
        ("[restart]\nnode_max = 1.5", "restart.node_max cannot be 1.5; give a whole number from 1 to 16"),
        (
            "[restart]\nfleet_percent = 101",
            "restart.fleet_percent cannot be 101; give a share in percent from 0 to 100",
        ),
        ("[ledger]\ndir = 'here'", 'ledger.dir cannot be "here"; give an absolute path, or empty'),
        ("[ledger]\ndir = 1", "ledger.dir cannot be 1; give an absolute path, or empty"),
    ],
)
def test_a_wrong_value_is_answered_with_what_is_allowed(tmp_path: Path, text: str, message: str) -> None:
    assert refusal(tmp_path, text) == message


def test_by_default_nothing_is_restarted() -> None:
    restart = Config().restart
    assert restart.mode == "observe"
    assert [name for name, value in restart.model_dump().items() if value is True] == []


def test_the_ledger_is_in_the_state_directory_unless_configured_elsewhere(tmp_path: Path) -> None:
    assert load(tmp_path, "[state]\ndir = '/s'").ledger_dir == Path("/s")
    assert load(tmp_path, "[state]\ndir = '/s'\n[ledger]\ndir = '/l'").ledger_dir == Path("/l")


COMMAND = (
    "{} cannot be {}; give a list of a program, by its absolute path, and its arguments (no shell reads it), or an "
    "empty list"
)
SIGNAL = (
    'restart.checkpoint_signal cannot be "{}"; give "SIGUSR1", "SIGUSR2", "SIGHUP" or "SIGTERM", or empty where '
    "checkpoint is false or checkpoint_command is given"
)
UNIT = (
    'restart.runtime_unit cannot be "{}"; give the name of a systemd unit such as "tpu-runtime.service", or empty '
    "where restart_runtime is false or runtime_command is given"
)


@pytest.mark.parametrize(
    ("text", "needed"),
    [
        ("[ledger]\nlease_seconds = 10", "45"),
        ("[ledger]\nlease_seconds = 45", "45"),
        ("[cloud]\ntimeout_seconds = 2\n[ledger]\nlease_seconds = 10", "12"),
        ("[cloud]\ntimeout_seconds = 120\n[ledger]\nlease_seconds = 60\ntimeout_seconds = 60", "60"),
    ],
)
def test_a_lease_is_longer_than_two_looks_and_a_write(tmp_path: Path, text: str, needed: str) -> None:
    message = refusal(tmp_path, text)
    given = re.search(r"lease_seconds = (\d+)", text)
    assert given is not None
    assert message.startswith(f"ledger.lease_seconds cannot be {given[1]}; give more than {needed}, which two looks ")


def test_a_lease_that_is_long_enough_is_taken(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text("[cloud]\ntimeout_seconds = 1\n[ledger]\nlease_seconds = 10")
    assert load_config(path, {}).ledger.lease_seconds == 10
    assert LOOK_SECONDS == MAX_SECONDS  # as a look is really bounded


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ("checkpoint_command = ['save']", COMMAND.format("restart.checkpoint_command", '["save"]')),
        ("checkpoint_command = 'save now'", COMMAND.format("restart.checkpoint_command", '"save now"')),
        ("runtime_command = ['/bin/a', 1]", COMMAND.format("restart.runtime_command[1]", "1")),
        ("checkpoint_signal = 'SIGKILL'", SIGNAL.format("SIGKILL")),
        ("checkpoint = true", SIGNAL.format("")),
        ("runtime_unit = '--now.service'", UNIT.format("--now.service")),
        ("runtime_unit = 'a.socket'", UNIT.format("a.socket")),
        ('runtime_unit = "a.service\\n"', UNIT.format("a.service\\n")),
        ("restart_runtime = true\nruntime_unit = ''", UNIT.format("")),
        ("sigkill_seconds = 0", "restart.sigkill_seconds cannot be 0; give a number of seconds from 1 to 3600"),
    ],
)
def test_every_enabled_local_action_needs_its_method(tmp_path: Path, keys: str, message: str) -> None:
    assert refusal(tmp_path, f"[restart]\n{keys}") == message


def test_one_method_is_enough(tmp_path: Path) -> None:
    commands = "checkpoint_command = ['/bin/a', 'b']\nruntime_command = ['/bin/b']\nruntime_unit = ''"
    restart = load(tmp_path, f"[restart]\ncheckpoint = true\nrestart_runtime = true\n{commands}").restart
    assert (restart.checkpoint_command, restart.runtime_command) == (("/bin/a", "b"), ("/bin/b",))
    signals = "checkpoint_signal = 'SIGUSR1'"
    restart = load(tmp_path, f"[restart]\ncheckpoint = true\nrestart_runtime = true\n{signals}").restart
    assert (restart.checkpoint_signal, restart.runtime_unit) == ("SIGUSR1", "tpu-runtime.service")


@pytest.mark.parametrize(
    ("keys", "given"),
    [("min_mib = 512\nmax_mib = 256", 256), ("min_mib = 65537", 65_536), ("max_mib = 255", 255)],
)
def test_some_size_is_between_the_smallest_and_the_largest(tmp_path: Path, keys: str, given: int) -> None:
    assert refusal(tmp_path, f"[tune]\n{keys}") == (
        f"tune.max_mib cannot be {given}; give a whole number of MiB, which is not below min_mib, from 1 to 1048576"
    )


def test_the_smallest_size_may_be_the_largest(tmp_path: Path) -> None:
    tune = load(tmp_path, "[tune]\nmin_mib = 512\nmax_mib = 512").tune
    assert (tune.min_mib, tune.max_mib) == (512, 512)


@pytest.mark.parametrize("pin", ["TPU_LIBRARY_PATH = '/x.so'", "LD_PRELOAD = '/x.so'", "TPU_X = ''\ntpu_y = '1'"])
def test_what_cannot_be_overridden_is_refused(tmp_path: Path, pin: str) -> None:
    assert refusal(tmp_path, f"[tune.overrides]\n{pin}").startswith("tune.overrides cannot be")


@pytest.mark.parametrize("listen", ["localhost:80", "0.0.0.0:0", "[::]:65535", "node-1.example:9478"])
def test_addresses(tmp_path: Path, listen: str) -> None:
    host, port = load(tmp_path, f"[http]\nlisten = '{listen}'").http.address
    assert f"{host}:{port}" == listen.replace("[", "").replace("]", "")


@pytest.mark.parametrize(
    "listen", [":80", "localhost", "a:65536", "a:-1", "::1:80", "[a]:80", "a b:80", "a:", "a:٣", "[::1]"]
)
def test_no_addresses(tmp_path: Path, listen: str) -> None:
    assert refusal(tmp_path, f"[http]\nlisten = '{listen}'") == LISTEN.format(f'"{listen}"')


def test_all_problems_are_reported_at_once_one_a_line(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text("[logs]\npoll_seconds = 0\nslow = 1\n[state]\ndir = 'x'\n[hppt]\n")
    with pytest.raises(ConfigError) as caught:
        load_config(path, {})
    lines = str(caught.value).splitlines()
    assert all(line.startswith(f"{path}: ") for line in lines)
    assert [line.split()[1] for line in lines] == ["logs.poll_seconds", "logs.slow", "state.dir", "hppt"]


def test_a_syntax_error_is_reported_with_line_and_column(tmp_path: Path) -> None:
    assert refusal(tmp_path, "[logs]\npoll_seconds = = 1\n") == "not TOML: Invalid value (at line 2, column 16)"
    assert refusal(tmp_path, f"paths = {'[' * 5000}").startswith("not TOML: ")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=rf"there is no configuration file {tmp_path}/none: give"):
        load_config(None, {"TPUWATCH_CONFIG": f"{tmp_path}/none"})
    with pytest.raises(ConfigError, match=rf"cannot read the configuration file {tmp_path}: Is a directory"):
        load_config(tmp_path, {})
    (tmp_path / "latin").write_bytes(b"# caf\xe9")
    with pytest.raises(ConfigError, match=r"latin is not UTF-8 text \(at byte 5\)"):
        load_config(tmp_path / "latin", {})


@pytest.mark.skipif(os.geteuid() == 0, reason="no permission stops root")
def test_a_file_of_others(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.touch(mode=0o000)
    with pytest.raises(ConfigError, match="Permission denied"):
        load_config(path, {})
    tmp_path.chmod(0o000)
    try:
        with pytest.raises(ConfigError, match="Permission denied"):
            load_config(None, {}, system_path=path)
    finally:
        tmp_path.chmod(0o755)


@pytest.mark.parametrize("given", ['certificate_file = "/c.pem"', 'key_file = "/k.pem"'])
def test_a_certificate_and_its_key_belong_together(tmp_path: Path, given: str) -> None:
    path = tmp_path / "config.toml"
    path.write_text(f"[http]\n{given}\n")
    with pytest.raises(ConfigError, match=r"http\.certificate_file and http\.key_file belong together; give both"):
        load_config(path, {})
