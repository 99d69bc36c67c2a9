"""Debian's Chromium without a screen, by the DevTools protocol over two pipes: JSON messages, each followed by a zero.

https://chromedevtools.github.io/devtools-protocol/ names the methods and events that are used here.
"""

from __future__ import annotations

import base64
import json
import os
import queue
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from tests.e2e.daemon_process import wait_for

PROGRAM: Final = "chromium"
SECONDS: Final = 60.0  # for an answer
# Nothing of the browser's own asks the network, and it is content with a container's little shared memory.
_FLAGS: Final = (
    "--headless=new",
    "--remote-debugging-pipe",
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)
# A key's name: its code, its number, and the text that it types.
_KEYS: Final = {
    "Tab": ("Tab", 9, ""),
    "Enter": ("Enter", 13, "\r"),
    "Space": ("Space", 32, " "),
    "Escape": ("Escape", 27, ""),
    "/": ("Slash", 191, "/"),
}


def missing() -> str:
    """Why there is no browser, a sentence; empty if there is."""
    return "" if shutil.which(PROGRAM) else f"{PROGRAM} is not installed (Debian package {PROGRAM})"


class Browser:
    """A process of Chromium."""

    def __init__(self, to: int, back: int) -> None:
        self._to, self._back = to, back
        self._lock = threading.Lock()
        self._last = 0
        self._answers: dict[int, queue.SimpleQueue[dict[str, Any]]] = {}
        self._tabs: dict[str, Tab] = {}
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def call(self, method: str, session: str | None = None, **given: Any) -> dict[str, Any]:
        """The result of a method; raises AssertionError with the browser's reason."""
        answer: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        with self._lock:
            self._last += 1
            message: dict[str, Any] = {"id": self._last, "method": method, "params": given}
            if session is not None:
                message["sessionId"] = session
            self._answers[self._last] = answer
            os.write(self._to, json.dumps(message).encode() + b"\0")
        reply = answer.get(timeout=SECONDS)
        assert "error" not in reply, f"{method}: {reply['error']}"
        result: dict[str, Any] = reply["result"]
        return result

    @contextmanager
    def tab(self, *, width: int = 1280, height: int = 900, dark: bool = False, scripts: bool = True) -> Iterator[Tab]:
        """An empty page of that size, with a profile of its own."""
        context = self.call("Target.createBrowserContext")["browserContextId"]
        target = self.call("Target.createTarget", url="about:blank", browserContextId=context)["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        tab = self._tabs[session] = Tab(self, session)
        for domain in ("Page", "Runtime", "Log", "Network", "DOM", "Accessibility"):
            tab.call(f"{domain}.enable")
        tab.call("Emulation.setScriptExecutionDisabled", value=not scripts)
        tab.resize(width, height)
        tab.prefer(dark=dark)
        try:
            yield tab
        finally:
            self.call("Target.disposeBrowserContext", browserContextId=context)
            del self._tabs[session]

    def close(self) -> None:
        with suppress(OSError):
            self.call("Browser.close")

    def _read(self) -> None:
        rest = b""
        while chunk := os.read(self._back, 1 << 16):
            *messages, rest = (rest + chunk).split(b"\0")
            for text in messages:
                message = json.loads(text)
                if "id" in message:
                    self._answers.pop(message["id"]).put(message)
                elif tab := self._tabs.get(message.get("sessionId", "")):
                    tab.hear(message["method"], message["params"])


class Tab:
    """A page, and what the browser said about it."""

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser, self._session = browser, session
        self.requests: list[str] = []  # addresses
        self.complaints: list[str] = []  # errors and warnings of the console, refusals by the content security policy
        self.received: dict[str, int] = {}  # bytes as they came over the network, by request
        self._loads = 0

    def call(self, method: str, **given: Any) -> dict[str, Any]:
        return self._browser.call(method, self._session, **given)

    def hear(self, method: str, given: dict[str, Any]) -> None:
        """An event, from the browser's thread."""
        if method == "Network.requestWillBeSent":
            self.requests.append(given["request"]["url"])
        elif method == "Network.loadingFinished":
            self.received[given["requestId"]] = int(given["encodedDataLength"])
        elif method == "Log.entryAdded" and given["entry"]["level"] in ("error", "warning"):
            self.complaints.append(given["entry"]["text"])
        elif method == "Runtime.consoleAPICalled":
            self.complaints.append(json.dumps([one.get("value") for one in given["args"]]))
        elif method == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(given["exceptionDetails"]))
        elif method == "Page.loadEventFired":
            self._loads += 1

    def resize(self, width: int, height: int) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )

    def prefer(self, *, dark: bool) -> None:
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def open(self, url: str) -> None:
        """Go there and wait until all of it is loaded."""
        before = self._loads
        reply = self.call("Page.navigate", url=url)
        assert "errorText" not in reply, reply
        wait_for(lambda: self._loads > before, f"{url} to be loaded", SECONDS)

    def run(self, script: str) -> Any:
        """The value of an expression of JavaScript; a promise's when it is kept."""
        reply = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in reply, reply
        return reply["result"].get("value")

    def until(self, script: str) -> Any:
        """Wait until the expression is true."""
        return wait_for(lambda: self.run(script), script, SECONDS)

    def press(self, *keys: str, shift: bool = False) -> None:
        """Press keys, by their names or the letters that they type."""
        for key in keys:
            code, number, text = _KEYS.get(key) or (f"Key{key.upper()}", ord(key.upper()), key)
            given = {"key": key, "code": code, "windowsVirtualKeyCode": number, "modifiers": 8 if shift else 0}
            self.call("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", text=text, **given)
            self.call("Input.dispatchKeyEvent", type="keyUp", **given)

    def accessible(self) -> list[dict[str, Any]]:
        """What a screen reader is told: role, name and properties of each element, in order."""
        found = []
        for node in self.call("Accessibility.getFullAXTree")["nodes"]:
            if not node["ignored"]:
                more = {one["name"]: one["value"].get("value") for one in node.get("properties", ())}
                name = node.get("name", {}).get("value", "")
                found.append({"role": node["role"]["value"], "name": name, **more})
        return found

    def picture(self, path: Path, *, whole: bool = True) -> None:
        """Write what is seen as PNG; `whole`: also what one would have to scroll to."""
        reply = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(reply["data"]))


@contextmanager
def chromium(profile: Path) -> Iterator[Browser]:
    """A browser with an empty profile in that directory."""
    profile.mkdir()
    theirs_in, to = os.pipe()
    back, theirs_out = os.pipe()
    flags = [*_FLAGS, f"--user-data-dir={profile}"]
    if os.geteuid() == 0:
        flags.append("--no-sandbox")  # Chromium has none for root
    with (profile / "output").open("wb") as output:
        # The browser reads from descriptor 3 and writes to 4.
        words = f'exec 3<&{theirs_in} 4>&{theirs_out}; exec {PROGRAM} "$@"'
        process = subprocess.Popen(
            ["/bin/bash", "-c", words, PROGRAM, *flags],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=(theirs_in, theirs_out),
            env={**os.environ, "HOME": str(profile)},
            start_new_session=True,
        )
    os.close(theirs_in)
    os.close(theirs_out)
    browser = Browser(to, back)
    try:
        yield browser
    finally:
        browser.close()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        os.close(to)
