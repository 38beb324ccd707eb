"""Browsers of this machine, each by the WebDriver commands that it takes: https://www.w3.org/TR/webdriver2/.

Chromium by chromedriver and WebKit by WebKitWebDriver, both over HTTP; Firefox by Marionette, which is in it.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

SECONDS = 240
"""How long a command may take: a page that loads its checker is slow on a busy machine."""
HTTP = {
    "NewSession": ("POST", ""),
    "DeleteSession": ("DELETE", ""),
    "SetTimeouts": ("POST", "/timeouts"),
    "Navigate": ("POST", "/url"),
    "ExecuteAsyncScript": ("POST", "/execute/async"),
    "SetWindowRect": ("POST", "/window/rect"),
    "TakeScreenshot": ("GET", "/screenshot"),
    "PerformActions": ("POST", "/actions"),
}
NO_NETWORK = {"proxyType": "manual", "httpProxy": "127.0.0.1:9", "sslProxy": "127.0.0.1:9"}
"""A proxy that is not there."""
KEYS = {"Enter": "\ue007", "Tab": "\ue004", "Control": "\ue009"}


class Refused(Exception):
    """What a browser answers to a command that it does not carry out."""


class Installed(NamedTuple):
    """A browser of this machine. ``program``: what is started, and ``begins`` a session of it, dark or light."""

    name: str
    begins: Callable[[Path, bool], Any]
    needs: Sequence[str]

    @property
    def lacks(self) -> list[str]:
        """The programs that are not installed."""
        return [" or ".join(names) for need in self.needs if not any(map(shutil.which, names := need.split("|")))]


class Browser:
    """One window of a browser."""

    def __init__(self, send: Callable[[str, Mapping[str, Any]], Any]) -> None:
        self.send = send
        send("SetTimeouts", {"script": SECONDS * 1000, "pageLoad": SECONDS * 1000})

    def open(self, address: str) -> None:
        """Go to ``address`` anew, also where only its fragment differs."""
        self.send("Navigate", {"url": "about:blank"})
        self.send("Navigate", {"url": address})

    def run(self, script: str, *words: Any) -> Any:
        """What the body of an asynchronous function returns in the page; it gets ``words`` as ``words``."""
        text = f"""const words = [...arguments], say = words.pop();
            (async () => {{ {script} }})()
              .then((value) => say({{ value: value ?? null }}), (error) => say({{ failed: String(error) }}))"""
        said = self.send("ExecuteAsyncScript", {"script": text, "args": list(words)})
        if "failed" in said:
            raise Refused(said["failed"])
        return said["value"]

    def press(self, *keys: str) -> None:
        """Keys of a keyboard, held together: a letter, or one of :data:`KEYS`."""
        codes = [KEYS.get(key, key) for key in keys]
        actions = [{"type": "keyDown", "value": code} for code in codes]
        actions += [{"type": "keyUp", "value": code} for code in reversed(codes)]
        self.send("PerformActions", {"actions": [{"type": "key", "id": "keyboard", "actions": actions}]})

    def size(self, width: int, height: int) -> int:
        """Make the window as wide as it can be made; returns the page's width."""
        self.send("SetWindowRect", {"width": width, "height": height, "x": 0, "y": 0})
        return int(self.run("await new Promise((go) => setTimeout(go, 500)); return innerWidth"))

    def picture(self, path: Path) -> None:
        """What the window shows, as PNG."""
        said = self.send("TakeScreenshot", {"full": False})
        path.write_bytes(base64.b64decode(said))


def _port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@contextmanager
def _started(argv: Sequence[str], environment: Mapping[str, str]) -> Iterator[None]:
    """A program and all that it starts, ended with the block."""
    process = subprocess.Popen(
        argv,
        env={**os.environ, **environment},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, 15)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            process.wait()


def _until(ready: Callable[[], Any]) -> Any:
    """What ``ready`` returns, once it does not fail."""
    end = time.monotonic() + SECONDS
    while True:
        try:
            return ready()
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.2)


