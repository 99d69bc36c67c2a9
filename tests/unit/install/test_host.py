"""Where tpuwatch cannot be installed as a service, and why."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import tpuwatch
from tests.unit.install.fake_host import FakeHost
from tpuwatch.core import InstallError
from tpuwatch.install import InstallHost


@pytest.fixture
def fake(tmp_path: Path) -> FakeHost:
    return FakeHost(tmp_path)


def refusal(host: InstallHost) -> str:
    with pytest.raises(InstallError) as caught:
        host.require_program()
    return str(caught.value)


def test_a_program_that_root_alone_can_change_is_taken(fake: FakeHost) -> None:
    fake.host.require_program()
    fake.host.require_systemd()
    fake.host.require_no_package()


def test_only_root_can_install(fake: FakeHost) -> None:
    with pytest.raises(InstallError, match=r"only root can .* `sudo .*/tpuwatch install`"):
        replace(fake.host, is_root=False).require_systemd()


def test_without_systemd_it_says_what_to_do(fake: FakeHost) -> None:
    (fake.root / "run/systemd/system").rmdir()
    with pytest.raises(InstallError, match=r"systemd does not run .* `.*/tpuwatch run`"):
        fake.host.require_systemd()


def test_the_debian_package_has_its_own_units(fake: FakeHost) -> None:
    unit = fake.root / "usr/lib/systemd/system/tpuwatch.service"
    unit.parent.mkdir(parents=True)
    unit.touch()
    with pytest.raises(InstallError, match="Debian package"):
        fake.host.require_no_package()


def test_a_program_that_is_not_there_is_named(fake: FakeHost) -> None:
    fake.program.unlink()
    assert f"there is no {fake.program}" in refusal(fake.host)


def test_what_others_can_change_does_not_become_a_service(fake: FakeHost) -> None:
    assert "can be changed by user" in refusal(replace(fake.host, trusted_uids=frozenset()))
    fake.program.parent.chmod(0o777)
    assert f"{fake.program.parent} can be changed by everybody" in refusal(fake.host)
    fake.program.parent.chmod(0o1777)  # nobody may replace what is another's, but a script imports what lies beside it
    assert f"{fake.program.parent} can be changed by everybody" in refusal(fake.host)
    fake.program.parent.chmod(0o755)
    fake.program.parents[1].chmod(0o1777)  # as /tmp
    fake.host.require_program()


def test_what_the_program_imports_is_looked_at_too(fake: FakeHost) -> None:
    module = fake.package / "__init__.py"
    for path in (module, fake.package, fake.package.parent):
        mode = path.stat().st_mode
        path.chmod(0o777)
        assert f"{path} can be changed by everybody" in refusal(fake.host)
        path.chmod(mode)
    fake.host.require_program()
    if os.geteuid() == 0:
        os.chown(module, 4711, -1)
        assert f"{module} can be changed by user 4711" in refusal(fake.host)


def test_a_group_that_has_members_can_change_what_it_may_write(fake: FakeHost) -> None:
    place = fake.program.parent
    if os.geteuid() == 0:
        os.chown(place, -1, 4711)
    place.chmod(0o775)
    fake.host.require_program()  # as Debian's /usr/local, whose group has none
    assert f"{place} can be changed by group " in refusal(replace(fake.host, has_members=lambda _, __: True))


def test_the_code_of_this_interpreter_is_found() -> None:
    code = InstallHost().code
    assert Path(sys.executable) in code
    assert Path(pytest.__file__).parents[1] in code
    assert Path(tpuwatch.__file__).parent in code


def test_an_environment_in_a_cache_does_not_last(fake: FakeHost) -> None:
    (fake.program.parents[1] / "CACHEDIR.TAG").touch()  # uv marks each environment as one
    fake.host.require_program()
    (fake.program.parents[2] / "CACHEDIR.TAG").touch()
    assert f"is in a cache, {fake.program.parents[2]}" in refusal(fake.host)


def test_a_path_that_units_would_read_otherwise_is_refused(fake: FakeHost, tmp_path: Path) -> None:
    assert "characters" in refusal(replace(fake.host, program=tmp_path / "my venv" / "%h" / "tpuwatch"))


@pytest.mark.parametrize(
    ("command", "said"),
    [(("true",), ""), (("sh", "-c", "echo why >&2; exit 3"), "why"), (("false",), "exit status 1")],
)
def test_a_command_says_why_it_failed(command: tuple[str, ...], said: str) -> None:
    assert InstallHost().run(*command) == said


def test_a_command_of_systemd_that_is_missing_is_named() -> None:
    with pytest.raises(InstallError, match="there is no command no-such-command"):
        InstallHost().run("no-such-command")
