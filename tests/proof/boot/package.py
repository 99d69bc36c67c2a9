"""What must hold of the Debian package's life, from a Debian without tpuwatch to one that it has left again."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import TYPE_CHECKING

from tests.paths import ROOT
from tests.proof.boot import manual
from tests.proof.boot.debian import Unavailable
from tests.proof.boot.failure import expect, until
from tests.proof.boot.service import CONFIG, JOB, JOBS, STATE, URL

if TYPE_CHECKING:
    from pathlib import Path

    from tests.proof.boot.service import Service

PACKAGES = "/mnt/packages"
HOME = "/usr/lib/tpuwatch"
MAN_PAGE = "/usr/share/man/man1/tpuwatch.1.gz"
COMPLETIONS = "/usr/share/bash-completion/completions/tpuwatch"
BUILD_SECONDS = 300.0
INSTALL_SECONDS = 180.0
SCRAPE_SECONDS = 30.0
FAILURE = "E0000: CompileTimeHbmOom: Ran out of memory in memory space hbm. Used 20.00G of 15.75G hbm."
UNIT_IN_ETC = "/etc/systemd/system/tpuwatch.service"
SETTINGS = f'[logs]\njob_paths = ["{JOBS}/*.log"]\n\n[cloud]\nenabled = false\n'


def start_build(directory: Path) -> subprocess.Popen[str]:
    """Begin to build the package, which mostly waits for the network."""
    return subprocess.Popen(
        (sys.executable, "-m", "deploy.deb", "--output", str(directory), "--revision", "1"),
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def finish_build(build: subprocess.Popen[str], directory: Path) -> None:
    """The package, and a later one, which differs in its version alone. Raises Unavailable where it cannot be built."""
    said, _ = build.communicate(timeout=BUILD_SECONDS)
    packages = sorted(directory.glob("*.deb"))
    if build.returncode or len(packages) != 1:
        raise Unavailable(
            f"the Debian package cannot be built: {(said.strip().splitlines() or ['it says nothing'])[-1]}"
        )
    (first,) = packages
    tree = directory / "tree"
    subprocess.run(("/usr/bin/dpkg-deb", "--raw-extract", str(first), str(tree)), check=True)
    for file in (tree / "DEBIAN/control", tree / HOME.lstrip("/") / "version"):
        file.write_text(file.read_text(encoding="utf-8").replace("-1\n", "-2\n"), encoding="utf-8")
    later = first.with_name(first.name.replace("-1_", "-2_"))
    subprocess.run(
        ("/usr/bin/dpkg-deb", "--build", "-Znone", str(tree), str(later)), check=True, stdout=subprocess.DEVNULL
    )


def packaged(service: Service) -> str:
    """One command makes it run; an upgrade and a rollback keep all; a removal leaves state, a purge nothing."""
    _refused(service)
    steps = (_installed, _keeps_the_old_version, _upgraded, _rolled_back, _removed, _purged)
    return "; ".join(step(service) for step in steps)


def _apt(service: Service) -> None:
    """As README.md says."""
    command = manual.sentence("README.md", "apt-get install")
    service.machine.shell(command.replace("./tpuwatch_*", f"{PACKAGES}/tpuwatch_*-1"), seconds=INSTALL_SECONDS)


def _dpkg(service: Service, revision: int) -> None:
    service.machine.shell(f"dpkg --install {PACKAGES}/tpuwatch_*-{revision}_amd64.deb", seconds=INSTALL_SECONDS)


def _refused(service: Service) -> None:
    """Beside a service that `tpuwatch install` made, which would hide the package's unit."""
    service.machine.run("systemctl", "stop", "tpuwatch", check=False)
    service.machine.write(UNIT_IN_ETC, "[Service]\nExecStart=/opt/tpuwatch/bin/tpuwatch run\n")
    expect(service.machine.status("sh", "-c", f"dpkg --install {PACKAGES}/tpuwatch_*-1_amd64.deb") != 0, "it is hidden")
    service.machine.shell(f"rm {UNIT_IN_ETC}; systemctl daemon-reload")


