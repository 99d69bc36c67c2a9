"""A line that quotes an error after which the program goes on: no rule that only knows a status speaks there."""

from __future__ import annotations

import pytest

from tests.unit.whole_text import findings_in
from tpuwatch.logs.parse.scan import Scanner
from tpuwatch.logs.rules.catalogue import for_outputs, load_catalogue

CATALOGUE = load_catalogue()
SCANNER = Scanner(CATALOGUE)
CACHE = (
    "UserWarning: Error {how} persistent compilation cache entry for 'jit_f': JaxRuntimeError: {code}: it is another"
)
RETRY = (
    "I0101 01:02:03.000000    4711 agent.cc:1] the agent failed to register with the leader (attempt #2, will "
    "try again after 2ms). Status: UNAVAILABLE: failed to connect to all addresses; "
    "last error: UNKNOWN: ipv4:10.0.0.2:8476: connection refused"
)


def causes(text: str) -> list[str]:
    return [finding.cause.value for finding in findings_in(text.encode(), SCANNER, "job.txt")]


@pytest.mark.parametrize("code", ["INTERNAL", "INVALID_ARGUMENT", "UNAVAILABLE", "DATA_LOSS", "FAILED_PRECONDITION"])
@pytest.mark.parametrize("how", ["reading", "writing"])
def test_an_entry_of_the_compilation_cache_that_is_not_used_is_nothing(how: str, code: str) -> None:
    assert causes(f"on a TPU v5e worker\n{CACHE.format(how=how, code=code)}\n") == []


def test_what_fails_after_it_is_found() -> None:
    text = [CACHE.format(how="reading", code="INTERNAL"), *(f"step {n}" for n in range(9))]
    assert causes("\n".join([*text, "jax.errors.JaxRuntimeError: INVALID_ARGUMENT: no (TPU_0)\n"])) == [
        "invalid_program"
    ]


def test_the_daemon_knows_it_without_the_mark() -> None:
    rules = for_outputs(CATALOGUE, ()).rules
    assert all(rule.mark != "harmless" for rule in rules)
    (internal,) = (rule for rule in rules if rule.id == "status-internal")
    assert internal.search(CACHE.format(how="reading", code="INTERNAL").encode()) is None


def test_an_attempt_that_is_followed_by_another_is_nothing() -> None:
    assert causes(f"on a TPU v5e worker\n{RETRY}\n") == []
