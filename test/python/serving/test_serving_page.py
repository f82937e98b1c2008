# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The page to chat with, in a browser: what is typed is asked, what comes is shown as text, and what can be stopped is.

`RLX_TEST_PICTURES=FOLDER` writes pictures of it there.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("starlette", reason="needs the extra 'serve'")

import browser
import httpx
from served import Served, served

from rlx_mlir.models.loading import load_model
from rlx_mlir.models.model import Model
from rlx_mlir.serving.app import page as page_of_server

#: What an answer may be made of: markup that must not become any, and the little that is shown in another way.
HOSTILE = (
    "Hi <b>you</b> <img src=x onerror='window.hacked=1'><script>window.hacked=1</script>\n\n"
    "A `piece` of **weight**:\n```py\nif a < b:\n    print('<i>')\n```\nEnd."
)


@pytest.fixture(scope="module")
def model(tiny_llama: Path) -> Model:
    return load_model(tiny_llama, context=256, chunk=16)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[browser.Page]:
    program = browser.find()
    if program is None:
        pytest.skip("needs Chromium")
    with browser.page(program, tmp_path_factory.mktemp("profile")) as found:
        yield found


@pytest.fixture
def server(model: Model) -> Iterator[Served]:
    with served(model) as found:
        yield found


def picture(page: browser.Page, name: str) -> None:
    folder = os.environ.get("RLX_TEST_PICTURES")
    if folder:
        page.picture(Path(folder) / f"{name}.png")


def ask(page: browser.Page, text: str) -> None:
    page.run("document.getElementById('question').focus()")
    page.type(text)
    page.press("Enter")


def settle(page: browser.Page) -> None:
    page.wait("!document.getElementById('send').hidden")


def test_a_conversation(server: Served, page: browser.Page) -> None:
    page.said.clear()
    page.size(1280, 800)
    page.go(server.url)
    page.wait("document.getElementById('model').textContent === 'tiny'")
    assert page.run("document.activeElement.id") == "question"
    picture(page, "empty")
    page.run("document.getElementById('tokens').value = 12")
    page.run("document.getElementById('seed').value = 3")
    for number, text in enumerate(("hello <b>you</b>", "the cat"), 1):
        ask(page, text)
        page.wait(f"document.querySelectorAll('.turn').length === {2 * number}")
        settle(page)
        assert page.run("[...document.querySelectorAll('.user')].at(-1).textContent") == text
    assert page.run("document.querySelectorAll('#talk b').length") == 0
    assert re.search(r"\d+ tokens, [\d.]+ per second", page.run("document.getElementById('talk').textContent"))
    talk = [{"role": "user", "content": "hello <b>you</b>"}]
    with server.client() as client:
        asked = {"model": "tiny", "messages": talk, "max_tokens": 12, "seed": 3, "temperature": 0.8}
        text = client.post("/v1/chat/completions", json=asked).json()["choices"][0]["message"]["content"]
    assert page.run("messages[1].content") == text
    assert page.run("messages.length") == 4
    page.run("document.getElementById('new').click()")
    assert page.run("messages.length + document.querySelectorAll('.turn').length") == 0
    assert page.said == []


def test_what_comes_is_text(server: Served, page: browser.Page) -> None:
    page.go(server.url)
    page.wait("document.getElementById('model').textContent === 'tiny'")
    page.run(f"turn('user', 'Show me.'); turn('assistant', {HOSTILE!r}); undefined")
    assert page.run("window.hacked") is None
    assert page.run("document.querySelectorAll('#talk img, #talk script, #talk b, #talk i').length") == 0
    assert page.run("document.querySelector('#talk pre code').textContent") == "if a < b:\n    print('<i>')"
    assert page.run("document.querySelector('#talk p code').textContent") == "piece"
    assert page.run("document.querySelector('#talk strong').textContent") == "weight"
    assert "<script>window.hacked=1</script>" in page.run("document.querySelector('.assistant').textContent")
    for name, width, height in (("desktop", 1280, 800), ("phone", 360, 640)):
        for dark in (False, True):
            page.size(width, height, dark=dark)
            assert page.run("document.documentElement.scrollWidth <= innerWidth"), name
            assert page.run("document.getElementById('send').getBoundingClientRect().right <= innerWidth")
            picture(page, f"{name}-{'dark' if dark else 'light'}")
    page.run("document.getElementById('open').click()")
    assert page.run("document.getElementById('settings').open")
    assert page.run("document.getElementById('settings').getBoundingClientRect().right <= innerWidth")
    picture(page, "phone-settings")
    page.press("Escape")
    page.wait("!document.getElementById('settings').open")
    page.size(1280, 800)


def test_an_answer_is_stopped(server: Served, page: browser.Page) -> None:
    page.go(server.url)
    page.wait("document.getElementById('model').textContent === 'tiny'")
    server.gate.clear()
    ask(page, "hello")
    page.wait("!document.getElementById('stop').hidden")
    deadline = time.monotonic() + 60
    while not server.engine.waiting:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    picture(page, "running")
    page.run("document.getElementById('stop').click()")
    settle(page)
    assert "stopped" in page.run("document.getElementById('talk').textContent")
    server.gate.set()
    while not server.engine.is_idle:  # nobody works for it any more
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert not any(own.ids for work in server.service._works for own in work.requests)
    ask(page, "hello")
    page.wait("document.querySelectorAll('.user').length === 2")
    settle(page)
    assert page.run("messages.filter((own) => own.role === 'user').length") == 1


def test_errors_are_shown(model: Model, page: browser.Page) -> None:
    with served(model, api_key="k3y", max_tokens=20) as server:
        page.go(server.url)
        page.wait("document.getElementById('model').textContent.includes('no key of this server')")
        page.run("document.getElementById('open').click(); document.getElementById('key').value = 'k3y'")
        page.run("document.getElementById('close').click()")
        page.wait("document.getElementById('model').textContent === 'tiny'")
        page.run("document.getElementById('tokens').value = 50")
        ask(page, "hello")
        page.wait("document.querySelector('.error') !== null")
        assert "from 1 to 20" in page.run("document.querySelector('.error').textContent")
        settle(page)
        page.run("document.getElementById('tokens').value = 5")
        ask(page, "hello")
        page.wait("messages.length === 2")
    page.run("sessionStorage.clear()")


def test_the_page_needs_nothing_else(server: Served) -> None:
    with server.client() as client:
        reply = client.get("/")
    content, policy = page_of_server()
    assert reply.content == content
    assert reply.headers["content-type"] == "text/html; charset=utf-8"
    assert reply.headers["content-security-policy"] == policy
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy
    text = content.decode()
    assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(|https?://|@import|url\(", text)


def test_two_pages_at_a_time(server: Served) -> None:
    """The page itself is served while the engine is busy."""
    server.gate.clear()
    asked = {"model": "tiny", "messages": [{"role": "user", "content": "x"}], "max_tokens": 3}
    found: list[int] = []

    def post() -> None:
        with server.client() as client:
            found.append(client.post("/v1/chat/completions", json=asked).status_code)

    thread = threading.Thread(target=post)
    thread.start()
    assert httpx.get(server.url, trust_env=False).status_code == 200
    server.gate.set()
    thread.join(60)
    assert found == [200]
