#!/usr/bin/env python3
"""Drive the page at / in headless Chromium against a running server.

    server/tests/page/page.py                     the program of target/, with the demo model
    server/tests/page/page.py --program PATH      another program
    server/tests/page/page.py --url URL           a server that runs already
    server/tests/page/page.py --pictures FOLDER   write screenshots there too

Ends with status 77, and says why, where there is no browser or no program. Needs nothing beyond
Python's standard library and Chromium; the variable CHROMIUM names another browser.
"""

import argparse
import json
import sys
import tempfile
import time
import traceback
from pathlib import Path

import browser as browsers
import server as servers
from browser import Failed

HERE = Path(__file__).resolve().parent
SKIPPED = 77

IDLE = "document.getElementById('stop').hidden"
ANSWERED = f"{IDLE} && document.querySelectorAll('article.assistant .stats').length"


def texts(selector):
    """Return an expression for the texts of all elements that a selector finds."""
    return f"[...document.querySelectorAll({json.dumps(selector)})].map((e) => e.textContent)"


USERS = texts("article.user .plain")
BRANCHES = texts(".branch-number")

STORED = "Object.keys(localStorage).filter((key) => key.startsWith('backstitch:chat:')).length"


def key_event(name, code, more=""):
    """Return an expression for pressing a key where the focus is: true if the page took it."""
    event = f"{{key: {json.dumps(name)}, code: {json.dumps(code)}, bubbles: true, cancelable: true, {more}}}"
    return f"!document.activeElement.dispatchEvent(new KeyboardEvent('keydown', {event}))"


def check(what, found, wanted=True):
    """Fail unless a value is the wanted one."""
    if found != wanted:
        raise Failed(f"{what}: {found!r} instead of {wanted!r}")


class Page:
    """The page in a browser, with the steps that tests are made of."""

    def __init__(self, browser, url, pictures):
        self.browser, self.url, self.pictures = browser, url, pictures

    def begin(self):
        """Open the page as somebody does who was never there: short answers, a seed."""
        self.browser.resize(1360, 860)
        self.browser.scheme("light")
        self.browser.go(self.url)
        settings = {"max_tokens": 24, "seed": 1, "temperature": 0.7}
        self.browser.run("localStorage.clear(); localStorage.setItem('backstitch:settings', "
                         f"{json.dumps(json.dumps(settings))})")
        self.browser.go(self.url)

    def send(self, text):
        """Send a message with the keyboard, and wait for the answer."""
        before = self.browser.run(texts("article.assistant") + ".length")
        self.browser.run("document.getElementById('input').focus()")
        self.browser.type(text)
        self.browser.press("Enter")
        self.browser.wait(f"document.querySelectorAll('article.assistant').length > {before}", 10)
        self.browser.wait(ANSWERED)

    def look(self, name):
        """Check what is in view, and write a picture of it if pictures are wanted."""
        time.sleep(0.3)
        check(f"{name}: what is wrong", self.browser.run((HERE / "look.js").read_text()), [])
        if self.pictures:
            self.browser.screenshot(self.pictures / f"page-{name}.png")


def modules(page):
    check("failures", page.browser.run((HERE / "modules.js").read_text()), [])


def chats(page):
    page.look("empty")
    page.send("Once upon a time")
    check("the answer is said", "".join(page.browser.run(texts("#spoken p"))).strip() != "")
    page.send("Then the cat said:")
    answers = page.browser.run(texts("article.assistant .content"))
    check("two answers", [bool(text.strip()) for text in answers], [True, True])
    stats = page.browser.run(texts("article.assistant .stats > summary"))
    check("what was reused is said", all("reused" in text and "evaluated" in text for text in stats))
    reused = page.browser.run("import('./page/chat.js').then((chat) => chat.shownPath()[3].stats.cached)")
    check("the second turn reuses the first", reused > 10)
    page.browser.wait(texts(".card h3") + ".includes('This conversation')", 15)
    page.browser.wait("document.querySelectorAll('.return').length === 4", 15)
    page.browser.wait("document.querySelector('#memory .sequence svg[role=img]') !== null", 15)
    page.look("chat")


