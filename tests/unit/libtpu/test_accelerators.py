"""The TPUs that Google documents, by all names that they have."""

from __future__ import annotations

import pytest

from tpuwatch.libtpu.accelerators import chips_of, counted, devices_per_chip, generation, hosts_of

# Kind of an accelerator type: generation, its numbers, how many of a number make a chip, chips of the largest host
# that is a slice by itself.
TYPES = {
    "v2": ("v2", (8, 32, 128, 256, 512), 2, 4),
    "v3": ("v3", (8, 32, 64, 128, 256, 512, 1024, 2048), 2, 4),
    "v4": ("v4", (8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192), 2, 4),
    "v5litepod": ("v5e", (1, 4, 8, 16, 32, 64, 128, 256), 1, 8),
    "v5p": ("v5p", (8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 12288, 17920), 2, 4),
    "v6e": ("v6e", (1, 4, 8, 16, 32, 64, 128, 256), 1, 8),
    "tpu7x": ("7x", (2, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 18432), 2, 4),
}
MACHINES = {
    "ct3-hightpu": "v3",
    "ct3p-hightpu": "v3",
    "ct4p-hightpu": "v4",
    "ct5l-hightpu": "v5e",
    "ct5lp-hightpu": "v5e",
    "ct5p-hightpu": "v5p",
    "ct6e-standard": "v6e",
    "tpu7x-standard": "7x",
}


@pytest.mark.parametrize("kind", TYPES)
def test_every_documented_accelerator_type_has_its_generation_chips_and_hosts(kind: str) -> None:
    expected, numbers, per_chip, largest = TYPES[kind]
    for number in numbers:
        name, chips = f"{kind}-{number}", number // per_chip
        assert generation(name) == expected, name
        assert chips_of(name) == chips, name
        assert hosts_of(name) == ((1, chips) if chips <= largest else (chips // 4, 4)), name
        assert devices_per_chip(name) == (2 if kind in ("v2", "v3", "tpu7x") else 1), name


@pytest.mark.parametrize("kind", MACHINES)
def test_every_documented_machine_type_has_its_generation(kind: str) -> None:
    for chips in (1, 2, 4, 8):
        name = f"{kind}-{chips}t"
        assert generation(name) == MACHINES[kind], name
        assert chips_of(name) is None, name  # it is no accelerator type


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("v5e-4", "v5e"),
        ("TPU v2", "v2"),
        ("TPU v4", "v4"),
        ("TPU v5 lite", "v5e"),
        ("TPU v5", "v5p"),
        ("TPU v6 lite", "v6e"),
        ("TPU7x", "7x"),
        ("tpu-v4-podslice", "v4"),  # as GKE's node labels have it
        ("tpu-v5-lite-podslice", "v5e"),
        ("tpu-v5p-slice", "v5p"),
        ("tpu-v6e-slice", "v6e"),
        ("", ""),
        ("UNKNOWN", ""),
        ("4711", ""),
        ("NVIDIA H100", ""),
        ("n2-standard-8", ""),
    ],
)
def test_a_generation_is_known_by_kinds_of_chips_and_labels(name: str, expected: str) -> None:
    assert generation(name) == expected


@pytest.mark.parametrize("name", ["", "v4", "v4-", "v4-0", "v9-8", "v4-8x", "v4-9999999", "n2-standard-8", "evil\n-8"])
def test_what_is_no_type_has_no_chips(name: str) -> None:
    assert chips_of(name) is None
    assert hosts_of(name) is None


@pytest.mark.parametrize(
    ("devices", "name", "text"),
    [
        (8, "tpu7x-8", "8 devices of 4 chips"),
        (2, "tpu7x-2", "2 devices of 1 chip"),
        (3, "tpu7x-8", "3 devices"),
        (8, "v6e-8", "8 chips"),
        (1, "v6e-1", "1 chip"),
        (4, "", "4 devices"),
        (8, "v5litepod-8", "8 chips"),
        (4, "v4-8", "4 chips"),
        (4, "v5p-8", "4 chips"),
        (8, "v3-8", "8 devices of 4 chips"),
    ],
)
def test_entries_of_the_runtime_metrics_are_counted_in_words(devices: int, name: str, text: str) -> None:
    assert counted(devices, name) == text
