#!/usr/bin/env python3
"""Compare the answers of two servers that run the same model: this one, and llama-server.

Both get the same requests at temperature 0. Every key that the reference sends must be there, with
a value of the same type; texts, tokens and counts must be the same; and over a conversation that is
continued, edited, regenerated and shortened no more of the prompt may be evaluated than by the
reference. Further keys are no difference.

    backstitch serve -m MODEL --port 8080 -np 2 --metrics --slots --props &
    llama-server -m MODEL --port 8081 -np 2 --metrics --slots --props --jinja &
    python3 server/tests/compare.py http://127.0.0.1:8080 http://127.0.0.1:8081

With `--embedding` the two servers are those of a model that embeds. The exit status is 1 if there
are differences beyond those that `REASONS` explains.
"""

import argparse
import base64
import json
import math
import random
import re
import struct
import sys
import urllib.error
import urllib.request

# Differences that are meant: a pattern of the case and the key, and the reason.
REASONS = [
    (r".*/slots \[\]\.params", "slots do not tell the settings of other clients"),
    (r".*/props (media_marker|.*modalities.*)", "the models read text alone"),
    (r".*/props model_ftype|.*/v1/models .*meta\.(ftype|vocab_type)", "a file may have many types"),
    (r".*/v1/models (models\[\]\.tags\[\]|data\[\]\.aliases\[\])", "the name is that of the file, without its folder"),
    (r".*dry_penalty_last_n", "repetitions are looked for in the whole context, as `run` does"),
    (r".*/completion generation_settings\.reasoning_format", "a completion has no reasoning"),
    (r"completion by schema .*generation_settings\.grammar", "schemas do not become GBNF"),
    (r".* by schema .*(tokens_predicted|usage\..*)", "white space in JSON is the model's choice"),
    (r"chat of two .*usage\..*", "all answers count, as with OpenAI"),
    (r"responses /v1/responses (status|completed_at)", "an answer that was cut is incomplete, as with OpenAI"),
    (r"models /v1/models models\[\]\.capabilities\[\]", "a model that embeds does nothing else"),
    (r"completion without a model for it .*", "what the server was not started for is 501"),
    (r"(role|messages) of another type .*", "the mistake is the client's, and is found"),
    (r"chat with logprobs .*top_logprobs.*", "tokens that are nearly as likely change places"),
]
# Leaves whose values depend on the clock, on chance or on the program.
CHANGING = re.compile(
    r"(^|\.)(id|id_task|created|created_at|completed_at|item_id|call_id|message|model|model_alias"
    r"|model_path|system_fingerprint|build_info|owned_by|.*_ms|.*_per_second|seed|id_slot|timings\..*"
    r"|.*cached_tokens|cache_.*_tokens|input_tokens|tokens_cached|cache_n|prompt_n|logprob|prob"
    r"|token_logprobs|sequence_number|obfuscation|encrypted_content|size|n_params|name|time_ms|cache"
    r"|processed)(\[\])?$"
)

STORY = "Once upon a time, there was a little girl named Lily. She liked to"
CHAT = [{"role": "system", "content": "You are brief."}, {"role": "user", "content": "Tell me a story."}]
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
GREEDY = {"temperature": 0.0, "seed": 1, "cache_prompt": True}
COMPLETE = {"prompt": STORY, "n_predict": 16, **GREEDY}
TALK = {"messages": CHAT, "max_tokens": 16, **GREEDY}
RESPOND = {"input": "Tell me a story.", "max_output_tokens": 12, **GREEDY}
MESSAGE = {"messages": CHAT[1:], "system": "You are brief.", "max_tokens": 12, **GREEDY}

