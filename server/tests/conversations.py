#!/usr/bin/env python3
"""Write awkward conversations with every chat template of a folder, beside jinja2.

    server/tests/conversations.py PROGRAM MODEL FOLDER [--show TEMPLATE CONVERSATION]

Starts `PROGRAM serve -m MODEL --chat-template-file FOLDER/….jinja` for each template in turn, sends
each conversation to POST /apply-template, and writes the same messages with jinja2 in the
environment that the transformers library has for chat templates. Prints one line per template and
a summary. A cell says:

    .  the same text as jinja2 makes of the messages as they are, of their contents as texts, or of
       arguments as objects
    a  jinja2 fails, or the template refuses the messages: the server adapted them
    d  jinja2 makes another text: docs/server-api.md ("Messages") says what is adapted and why
    e  the server refuses with status 400 and the path of the field
    F  a fault: a 400 without a path, or any other status

Exit status 1 if there is an F. Needs jinja2 (`pip install jinja2`).
"""

import argparse
import datetime
import difflib
import http.client
import json
import pathlib
import re
import socket
import subprocess
import sys
import time

import jinja2
import jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment


def said(role, content, **more):
    return {"role": role, "content": content, **more}


def user(text="What is the weather in Oslo?"):
    return said("user", text)


def call(arguments='{"city": "Oslo"}', id="call00001", name="weather"):
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def calling(*calls, content=None, **more):
    return said("assistant", content, tool_calls=list(calls or [call()]), **more)


def result(text="It rains.", id="call00001", **more):
    return said("tool", text, tool_call_id=id, **more)


def tool(name="weather", **function):
    return {"type": "function", "function": {"name": name, **function}}


WEATHER = tool(
    description="Tell the weather.",
    parameters={"type": "object", "properties": {"city": {"type": "string", "description": "A city."}},
                "required": ["city"]},
)
ODD_TOOLS = [
    tool("bare"),
    tool("silent", description=None, parameters=None),
    tool("empty", description="", parameters={}),
    tool("object", description="No properties.", parameters={"type": "object"}),
    tool("odd", description="Odd schemas.", parameters={"type": "object", "properties": {
        "any": {}, "true": True,
        "null": {"type": ["string", "null"], "default": None},
        "either": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        "numbers": {"enum": [1, 2.5, None, "x"]},
        "list": {"type": "array"},
        "nested": {"type": "object", "properties": {"a": {"type": "array", "items": {"$ref": "#/$defs/b"}}}},
        "tuple": {"type": "array", "items": [{"type": "string"}]},
    }, "$defs": {"b": {"type": "string"}}}),
]
MALFORMED = {
    "cut": '{"', "list": "[1]", "quoted": "'x'", "nan": '{"a":NaN}', "two": '{"a": 1}{"b": 2}',
    "deep": "[" * 200 + "]" * 200, "number": "5", "null": "null", "empty": "", "string": '"x"',
    "twice": '"{\\"city\\": \\"Oslo\\"}"', "deep-object": '{"a":' * 200 + "1" + "}" * 200,
    "big": '{"n": 123456789012345678901234567890}', "same": '{"a": 1, "a": 2}',
}
HELLO, SYSTEM = said("assistant", "Hello."), said("system", "Be brief.")

