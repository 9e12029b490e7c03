"""Headless Chromium over its debugging pipe: what a page asks for, complains of, and looks like."""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
TIMEOUT_S = 60.0
# Chromium reads commands from descriptor 3 and answers on 4.
_START = """
import os, sys
read, write = int(sys.argv[1]), int(sys.argv[2])
os.dup2(read, 3)
os.dup2(write, 4)
os.execv(sys.argv[3], sys.argv[3:])
"""

_COUNT_COLORS = """async (source, box) => {
    const image = new Image();
    image.src = source;
    await image.decode();
    const canvas = document.createElement("canvas");
    canvas.width = box.width; canvas.height = box.height;
    const context = canvas.getContext("2d");
    context.drawImage(image, -box.x, -box.y);
    const data = context.getImageData(0, 0, canvas.width, canvas.height).data;
    const counts = new Map();
    for (let i = 0; i < data.length; i += 4) {
        const color = data[i] << 16 | data[i + 1] << 8 | data[i + 2];
        counts.set(color, (counts.get(color) || 0) + 1);
    }
    return {colors: counts.size, commonest: Math.max(...counts.values()) * 4 / data.length};
}"""


def find() -> str | None:
    """Path of an installed Chromium."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """A browser process with a profile of its own; a context manager."""

    def __init__(self, chromium: str, profile: Path) -> None:
        commands, self._write = os.pipe()
        self._read, answers = os.pipe()
        # Out of the way of 3 and 4.
        high = [fcntl.fcntl(fd, fcntl.F_DUPFD, 50) for fd in (commands, answers)]
        arguments = [
            chromium,
            "--headless=new",
            "--remote-debugging-pipe",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--disable-background-networking",
            "--no-first-run",
            "--hide-scrollbars",
            "--host-resolver-rules=MAP * ~NOTFOUND",
            f"--user-data-dir={profile}",
        ]
        if os.geteuid() == 0:
            arguments.append("--no-sandbox")
        self._process = subprocess.Popen(
            [sys.executable, "-c", _START, *map(str, high), *arguments],
            pass_fds=high,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for fd in (commands, answers, *high):
            os.close(fd)
        self._buffer = b""
        self._number = 0
        self.events: list[dict[str, Any]] = []

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *exception: object) -> None:
        with contextlib.suppress(OSError):
            self.call("Browser.close")
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._write)
        os.close(self._read)

    def _next(self, until: float) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._read], [], [], max(0.0, until - time.monotonic()))
            block = os.read(self._read, 1 << 20) if ready else b""
            if not block:
                raise OSError("Chromium does not answer")
            self._buffer += block
        message, _, self._buffer = self._buffer.partition(b"\0")
        parsed: dict[str, Any] = json.loads(message)
        return parsed

    def call(self, method: str, session: str | None = None, **params: Any) -> dict[str, Any]:
        """Sends a command and returns its result; events that come before are kept."""
        self._number += 1
        command: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if session:
            command["sessionId"] = session
        os.write(self._write, json.dumps(command).encode() + b"\0")
        until = time.monotonic() + TIMEOUT_S
        while (message := self._next(until)).get("id") != self._number:
            self.events.append(message)
        if "error" in message:
            raise OSError(f"{method}: {message['error']}")
        result: dict[str, Any] = message["result"]
        return result

    def wait_for(self, method: str, session: str) -> None:
        """Until an event has come."""
        until = time.monotonic() + TIMEOUT_S

        def has_come() -> bool:
            return any(
                e.get("method") == method and e.get("sessionId") == session for e in self.events
            )

        while not has_come():
            self.events.append(self._next(until))


class Page:
    """One page, loaded.

    Args:
        browser: Where.
        file: What.
        width: Of the window, in pixels.
        height: Likewise.
        scheme: ``light`` or ``dark``.
    """

    def __init__(
        self, browser: Browser, file: Path, width: int, height: int = 900, scheme: str = "light"
    ) -> None:
        self._browser = browser
        target = browser.call("Target.createTarget", url="about:blank")["targetId"]
        attached = browser.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        self._target, self.width = target, width
        for domain in ("Page", "Network", "Runtime", "Log"):
            self._call(f"{domain}.enable")
        self._call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        media = [{"name": "prefers-color-scheme", "value": scheme}]
        self._call("Emulation.setEmulatedMedia", features=media)
        browser.events.clear()
        self._call("Page.navigate", url=file.as_uri())
        browser.wait_for("Page.loadEventFired", self._session)
        self.evaluate("new Promise(done => setTimeout(done, 100))")
        mine = [e for e in browser.events if e.get("sessionId") == self._session]
        self.requests = [
            e["params"]["request"]["url"]
            for e in mine
            if e["method"] == "Network.requestWillBeSent"
        ]
        self.complaints = [
            e["params"]
            for e in mine
            if e["method"] in ("Runtime.exceptionThrown", "Runtime.consoleAPICalled")
            or (e["method"] == "Log.entryAdded" and e["params"]["entry"]["level"] != "verbose")
        ]

    def _call(self, method: str, **params: Any) -> dict[str, Any]:
        return self._browser.call(method, self._session, **params)

    def evaluate(self, expression: str) -> Any:
        """The value of an expression of JavaScript, awaited."""
        answer = self._call(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True
        )
        if "exceptionDetails" in answer:
            raise AssertionError(answer["exceptionDetails"])
        return answer["result"].get("value")

    def screenshot(self, *, whole: bool = False) -> bytes:
        """A PNG of the window, or of the whole page."""
        answer = self._call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        if whole:
            size = self._call("Page.getLayoutMetrics")["cssContentSize"]
            clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
            answer = self._call(
                "Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip
            )
        return base64.b64decode(answer["data"])

    def close(self) -> None:
        """Closes the page."""
        self._browser.call("Target.closeTarget", targetId=self._target)


def pixels(browser: Browser, folder: Path, png: bytes, box: dict[str, float]) -> dict[str, Any]:
    """What is in a part of a picture: number of colors, and the share of the commonest.

    Args:
        browser: Decodes the picture.
        folder: For a page to do it in.
        png: The picture.
        box: ``x``, ``y``, ``width`` and ``height`` in pixels.
    """
    blank = folder / "blank.html"
    blank.write_text("<!DOCTYPE html><title>blank</title>", encoding="utf-8")
    page = Page(browser, blank, 800)
    source = json.dumps("data:image/png;base64," + base64.b64encode(png).decode())
    found: dict[str, Any] = page.evaluate(f"({_COUNT_COLORS})({source}, {json.dumps(box)})")
    page.close()
    return found
