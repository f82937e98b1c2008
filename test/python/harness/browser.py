# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Chromium without a window, by the protocol of its developer tools over two pipes."""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")


def find() -> str | None:
    """The program, where there is one."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class Page:
    """A page of a browser.

    Attributes:
        said: what the page wrote to its console, and errors of its scripts and of its policy.
    """

    def __init__(self, write: int, read: int) -> None:
        self._write, self._read = write, read
        self._held = b""
        self._number = 0
        self._session: str | None = None
        self.said: list[str] = []
        target = self._ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._ask(f"{domain}.enable")

    def _ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return dict(answer["result"])
            self._note(answer)

    def _receive(self) -> dict[str, Any]:
        deadline = time.monotonic() + 120
        while b"\0" not in self._held:
            assert select.select([self._read], [], [], max(0, deadline - time.monotonic()))[0], "the browser is silent"
            part = os.read(self._read, 1 << 16)
            assert part, "the browser ended"
            self._held += part
        message, _, self._held = self._held.partition(b"\0")
        return dict(json.loads(message))

    def _note(self, event: dict[str, Any]) -> None:
        given = event.get("params", {})
        if event.get("method") == "Log.entryAdded":
            self.said.append(given["entry"]["text"])
        elif event.get("method") == "Runtime.exceptionThrown":
            self.said.append(json.dumps(given["exceptionDetails"]))
        elif event.get("method") == "Runtime.consoleAPICalled":
            self.said.append(json.dumps(given["args"]))

    def size(self, width: int, height: int, *, dark: bool = False) -> None:
        """The size of the window, and whether the user likes it dark."""
        self._ask(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._ask("Emulation.setEmulatedMedia", features=[scheme])

    def go(self, url: str) -> None:
        """Opens an address."""
        self._ask("Page.navigate", url=url)
        self.wait("document.readyState === 'complete' && location.href !== 'about:blank'")

    def run(self, script: str) -> Any:
        """The value of an expression."""
        found = self._ask("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def wait(self, script: str) -> None:
        """Waits until an expression is true."""
        deadline = time.monotonic() + 120
        while not self.run(script):
            assert time.monotonic() < deadline, script
            time.sleep(0.05)

    def type(self, text: str) -> None:
        """Text, as if pasted where the focus is."""
        self._ask("Input.insertText", text=text)

    def press(self, key: str) -> None:
        """A key, such as Enter."""
        text = {"text": "\r"} if key == "Enter" else {}
        code = {"Enter": 13, "Tab": 9, "Escape": 27}[key]
        self._ask("Input.dispatchKeyEvent", type="keyDown", key=key, code=key, windowsVirtualKeyCode=code, **text)
        self._ask("Input.dispatchKeyEvent", type="keyUp", key=key, code=key, windowsVirtualKeyCode=code)

    def picture(self, path: Path) -> None:
        """Writes what is seen as a PNG file."""
        path.write_bytes(base64.b64decode(self._ask("Page.captureScreenshot", format="png")["data"]))


@contextlib.contextmanager
def page(program: str, folder: Path) -> Iterator[Page]:
    """A page of a browser of its own, whose profile is in a folder."""
    from_us, to_us = os.pipe(), os.pipe()

    def pipes() -> None:  # it reads at 3 and writes at 4
        ends = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (from_us[0], to_us[1])]
        for number, end in enumerate(ends, 3):
            os.dup2(end, number)

    command = [
        program,
        "--headless=new",
        "--remote-debugging-pipe",
        f"--user-data-dir={folder}",
        *("--no-first-run", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars", "--disable-extensions"),
        *(["--no-sandbox"] if os.geteuid() == 0 else []),
    ]
    process = subprocess.Popen(command, preexec_fn=pipes, close_fds=False, stderr=subprocess.DEVNULL)
    os.close(from_us[0])
    os.close(to_us[1])
    try:
        yield Page(from_us[1], to_us[0])
    finally:
        process.kill()
        process.wait()
        os.close(from_us[1])
        os.close(to_us[0])
