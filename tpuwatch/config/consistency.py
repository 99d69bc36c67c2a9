"""What a valid configuration says in vain: settings that contradict each other, do nothing, or need what is missing."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from tpuwatch.config.restart import RestartConfig
from tpuwatch.config.types import is_loopback

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tpuwatch.config.schema import Config

_CLOUD_ACTIONS: Final = ("restart_node", "reset_queued_resource")
_ACTIONS: Final = ("checkpoint", "end_holder", "restart_runtime", *_CLOUD_ACTIONS)


def inconsistencies(config: Config, is_installed: Callable[[str], bool] | None = None) -> list[str]:
    """A sentence on each, with the keys and what to do. `is_installed`: whether a module can be imported."""
    found = [
        *_restart(config),
        *_restart_keys(config),
        *_cloud(config),
        *_peers(config),
        *_ledger(config),
        *_logs(config),
        *_http(config),
    ]
    if config.ledger.kind == "gcs" and not (is_installed or _is_installed)("google.cloud.storage"):
        found.append(
            'ledger.kind = "gcs" needs the package google-cloud-storage, which is not installed: nothing can be '
            "restarted. Run: pip install 'tpuwatch[gcs]'"
        )
    return found


def _restart(config: Config) -> Iterator[str]:
    restart = config.restart
    given = [name for name in _ACTIONS if getattr(restart, name)]
    if restart.mode == "act" and not given:
        yield (
            'restart.mode = "act" has no effect: no action is enabled. '
            f"Set one of {_keys('restart', _ACTIONS)} to true, or leave mode out."
        )
    if restart.mode == "observe" and given:
        yield f'{_keys("restart", given)} = true has no effect under restart.mode = "observe". Set mode = "act".'
    for name in _CLOUD_ACTIONS:
        if not getattr(restart, name) or restart.mode != "act":
            continue
        if not config.cloud.enabled:
            yield f"restart.{name} = true has no effect: cloud.enabled is false. Set it to true."
        elif not config.cloud.nodes:
            yield (
                f"restart.{name} = true has no effect: no other node is watched, and no node stops itself. "
                "Name the nodes under cloud.nodes, on a machine that watches them."
            )


def _restart_keys(config: Config) -> Iterator[str]:
    restart = config.restart
    for switch, keys in (
        ("checkpoint", ("checkpoint_command", "checkpoint_signal")),
        ("restart_runtime", ("runtime_command",)),
    ):
        idle = [key for key in keys if getattr(restart, key)]
        if idle and not getattr(restart, switch):
            yield f"{_keys('restart', idle)} has no effect: restart.{switch} is false. Set it to true, or leave it out."
    if restart.settle_seconds >= restart.verify_seconds:
        yield (
            f"restart.settle_seconds = {restart.settle_seconds:g} cannot pass within restart.verify_seconds = "
            f"{restart.verify_seconds:g}: every restart fails. Give more to verify_seconds."
        )
    least = RestartConfig().stale_seconds
    if restart.stale_seconds < least and not config.cloud.insecure:
        yield (
            f"restart.stale_seconds = {restart.stale_seconds:g} is for simulators: Google's API may show for "
            f"{least:g} s what was, and a restart may be judged by that. Leave it out."
        )
    if restart.max_backoff_seconds < restart.backoff_seconds:
        yield (
            f"restart.max_backoff_seconds = {restart.max_backoff_seconds:g} is less than restart.backoff_seconds = "
            f"{restart.backoff_seconds:g}, which has no effect. Raise the one or lower the other."
        )


def _cloud(config: Config) -> Iterator[str]:
    cloud = config.cloud
    if not cloud.enabled:
        yield from _without("cloud", _set(config, "cloud", ("nodes", "endpoint", "use_v2alpha1")), "cloud.enabled")
    if cloud.insecure and not cloud.endpoint:
        yield "cloud.insecure = true has no effect: Google's own API is used. Give cloud.endpoint, or leave it out."
    if not config.runtime.enabled:
        yield from _without("runtime", _set(config, "runtime", ("ports",)), "runtime.enabled")
    workload = config.workload
    if workload.metrics_url and workload.kind not in ("", "serving"):
        yield (
            f'workload.metrics_url has no effect under workload.kind = "{workload.kind}": it is of servers. '
            'Set kind = "serving", or leave one of them out.'
        )
    monitoring = config.monitoring
    if monitoring.endpoint and not (monitoring.read or monitoring.export):
        yield (
            "monitoring.endpoint has no effect: neither monitoring.read nor monitoring.export is true. "
            "Set one, or leave it out."
        )


def _peers(config: Config) -> Iterator[str]:
    peers = config.peers
    if not peers.enabled:
        idle = _set(config, "peers", ("addresses", "tls", "ca_file", "server_name", "token_file"))
        yield from _without("peers", idle, "peers.enabled")
        return
    secure = peers.tls or any(url.startswith("https:") for url in peers.addresses.values())
    if not secure and (idle := _set(config, "peers", ("ca_file", "server_name"))):
        yield f"{_keys('peers', idle)} has no effect: no node is asked over TLS. Set peers.tls = true, or leave it out."
    if peers.token_file and not (secure or config.http.trusted_network):
        yield (
            "peers.token_file is sent where everybody in the network can read it: no node is asked over TLS. "
            "Set peers.tls = true."
        )
    if not config.cloud.nodes:
        yield "peers.enabled = true has no effect: no other node is watched. Name the nodes under cloud.nodes."


def _ledger(config: Config) -> Iterator[str]:
    ledger = config.ledger
    if ledger.kind == "sqlite" and (idle := _set(config, "ledger", ("bucket", "endpoint"))):
        yield f'{_keys("ledger", idle)} has no effect under ledger.kind = "sqlite". Set kind = "gcs", or leave it out.'
    if ledger.kind == "gcs" and ledger.dir:
        yield 'ledger.dir has no effect under ledger.kind = "gcs". Leave it out.'
    if ledger.kind == "gcs" and not ledger.bucket:
        yield 'ledger.kind = "gcs" needs ledger.bucket: without it nothing can be restarted. Name the bucket.'


def _logs(config: Config) -> Iterator[str]:
    read = [str(path) for path in config.logs.paths]
    if str(config.tune.log_dir) not in read:
        yield (
            f'tune.log_dir = "{config.tune.log_dir}", where jobs are to write their logs, is not among logs.paths '
            f"({', '.join(read) or 'none'}): what they write is not read. Make them agree."
        )


def _http(config: Config) -> Iterator[str]:
    http = config.http
    host, _ = http.address
    if is_loopback(host) or http.trusted_network:
        return
    lacks = [key for key in ("certificate_file", "token_file") if not getattr(http, key)]
    if lacks:
        what = "unencrypted, " if "certificate_file" in lacks else ""
        whom = "to everybody who can reach it" if "token_file" in lacks else "with a token that can be read on the way"
        yield (
            f'http.listen = "{http.listen}" serves status, findings and the lines of logs {what}{whom}: '
            f"{_keys('http', lacks)} is not set. Give it, or set http.trusted_network = true where a firewall lets "
            "nobody else in."
        )


def _without(table: str, idle: list[str], switch: str) -> Iterator[str]:
    if idle:
        yield f"{_keys(table, idle)} has no effect: {switch} is false. Set it to true, or leave it out."


def _set(config: Config, table: str, keys: tuple[str, ...]) -> list[str]:
    """Those of the keys that have a value."""
    return [key for key in keys if getattr(getattr(config, table), key)]


def _keys(table: str, keys: tuple[str, ...] | list[str]) -> str:
    return ", ".join(f"{table}.{key}" for key in keys)


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ImportError:  # of a package above it
        return False
