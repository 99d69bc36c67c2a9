"""How things are done is what the configuration says."""

from __future__ import annotations

from tpuwatch.config.restart import RestartConfig
from tpuwatch.restart.local.context import LocalSettings


def test_the_defaults_are_those_of_the_configuration() -> None:
    assert LocalSettings.of(RestartConfig()) == LocalSettings()


def test_values_are_taken_over() -> None:
    made = LocalSettings.of(RestartConfig(sigint_seconds=0, sigterm_seconds=7, runtime_command=("/bin/a",)))
    assert [(number.name, seconds) for number, seconds in made.signal_sequence] == [
        ("SIGTERM", 7.0),
        ("SIGQUIT", 10.0),
        ("SIGKILL", 30.0),
    ]
    assert made.runtime_command == ("/bin/a",)
