"""Chromium with a page that a test uses as a reader does: keys, the mouse, the colour scheme, the window.

It speaks the Chrome DevTools protocol over tornado's WebSocket client, which Luigi brings.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from tornado.websocket import websocket_connect

T = TypeVar("T")
PATIENCE_S = 120.0
KEY_CODES = {
    "ArrowLeft": 37, "ArrowRight": 39, "ArrowUp": 38, "ArrowDown": 40, "Home": 36, "End": 35, "Enter": 13,
    "Tab": 9, " ": 32,
}  # fmt: skip


class Browser:
    """A running Chromium."""

    def __init__(self, program: str, profile: Path) -> None:
        flags = [
            "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
            "--disable-background-networking", "--disable-component-update", "--disable-sync",
            "--remote-debugging-port=0", f"--user-data-dir={profile}", "about:blank",
        ]  # fmt: skip
        self.process = subprocess.Popen([program, *flags], stderr=subprocess.PIPE, text=True)
        assert self.process.stderr is not None
        address = next(
            found[0] for line in self.process.stderr if (found := re.search(r"ws://\S+", line)) is not None
        )
        self.loop = asyncio.new_event_loop()
        self.socket = self.wait(websocket_connect, address, max_message_size=1 << 28)
        self.sent = 0
        self.events: list[dict[str, Any]] = []

    def wait(self, start: Callable[..., Awaitable[T]], *arguments: Any, **named: Any) -> T:
        async def waited() -> T:  # tornado's futures belong to the loop that runs when they are made
            return await asyncio.wait_for(start(*arguments, **named), PATIENCE_S)

        return self.loop.run_until_complete(waited())

    def send(self, method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        """Send a command; return its result. Events that arrive meanwhile are kept."""
        self.sent += 1
        message = {"id": self.sent, "method": method, "params": parameters}
        self.wait(
            self.socket.write_message, json.dumps(message | ({"sessionId": session} if session else {}))
        )
        while (received := self.receive()).get("id") != self.sent:
            self.events.append(received)
        assert "error" not in received, (method, received["error"])
        return received["result"]

    def receive(self) -> dict[str, Any]:
        text = self.wait(self.socket.read_message)
        assert text is not None, "the browser has closed the connection"
        return json.loads(text)

    @contextlib.contextmanager
    def page(
        self, url: str, width: int = 1280, height: int = 900, dark: bool = False, scripts: bool = True
    ) -> Iterator[Page]:
        """Open a page in a profile of its own."""
        context = self.send("Target.createBrowserContext")["browserContextId"]
        target = self.send("Target.createTarget", url="about:blank", browserContextId=context)["targetId"]
        session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, session)
        for domain in ("Page", "Runtime", "Log", "Network"):
            page.send(f"{domain}.enable")
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        page.send("Emulation.setEmulatedMedia", features=[scheme])
        page.resize(width, height)
        page.send("Emulation.setScriptExecutionDisabled", value=not scripts)
        page.go(url)
        try:
            yield page
        finally:
            self.send("Target.disposeBrowserContext", browserContextId=context)

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self.send("Browser.close")
        self.process.wait(timeout=PATIENCE_S)
        self.loop.close()


class Page:
    """One page."""

    def __init__(self, browser: Browser, session: str) -> None:
        self.browser, self.session = browser, session

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self.browser.send(method, self.session, **parameters)

    def of(self, *methods: str) -> list[dict[str, Any]]:
        """The parameters of this page's events so far."""
        known = [event for event in self.browser.events if event.get("sessionId") == self.session]
        return [event["params"] for event in known if event.get("method") in methods]

    @property
    def messages(self) -> list[Any]:
        """What the console would show."""
        self.evaluate("1")  # events that were sent before have arrived then
        return self.of("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded")

    @property
    def addresses(self) -> list[str]:
        """Everything that the page has requested."""
        return [event["request"]["url"] for event in self.of("Network.requestWillBeSent")]

    def go(self, url: str) -> None:
        loaded = len(self.of("Page.loadEventFired"))
        self.send("Page.navigate", url=url)
        while len(self.of("Page.loadEventFired")) == loaded:
            self.browser.events.append(self.browser.receive())

    def resize(self, width: int, height: int) -> None:
        mobile = width < 500
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=mobile,
        )  # fmt: skip

    def evaluate(self, expression: str) -> Any:
        """The value of an expression, which may be a promise."""
        answer = self.send(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True, userGesture=True
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def until(self, expression: str) -> Any:
        """Wait until an expression is true; return its value."""
        wait = f"""new Promise((resolve, reject) => {{
            const began = performance.now();
            const look = () => {{
                const value = (() => {expression})();
                if (value) resolve(typeof value === 'object' && !Array.isArray(value) ? true : value);
                else if (performance.now() - began > {PATIENCE_S * 900}) reject(new Error("never true"));
                else setTimeout(look, 20);
            }};
            look();
        }})"""
        return self.evaluate(wait)

    def key(self, *keys: str) -> None:
        """Press keys one after another."""
        for key in keys:
            text = {"text": key if len(key) == 1 else "\r"} if len(key) == 1 or key == "Enter" else {}
            code = KEY_CODES.get(key, ord(key.upper()) if len(key) == 1 else 0)
            self.send("Input.dispatchKeyEvent", type="keyDown", key=key, windowsVirtualKeyCode=code, **text)
            self.send("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code)

    def mouse(self, kind: str, x: float, y: float, **more: Any) -> None:
        self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def drag(self, start: tuple[float, float], end: tuple[float, float]) -> None:
        held = {"button": "left", "buttons": 1, "clickCount": 1}
        self.mouse("mouseMoved", *start)
        self.mouse("mousePressed", *start, **held)
        for i in range(1, 6):
            x, y = (a + (b - a) * i / 5 for a, b in zip(start, end, strict=True))
            self.mouse("mouseMoved", x, y, **held)
        self.mouse("mouseReleased", *end, **held)

    def shot(self, file: Path) -> Path:
        """Write a picture of the whole page."""
        import base64

        size = self.send("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": min(size["height"], 16_000), "scale": 1}
        data = self.send("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)["data"]
        file.write_bytes(base64.b64decode(data))
        return file
