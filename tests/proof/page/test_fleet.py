"""Five thousand watched nodes in Chromium. Times are printed, with `--capture=no`, and not judged; weights are."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.e2e.daemon_in_cloud import DaemonInCloud
from tests.proof.page import stage
from tests.proof.page.browser import Browser, Tab, chromium, missing

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())

MAX_BYTES = 25_000  # over the network
ROWS = "document.querySelectorAll('#fleet tbody tr')"
FOUND = "document.querySelector('.pages span').innerText"
BOX = "document.querySelector('input[type=search]')"


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonInCloud]:
    with stage.fleet(tmp_path_factory.mktemp("fleet") / "stage") as daemon:
        yield daemon


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with chromium(tmp_path_factory.mktemp("chromium") / "profile") as started:
        yield started


@pytest.fixture
def tab(browser: Browser, fleet: DaemonInCloud) -> Iterator[Tab]:
    with browser.tab() as opened:
        begun = time.perf_counter()
        opened.open(f"http://{fleet.address}/")
        print(f"\nfrom navigation to a usable table: {1000 * (time.perf_counter() - begun):.0f} ms")
        yield opened
        assert opened.complaints == []


def test_the_first_hundred_of_five_thousand_come_in_a_light_page(tab: Tab) -> None:
    assert tab.run(f"{ROWS}.length") == 100
    assert "1 to 100 of 5,000 nodes" in tab.run(FOUND)
    weight = sum(tab.received.values())
    print(
        f"page weight: {weight} bytes over the network, {tab.run('document.documentElement.outerHTML.length')} in all"
    )
    assert weight < MAX_BYTES


def test_what_is_typed_filters_at_once_and_stands_in_the_address(tab: Tab) -> None:
    tab.press("/")
    assert tab.run(f"document.activeElement === {BOX}")
    tab.run(
        "document.addEventListener('input', () => (window.typed = performance.now()));"
        "new MutationObserver(() => (window.shown ??= performance.now())).observe(document.querySelector('#fleet'),"
        "{childList: true, subtree: true}); 0"
    )
    tab.press(*"train3")
    tab.until(f"/ found in 5,000 nodes/.test({FOUND})")
    print(f"from the last key to the filtered table: {tab.run('shown - typed'):.0f} ms")
    assert tab.run("location.search") == "?find=train3"
    tab.run(f"{BOX}.select()")
    tab.press(*"serve")
    tab.until(f"{FOUND}.includes('of 1,000 found in 5,000 nodes')")
    assert tab.run(f"{BOX}.value") == "serve"  # and the page did not take it away while it was typed
    assert tab.run(f"document.activeElement === {BOX}")


def test_order_verdict_and_page_are_links_that_the_back_button_knows(tab: Tab) -> None:
    tab.run("[...document.querySelectorAll('th a')].find(a => a.textContent === 'Node').focus()")
    tab.press("Enter")
    tab.until(f"{ROWS}[1].innerText.includes('serve-2')")  # numbers as numbers
    assert tab.run("document.activeElement.textContent") == "Node"
    assert tab.run("document.querySelector('[aria-sort=ascending]').innerText") == "Node"
    tab.run("[...document.querySelectorAll('.choices a')].find(a => a.textContent.startsWith('stopped')).click()")
    tab.until(f"{FOUND}.includes('of 10 found')")
    assert tab.run("location.search") == "?verdict=stopped&sort=node"
    tab.run("history.back()")
    tab.until(f"{FOUND}.includes('1 to 100 of 5,000')")
    tab.run("document.querySelector('a[rel=next]').click()")
    tab.until(f"{FOUND}.includes('101 to 200 of 5,000')")
    with_filter = tab.run("location.href")
    tab.open(with_filter)  # as one whom it was sent to
    assert "101 to 200 of 5,000" in tab.run(FOUND)
    tab.run(f"{ROWS}[0].querySelector('a').click()")
    tab.until("location.search.startsWith('?node=')")
    tab.until("document.querySelector('h1')?.innerText.endsWith(' is healthy')")