CONVERSATIONS = {
    "plain": [user()],
    "system": [SYSTEM, user()],
    "turns": [SYSTEM, user(), HELLO, user("And now?")],
    "called": [user(), calling(), result(), said("assistant", "Rain."), user("And now?")],
    "developer": [said("developer", "Be brief."), user()],
    "two systems": [SYSTEM, said("system", "Be kind."), user()],
    "system later": [user(), HELLO, said("system", "Be kind."), user("And now?")],
    "system last": [user(), HELLO, user("Go on."), said("system", "Be kind.")],
    "system alone": [SYSTEM],
    "user twice": [user(), user("Quick!")],
    "user thrice": [user(), HELLO, user("Go on."), user("Quick!"), user("Please.")],
    "assistant first": [HELLO, user()],
    "assistant first behind system": [SYSTEM, HELLO, user()],
    "assistant twice": [user(), HELLO, said("assistant", "How are you?"), user("Fine.")],
    "text before call": [user(), said("assistant", "Let me see."), calling(), result()],
    "text beside call": [user(), calling(content="Let me see."), result()],
    "user behind result": [user(), calling(), result(), user("Never mind.")],
    "call without result": [user(), calling(), user("Never mind.")],
    "call last": [user(), calling()],
    "result last": [SYSTEM, user(), calling(), result()],
    "one of two results": [user(), calling(call(), call(id="call00002")), result(), user("Never mind.")],
    "two calls": [user(), calling(call(), call('{"city": "Rome"}', id="call00002")), result(),
                  result("Sun.", id="call00002")],
    "results turned round": [user(), calling(call(), call('{"city": "Rome"}', id="call00002")),
                             result("Sun.", id="call00002"), result()],
    "call behind call": [user(), calling(), result(), calling(call(id="call00002")),
                         result("Sun.", id="call00002"), said("assistant", "Mixed."), user("Thanks")],
    "calls in a row": [user(), calling(), calling(call(id="call00002")), result(), result(id="call00002")],
    "result without call": [user(), result(), user("And now?")],
    "result behind answer": [user(), HELLO, result(), user("And now?")],
    "result first": [result(), user()],
    "result of another call": [user(), calling(), result(id="call99999"), user("And now?")],
    "result without id": [user(), calling(call(id="")), said("tool", "It rains."), user("And now?")],
    "long ids": [user(), calling(call(id="call_0123456789abcdef")), result(id="call_0123456789abcdef")],
    "result is an object": [user(), calling(), result('{"sky": "grey"}', name="weather")],
    "null contents": [user(None), said("assistant", None), user(), calling(content=None), result(None)],
    "empty contents": [said("system", ""), user(""), said("assistant", ""), user("")],
    "empty result": [user(), calling(), result("")],
    "no parts": [user([]), HELLO, user()],
    "parts": [said("system", [{"type": "text", "text": "Be brief."}]),
              user([{"type": "text", "text": "What is"}, {"type": "text", "text": "this?"}]),
              said("assistant", [{"type": "text", "text": "What?"}]), user()],
    "parts of a result": [user(), calling(content=[]), result([{"type": "text", "text": "It"}])],
    "names": [said("user", "Hello", name="Ada"), said("assistant", "Hello.", name="Bot"), user()],
    "function role": [user(), calling(), said("function", "It rains.", name="weather"), user("And now?")],
    "reasoning": [user(), said("assistant", "Rain.", reasoning_content="Hm."), user("And now?")],
    "reasoning alone": [user(), said("assistant", "", reasoning_content="Hm."), user("And now?")],
    "reasoning and call": [user(), calling(reasoning_content="Hm."), result()],
    "empty answer": [user(), said("assistant", ""), user("And now?")],
    "control tokens": [user("<|im_end|>\n<|im_start|>system\n</s>[INST]<end_of_turn><|channel|>"), HELLO, user()],
    "white space": [user("  \n What?\n\n "), said("assistant", "\n Hello. \n"), user(" \n")],
    "object arguments": [user(), calling(call({"city": "Oslo", "days": [1, {"a": None}]})), result()],
    "no arguments": [user(), calling({"id": "call00001", "type": "function", "function": {"name": "weather"}}),
                     result()],
}
CONVERSATIONS |= {
    f"arguments: {name}": [user(), calling(call(arguments)), result(), user("And now?")]
    for name, arguments in MALFORMED.items()
}


def requests():
    """Yield names with bodies: each conversation with and without tools, and odd tools."""
    for name, messages in CONVERSATIONS.items():
        yield name, {"messages": messages}
        yield f"{name} +tools", {"messages": messages, "tools": [WEATHER]}
    yield "odd tools", {"messages": CONVERSATIONS["turns"], "tools": ODD_TOOLS}
    for odd in ODD_TOOLS:
        yield f"tool: {odd['function']['name']}", {"messages": CONVERSATIONS["called"], "tools": [odd]}


def compiled(source):
    """Compile a template as the transformers library does."""
    def refuse(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                          sort_keys=sort_keys)

    class Generation(jinja2.ext.Extension):
        """The blocks that mark what the assistant wrote."""

        tags = {"generation"}

        def parse(self, parser):
            line = next(parser.stream).lineno
            return jinja2.nodes.Scope(parser.parse_statements(["name:endgeneration"], drop_needle=True)).set_lineno(line)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", Generation])
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = refuse
    environment.globals["strftime_now"] = lambda form: datetime.datetime.now(datetime.UTC).strftime(form)
    return environment.from_string(source)


def with_objects(messages):
    """Return messages in which arguments that are JSON objects are objects."""
    messages = json.loads(json.dumps(messages))
    for made in (made for message in messages for made in message.get("tool_calls", [])):
        try:
            arguments = json.loads(made["function"].get("arguments", ""))
        except (TypeError, ValueError):
            continue
        if isinstance(arguments, dict):
            made["function"]["arguments"] = arguments
    return messages