def edits(page):
    page.send("Once upon a time")
    page.send("Then the cat said:")
    page.browser.click("article.user:nth-of-type(3) [aria-label=Edit]")
    page.browser.run("document.querySelector('.edit textarea').select()")
    page.browser.type("Then the dog said:")
    page.browser.click(".edit .primary")
    page.browser.wait(f"{ANSWERED} === 2 && {USERS}[1] === 'Then the dog said:'")
    check("a branch", page.browser.run(BRANCHES), ["2/2"])
    page.browser.click("[aria-label='Previous branch']")
    check("back to the first branch", page.browser.run(USERS), ["Once upon a time", "Then the cat said:"])
    page.browser.click("[aria-label='Next branch']")
    check("forth again", page.browser.run(USERS), ["Once upon a time", "Then the dog said:"])
    page.browser.click("article.assistant:last-of-type [aria-label=Regenerate]")
    page.browser.wait(f"{BRANCHES}.length === 2 && {ANSWERED} === 2")
    check("branches", page.browser.run(BRANCHES), ["2/2", "2/2"])
    page.browser.click("article.user [aria-label='Answer this again']")
    page.browser.wait(f"{BRANCHES}[0] === '2/2' && {ANSWERED} === 1")
    check("an answer of the first message", page.browser.run(USERS), ["Once upon a time"])
    page.browser.click("article.assistant [aria-label=Edit]")
    page.browser.run("document.querySelector('.edit textarea').select()")
    page.browser.type("There was a **needle**.")
    page.browser.click(".edit .primary")
    check("an edited answer", page.browser.run(texts("article.assistant strong")), ["needle"])
    check("its branch", page.browser.run(BRANCHES), ["3/3"])
    for _ in range(2):
        page.browser.click("[aria-label='Previous branch']")
    check("everything is still there", page.browser.run(BRANCHES), ["1/3", "2/2", "2/2"])
    page.browser.wait("document.querySelectorAll('.return .how').length > 0", 15)
    page.look("branches")


def reloads(page):
    page.send("Once upon a time")
    page.browser.run("document.getElementById('input').focus()")
    page.browser.type("a draft")
    answer = page.browser.run(texts("article.assistant .content"))
    page.browser.go(page.url)
    check("the messages", page.browser.run(USERS), ["Once upon a time"])
    check("the answer", page.browser.run(texts("article.assistant .content")), answer)
    check("the draft", page.browser.run("document.getElementById('input').value"), "a draft")
    page.browser.press("Alt+KeyN")
    check("a new conversation is empty", page.browser.run(USERS), [])
    page.browser.run("document.getElementById('input').value = ''")
    page.send("Tom had a ball")
    check("two conversations", page.browser.run(texts("#conversations .open")), ["Tom had a ball", "Once upon a time"])
    page.browser.click("#conversations li:nth-child(2) .open")
    check("the first one", page.browser.run(USERS), ["Once upon a time"])
    page.browser.click("#conversations li.shown [aria-label^=Delete]")
    page.browser.wait("document.querySelectorAll('#conversations .open').length === 1", 10)
    page.browser.click(".toast button")
    page.browser.wait("document.querySelectorAll('#conversations .open').length === 2", 10)
    check("undone", page.browser.run(USERS), ["Once upon a time"])


def rename(page, title):
    """Rename the last conversation of the list."""
    page.browser.click("#conversations li:last-child [aria-label^=Rename]")
    page.browser.run("document.querySelector('#conversations input').select()")
    page.browser.type(title)
    check("no end of a composition", page.browser.run(key_event("Enter", "Enter", "isComposing: true")), False)
    check("still open", page.browser.run("document.querySelector('#conversations input') !== null"))
    page.browser.press("Enter")
    page.browser.wait(f"{texts('#conversations .open')}.includes({json.dumps(title)})", 5)


def removes(page):
    """Rename and delete a conversation that is not shown, while its answer is written."""
    page.browser.run((HERE / "slow.js").read_text())
    page.browser.run("document.getElementById('input').focus()")
    page.browser.type("Once upon a time")
    page.browser.press("Enter")
    page.browser.wait(f"!{IDLE}", 5)
    page.browser.press("Alt+KeyN")
    rename(page, "Renamed")
    time.sleep(2.5)
    check("the title stays", page.browser.run(texts("#conversations .open")), ["Renamed"])
    check("it is not opened", page.browser.run(USERS), [])
    page.browser.click("#conversations li [aria-label^=Delete]")
    page.browser.wait(f"{STORED} === 0", 5)
    time.sleep(2.5)
    check("it stays away", page.browser.run(STORED), 0)
    page.browser.click(".toast button")
    page.browser.wait(f"{USERS}.length === 1", 5)
    check("its answer was stopped", page.browser.run(texts("article.assistant .notice")), ["Stopped."])


