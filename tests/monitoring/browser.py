"""A headless Chromium, asked over its DevTools protocol."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import websocket
from typing_extensions import Self

from tests.faults.waiting import until

NAMES = "chromium", "chromium-browser", "google-chrome"
PATIENCE = 60
_OPTIONS = (
    "--headless=new",
    # As root, and in containers, there is no sandbox.
    "--no-sandbox",
    "--disable-dev-shm-usage",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-extensions",
    "--hide-scrollbars",
    "--remote-debugging-port=0",
)


def program() -> str:
    """Where it is; a machine without one skips the test, but for CI's."""
    found = next((place for place in map(shutil.which, NAMES) if place is not None), None)
    if found is None:
        if os.environ.get("SPARKJET_BROWSER_REQUIRED"):
            pytest.fail("there is no Chromium")
        pytest.skip("there is no Chromium")
    return found


class Browser:
    """One tab of its own Chromium.

    Args:
        home: A directory for its profile.
    """

    def __init__(self, home: Path) -> None:
        command = [program(), *_OPTIONS, f"--user-data-dir={home}", "about:blank"]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        active = home / "DevToolsActivePort"
        try:
            until(lambda: active.exists() and active.read_text().count("\n") > 0, "Chromium's port", PATIENCE)
            port, path = active.read_text().splitlines()
            self._socket = websocket.create_connection(
                f"ws://127.0.0.1:{port}{path}", timeout=PATIENCE, suppress_origin=True
            )
        except BaseException:
            self._process.kill()
            self._process.wait()
            raise
        self._number = 0
        self._session: str | None = None
        self.complaints: list[str] = []
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.ask(f"{domain}.enable")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()
        self._process.terminate()
        self._process.wait(PATIENCE)

    def ask(self, method: str, **given: Any) -> dict[str, Any]:
        """Call a method of the protocol; what the page complains of meanwhile is kept."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": given}
        if self._session is not None:
            message["sessionId"] = self._session
        self._socket.send(json.dumps(message))
        while True:
            answer: dict[str, Any] = json.loads(self._socket.recv())
            if answer.get("method") == "Log.entryAdded":
                self.complaints.append(answer["params"]["entry"]["text"])
            elif answer.get("method") == "Runtime.exceptionThrown":
                self.complaints.append(str(answer["params"]["exceptionDetails"]))
            if answer.get("id") == self._number:
                assert "error" not in answer, answer["error"]
                found: dict[str, Any] = answer["result"]
                return found

    def shows(self, url: str, width: int, height: int = 900, *, dark: bool = False) -> None:
        """Open a page in a window of this width, on a phone if it is narrow."""
        self.ask(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.ask("Emulation.setEmulatedMedia", features=scheme)
        # Otherwise the page before would be looked at, or half of this one.
        self.value("window.before = true")
        self.ask("Page.navigate", url=url)
        self.waits_for("!window.before && document.readyState === 'complete'", url)

    def value(self, expression: str) -> Any:
        """The value of a JavaScript expression."""
        found = self.ask("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def waits_for(self, expression: str, told: str) -> None:
        """Wait until an expression is true."""
        until(lambda: self.value(f"Boolean({expression})"), told, PATIENCE)

    def press(self, key: str, code: int) -> None:
        """Press a key and let go of it."""
        text = {"text": "\r"} if key == "Enter" else {}
        for kind in ("keyDown", "keyUp"):
            typed = text if kind == "keyDown" else {}
            self.ask("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, **typed)

    def picture(self, file: Path) -> None:
        """A picture of what the window shows, as PNG."""
        shot = self.ask("Page.captureScreenshot", format="png", optimizeForSpeed=False)
        file.write_bytes(base64.b64decode(shot["data"]))