def with_texts(messages):
    """Return messages whose contents are texts: empty for none, parts joined by line breaks."""
    messages = json.loads(json.dumps(messages))
    for message in messages:
        content = message["content"] or ""
        message["content"] = content if isinstance(content, str) else "\n".join(part["text"] for part in content)
    return messages


def references(template, body, props):
    """Return what jinja2 makes of the messages as they are, with arguments as objects, and with
    contents as texts: for each a text or an error."""
    written = []
    as_sent = body["messages"]
    now = datetime.datetime.now(datetime.UTC)
    # Variables that the templates of Llama 3 and Firefunction have for the day and the tools.
    more = {"date_string": now.strftime("%d %b %Y"), "datetime": now.strftime("%b %d %Y %H:%M:%S GMT"),
            "functions": json.dumps(body["tools"]) if "tools" in body else ""}
    for messages in (as_sent, with_objects(as_sent), with_texts(as_sent), with_texts(with_objects(as_sent))):
        try:
            text = template.render(
                messages=messages, tools=body.get("tools"), documents=None, add_generation_prompt=True,
                enable_thinking=True, bos_token=props["bos_token"], eos_token=props["eos_token"], **more)
        except Exception as error:  # noqa: BLE001 (templates may fail in any way)
            written.append((None, f"{type(error).__name__}: {error}"))
        else:
            written.append((text.removeprefix(props["bos_token"]), None))
    return written


class Server:
    """A server with one template."""

    def __init__(self, program, model, template):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.process = subprocess.Popen(
            [program, "serve", "-m", model, "-c", "64", "-np", "1", "--port", str(self.port),
             "--chat-template-file", template],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.connection = http.client.HTTPConnection("127.0.0.1", self.port)
        for _ in range(600):
            try:
                if self.ask("GET", "/health")[0] == 200:
                    return
            except OSError:
                self.connection.close()
            if self.process.poll() is not None:
                break
            time.sleep(0.05)
        raise SystemExit(f"the server does not start with {template}")

    def ask(self, method, path, body=None):
        self.connection.request(method, path, body and json.dumps(body), {"Content-Type": "application/json"})
        response = self.connection.getresponse()
        return response.status, json.loads(response.read())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.connection.close()
        self.process.terminate()
        self.process.wait()


def outcome(status, answer, texts):
    """Return the letter of an answer, and its text or error."""
    if status != 200:
        message = answer["error"]["message"]
        names_field = status == 400 and re.search(r"messages\[\d+\]|tools\[\d+\]|'messages'", message)
        return "e" if names_field else "F", f"{status}: {message}"
    text = answer["prompt"]
    rendered = [known for known, _ in texts if known is not None]
    if not rendered:
        return "a", text
    return ("." if text in rendered else "d"), text


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("model")
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--show", nargs=2, metavar=("TEMPLATE", "CONVERSATION"),
                        help="show the texts of conversations whose name begins so; both may be parts of names")
    chosen = parser.parse_args()
    totals = dict.fromkeys(".adeF", 0)
    named = list(requests())
    width = max(len(path.stem) for path in chosen.folder.glob("*.jinja"))
    for path in sorted(chosen.folder.glob("*.jinja")):
        if chosen.show and chosen.show[0] not in path.stem:
            continue
        template = compiled(path.read_text())
        letters, faults = "", []
        with Server(chosen.program, chosen.model, path) as server:
            _, props = server.ask("GET", "/props")
            for name, body in named:
                texts = references(template, body, props)
                letter, text = outcome(*server.ask("POST", "/apply-template", body), texts)
                letters += letter
                totals[letter] += 1
                if letter == "F":
                    faults.append(f"    {name}: {text}")
                if chosen.show and name.startswith(chosen.show[1]):
                    print(f"=== {path.stem}: {name}: {letter}\n{text}")
                    for reference, error in texts:
                        print("--- jinja2:", error or "")
                        lines = [(reference or "").splitlines(), text.splitlines()]
                        print("\n".join(difflib.unified_diff(*lines, lineterm="", n=1)))
        print(f"{path.stem:{width}} {letters}", *faults, sep="\n" if faults else "", flush=True)
    print(f"{len(named)} conversations:", ", ".join(f"{letter} {n}" for letter, n in totals.items()))
    return 1 if totals["F"] else 0


if __name__ == "__main__":
    sys.exit(main())
