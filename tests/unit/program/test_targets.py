"""TPUs by the names that the cloud and the compiler have for them."""

from __future__ import annotations

import pytest

from tpuwatch.core import ConfigError
from tpuwatch.program import target


@pytest.mark.parametrize(
    ("name", "topology", "chips"),
    [
        ("v2-8", "v2:2x2", 4),
        ("v3-32", "v3:4x4", 16),
        ("v4-8", "v4:2x2x1", 4),
        ("v4-64", "v4:2x4x4", 32),
        ("v5litepod-8", "v5e:2x4", 8),
        ("v5e-256", "v5e:16x16", 256),
        ("v5p-32", "v5p:2x2x4", 16),
        ("v5p-512", "v5p:4x8x8", 256),
        ("v6e-4", "v6e:2x2", 4),
        ("v6e-16", "v6e:4x4", 16),
        ("tpu7x-8", "tpu7x:2x2x1", 4),
        ("v6e:2x4", "v6e:2x4", 8),
        ("v4:2x2x4", "v4:2x2x4", 16),
    ],
)
def test_a_type_or_a_topology_is_what_the_compiler_calls_it(name: str, topology: str, chips: int) -> None:
    found = target(name)
    assert (found.name, found.topology, found.chips) == (name, topology, chips)


def test_hosts_smaller_than_the_compilers_usual_one_are_named() -> None:
    assert target("v6e-1").options == {"chips_per_host_bounds": [1, 1, 1]}
    assert target("v6e-4").options == {}


def test_v4_has_one_device_a_chip_as_jobs_see_it() -> None:
    assert target("v4-16").options == {"chip_config_name": "megacore"}


def test_slices_are_told_to_the_compiler_and_counted() -> None:
    found = target("v6e-16", slices=2)
    assert found.options == {"num_slices": 2}
    assert found.chips == 32


@pytest.mark.parametrize("name", ["v9-8", "a100", "", "v6e", "v6e:2", "v6e-0", "v6e:2x2x2x2"])
def test_another_name_is_refused_with_examples(name: str) -> None:
    with pytest.raises(ConfigError, match="v6e-4 or v5p-16"):
        target(name)


def test_a_number_without_a_usual_arrangement_asks_for_one() -> None:
    with pytest.raises(ConfigError, match=r"no topology of 12 chips is known; give it"):
        target("v6e-12")
