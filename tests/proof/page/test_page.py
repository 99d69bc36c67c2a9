"""The status page of a node in Chromium: what it shows, that it keeps itself up to date, and what it never does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.daemon_in_cloud import DaemonInCloud
from tests.proof.page import stage
from tests.proof.page.browser import Browser, Tab, chromium, missing
from tpuwatch.core.clock import SystemClock
from tpuwatch.sim.host.glog import GlogFiles
from tpuwatch.sim.host.logwriter import SimulatedProcess

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())

MAX_BYTES = 40_000  # over the network, of the whole page
ATTACK = "</pre></script><script>document.title='taken'</script><img src=x onerror=alert(1)>"
FIRST_EVENT = "document.querySelector('#events tbody tr')"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with chromium(tmp_path_factory.mktemp("chromium") / "profile") as started:
        yield started


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonInCloud]:
    with stage.node(tmp_path_factory.mktemp("node") / "stage") as started:
        yield started


@pytest.fixture
def tab(browser: Browser, daemon: DaemonInCloud) -> Iterator[Tab]:
    """The page, which at the end has complained of nothing and asked nobody else for anything."""
    with browser.tab() as opened:
        opened.open(url(daemon))
        yield opened
        assert opened.complaints == []
        assert {request.split("/")[2] for request in opened.requests if not request.startswith("data:")} == {
            daemon.address
        }


def url(daemon: DaemonInCloud, path: str = "/") -> str:
    return f"http://{daemon.address}{path}"


def write(daemon: DaemonInCloud, number: int, words: str = "and no more") -> None:
    """A record in libtpu's log, which is an event."""
    process = SimulatedProcess(GlogFiles(daemon.site.simulator.launches.logs, SystemClock(), pid=2**30 + 100 + number))
    process.record("E", f"TESTEVENT {number} {words}")
    process.close()


def test_it_shows_the_node_its_chips_its_launches_and_the_next_one(tab: Tab) -> None:
    text = tab.run("document.body.innerText")
    for words in (
        "Programs run on the chips.",
        "train-1",
        "us-central2-b",
        "9.6 GiB of 16 GiB, 60%",
        "Next launch",
        "8.8 s",
    ):
        assert words in text
    assert tab.run("document.title").endswith(" · train-1 · us-central2-b · tpuwatch")
    assert tab.run("document.querySelectorAll('.chart g').length") == 12
    assert sum(tab.received.values()) < MAX_BYTES


def test_an_event_appears_without_a_reload_and_what_the_reader_did_stays(tab: Tab, daemon: DaemonInCloud) -> None:
    write(daemon, 1)
    tab.until(f"{FIRST_EVENT}.innerText.includes('TESTEVENT 1')")
    tab.run(
        f"window.same = 1; {FIRST_EVENT}.querySelector('details').open = true;"
        f"{FIRST_EVENT}.querySelector('summary').focus();"
        "window.row = document.activeElement.closest('tr'); window.chip = document.querySelector('#chips td');"
        "getSelection().selectAllChildren(document.querySelector('h1')); scrollTo(0, 400);"
    )
    verdict = tab.run("document.querySelector('h1').innerText")
    before = tab.run("document.querySelector('.as-of').textContent")
    write(daemon, 2)
    tab.until(f"{FIRST_EVENT}.innerText.includes('TESTEVENT 2')")
    assert tab.run("window.same") == 1  # it was not loaded again
    assert tab.run("document.activeElement.closest('tr') === window.row && window.row.isConnected")
    assert tab.run("window.row.querySelector('details').open")
    assert tab.run("document.querySelector('#chips td') === window.chip")  # what did not change was not made again
    assert tab.run("getSelection().toString()") == verdict
    assert tab.run("scrollY") >= 400
    assert tab.run("document.querySelector('.as-of').textContent") != before


