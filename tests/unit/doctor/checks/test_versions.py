"""Versions that fit or not, with the requirements that real releases state."""

from __future__ import annotations

import pytest

from tests.standins.doctor_machine import Place, described, results, statuses
from tests.unit.doctor.test_packages import install, virtual_environment
from tpuwatch.doctor.check import CheckStatus

JAX = ("jaxlib<=0.8.1,>=0.8.1", 'jaxlib<=0.8.1,>=0.8.1; extra == "tpu"', 'libtpu==0.0.30.*; extra == "tpu"')
TORCH = ('libtpu==0.0.21; extra == "tpu"', 'jaxlib==0.7.1; extra == "pallas"')
PYTHON = "/home/me/venv/bin/python3"


@pytest.fixture
def site(place: Place) -> str:
    site = virtual_environment(place)
    place.process(11, command=(PYTHON, "train.py"))
    place.link("/proc/11/exe", "/usr/bin/python3.12")
    return site


def test_what_was_released_together_fits(place: Place, site: str) -> None:
    install(place, site, "jax", "0.8.1", *JAX)
    install(place, site, "jaxlib", "0.8.1")
    install(place, site, "libtpu", "0.0.30")
    assert described("framework_versions", place.environment()) == [
        "ok: jax 0.8.1 fits jaxlib 0.8.1, libtpu 0.0.30 (process 11 (/home/me/venv/bin/python3 train.py)). | "
    ]
    assert statuses("framework_builds", place.environment()) == [CheckStatus.OK]


@pytest.mark.parametrize(
    ("libtpu", "status", "said"),
    [
        ("0.0.17", "wrong", "needs libtpu ==0.0.30.*; 0.0.17 is too old"),
        ("0.0.51", "warn", "was released with libtpu ==0.0.30.*; 0.0.51 is newer"),
        ("0.0.31.dev20251101", "unknown", "0.0.31.dev20251101 cannot be judged"),
    ],
)
def test_another_libtpu_than_jax_was_released_with(
    place: Place, site: str, libtpu: str, status: str, said: str
) -> None:
    install(place, site, "jax", "0.8.1", *JAX)
    install(place, site, "libtpu", libtpu)
    (line,) = described("framework_versions", place.environment())
    assert line.startswith(f"{status}: jax 0.8.1 of process 11")
    assert said in line
    assert line.endswith("pip install 'jax[tpu]==0.8.1'" if status != "unknown" else " | ")


def test_a_jaxlib_that_jax_refuses(place: Place, site: str) -> None:
    install(place, site, "jax", "0.8.1", *JAX)
    install(place, site, "jaxlib", "0.9.0")
    install(place, site, "libtpu", "0.0.30.1")
    lines = described("framework_versions", place.environment())
    assert [line.partition(":")[0] for line in lines] == ["wrong", "ok"]
    assert "needs jaxlib <=0.8.1,>=0.8.1; 0.9.0 is too new" in lines[0]


def test_jax_without_libtpu(place: Place, site: str) -> None:
    install(place, site, "jax", "0.8.1", *JAX)
    (line,) = described("framework_versions", place.environment())
    assert line.startswith("wrong: jax 0.8.1 of process 11")
    assert "has no libtpu: it will not find the TPU" in line


def test_a_libtpu_of_ones_own(place: Place, site: str) -> None:
    install(place, site, "jax", "0.8.1", *JAX)
    place.process(11, environ={"TPU_LIBRARY_PATH": "/lib/libtpu.so"}, command=(PYTHON, "train.py"))
    assert described("framework_versions", place.environment()) == []
    assert "TPU_LIBRARY_PATH=/lib/libtpu.so of process 11" in described("libtpu_library", place.environment())[0]
    place.write("/lib/libtpu.so")
    assert statuses("libtpu_library", place.environment()) == [CheckStatus.OK]


