"""Which packages a Python has, read from its files alone."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.standins.doctor_machine import Place
from tpuwatch.doctor.packages import any_package, find_on_path, find_package, sites_of_interpreter, sites_of_process

METADATA = (
    "Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{lines}\nDescription: Requires-Dist: bait\n\n"
    "Requires-Dist: bait\n"
)


def install(place: Place, site: str, name: str, version: str, *requirements: str, tag: str = "py3-none-any") -> None:
    """A package's dist-info."""
    lines = "".join(f"Requires-Dist: {requirement}\n" for requirement in requirements)
    folder = f"{site}/{name}-{version}.dist-info"
    place.write(f"{folder}/METADATA", METADATA.format(name=name, version=version, lines=lines.rstrip("\n")))
    place.write(f"{folder}/WHEEL", f"Wheel-Version: 1.0\nTag: {tag}\n")


def virtual_environment(place: Place) -> str:
    """A venv of /usr/bin/python3.12; its site-packages."""
    place.write("/usr/bin/python3.12", mode=0o755)
    place.link("/usr/bin/python3", "python3.12")
    place.link("/home/me/venv/bin/python3", "/usr/bin/python3")
    place.write("/home/me/venv/pyvenv.cfg", "home = /usr/bin\ninclude-system-site-packages = false\n")
    site = "/home/me/venv/lib/python3.12/site-packages"
    place.folder(site)
    return site


def below(place: Place, sites: list[Path]) -> list[str]:
    return [f"/{site.relative_to(place.root)}" for site in sites]


def test_a_package_and_its_requirements(place: Place) -> None:
    install(place, "/site", "torch_xla", "2.9.0", 'libtpu==0.0.21; extra == "tpu"', "absl-py")
    install(place, "/later", "torch_xla", "2.8.0")
    package = find_package("torch-xla", [place.root / "nowhere", place.root / "site", place.root / "later"])
    assert package is not None
    assert (package.version, package.requirements) == ("2.9.0", ('libtpu==0.0.21; extra == "tpu"', "absl-py"))
    assert package.tags == ("py3-none-any",)
    assert not package.from_file


def test_what_is_no_package_is_not_found(place: Place) -> None:
    place.folder("/site/libtpu-0.0.1.dist-info")  # without METADATA: left over from a broken installation
    place.write("/site/jax.egg-info", "")
    assert [find_package(name, [place.root / "site"]) for name in ("libtpu", "jax", "torch")] == [None] * 3
    assert not any_package([place.root / "nowhere"])


def test_metadata_without_end_is_not_read_to_its_end(place: Place) -> None:
    place.folder("/site/libtpu-0.0.1.dist-info")
    place.link("/site/libtpu-0.0.1.dist-info/METADATA", "/dev/zero")
    package = find_package("libtpu", [place.root / "site"])
    assert package is not None
    assert (package.version, package.requirements) == ("", ())


def test_a_virtual_environment_is_found_by_the_name_that_it_was_called_by(place: Place) -> None:
    site = virtual_environment(place)
    place.folder("/usr/lib/python3/dist-packages")
    place.process(11, command=("/home/me/venv/bin/python3", "train.py"))
    place.link("/proc/11/exe", "/usr/bin/python3.12")
    sites = sites_of_process(place.root / "proc/11", place.root, "/home/me/venv/bin/python3", {})
    assert below(place, sites) == [site]

    place.link("/proc/11/cwd", "/home/me")
    sites = sites_of_process(place.root / "proc/11", place.root, "venv/bin/python3", {})
    assert below(place, sites) == [site]

    sites = sites_of_process(place.root / "proc/11", place.root, "python3", {"PATH": "/home/me/venv/bin:/usr/bin"})
    assert below(place, sites) == [site]


def test_the_systems_own_python(place: Place) -> None:
    virtual_environment(place)
    folders = [
        "/home/me/.local/lib/python3.12/site-packages",
        "/usr/lib/python3.12/dist-packages",
        "/usr/lib/python3/dist-packages",
        "/usr/local/lib/python3.12/dist-packages",
    ]
    for folder in [*folders, "/usr/local/lib/python3.9/dist-packages"]:
        place.folder(folder)
    sites = sites_of_interpreter("/usr/bin/python3", place.root, {"HOME": "/home/me", "PYTHONPATH": "/opt/more:rel"})
    assert set(below(place, sites)) == {"/opt/more", *folders}


def test_what_was_loaded_comes_first(place: Place) -> None:
    site = virtual_environment(place)
    place.link("/proc/11/exe", "/usr/bin/python3.12")
    place.write(
        "/proc/11/maps", "7f00-7f01 r-xp 0 08:01 5   /opt/x/lib/python3.12/site-packages/libtpu/libtpu.so\n" * 3
    )
    sites = sites_of_process(place.root / "proc/11", place.root, "/home/me/venv/bin/python3", {})
    assert below(place, sites) == ["/opt/x/lib/python3.12/site-packages", site]


def test_what_is_no_python_has_no_packages(place: Place) -> None:
    place.link("/proc/11/exe", "/usr/bin/bash")
    assert sites_of_process(place.root / "proc/11", place.root, "bash", {}) == []


def test_a_loop_of_links_ends(place: Place) -> None:
    place.link("/bin/python3", "python")
    place.link("/bin/python", "python3")
    assert find_on_path("python3", place.root, {"PATH": "relative:/bin"}) == "/bin/python3"
    assert sites_of_interpreter("/bin/python3", place.root, {}) == []


def test_this_very_interpreter_is_read_right() -> None:
    sites = sites_of_interpreter(sys.executable, Path("/"), {})
    assert any_package(sites)
    assert find_package("pytest", sites) is not None