def test_hostile_text_is_text(tab: Tab, daemon: DaemonInCloud) -> None:
    write(daemon, 3, ATTACK)
    tab.until(f"{FIRST_EVENT}.innerText.includes('TESTEVENT 3')")  # it came by the script
    assert ATTACK in tab.run(f"{FIRST_EVENT}.querySelector('pre').textContent")
    tab.open(url(daemon))  # and now with the page
    assert ATTACK in tab.run(f"{FIRST_EVENT}.querySelector('pre').textContent")
    assert tab.run("[document.images.length, document.scripts.length]") == [0, 1]
    assert not tab.run("document.title.includes('taken')")


def test_the_policy_refuses_what_is_not_ours(browser: Browser, daemon: DaemonInCloud) -> None:
    """The positive control of the tests above: what would be complained of is."""
    with browser.tab() as tab:
        tab.open(url(daemon))
        tab.run(
            "const s = document.createElement('script'); s.textContent = 'window.taken = 1'; document.body.append(s)"
        )
        tab.run("fetch('http://127.0.0.1:9/').catch(() => 0)")
        assert tab.run("window.taken") is None
        text = " ".join(tab.complaints)
        assert "Executing inline script violates" in text
        assert "connect to 'http://127.0.0.1:9/' violates" in text or "Refused to connect" in text


def test_the_keyboard_reaches_all_of_it_and_a_screen_reader_its_parts(tab: Tab) -> None:
    tab.press("Tab")
    assert tab.run("document.activeElement.textContent") == "Skip to the content"
    tab.press("Enter")
    assert tab.run("location.hash") == "#main"
    reached = set()
    for _ in range(60):
        tab.press("Tab")
        reached.add(tab.run("document.activeElement.localName + ' ' + document.activeElement.textContent.slice(0, 30)"))
    assert any(one.startswith("summary") and "Why tpuwatch thinks so" in one for one in reached)
    assert "a /metrics" in reached
    tree = tab.accessible()
    roles = [one["role"] for one in tree]
    assert {"banner", "main", "contentinfo", "navigation", "status"} <= set(roles)
    assert roles.count("status") == 1
    title = tab.run("document.querySelector('h1').innerText")
    assert [one["name"] for one in tree if one["role"] == "heading" and one.get("level") == 1] == [title]
    assert {"Chip", "HBM in use", "Duty cycle"} <= {one["name"] for one in tree if one["role"] == "columnheader"}
    assert any(one["role"] in ("image", "img") and one["name"].startswith("12 launches") for one in tree)


def test_on_a_phone_and_without_scripts(browser: Browser, daemon: DaemonInCloud) -> None:
    with browser.tab(width=390, height=844, scripts=False) as tab:
        tab.open(url(daemon))
        assert tab.run("document.documentElement.scrollWidth") == 390
        assert "train-1" in tab.run("document.querySelector('header').innerText")


@pytest.mark.parametrize("dark", [False, True])
def test_it_is_dark_where_that_is_preferred(browser: Browser, daemon: DaemonInCloud, *, dark: bool) -> None:
    with browser.tab(dark=dark) as tab:
        tab.open(url(daemon))
        red = tab.run("parseInt(getComputedStyle(document.body).backgroundColor.slice(4))")
        assert (red < 60) is dark


def test_a_daemon_that_is_gone_leaves_no_good_word_behind(tmp_path: Path, browser: Browser) -> None:
    """And the verdict of a node that gets stuck comes to the page and to its screen reader by themselves."""
    with stage.node(tmp_path / "stage") as daemon, browser.tab() as tab:
        tab.open(url(daemon))
        tab.run("window.live = document.querySelector('[role=status]')")
        stage.stuck(daemon)
        tab.until("window.live.isConnected && /train-1 is (runtime|node)_stuck/.test(window.live.innerText)")
        assert tab.run("document.querySelector('#first').innerText").startswith("What to do first")
        assert tab.run("document.getElementById('icon').href.includes('d1372c')")
        tab.complaints.clear()
        daemon.kill()
        tab.until("document.getElementById('stale').innerText.startsWith('Not known now')")
        assert tab.run("document.title").startswith("? ")