def tabs(page):
    page.send("Once upon a time")
    first = page.browser.open_tab(page.url)
    second = page.browser.session
    page.send("Then the cat said:")
    page.browser.show(first)
    page.browser.wait(f"{USERS}.length === 2 && {ANSWERED} === 2", 10)
    page.browser.click("article.user [aria-label='Answer this again']")
    page.browser.wait(f"{BRANCHES}[0] === '2/2' && {ANSWERED} === 1")
    page.browser.show(second)
    page.browser.wait(f"{BRANCHES}[0] === '1/2'", 10)
    check("the branch that is shown", page.browser.run(USERS), ["Once upon a time", "Then the cat said:"])
    # An answer of the other tab grows here, and is not cut off until it is.
    page.browser.run((HERE / "slow.js").read_text())
    page.browser.run("document.getElementById('input').focus()")
    page.browser.type("And then?")
    page.browser.press("Enter")
    page.browser.wait(f"!{IDLE}", 5)
    page.browser.show(first)
    page.browser.click("[aria-label='Previous branch']")
    page.browser.wait("document.querySelector('article.running') !== null", 10)
    rename(page, "Renamed")
    page.browser.wait("document.querySelector('article.running').textContent.includes('word')", 10)
    check("no notice", page.browser.run("document.querySelector('article.running .notice').hidden"))
    page.browser.show(second)
    page.browser.run("window.isDone = true")
    page.browser.wait(IDLE, 5)
    check("the other tab's title", page.browser.run(texts("#conversations .open")), ["Renamed"])
    page.browser.show(first)
    page.browser.wait("document.querySelector('article.running') === null", 10)
    check("the end", page.browser.run("document.querySelector('article:last-of-type .notice').hidden"))
    # One that another tab removes is not stored again.
    page.browser.show(second)
    page.browser.run("window.isDone = false")
    page.browser.type("More.")
    page.browser.press("Enter")
    page.browser.wait(f"!{IDLE}", 5)
    page.browser.show(first)
    page.browser.click("#conversations li [aria-label^=Delete]")
    page.browser.wait(f"{STORED} === 0", 5)
    page.browser.show(second)
    page.browser.wait(f"{IDLE} && {USERS}.length === 0", 10)
    time.sleep(2.5)
    check("it stays away", page.browser.run(STORED), 0)


def restores(page):
    page.send("Once upon a time")
    page.browser.click("article.assistant [aria-label=Regenerate]")
    page.browser.wait(f"{BRANCHES}.length === 1 && {ANSWERED}")
    with tempfile.TemporaryDirectory() as folder:
        down = {"behavior": "allow", "downloadPath": folder}
        page.browser.call("Browser.setDownloadBehavior", down, session=None)
        page.browser.click("#export-all")
        files = []
        for _ in range(100):
            files = list(Path(folder).glob("*.json"))
            if files:
                break
            time.sleep(0.1)
        check("a file", len(files), 1)
        check("no key in it", "settings" in files[0].read_text(), False)
        page.browser.run("localStorage.clear()")
        page.browser.go(page.url)
        check("all is gone", page.browser.run(USERS), [])
        page.browser.choose_file("#import-file", files[0])
        page.browser.wait(f"{USERS}.length === 1", 10)
        check("restored", page.browser.run(BRANCHES), ["2/2"])
        twice = json.loads(files[0].read_text())
        twice["conversations"] *= 2
        files[0].write_text(json.dumps(twice))
        page.browser.run("localStorage.clear()")
        page.browser.choose_file("#import-file", files[0])
        page.browser.wait(f"{STORED} === 2", 10)
        bad = Path(folder) / "bad.json"
        bad.write_text('{"kind": "backstitch conversations", "conversations": [1]}')
        page.browser.choose_file("#import-file", bad)
        page.browser.wait(f"{texts('.toast')}.some((text) => text.includes('Nothing was imported'))", 10)


