"""A real browser, driven through Chromium's own pipe: no driver and no library between."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")
FOUND = next((path for name in NAMES if (path := shutil.which(name))), None)
needs_browser = pytest.mark.skipif(
    FOUND is None, reason=f"no browser: none of {', '.join(NAMES)} is installed"
)
QUIET = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-quic"),
)


class Browser:
    """One tab."""

    def __init__(self, read: int, write: int) -> None:
        self._read, self._write = read, write
        self._left, self._count, self._session = b"", 0, ""
        self.complaints: list[str] = []
        self.requests: list[str] = []
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for part in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{part}.enable")

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One command of the DevTools protocol."""
        self._count += 1
        message = {"id": self._count, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next(60)
            if answer.get("id") == self._count:
                assert "error" not in answer, answer
                result: dict[str, Any] = answer["result"]
                return result

    def _next(self, seconds: float) -> dict[str, Any]:
        deadline = time.monotonic() + seconds
        while b"\0" not in self._left:
            ready, _, _ = select.select([self._read], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, "the browser does not answer"
            self._left += os.read(self._read, 1 << 20)
        one, self._left = self._left.split(b"\0", 1)
        answer: dict[str, Any] = json.loads(one)
        self._note(answer.get("method"), answer.get("params", {}))
        return answer

    def _note(self, method: str | None, told: dict[str, Any]) -> None:
        if method == "Runtime.exceptionThrown":
            self.complaints.append(str(told["exceptionDetails"]))
        if method == "Runtime.consoleAPICalled" and told["type"] in ("error", "warning", "assert"):
            self.complaints.append(str(told["args"]))
        if method == "Log.entryAdded" and told["entry"]["level"] in ("error", "warning"):
            self.complaints.append(f"{told['entry']['text']} {told['entry'].get('url', '')}")
        if method == "Network.requestWillBeSent":
            self.requests.append(told["request"]["url"])

    def open(self, address: str) -> float:
        """Load a page to its end; the seconds that took."""
        began = time.monotonic()
        self.ask("Page.navigate", url=address)
        self.wait("document.readyState === 'complete' && location.href !== 'about:blank'")
        return time.monotonic() - began

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression."""
        answer = self.ask("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def wait(self, expression: str, seconds: float = 30) -> None:
        """Until an expression is true."""
        deadline = time.monotonic() + seconds
        while not self.evaluate(f"Boolean({expression})"):
            assert time.monotonic() < deadline, f"waited {seconds} s in vain for {expression}"
            time.sleep(0.05)

    def look(self, width: int, *, dark: bool = False) -> None:
        """The size and the taste of the reader."""
        self.ask(
            "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False
        )
        taste = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.ask("Emulation.setEmulatedMedia", features=[taste])

    def key(self, name: str) -> None:
        """Press a key."""
        for kind in ("keyDown", "keyUp"):
            self.ask("Input.dispatchKeyEvent", type=kind, key=name, code=name)

    def picture(self, file: Path, *, whole: bool = True) -> None:
        """A screenshot."""
        shot = self.ask("Page.captureScreenshot", captureBeyondViewport=whole)
        file.write_bytes(base64.b64decode(shot["data"]))


@contextmanager
def browsing(folder: Path) -> Iterator[Browser]:
    """A browser with an empty profile, gone afterwards."""
    assert FOUND is not None
    (there, write), (read, back) = os.pipe(), os.pipe()
    there, back = (fcntl.fcntl(end, fcntl.F_DUPFD, 20) for end in (there, back))

    def connect() -> None:  # Chromium listens at 3 and answers at 4
        os.dup2(there, 3)
        os.dup2(back, 4)

    command = [FOUND, *QUIET, "--remote-debugging-pipe", f"--user-data-dir={folder / 'profile'}"]
    process = subprocess.Popen(
        command, pass_fds=(3, 4), preexec_fn=connect, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        yield Browser(read, write)
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        for end in (there, back, read, write):
            os.close(end)