@contextmanager
def _http(
    argv: Sequence[str], wanted: Mapping[str, Any], environment: Mapping[str, str] | None = None
) -> Iterator[Browser]:
    port = _port()
    session = ""

    def send(name: str, parameters: Mapping[str, Any]) -> Any:
        method, path = HTTP[name]
        address = f"http://127.0.0.1:{port}/session{session}{path}"
        data = json.dumps(parameters).encode() if method == "POST" else None
        request = urllib.request.Request(address, data, {"Content-Type": "application/json"}, method=method)
        try:
            with opener.open(request, timeout=SECONDS) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise Refused(error.read().decode(errors="replace")[:600]) from error

    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with _started([*argv, f"--port={port}"], environment or {}):
        _until(lambda: socket.create_connection(("127.0.0.1", port), 5).close())
        session = f"/{send('NewSession', {'capabilities': {'alwaysMatch': wanted}})['sessionId']}"
        try:
            yield Browser(send)
        finally:
            with suppress(Refused, OSError):
                send("DeleteSession", {})


@contextmanager
def chromium(folder: Path, dark: bool) -> Iterator[Browser]:
    """Chromium by chromedriver."""
    options = ["--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--hide-scrollbars"]
    options += ["--blink-settings=preferredColorScheme=0"] if dark else []
    binary = shutil.which("chromium") or shutil.which("google-chrome") or ""
    with _http(
        ["chromedriver"],
        {
            "proxy": NO_NETWORK,
            "goog:chromeOptions": {"binary": binary, "args": [*options, f"--user-data-dir={folder}"]},
        },
    ) as browser:
        yield browser


@contextmanager
def webkit(folder: Path, dark: bool) -> Iterator[Browser]:
    """WebKitGTK's little browser, on a screen that nobody sees."""
    display = f":{100 + os.getpid() % 500}"
    look = {"DISPLAY": display, "GTK_THEME": "Adwaita:dark" if dark else "Adwaita", "GDK_BACKEND": "x11"}
    own = {"HOME": str(folder), "XDG_RUNTIME_DIR": str(folder), "LIBGL_ALWAYS_SOFTWARE": "1"}
    with (
        _started(["Xvfb", display, "-screen", "0", "1400x1000x24"], {}),
        _http(["WebKitWebDriver"], {}, {**look, **own}) as browser,
    ):
        yield browser


@contextmanager
def firefox(folder: Path, dark: bool) -> Iterator[Browser]:
    """Firefox by Marionette: messages of JSON with their length in front, over a socket."""
    port = _port()
    settings = {"marionette.port": port, "layout.css.prefers-color-scheme.content-override": 0 if dark else 1}
    lines = [f"user_pref({json.dumps(name)}, {json.dumps(value)});" for name, value in settings.items()]
    (folder / "user.js").write_text("\n".join(lines), encoding="utf-8")
    program = shutil.which("firefox-esr") or shutil.which("firefox") or ""
    argv = [program, "--headless", "--marionette", "--no-remote", "--profile", str(folder)]
    with _started(argv, {"HOME": str(folder)}):
        connection = _until(lambda: socket.create_connection(("127.0.0.1", port), 5))
        connection.settimeout(SECONDS)
        stream = connection.makefile("rb")

        def received() -> Any:
            length = b""
            while (letter := stream.read(1)) != b":":
                length += letter
            return json.loads(stream.read(int(length)))

        def send(name: str, parameters: Mapping[str, Any]) -> Any:
            message = json.dumps([0, 1, f"WebDriver:{name}", parameters]).encode()
            connection.sendall(b"%d:%s" % (len(message), message))
            _, _, error, answer = received()
            if error:
                raise Refused(str(error)[:600])
            return answer["value"] if isinstance(answer, dict) and set(answer) == {"value"} else answer

        received()  # it greets
        send("NewSession", {"capabilities": {"alwaysMatch": {"proxy": NO_NETWORK}}})
        with connection:
            yield Browser(send)


BROWSERS = (
    Installed("chromium", chromium, ("chromium|google-chrome", "chromedriver")),
    Installed("firefox", firefox, ("firefox-esr|firefox",)),
    Installed("webkit", webkit, ("WebKitWebDriver", "Xvfb")),
)


@contextmanager
def window(installed: Installed, *, dark: bool = False) -> Iterator[Browser]:
    """A window of ``installed`` with a profile of its own, without a network."""
    with TemporaryDirectory(ignore_cleanup_errors=True) as folder, installed.begins(Path(folder), dark) as browser:
        yield browser