def _installed(service: Service) -> str:
    began = time.monotonic()
    _apt(service)
    took = time.monotonic() - began
    until(lambda: "tpuwatch_build_info" in service.get("/metrics"), SCRAPE_SECONDS, f"{URL}/metrics answers")
    scraped = time.monotonic() - began
    facts = {name: service.show(name) for name in ("ActiveState", "Type", "UnitFileState", "User")}
    wanted = {"ActiveState": "active", "Type": "notify", "UnitFileState": "enabled", "User": "tpuwatch"}
    expect(facts == wanted, f"the unit is {facts}")
    expect(service.machine.run("tpuwatch", "--version").startswith("tpuwatch "), "there is no command")
    expect(service.machine.status("test", "-s", MAN_PAGE) == 0, "there is no man page")
    completes = service.machine.shell(f"bash -c '. {COMPLETIONS}; complete -p tpuwatch'")
    expect("-F" in completes, f"bash does not complete: {completes}")
    size = int(service.machine.shell(f"du --summarize --block-size=1M {HOME}").split()[0])
    service.machine.write(CONFIG, SETTINGS)
    service.machine.run("mkdir", "-p", JOBS)
    service.machine.run("systemctl", "reload", "tpuwatch")
    service.machine.shell(f"echo '{FAILURE}' >> {JOB}")
    until(lambda: _recognised(service), 20, "an event is stored")
    return f"installed in {took:.0f} s, first scrape after {scraped:.0f} s, {size} MiB"


def _recognised(service: Service) -> int:
    return sum(event.cause == "hbm_oom_compile" and event.file == JOB for event in service.events())


def _keeps_the_old_version(service: Service) -> str:
    """Where the new one refuses the configuration: it says so, and the old one goes on, over a boot too."""
    pid, before = service.pid, service.machine.run("readlink", f"{HOME}/current")
    service.machine.write(CONFIG, "[cloud]\npoll_secondz = 1\n")
    upgrade = f"dpkg --install {PACKAGES}/tpuwatch_*-2_amd64.deb >/run/upgrade 2>&1"
    expect(service.machine.status("sh", "-c", upgrade, seconds=INSTALL_SECONDS) != 0, "dpkg has succeeded")
    said = service.machine.run("cat", "/run/upgrade")
    expect("poll_secondz" in said, f"it does not name the bad key: {said}")
    expect((service.pid, service.show("ActiveState")) == (pid, "active"), "the old version does not run any more")
    expect(service.machine.run("readlink", f"{HOME}/current") == before, "the next start has the new version")
    service.machine.write(CONFIG, SETTINGS)
    service.machine.shell("dpkg --configure tpuwatch", seconds=INSTALL_SECONDS)
    until(lambda: service.pid not in (0, pid) and service.get("/metrics"), SCRAPE_SECONDS, "the new version runs")
    _dpkg(service, 1)
    until(lambda: service.get("/metrics"), SCRAPE_SECONDS, "the version before runs")
    return "not upgraded over a configuration that is refused"


def _upgraded(service: Service) -> str:
    known, pid = _recognised(service), service.pid
    before = service.machine.run("readlink", f"{HOME}/current").strip()
    service.background("job", "tpuwatch", "exec", "--", "sleep", "300")
    _dpkg(service, 2)
    after = service.machine.run("readlink", f"{HOME}/current").strip()
    expect(after != before, f"the environment is still {before}")
    until(lambda: service.pid not in (0, pid) and service.get("/metrics"), SCRAPE_SECONDS, "the new version runs")
    expect(service.machine.run("cat", CONFIG) == SETTINGS, "the configuration was replaced")
    expect(_recognised(service) == known, "events are lost, or there twice")
    expect(service.show("ActiveState", "job") == "active", "a job of `tpuwatch exec` was ended")
    expect(service.machine.status("test", "-d", f"{HOME}/{before}") == 0, "it runs from an environment that is removed")
    service.machine.run("systemctl", "stop", "job")
    service.machine.run(f"{HOME}/environment", "clean")
    expect(service.machine.status("test", "-d", f"{HOME}/{before}") != 0, "the old environment is still there")
    return "upgraded under a running job"


def _rolled_back(service: Service) -> str:
    """To the version before; and what the administrator has disabled stays so."""
    service.machine.run("systemctl", "disable", "--now", "tpuwatch")
    _dpkg(service, 1)
    facts = {name: service.show(name) for name in ("ActiveState", "UnitFileState")}
    expect(facts == {"ActiveState": "inactive", "UnitFileState": "disabled"}, f"the unit is {facts}")
    service.machine.run("systemctl", "enable", "--now", "tpuwatch")
    until(lambda: service.get("/metrics"), SCRAPE_SECONDS, "it runs again")
    return "rolled back"


def _removed(service: Service) -> str:
    service.machine.run("dpkg", "--remove", "tpuwatch")
    expect(service.show("LoadState") == "not-found", f"the unit is {service.show('LoadState')}")
    gone = [path for path in (HOME, "/usr/bin/tpuwatch") if service.machine.status("test", "-e", path) == 0]
    expect(not gone, f"still there: {' '.join(gone)}")
    expect(service.machine.run("cat", CONFIG) == SETTINGS, "the configuration is gone")
    service.machine.run("test", "-s", f"/{STATE}/store.db")
    return "removed"


def _purged(service: Service) -> str:
    service.machine.run("dpkg", "--purge", "tpuwatch")
    expect(not (rest := service.remains()), f"still there: {' '.join(rest)}")
    return "purged"
