from __future__ import annotations

import math
from typing import Any

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from tpuwatch.libtpu.metrics_proto import MetricResponse
from tpuwatch.libtpu.metrics_values import (
    DUTY_CYCLE,
    HBM_TOTAL,
    HBM_USED,
    IDLE,
    MAX_CHIPS,
    METRICS,
    chips,
    readings,
    total,
)
from tpuwatch.model.signals import Chip


def metric(*entries: dict[str, Any]) -> Any:
    return MetricResponse(metric={"metrics": list(entries)}).metric


def entry(value: Any, gauge: dict[str, Any] | None = None, key: str = "device_ordinal") -> dict[str, Any]:
    return {"attribute": {"key": key, "value": value}, "gauge": gauge or {"as_int": 5}}


def in_list(**pairs: Any) -> dict[str, Any]:
    return {"kvlist_attr": {"attributes": [{"key": key, "value": value} for key, value in pairs.items()]}}


@pytest.mark.parametrize(
    "value",
    [
        {"int_attr": 3},
        {"string_attr": "3"},
        in_list(core_type={"string_attr": "tc"}, device_ordinal={"string_attr": "3"}),
        in_list(core_index={"int_attr": 0}, device_ordinal={"int_attr": 3}),
        in_list(new_name={"int_attr": 3}, core_type={"string_attr": "tensor"}),
    ],
    ids=["int", "string", "list, string", "list, int", "list, unknown key"],
)
@pytest.mark.parametrize("key", ["device_ordinal", "device-id", "something_new"])
def test_the_chip_is_read_in_all_the_ways_that_versions_have(value: dict[str, Any], key: str) -> None:
    assert readings(metric(entry(value, key=key))) == {3: 5}


@pytest.mark.parametrize(
    "value",
    [
        {"string_attr": "three"},
        {"string_attr": "-1"},
        {"string_attr": "²"},
        {"string_attr": "9" * 100},
        {"int_attr": -1},
        {"int_attr": 1 << 40},
        {"bool_attr": True},
        {"bytes_attr": b"3"},
        {"kvlist_attr": {}},
        in_list(device_ordinal={"string_attr": "x"}, core_index={"int_attr": 1}),
        {},
    ],
)
def test_an_entry_whose_chip_makes_no_sense_is_left_out(value: dict[str, Any]) -> None:
    assert readings(metric(entry({"int_attr": 1}), entry(value))) == {1: 5}


def test_without_any_attribute_the_position_is_the_chip() -> None:
    assert readings(metric({"gauge": {"as_int": 7}}, {"gauge": {"as_int": 8}})) == {0: 7, 1: 8}


@pytest.mark.parametrize(
    "gauge",
    [
        {"as_double": math.nan},
        {"as_double": math.inf},
        {"as_double": -0.5},
        {"as_int": -1},
        {"as_int": (1 << 63) - 1},
        {"as_string": "5"},
        {"as_bool": True},
    ],
)
def test_a_value_that_makes_no_sense_is_left_out(gauge: dict[str, Any]) -> None:
    broken = metric(entry({"int_attr": 0}, gauge), entry({"int_attr": 1}, {"as_double": 2.5}))
    assert readings(broken) == {1: 2.5}
    assert total(broken) == 2


def test_a_counter_is_as_good_as_a_gauge_and_a_distribution_is_no_number() -> None:
    attribute = {"key": "device_ordinal", "value": {"int_attr": 0}}
    assert readings(metric({"attribute": attribute, "counter": {"as_int": 4}})) == {0: 4}
    assert readings(metric({"attribute": attribute, "distribution": {"count": 4, "mean": 1.0}})) == {}


def test_the_queue_is_the_sum_over_cores_and_unknown_without_any() -> None:
    core = in_list(device_ordinal={"string_attr": "0"}, core_type={"string_attr": "tc"})
    sparse = in_list(device_ordinal={"string_attr": "0"}, core_type={"string_attr": "SPARSE_CORE"})
    assert total(metric(entry(core, {"as_int": 2}), entry(core, {"as_int": 3}))) == 5
    assert total(metric(entry(core, {"as_int": 2}), entry(sparse, {"as_int": 3}))) == 2
    assert total(metric(entry(sparse, {"as_int": 3}))) is None
    assert total(metric()) is None
    assert total(metric(entry(core, {"as_string": "many"}))) is None


def test_a_chip_has_what_is_reported_of_it_and_no_more() -> None:
    values = {HBM_USED: {0: 10.0, 1: 20.0}, HBM_TOTAL: {0: 100.0}, DUTY_CYCLE: {1: 87.5}, IDLE: {0: 3.25}}
    assert chips(values, 0) == (
        Chip("0", hbm_used_bytes=10, hbm_total_bytes=100, duty_cycle=None, idle_seconds=3.25),
        Chip("1", hbm_used_bytes=20, hbm_total_bytes=None, duty_cycle=0.875, idle_seconds=None),
    )


@pytest.mark.parametrize(("percent", "ratio"), [(0.0, 0.0), (50.0, 0.5), (100.4, 1.0), (5000.0, None)])
def test_the_duty_cycle_is_a_share(percent: float, ratio: float | None) -> None:
    assert chips({DUTY_CYCLE: {0: percent}}, 0)[0].duty_cycle == ratio


def ids(*ordinals: int, place: int = 0, taken: tuple[str, ...] = ()) -> list[str]:
    return [chip.id for chip in chips({IDLE: dict.fromkeys(ordinals, 0.0)}, place, taken)]


def test_chips_of_processes_that_each_count_from_0_stay_apart() -> None:
    assert ids(0, 1) == ["0", "1"]
    assert ids(0, 1, place=1) == ["2", "3"]
    assert ids(0, place=3) == ["3"]  # whether or not the processes before it speak


def test_chips_that_are_numbered_over_the_host_keep_their_numbers() -> None:
    assert ids(2, 3, place=1, taken=("0", "1")) == ["2", "3"]
    assert ids(1, place=1) == ["1"]


def test_a_process_cannot_have_any_number_of_chips() -> None:
    assert len(ids(*range(1000))) == MAX_CHIPS


numbers = st.dictionaries(st.integers(0, 1 << 16), st.floats(0, 2**53), max_size=5)


@given(st.lists(st.dictionaries(st.sampled_from(METRICS), numbers), max_size=6))
def test_ids_are_unique_over_all_processes(processes: list[dict[str, dict[int, float]]]) -> None:
    taken: list[str] = []
    for place, values in enumerate(processes):
        taken += [chip.id for chip in chips(values, place, taken)]
    assert len(taken) == len(set(taken))


@given(st.binary(max_size=400))
def test_no_reply_can_make_reading_it_fail(raw: bytes) -> None:
    try:
        message = MetricResponse.FromString(raw)
    except DecodeError:
        return
    found = readings(message.metric)
    assert all(math.isfinite(value) and value >= 0 for value in found.values())
    assert (total(message.metric) or 0) >= 0
    assert len(chips(dict.fromkeys(METRICS, found), 1)) <= MAX_CHIPS