# Name, path, body; no body is a GET. A body with `stream` is read as server-sent events.
CASES = [
    ("health", "/health", None),
    ("props", "/props", None),
    ("models", "/v1/models", None),
    ("tokenize", "/tokenize", {"content": "Hello world, élan"}),
    ("tokenize with pieces", "/tokenize", {"content": "Hello é", "with_pieces": True, "add_special": True}),
    ("detokenize", "/detokenize", {"tokens": [10, 20, 30]}),
    ("template", "/apply-template", {"messages": CHAT}),
    ("completion", "/completion", COMPLETE),
    ("completion again", "/completion", COMPLETE),
    ("completion of tokens", "/completion", {**COMPLETE, "prompt": [10, 20, 30], "return_tokens": True}),
    ("completions of two", "/completion", {**COMPLETE, "prompt": [STORY, "The cat"]}),
    ("completion to a stop", "/completion", {**COMPLETE, "n_predict": 64, "stop": ["."]}),
    ("probabilities", "/completion", {**COMPLETE, "n_predict": 4, "n_probs": 3}),
    ("sampled", "/completion", {**COMPLETE, "n_predict": 4, "n_probs": 3, "post_sampling_probs": True}),
    ("chosen fields", "/completion", {**COMPLETE, "response_fields": ["content", "timings/prompt_n"]}),
    ("completion by schema", "/completion", {**COMPLETE, "n_predict": 64, "json_schema": SCHEMA}),
    ("completion by grammar", "/completion", {**COMPLETE, "grammar": 'root ::= "yes" | "no"'}),
    ("stream", "/completion", {**COMPLETE, "stream": True}),
    ("stream with all", "/completion", {
        **COMPLETE, "stream": True, "n_probs": 2, "timings_per_token": True, "return_progress": True}),
    ("chat", "/v1/chat/completions", TALK),
    ("chat with logprobs", "/v1/chat/completions", {**TALK, "logprobs": True, "top_logprobs": 2}),
    ("chat by schema", "/v1/chat/completions", {
        **TALK, "max_tokens": 64, "response_format": {"type": "json_schema", "json_schema": {"schema": SCHEMA}}}),
    ("chat of two", "/v1/chat/completions", {**TALK, "n": 2}),
    ("chat stream", "/v1/chat/completions", {**TALK, "stream": True}),
    ("chat stream with usage", "/v1/chat/completions", {
        **TALK, "stream": True, "stream_options": {"include_usage": True}, "logprobs": True}),
    ("legacy", "/v1/completions", {"prompt": STORY, "max_tokens": 8, **GREEDY}),
    ("legacy with logprobs", "/v1/completions", {"prompt": STORY, "max_tokens": 4, "logprobs": 2, **GREEDY}),
    ("legacy stream", "/v1/completions", {"prompt": STORY, "max_tokens": 8, "stream": True, **GREEDY}),
    ("responses", "/v1/responses", RESPOND),
    ("responses stream", "/v1/responses", {**RESPOND, "stream": True}),
    ("messages", "/v1/messages", MESSAGE),
    ("messages stream", "/v1/messages", {**MESSAGE, "stream": True}),
    ("count", "/v1/messages/count_tokens", MESSAGE),
    ("slots", "/slots", None),
    ("no path", "/nowhere", {}),
    ("no prompt", "/completion", {}),
    ("no messages", "/v1/chat/completions", {}),
    ("role of another type", "/v1/chat/completions", {"messages": [{"role": 1, "content": ""}]}),
    ("too long", "/completion", {"prompt": "word " * 40_000}),
    ("broken grammar", "/completion", {**COMPLETE, "grammar": "root ::= ("}),
    ("messages of another type", "/v1/messages", {"messages": 5, "max_tokens": 4}),
    ("no such format", "/v1/chat/completions", {**TALK, "response_format": {"type": "xml"}}),
    ("embeddings of a model that talks", "/v1/embeddings", {"input": "a"}),
]
EMBEDDING_CASES = [
    ("embeddings", "/v1/embeddings", {"input": ["The cat sat.", "A dog"]}),
    ("embedding in Base64", "/v1/embeddings", {"input": "The cat sat.", "encoding_format": "base64"}),
    ("native embedding", "/embedding", {"content": "The cat sat."}),
    ("native embeddings", "/embeddings", {"content": ["The cat", "A dog"]}),
    ("no input", "/v1/embeddings", {}),
    ("models", "/v1/models", None),
    ("completion without a model for it", "/completion", COMPLETE),
]


