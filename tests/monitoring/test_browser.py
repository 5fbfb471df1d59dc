"""The page in a browser: what it shows, on a desk and on a phone, by keyboard, in light and dark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sparkjet.clock import ManualClock
from sparkjet.monitoring import Run
from sparkjet.monitoring.page import Page
from tests.monitoring.browser import Browser
from tests.monitoring.reports import NOW, SECOND, report, substream
from tests.monitoring.screenshots import IMAGES, PHONE, WIDTH, open_there, runs

LARGEST = 120_000
"""Bytes of a picture in the guide."""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("profile")) as browser:
        yield browser


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Page]:
    page = Page(runs=runs(tmp_path), clock=ManualClock(NOW))
    yield page
    page.stop()


def test_on_a_desk_it_names_the_substream_that_holds_the_stream_back(browser: Browser, page: Page) -> None:
    open_there(browser, page, WIDTH)
    sentence = browser.value("document.getElementById('sentence').textContent")
    assert sentence.startswith("“readings/3” holds the stream back by ")
    cells = "[...document.querySelectorAll('#substreams td:first-child')].map((each) => each.textContent)"
    assert browser.value(cells)[0] == "readings/3"
    numbers = browser.value("document.getElementById('numbers').textContent")
    assert "windows open9" in numbers
    # Only where it is idle, and not for all of its line.
    assert browser.value("document.querySelectorAll('#watermarks .shade').length") == 1
    assert browser.value("document.querySelector('#watermarks .shade').textContent") == "readings/4 (idle)"
    assert browser.value("document.getElementById('grid-told').textContent").startswith("3 members, 271 partitions")
    assert browser.complaints == []


def test_by_keyboard_late_rows_are_looked_at_and_another_query_is_chosen(browser: Browser, page: Page) -> None:
    open_there(browser, page, WIDTH)
    for _ in range(4):
        if browser.value("document.activeElement.id") == "look":
            break
        browser.press("Tab", 9)
    assert browser.value("document.activeElement.id") == "look"
    browser.press("Enter", 13)
    browser.waits_for("document.querySelectorAll('#look-rows tbody tr').length === 6", "late rows")
    assert "d-17" in browser.value("document.getElementById('look-rows').textContent")
    browser.ask("Runtime.evaluate", expression="document.querySelector('nav button').focus()")
    browser.press("Tab", 9)
    browser.press("Enter", 13)
    browser.waits_for("document.title.startsWith('orders')", "the other query")
    told = browser.value("document.getElementById('told').textContent")
    assert "The query has failed. SinkError: [SPARKJET_SINK]" in told
    # Nothing of the other one stays.
    assert browser.value("document.getElementById('look-rows').textContent") == ""
    assert browser.value("document.getElementById('grid').hidden") is True


def test_on_a_phone_nothing_is_wider_than_the_screen_and_dark_is_dark(browser: Browser, page: Page) -> None:
    open_there(browser, page, PHONE, dark=True)
    assert browser.value("document.documentElement.scrollWidth") <= PHONE
    assert browser.value("getComputedStyle(document.body).backgroundColor") == "rgb(21, 24, 28)"


def test_without_the_token_the_page_asks_for_it(browser: Browser, page: Page) -> None:
    browser.ask("Runtime.evaluate", expression="sessionStorage.clear()")
    browser.shows(page.address, WIDTH)
    browser.waits_for("!document.getElementById('login').hidden", "the question")
    assert "readings" not in browser.value("document.body.innerText")
    browser.value(f"document.getElementById('token').value = '{page.url}'")
    browser.ask("Runtime.evaluate", expression="document.querySelector('#login button').click()")
    browser.waits_for("document.title.startsWith('readings')", "the page")
    assert browser.value("document.getElementById('login').hidden") is True
    # The address with its token in a tab that shows the page; without it again, as people pass addresses on.
    browser.value("sessionStorage.clear()")
    browser.ask("Page.navigate", url=page.url)
    browser.waits_for(f"sessionStorage.length === 1 && location.href === '{page.address}'", "the token to be kept")


def test_a_thousand_substreams_stay_readable(browser: Browser, page: Page) -> None:
    run = Run("many", "many", "many", NOW + 1)
    many = {f"p{number}": substream(NOW - number, holds=number == 999) for number in range(1000)}
    many["p990"] = substream(NOW - 990, held=(252 * SECOND, "p999"))
    run.history.add(report(1, {f"p{number}": substream(NOW + number) for number in range(1000)}), NOW)
    run.history.add(report(2, many), NOW + 1)
    page._routes.runs.add(run)
    browser.shows(page.url, WIDTH)
    browser.waits_for("document.title.startsWith('many')", "the newest query")
    assert browser.value("document.querySelectorAll('#substreams tbody tr').length") == 20
    assert "waits, 4 min 12 s ahead of p999" in browser.value("document.getElementById('substreams').textContent")
    # Others were the last ones before, and the chart has those of now.
    assert browser.value("document.querySelectorAll('#watermarks .legend li').length") == 21
    assert "p999" in browser.value("document.getElementById('watermarks').textContent")
    assert "980 more substreams" in browser.value("document.getElementById('others').textContent")


def test_pictures_of_the_guide_are_small() -> None:
    sizes = {name: (IMAGES / name).stat().st_size for name in ("page.png", "page-phone.png")}
    assert max(sizes.values()) <= LARGEST, sizes
