"""The built-in page in a real browser, before a real server whose text is known.

Needs playwright and Chromium, which are not among the test dependencies because of their size:
``pip install playwright``, then Chromium from the system or by ``playwright install chromium``.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.api.serving import Server, start_server

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
expect = sync_api.expect

pytestmark = [pytest.mark.e2e]

CHROMIUM_NAMES = ("chromium", "chromium-browser", "google-chrome")
API_KEY = "open sesame"
# What the model says to any chat.
ANSWER = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_api.sync_playwright() as playwright:
        own = playwright.chromium.executable_path
        found = (
            own
            if os.path.exists(own)
            else next(filter(None, map(shutil.which, CHROMIUM_NAMES)), None)
        )
        if found is None:
            pytest.skip("Chromium is not installed")
        # Without a sandbox: containers and root have none, and only our own page is opened.
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def server(successor_model_path: Path) -> Iterator[Server]:
    """Has a root path; tests reach it as a proxy does, and as one does who knows nothing of it."""
    server = start_server(
        successor_model_path,
        *("--dtype", "float32", "--num-kv-blocks", "1024", "--block-size", "16"),
        *("--root-path", "/llm"),
    )
    yield server
    server.stop()


@pytest.fixture(scope="module")
def locked_server(successor_model_path: Path) -> Iterator[Server]:
    server = start_server(
        successor_model_path,
        "--num-kv-blocks",
        "64",
        "--max-model-len",
        "512",
        "--api-key",
        API_KEY,
    )
    yield server
    server.stop()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A window in which nothing may go wrong: no message on the console, nothing from elsewhere."""
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.set_default_timeout(20_000)
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("requestfailed", lambda request: complaints.append(f"failed: {request.url}"))
    hosts: set[str] = set()
    page.on("request", lambda request: hosts.add(re.sub(r"(?<=[^:/])/.*", "", request.url)))
    yield page
    page.close()
    own = {host for host in hosts if host.startswith(("http://127.0.0.1:", "data:"))}
    if hosts != own:
        raise AssertionError(f"asked elsewhere: {hosts - own}")
    # What the tests themselves provoke: refused requests, and answers cut off by Stop.
    rest = [c for c in complaints if "the server responded with a status of 4" not in c]
    rest = [c for c in rest if not c.startswith("failed: ") or "/v1/chat/completions" not in c]
    if rest:
        raise AssertionError(f"the page complains: {rest}")


def send(page: Page, text: str) -> None:
    page.fill("#text", text)
    page.press("#text", "Enter")


def test_a_message_is_answered_and_the_board_moves(page: Page, server: Server) -> None:
    page.goto(server.url + "/")
    expect(page.locator("#model")).to_have_text("tiny-successor · context of 8,192 tokens")
    page.fill("#max_tokens", "62")
    cached = page.inner_text("#cached")
    send(page, "hello")
    expect(page.locator(".message .body")).to_have_text(["hello", ANSWER])
    facts = re.compile(r"^first token after \d+ ms · 62 tokens · \d+ tokens/s · cut at max tokens$")
    expect(page.locator(".message .facts").last).to_have_text(facts)
    for figure in ("ttft", "itl", "queue"):
        expect(page.locator(f"#{figure}")).to_have_text(re.compile(r"^[\d.]+ m?s$"))
    expect(page.locator("#cached")).not_to_have_text(cached)
    expect(page.locator("#running")).to_have_text("0")
    expect(page.locator("#live")).to_have_text("0")
    expect(page.locator("#cached_bar")).not_to_have_css("width", "0px")


def test_an_answer_goes_on_from_the_whole_conversation(page: Page, server: Server) -> None:
    bodies: list[list[dict[str, str]]] = []
    page.on(
        "request",
        lambda request: (
            request.method == "POST" and bodies.append(request.post_data_json["messages"])
        ),
    )
    page.goto(server.url + "/llm/")
    page.fill("#max_tokens", "3")
    for text in ("one", "two"):
        send(page, text)
        expect(page.locator("#send")).to_have_text("Send")
        expect(page.locator(".message").last).to_contain_text("ABC")
    said = [(message["role"], message["content"]) for message in bodies[-1]]
    assert said == [("user", "one"), ("assistant", "ABC"), ("user", "two")]
    page.click("#clear")
    expect(page.locator(".message")).to_have_count(0)


def test_stop_ends_an_answer_and_its_request(page: Page, server: Server) -> None:
    page.goto(server.url + "/")
    page.fill("#max_tokens", "8000")
    send(page, "hello")
    expect(page.locator(".message .body").last).to_contain_text("ABC")
    page.click("#send")
    expect(page.locator(".message .facts").last).to_have_text(re.compile("stopped by you"))
    server.wait_idle()
    assert server.metric("request_success_total", finished_reason="abort") > 0


def test_a_refused_message_is_explained_and_given_back(page: Page, server: Server) -> None:
    page.goto(server.url + "/")
    page.fill("#temperature", "-1")
    page.fill("#text", "hello")
    page.dispatch_event("#form", "submit")
    expect(page.locator(".message.error")).to_contain_text("temperature must be between")
    expect(page.locator("#text")).to_have_value("hello")
    expect(page.locator(".message")).to_have_count(1)


def test_a_key_is_asked_for_where_one_is_needed(page: Page, locked_server: Server) -> None:
    page.goto(locked_server.url + "/")
    expect(page.locator("#model")).to_have_text("API key needed")
    page.fill("#key", API_KEY)
    page.fill("#max_tokens", "3")
    send(page, "hello")
    expect(page.locator(".message .body").last).to_have_text("ABC")
    expect(page.locator("#model")).to_contain_text("tiny-successor")


@pytest.mark.parametrize("width", [390, 820, 1280])
def test_the_page_fits_the_window(page: Page, server: Server, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 844})
    page.goto(server.url + "/")
    page.fill("#max_tokens", "62")
    send(page, "w" * 300)
    expect(page.locator(".message .body").last).to_have_text(ANSWER)
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_the_page_says_when_its_server_has_gone_and_when_it_is_back(
    browser: Browser, successor_model_path: Path
) -> None:
    flags = ("--num-kv-blocks", "64", "--max-model-len", "512")
    server = start_server(successor_model_path, *flags)
    page = browser.new_page()
    try:
        page.goto(server.url + "/")
        expect(page.locator("#model")).to_contain_text("tiny-successor")
        server.stop()
        expect(page.locator("#model")).to_have_text("server not reachable")
        server = start_server(successor_model_path, *flags, "--port", server.url.rsplit(":", 1)[1])
        expect(page.locator("#model")).to_contain_text("tiny-successor")
    finally:
        page.close()
        server.stop()