def request(url, path, body):
    """Return the status and the answer: JSON, or the list of the events of a stream."""
    data = None if body is None else json.dumps(body).encode()
    ask = urllib.request.Request(url + path, data, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(ask, timeout=300) as answer:
            status, text = answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        status, text = error.code, error.read().decode()
    if text.startswith(("data:", "event:", ":")):
        lines = [line[5:].strip() for line in text.splitlines() if line.startswith("data:")]
        return status, [json.loads(line) for line in lines if line != "[DONE]"]
    try:
        return status, json.loads(text)
    except json.JSONDecodeError:
        return status, text


def leaves(value, path="", into=None):
    """Return the values at each path; items of a list share one."""
    into = {} if into is None else into
    into.setdefault(path, []).append(value)
    if isinstance(value, dict):
        for key, item in value.items():
            leaves(item, f"{path}.{key}" if path else key, into)
    elif isinstance(value, list):
        for item in value:
            leaves(item, path + "[]", into)
    return into


def kind(value):
    """Return the JSON type of a value."""
    if isinstance(value, bool) or value is None:
        return "null" if value is None else "boolean"
    return {str: "string", list: "array", dict: "object"}.get(type(value), "number")


def text_of(events):
    """Return all text that a stream of any interface brings."""
    text = ""
    for event in events:
        if not isinstance(event, dict):
            continue
        delta = event.get("delta")
        if isinstance(delta, str) and event.get("type") == "response.output_text.delta":
            text += delta
        elif isinstance(delta, dict):
            text += delta.get("text") or ""
        elif "content" in event and "stop" in event:
            text += event["content"]
        for choice in event.get("choices", []):
            text += choice.get("text") or choice.get("delta", {}).get("content") or ""
    return text


def same(ours, theirs):
    """Return true if two values are the same; numbers may differ as two programs round them."""
    if kind(ours) == kind(theirs) == "number":
        return math.isclose(ours, theirs, rel_tol=1e-2, abs_tol=2e-3)
    if isinstance(ours, list) and isinstance(theirs, list):
        return len(ours) == len(theirs) and all(map(same, ours, theirs))
    return ours == theirs or is_same_json(ours, theirs)


def unpacked(text):
    """Return the numbers of a vector in Base64."""
    data = base64.b64decode(text)
    return list(struct.unpack(f"<{len(data) // 4}f", data))


def is_same_json(ours, theirs):
    """Return true if two texts are the same JSON object, whatever the white space in it."""
    try:
        return ours[0] == "{" and json.loads(ours) == json.loads(theirs)
    except (IndexError, TypeError, ValueError):
        return False


def differences(ours, theirs):
    """Yield the differences of two answers: a key, and what is different."""
    if ours[0] != theirs[0]:
        yield "status", f"{ours[0]} instead of {theirs[0]}"
    is_stream = isinstance(ours[1], list) and isinstance(theirs[1], list)
    if is_stream and text_of(ours[1]) != text_of(theirs[1]):
        yield "text", f"{text_of(ours[1])!r} instead of {text_of(theirs[1])!r}"
    here, there = leaves(ours[1]), leaves(theirs[1])
    for path, values in there.items():
        if path not in here:
            # What hangs below a missing key is missing with it.
            if path.rpartition(".")[0] in here or path.endswith("[]") and path[:-2] in here:
                yield path, f"is missing; the reference has {str(values[0])[:60]}"
            continue
        kinds, wanted = {kind(value) for value in here[path]}, {kind(value) for value in values}
        if not kinds & wanted:
            yield path, f"is {'/'.join(kinds)} instead of {'/'.join(wanted)}"
        elif wanted & {"object", "array"} or is_stream or CHANGING.search(path):
            continue
        elif path.endswith(".embedding") and kinds == {"string"}:
            if not same(list(map(unpacked, here[path])), list(map(unpacked, values))):
                yield path, "has other numbers"
        elif not same(here[path], values):
            yield path, f"is {str(here[path])[:80]} instead of {str(values)[:80]}"


def conversation(servers):
    """Yield the differences of what is evaluated over a conversation that changes."""
    # Servers remember what earlier runs of this script asked.
    story = f"Story {random.randrange(10**9)}. "
    story += " ".join(["The little dog ran to the park and saw a big red ball."] * 12)
    first = {"role": "user", "content": story}
    history = [{"role": "system", "content": "You are brief."}, first]
    steps = []

    def step(name, messages):
        counts, text = [], None
        for server in servers:
            status, answer = request(server, "/v1/chat/completions", {**TALK, "messages": messages})
            if status != 200:
                raise SystemExit(f"{server}: {name}: {answer}")
            counts.append((answer["timings"]["prompt_n"], answer["timings"]["cache_n"]))
            text = text or answer["choices"][0]["message"]["content"]
        steps.append((name, *counts))
        return {"role": "assistant", "content": text}

    answer = step("new", history)
    more = history + [answer, {"role": "user", "content": "What did the dog see?"}]
    answer = step("continued", more)
    step("regenerated", more)
    edited = more[:-1] + [{"role": "user", "content": "Where did the dog go?"}]
    step("last message edited", edited)
    step("edit taken back", more)
    longer = more + [answer, {"role": "user", "content": "Who was there?"}]
    step("continued again", longer)
    step("shortened to the first message", history)
    step("branched from the middle", history + [longer[2], {"role": "user", "content": "Why?"}])
    step("the longest again", longer)
    step("first message edited", [history[0], {"role": "user", "content": "Hello. " + story}])
    for name, ours, theirs in steps:
        print(f"  {name:34} evaluated {ours[0]:5} and {theirs[0]:5}, reused {ours[1]:5} and {theirs[1]:5}")
        if ours[0] > theirs[0] or ours[1] < theirs[1]:
            yield f"conversation {name}", f"evaluates {ours[0]} tokens instead of {theirs[0]}"


def reason(case, path, key):
    """Return why a difference is meant, None if it is not."""
    where = f"{case} {path} {key}"
    return next((text for pattern, text in REASONS if re.fullmatch(pattern, where)), None)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("ours", help="the URL of this server")
    parser.add_argument("reference", help="the URL of llama-server")
    parser.add_argument("--embedding", action="store_true", help="the model embeds")
    parser.add_argument("--only", default="", help="a part of the names of cases")
    arguments = parser.parse_args()
    servers = [arguments.ours.rstrip("/"), arguments.reference.rstrip("/")]
    n_cases = n_meant = n_wrong = 0
    for name, path, body in EMBEDDING_CASES if arguments.embedding else CASES:
        if arguments.only not in name:
            continue
        n_cases += 1
        found = list(differences(*(request(server, path, body) for server in servers)))
        for key, text in found:
            why = reason(name, path, key)
            n_meant, n_wrong = n_meant + bool(why), n_wrong + (not why)
            print(f"{name}: {path}: {key} {text}" + (f" (meant: {why})" if why else ""))
    if not arguments.embedding and arguments.only in "conversation":
        for key, text in conversation(servers):
            n_wrong += 1
            print(f"{key}: {text}")
    print(f"{n_cases} requests: {n_wrong} differences, and {n_meant} that are meant")
    sys.exit(n_wrong > 0)


if __name__ == "__main__":
    main()
