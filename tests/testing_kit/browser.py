"""A headless Chromium, driven by its WebDriver: as much of the protocol as a test of a page needs."""

from __future__ import annotations

import base64
import http.client
import json
import shutil
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

__all__ = ["Browser", "BrowserError", "missing_programs"]

_START_SECONDS = 20.0
_ARGUMENTS = (
    "--headless=new",
    "--no-sandbox",  # as root, in a container
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
)


class BrowserError(Exception):
    """The driver did not start, or answered with an error."""


def missing_programs() -> list[str]:
    """Programs that are not on this machine."""
    is_there = shutil.which("chromium") or shutil.which("chromium-browser")
    missing = [] if is_there else ["chromium"]
    return missing if shutil.which("chromedriver") else [*missing, "chromedriver"]


class Browser:
    """One window, with a fresh profile; a context manager.

    Args:
        folder: Where its profile may lie; somebody else removes it.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self._port = 0
        self._session = ""

    def open(self, address: str) -> None:
        """Load a page, and forget what the one before logged."""
        self.console()
        self.requests()
        self._ask("POST", "url", {"url": address})

    def run(self, script: str, *arguments: object) -> Any:
        """What a function body returns, with ``arguments`` as its own."""
        return self._ask("POST", "execute/sync", {"script": script, "args": list(arguments)})

    def run_until_told(self, script: str, *arguments: object) -> Any:
        """As `run`, for a body that calls its last argument with the value."""
        return self._ask("POST", "execute/async", {"script": script, "args": list(arguments)})

    def press(self, *keys: str) -> None:
        """Press and release keys, one after another, where the focus is."""
        actions = [{"type": kind, "value": key} for key in keys for kind in ("keyDown", "keyUp")]
        self._ask("POST", "actions", {"actions": [{"type": "key", "id": "k", "actions": actions}]})

    def point(self, x: float, y: float) -> None:
        """Move the mouse there, in pixels of the window."""
        move = {"type": "pointerMove", "duration": 0, "x": round(x), "y": round(y)}
        self._ask(
            "POST", "actions", {"actions": [{"type": "pointer", "id": "m", "actions": [move]}]}
        )

    def look(self, *, width: int, height: int = 800, dark: bool = False) -> None:
        """Be a window of that size, of a reader who prefers dark or light pages."""
        self._command(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False},
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._command("Emulation.setEmulatedMedia", {"features": [scheme]})

    def picture(self, path: Path) -> None:
        """Write what is seen as a PNG file."""
        path.write_bytes(base64.b64decode(self._ask("GET", "screenshot")))

    def console(self) -> list[str]:
        """What the page wrote to its console since the last time, errors of its scripts too."""
        logged = self._ask("POST", "se/log", {"type": "browser"})
        return [f"{each['level']}: {each['message']}" for each in logged]

    def requests(self) -> list[str]:
        """The addresses that were asked for since the last time, the page's own too."""
        logged = self._ask("POST", "se/log", {"type": "performance"})
        messages = [json.loads(each["message"])["message"] for each in logged]
        return [
            each["params"]["request"]["url"]
            for each in messages
            if each["method"] == "Network.requestWillBeSent"
        ]

    def _command(self, name: str, parameters: dict[str, Any]) -> None:
        self._ask("POST", "goog/cdp/execute", {"cmd": name, "params": parameters})

    def _ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        return self._exchange(method, f"/session/{self._session}/{path}", body)

    def _exchange(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
        try:
            connection.request(method, path, None if body is None else json.dumps(body))
            answer = connection.getresponse()
            value = json.loads(answer.read())["value"]
        finally:
            connection.close()
        if answer.status != http.client.OK:
            raise BrowserError(f"{path}: {value['error']}: {value['message'].splitlines()[0]}")
        return value

    def __enter__(self) -> Self:
        driver = shutil.which("chromedriver")
        assert driver is not None
        log = (self._folder / "driver.log").open("wb+")
        self._process = subprocess.Popen(
            [driver, "--port=0"], stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL
        )
        try:
            self._port = self._find_port(self._folder / "driver.log")
            browser = shutil.which("chromium") or shutil.which("chromium-browser")
            profile = f"--user-data-dir={self._folder / 'profile'}"
            wanted = {
                "goog:chromeOptions": {"binary": browser, "args": [*_ARGUMENTS, profile]},
                "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
            }
            capabilities = {"capabilities": {"alwaysMatch": wanted}}
            self._session = self._exchange("POST", "/session", capabilities)["sessionId"]
        except BaseException:
            self._process.kill()
            self._process.wait()
            raise
        finally:
            log.close()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._process is not None
        try:
            self._exchange("DELETE", f"/session/{self._session}")  # ends the browser
        finally:
            self._process.terminate()
            self._process.wait()

    def _find_port(self, log: Path) -> int:
        """The port that the driver chose, as it says in its first lines."""
        assert self._process is not None
        end = time.monotonic() + _START_SECONDS
        while time.monotonic() < end and self._process.poll() is None:
            for line in log.read_text(errors="replace").splitlines():
                _, found, port = line.rpartition("started successfully on port ")
                if found:
                    return int(port.rstrip("."))
            time.sleep(0.02)
        raise BrowserError(f"chromedriver did not start: {log.read_text(errors='replace')}")
