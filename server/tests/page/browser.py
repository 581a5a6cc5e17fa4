"""A browser that tests drive: headless Chromium over its debugging pipe, with the standard library.

Messages are JSON, each ended by a NUL byte, written to file descriptor 3 of the browser and read
from 4. Keys and clicks go through the browser's input, as those of a person do.
"""

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
KEYS = {
    "Enter": ("Enter", 13, "\r"), "Tab": ("Tab", 9, ""), "Escape": ("Escape", 27, ""),
    "ArrowUp": ("ArrowUp", 38, ""), "ArrowDown": ("ArrowDown", 40, ""),
    "ArrowLeft": ("ArrowLeft", 37, ""), "ArrowRight": ("ArrowRight", 39, ""),
    "Space": ("Space", 32, " "),
}
# Seconds.
LONGEST_CALL = 120
MODIFIERS = {"Alt": 1, "Control": 2, "Meta": 4, "Shift": 8}


class Failed(Exception):
    """A step of a test did not come out as it should."""


def find():
    """Return the path of a browser, or None. The variable CHROMIUM names another one."""
    named = os.environ.get("CHROMIUM")
    return named or next((path for path in map(shutil.which, NAMES) if path), None)


class Browser:
    """A running browser with one page."""

    def __init__(self, program, width=1360, height=860):
        self.folder = tempfile.mkdtemp(prefix="page-test-")
        to_browser, self.write_to = os.pipe()
        self.read_from, from_browser = os.pipe()
        command = [
            program, "--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu",
            "--disable-dev-shm-usage", "--no-first-run", "--disable-background-networking",
            "--hide-scrollbars", "--force-device-scale-factor=1", f"--user-data-dir={self.folder}",
            f"--window-size={width},{height}", "about:blank",
        ]

        # The pipe's ends may be 3 and 4 themselves: they are copied to high numbers first.
        def connect():
            high = [os.dup2(fd, n) for fd, n in ((to_browser, 60), (from_browser, 61))]
            for fd, n in zip(high, (3, 4)):
                os.dup2(fd, n)

        self.process = subprocess.Popen(
            command, preexec_fn=connect, close_fds=False,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )
        os.close(to_browser)
        os.close(from_browser)
        self.rest, self.last_id, self.messages, self.requests = b"", 0, [], []
        pages = self.call("Target.getTargets", session=None)["targetInfos"]
        self._attach(next(page["targetId"] for page in pages if page["type"] == "page"))
        self.resize(width, height)

    def open_tab(self, url):
        """Load a page in another tab, and drive that one. Returns the session of the tab before."""
        before = self.session
        target = self.call("Target.createTarget", {"url": "about:blank"}, session=None)["targetId"]
        self._attach(target)
        self.go(url)
        return before

    def show(self, session):
        """Bring a tab to the front, and drive that one."""
        self.session = session
        self.call("Page.bringToFront")

    def _attach(self, target):
        attached = {"targetId": target, "flatten": True}
        self.session = self.call("Target.attachToTarget", attached, session=None)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log", "DOM"):
            self.call(f"{domain}.enable")

    def call(self, method, params=None, session=""):
        """Call a method of the browser, and return its result."""
        self.last_id += 1
        message = {"id": self.last_id, "method": method, "params": params or {}}
        if session is not None:
            message["sessionId"] = session or self.session
        os.write(self.write_to, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + LONGEST_CALL
        while True:
            answer = self._receive(end)
            if answer.get("id") == message["id"]:
                if "error" in answer:
                    raise Failed(f"{method}: {answer['error']}")
                return answer["result"]
            self._note(answer)

    def _receive(self, end):
        while b"\0" not in self.rest:
            left = end - time.monotonic()
            if left <= 0 or not select.select([self.read_from], [], [], left)[0]:
                raise Failed("the browser does not answer")
            piece = os.read(self.read_from, 1 << 20)
            if not piece:
                raise Failed("the browser ended")
            self.rest += piece
        message, self.rest = self.rest.split(b"\0", 1)
        return json.loads(message)

    # Keep errors of the page, and the addresses that it asks for.
    def _note(self, event):
        method, params = event.get("method"), event.get("params", {})
        if method == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.messages.append(details.get("exception", {}).get("description", details["text"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] == "error":
            # Answers of the server that are errors are what some tests want.
            if params["entry"].get("source") != "network":
                self.messages.append(params["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])

    def run(self, script):
        """Return the value of an expression in the page; promises are awaited."""
        params = {"expression": script, "returnByValue": True, "awaitPromise": True}
        result = self.call("Runtime.evaluate", params)
        if "exceptionDetails" in result:
            details = result["exceptionDetails"]
            raise Failed(details.get("exception", {}).get("description", details["text"]))
        return result["result"].get("value")

    def wait(self, script, seconds=60):
        """Wait until an expression is true in the page, and return its value."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            value = self.run(script)
            if value:
                return value
            time.sleep(0.05)
        raise Failed(f"did not come true in {seconds} s: {script}")

    def go(self, url):
        """Load a page."""
        self.call("Page.navigate", {"url": url})
        self.wait("document.readyState === 'complete'")
        time.sleep(0.3)

    def resize(self, width, height, is_phone=False):
        """Give the window another size."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": is_phone}
        self.call("Emulation.setDeviceMetricsOverride", size)

    def scheme(self, name):
        """Prefer the light or the dark theme."""
        features = [{"name": "prefers-color-scheme", "value": name}]
        self.call("Emulation.setEmulatedMedia", {"features": features})

    def click(self, selector):
        """Click the middle of the first element that a selector finds."""
        found = json.dumps(selector)
        self.wait(f"!!document.querySelector({found})", 10)
        self.run(f"document.querySelector({found}).scrollIntoView({{block: 'center'}})")
        box = self.run(f"(() => {{ const b = document.querySelector({found}).getBoundingClientRect();"
                       " return [b.x + b.width / 2, b.y + b.height / 2, b.width]; })()")
        if box[2] == 0:
            raise Failed(f"{selector} is not in view")
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            event = {"type": kind, "x": box[0], "y": box[1], "clickCount": 1}
            if kind != "mouseMoved":
                event["button"] = "left"
            self.call("Input.dispatchMouseEvent", event)

    def type(self, text):
        """Type a text where the focus is."""
        self.call("Input.insertText", {"text": text})

    def press(self, keys):
        """Press a key, such as "Enter" or "Alt+KeyN"."""
        *held, key = keys.split("+")
        modifiers = sum(MODIFIERS[name] for name in held)
        code, number, text = KEYS.get(key) or (key, ord(key[-1]), key[-1].lower())
        name = key if key in KEYS else text
        event = {"modifiers": modifiers, "key": name, "code": code, "windowsVirtualKeyCode": number}
        typed = {"text": text} if text and not modifiers & ~8 else {}
        self.call("Input.dispatchKeyEvent", {"type": "keyDown", **event, **typed})
        self.call("Input.dispatchKeyEvent", {"type": "keyUp", **event})

    def choose_file(self, selector, path):
        """Choose a file in a field for files."""
        root = self.call("DOM.getDocument")["root"]["nodeId"]
        node = self.call("DOM.querySelector", {"nodeId": root, "selector": selector})["nodeId"]
        self.call("DOM.setFileInputFiles", {"nodeId": node, "files": [str(path)]})

    def screenshot(self, path):
        """Write what is in view to a PNG file."""
        data = self.call("Page.captureScreenshot", {"format": "png"})["data"]
        with open(path, "wb") as file:
            file.write(base64.b64decode(data))

    def close(self):
        """End the browser."""
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.write_to)
        os.close(self.read_from)
        shutil.rmtree(self.folder, ignore_errors=True)