def attaches(page):
    with tempfile.TemporaryDirectory() as folder:
        good, bad = Path(folder) / "notes.txt", Path(folder) / "bytes.bin"
        good.write_text("The needle is blue.\n")
        bad.write_bytes(b"\xff\xfe\x00\x01")
        page.browser.choose_file("#attach-file", good)
        page.browser.wait("document.querySelectorAll('#attachments li').length === 1", 10)
        page.browser.choose_file("#attach-file", bad)
        page.browser.wait(f"{texts('.toast')}.some((text) => text.includes('is no text'))", 10)
        check("one file", page.browser.run(texts("#attachments .file-name")), ["notes.txt"])
        page.send("What is blue?")
    check("it is shown", page.browser.run(texts("article.user .file pre")), ["The needle is blue.\n"])
    check("it was taken", page.browser.run("document.getElementById('attachments').hidden"))


def stops(page):
    page.browser.run("localStorage.setItem('backstitch:settings', '{\"max_tokens\":2000,\"seed\":3}')")
    page.browser.go(page.url)
    page.browser.type("Once upon a time there was a girl who told a very long story:")
    page.browser.press("Enter")
    # At once, so that a fast model has no time to come to an end.
    page.browser.run("new Promise((stopped) => { const look = () => { const button = document.getElementById('stop');"
                     " if (button.hidden) setTimeout(look, 1); else { button.click(); stopped(); } }; look(); })")
    page.browser.wait(IDLE, 10)
    check("it says so", page.browser.run(texts("article.assistant .notice")), ["Stopped."])
    page.browser.wait("document.activeElement.id === 'input'", 5)


def sets(page):
    page.browser.press("Alt+KeyS")
    page.browser.wait("document.getElementById('settings').open", 5)
    page.look("settings")
    page.browser.run("document.querySelector('[name=temperature]').value = '9'")
    page.browser.click("#settings [value=save]")
    check("an error", "Temperature" in page.browser.run("document.getElementById('settings-error').textContent"))
    page.browser.run("document.querySelector('[name=temperature]').value = '0'")
    page.browser.run("document.querySelector('[name=system]').value = 'You sew.'")
    page.browser.click("#settings [value=save]")
    page.browser.wait("!document.getElementById('settings').open", 5)
    kept = page.browser.run("JSON.parse(localStorage.getItem('backstitch:settings'))")
    check("kept", (kept["temperature"], kept["system"], kept["max_tokens"]), (0, "You sew.", 24))
    page.browser.run("window.bodies = []; window.realFetch = window.fetch; window.fetch = (path, init) => {"
                     " if (init?.body) window.bodies.push(JSON.parse(init.body)); return window.realFetch(path, init); }")
    page.send("Hello")
    body = page.browser.run("window.bodies[0]")
    check("sent", (body["temperature"], body["messages"][0]), (0, {"role": "system", "content": "You sew."}))
    # The system message of an older conversation becomes that of new ones only by a change of it.
    page.browser.run("import('./page/chat.js').then((chat) => chat.setSystem('You knit.'))")
    page.browser.press("Alt+KeyS")
    page.browser.run("document.querySelector('[name=key]').value = 'sk…'")
    page.browser.click("#settings [value=save]")
    check("a wrong key", "U+2026" in page.browser.run("document.getElementById('settings-error').textContent"))
    page.browser.run("document.querySelector('[name=key]').value = 'sk'")
    page.browser.click("#settings [value=save]")
    page.browser.wait("!document.getElementById('settings').open", 5)
    kept = page.browser.run("JSON.parse(localStorage.getItem('backstitch:settings'))")
    check("kept as they were", (kept["system"], kept["key"]), ("You sew.", "sk"))
    page.browser.run("Storage.prototype.setItem = () => { throw new Error('full'); }")
    page.browser.press("Alt+KeyS")
    page.browser.run("document.querySelector('[name=temperature]').value = '1'")
    page.browser.click("#settings [value=save]")
    page.browser.wait(f"{texts('.toast')}.some((text) => text.includes('storage is full'))", 5)
    page.send("Hello")
    check("in force", page.browser.run("window.bodies.at(-1).temperature"), 1)