def test_torch_xla_and_tensorflow_tpu(place: Place, site: str) -> None:
    install(place, site, "torch_xla", "2.9.0", *TORCH)
    install(place, site, "tensorflow_tpu", "2.20.0", "libtpu~=0.0.14")
    install(place, site, "libtpu", "0.0.8")
    lines = described("framework_versions", place.environment())
    assert "torch-xla 2.9.0 of process 11" in lines[0]
    assert "needs libtpu ==0.0.21; 0.0.8 is too old" in lines[0]
    assert lines[0].endswith("pip install 'torch_xla[tpu]==2.9.0'")
    assert "tensorflow-tpu 2.20.0" in lines[1]
    assert "needs libtpu ~=0.0.14; 0.0.8 is too old" in lines[1]


def test_stock_tensorflow_has_no_tpu_in_it(place: Place, site: str) -> None:
    install(place, site, "tensorflow", "2.21.0")
    (line,) = described("framework_builds", place.environment())
    assert line.startswith("wrong: tensorflow 2.21.0 of process 11")
    assert line.endswith("pip uninstall -y tensorflow && pip install tensorflow-tpu")
    place.write(f"{site}/tensorflow-2.21.0.dist-info/direct_url.json", "{}")
    assert statuses("framework_builds", place.environment()) == [CheckStatus.UNKNOWN]


def test_stock_tensorflow_beside_jax_only_reads_data(place: Place, site: str) -> None:
    install(place, site, "tensorflow", "2.21.0")
    install(place, site, "jax", "0.8.1")
    assert statuses("framework_builds", place.environment()) == [CheckStatus.OK]


def test_packages_in_the_same_folder(place: Place, site: str) -> None:
    install(place, site, "tensorflow", "2.20.0")
    install(place, site, "tensorflow_tpu", "2.20.0", "libtpu~=0.0.14")
    install(place, site, "libtpu", "0.0.21")
    install(place, site, "libtpu_nightly", "0.1.dev20241010+nightly.cleanup")  # has no files: it removes old ones
    (line,) = described("framework_builds", place.environment())
    assert "tensorflow-tpu 2.20.0 and tensorflow 2.20.0 of process 11" in line
    assert line.endswith("pip uninstall -y tensorflow-tpu tensorflow && pip install tensorflow-tpu==2.20.0")


def test_a_libtpu_that_needs_a_newer_system(place: Place, site: str) -> None:
    install(place, site, "libtpu", "0.0.51", tag="cp312-cp312-manylinux_2_31_x86_64")
    (line,) = described("libtpu_library", place.environment(glibc=lambda: "2.28"))
    assert "needs glibc 2.31; this system has 2.28" in line
    assert statuses("libtpu_library", place.environment(glibc=lambda: "2.31")) == [CheckStatus.OK]
    assert statuses("libtpu_library", place.environment(glibc=lambda: "")) == [CheckStatus.OK]


def test_without_a_job_the_python_on_path_is_looked_at(place: Place) -> None:
    site = virtual_environment(place)
    install(place, site, "jax", "0.8.1", *JAX)
    environment = place.environment(environ={"PATH": "/home/me/venv/bin"})
    assert "jax 0.8.1 of /home/me/venv/bin/python3 has no libtpu" in described("framework_versions", environment)[0]
    assert "jax 0.8.1 of /home" in described("framework_versions", place.environment(python=PYTHON))[0]


def test_a_job_in_a_container_has_its_own_files(place: Place, site: str) -> None:
    install(place, site, "jax", "0.8.1", *JAX)
    inside = Place.__new__(Place)
    inside.root = place.root / "proc/11/root"
    install(inside, virtual_environment(inside), "tensorflow", "2.21.0")
    assert statuses("framework_versions", place.environment()) == [CheckStatus.SKIPPED]
    assert statuses("framework_builds", place.environment()) == [CheckStatus.WRONG]
    install(
        inside, "/home/me/venv/lib/python3.12/site-packages", "libtpu", "0.0.51", tag="cp312-cp312-manylinux_2_31_x"
    )
    assert statuses("libtpu_library", place.environment(glibc=lambda: "2.28")) == [CheckStatus.OK]  # of our system


def test_no_python_at_all(place: Place) -> None:
    assert [results(name, place.environment())[0].status for name in ("framework_versions", "libtpu_library")] == [
        CheckStatus.SKIPPED,
        CheckStatus.SKIPPED,
    ]