def keyboard(page):
    page.send("Once upon a time")
    page.send("Then the cat said:")
    for _ in range(3):
        page.browser.press("Alt+ArrowUp")
    check("a message has the focus", page.browser.run("document.activeElement.dataset.id !== undefined"))
    page.browser.press("Alt+ArrowUp")
    page.browser.press("Alt+ArrowDown")
    page.browser.press("Alt+ArrowDown")
    check("the second message", page.browser.run("document.activeElement.querySelector('.plain').textContent"), "Then the cat said:")
    page.browser.press("KeyE")
    page.browser.wait("document.activeElement.matches('.edit textarea')", 5)
    page.browser.run("Object.defineProperty(navigator, 'platform', { value: 'MacIntel', configurable: true })")
    for name, code, more in [("@", "KeyL", "altKey: true"), ("Dead", "KeyN", "altKey: true"),
                             ("ArrowLeft", "ArrowLeft", "altKey: true"), ("Escape", "Escape", "isComposing: true"),
                             ("Enter", "Enter", "ctrlKey: true, isComposing: true")]:
        check(f"{name} is the field's", page.browser.run(key_event(name, code, more)), False)
        check(f"{name} closes nothing", page.browser.run("document.activeElement.matches('.edit textarea')"))
    page.browser.run("delete navigator.platform")
    check("a letter that is one", page.browser.run(key_event("k", "KeyK", "altKey: true")))
    page.browser.press("Escape")
    page.browser.wait("!document.getElementById('keys').open", 5)
    page.browser.run("document.querySelector('.edit textarea').focus()")
    page.browser.press("Escape")
    check("cancelled", page.browser.run("document.querySelector('.edit') === null"))
    page.browser.press("KeyE")
    page.browser.type(" Meow!")
    page.browser.press("Control+Enter")
    page.browser.wait(f"{ANSWERED} === 2 && {BRANCHES}.length === 1")
    page.browser.run("document.querySelectorAll('article')[2].focus()")
    page.browser.press("Alt+ArrowLeft")
    check("the other branch", page.browser.run(BRANCHES), ["1/2"])
    page.browser.press("KeyR")
    page.browser.wait(f"{BRANCHES}.length === 2 && {IDLE}")
    # Every control is reached with Tab, and shows that it has the focus.
    page.browser.run("document.activeElement.blur()")
    seen = set()
    for _ in range(80):
        page.browser.press("Tab")
        seen.add(page.browser.run("document.activeElement.id || document.activeElement.getAttribute('aria-label') || ''"))
        outline = page.browser.run("(() => { const e = document.activeElement; return e === document.body || e.id === 'input'"
                                   " || getComputedStyle(e).outlineStyle !== 'none' || e.outerHTML.slice(0, 90); })()")
        check("a visible focus", outline)
    wanted = {"toggle-list", "open-settings", "toggle-memory", "new-chat", "input", "attach", "send", "Copy", "Edit", "Regenerate"}
    check("not reached", wanted - seen, set())
    page.browser.press("Alt+KeyK")
    page.browser.wait("document.getElementById('keys').open", 5)
    page.look("keys")
    page.browser.press("Escape")
    page.browser.wait("!document.getElementById('keys').open", 5)


def phone(page):
    page.send("Once upon a time")
    page.browser.resize(390, 780, is_phone=True)
    page.browser.wait("document.getElementById('memory-panel').hidden", 5)
    page.look("phone")
    page.browser.click("#toggle-memory")
    page.browser.wait("document.querySelectorAll('#memory .card').length >= 2", 15)
    check("the rest waits", page.browser.run("document.getElementById('main').inert"))
    page.look("phone-memory")
    page.browser.press("Escape")
    check("closed", page.browser.run("document.getElementById('memory-panel').hidden"))
    check("the focus is back", page.browser.run("document.activeElement.id"), "toggle-memory")
    page.browser.click("#toggle-list")
    page.look("phone-list")
    page.browser.click("#list-panel .close-side")
    page.browser.resize(320, 640, is_phone=True)
    page.look("narrow")


def themes(page):
    page.send("Once upon a time")
    page.browser.scheme("dark")
    page.browser.wait("document.querySelectorAll('#memory .card').length >= 2", 15)
    page.look("dark")
    paper = "getComputedStyle(document.body).backgroundColor"
    dark = page.browser.run(paper)
    page.browser.click("#switch-theme")
    check("light by hand", page.browser.run(paper) != dark)
    page.browser.go(page.url)
    check("kept", page.browser.run("document.documentElement.dataset.theme"), "light")
    page.look("light-by-hand")
    page.browser.click("#switch-theme")
    check("dark by hand", page.browser.run(paper), dark)


def failures(page):
    page.send("Once upon a time")
    offline = {"offline": True, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
    page.browser.call("Network.emulateNetworkConditions", offline)
    page.browser.type("Then")
    page.browser.press("Enter")
    page.browser.wait("document.querySelector('.notice.error:not([hidden])') !== null", 10)
    check("said", "cannot be reached" in page.browser.run(texts(".notice.error"))[0])
    page.look("unreachable")
    page.browser.call("Network.emulateNetworkConditions", {**offline, "offline": False})
    page.browser.click(".notice.error button")
    page.browser.wait(f"{ANSWERED} === 2")
    check("no branch of it", page.browser.run(BRANCHES), [])
    page.browser.run("localStorage.setItem('backstitch:chat:broken', '{'); localStorage.setItem('backstitch:head:broken', '[]')")
    page.browser.go(page.url)
    check("damaged storage does no harm", page.browser.run(USERS), ["Once upon a time", "Then"])


TESTS = [modules, chats, edits, reloads, removes, tabs, restores, attaches, stops, sets, keyboard, phone, themes, failures]


def restarts(page, server):
    """A conversation goes on after the server was ended, with what it kept on disk."""
    page.send("Once upon a time there was a girl with a needle.")
    page.send("Then the cat said:")
    server.stop()
    server.start()
    page.send("And then?")
    stats = page.browser.run("import('./page/chat.js').then((chat) => chat.shownPath()[5].stats)")
    check("reused after a restart", stats["cached"] > 20)
    check("from disk", stats["fromDisk"] > 20)
    check("said", any("disk" in text for text in page.browser.run(texts("article:last-of-type dd"))))


def keys(page, server):
    """A server with keys shows the page, which asks for one."""
    page.browser.run("document.getElementById('input').focus()")
    page.browser.type("Once upon a time")
    page.browser.press("Enter")
    page.browser.wait("document.getElementById('settings').open", 10)
    check("the focus", page.browser.run("document.activeElement.name"), "key")
    page.browser.type("needle")
    page.browser.press("Enter")
    page.browser.wait("!document.getElementById('settings').open", 5)
    page.browser.click(".notice.error button")
    page.browser.wait(ANSWERED)
    page.browser.wait("document.querySelectorAll('.return').length === 2", 15)


# Tests that need a server of their own, with the options of it.
SERVER_TESTS = [(restarts, []), (keys, ["--api-key", "needle"])]


def run(test, url, program, pictures, *arguments):
    """Run a test in a browser of its own, and return true if it passed."""
    browser = browsers.Browser(program)
    start = time.monotonic()
    try:
        page = Page(browser, url, pictures)
        page.begin()
        test(page, *arguments)
        check("errors of the page", browser.messages, [])
        # Downloads of exports are addresses of the page's own.
        others = [to for to in browser.requests if not to.startswith((url, f"blob:{url}", "about:"))]
        check("requests to other hosts", others, [])
        print(f"{test.__name__}: ok ({time.monotonic() - start:.1f} s)", flush=True)
        return True
    except Exception as error:  # noqa: BLE001 - the others still run
        print(f"{test.__name__}: FAILED: {error}", flush=True)
        if not isinstance(error, Failed):
            traceback.print_exc()
        if pictures:
            browser.screenshot(pictures / f"failed-{test.__name__}.png")
        return False
    finally:
        browser.close()


def run_all(options, program, serve):
    """Run the tests that were named, or all of them, and return true if they passed."""
    def is_wanted(test):
        return not options.tests or test.__name__ in options.tests

    passed = True
    if any(map(is_wanted, TESTS)):
        server = None if options.url else servers.Server(serve)
        try:
            for test in filter(is_wanted, TESTS):
                passed &= run(test, options.url or server.url, program, options.pictures)
        finally:
            if server:
                server.close()
    for test, flags in SERVER_TESTS:
        if options.url or not is_wanted(test):
            continue
        server = servers.Server(serve, *flags)
        try:
            passed &= run(test, server.url, program, options.pictures, server)
        finally:
            server.close()
    return passed


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--url")
    parser.add_argument("--program")
    parser.add_argument("--pictures", type=Path)
    parser.add_argument("tests", nargs="*", help="names of tests; all if there are none")
    options = parser.parse_args()
    program = browsers.find()
    if program is None:
        print("skipped: no Chromium here (CHROMIUM=PATH names one)")
        return SKIPPED
    serve = options.program or servers.program()
    if serve is None and not options.url:
        print("skipped: no program in target/ (cargo build -p backstitch, or --program PATH)")
        return SKIPPED
    if options.pictures:
        options.pictures.mkdir(parents=True, exist_ok=True)
    return 0 if run_all(options, program, serve) else 1


if __name__ == "__main__":
    sys.exit(main())
