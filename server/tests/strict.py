"""Read answers of a server with the typed clients of OpenAI and Anthropic, in their strict mode.

    python strict.py http://127.0.0.1:8080

Needs the packages openai and anthropic. In strict mode a field that is missing, or of another type
than the client declares, is an error. Exits with 1 if there was any.
"""

import sys

import anthropic
import openai

MODEL = "any"
MESSAGES = [{"role": "user", "content": "Once upon a time"}]
SCHEMA = {
    "type": "object",
    "properties": {"word": {"type": "string", "enum": ["yes", "no"]}},
    "required": ["word"],
    "additionalProperties": False,
}
TOOL = {"name": "say", "description": "Say a word.", "parameters": SCHEMA}


def chats(client):
    """Yield the names of ways to ask for a chat completion, and functions that do."""
    create = client.chat.completions.create
    basic = {"model": MODEL, "messages": MESSAGES, "max_tokens": 8}
    tools = {"tools": [{"type": "function", "function": TOOL}], "tool_choice": "required", "max_tokens": 60}
    yield "chat", lambda: create(**basic)
    yield "chat with tools", lambda: create(**{**basic, **tools})
    yield "chat with log-probabilities", lambda: create(**basic, logprobs=True, top_logprobs=2, n=2)
    usage = {"include_usage": True}
    yield "chat in pieces", lambda: list(create(**basic, stream=True, stream_options=usage, logprobs=True))
    yield "tools in pieces", lambda: list(create(**{**basic, **tools}, stream=True))


def completions(client):
    """Yield the same for completions and models. Pieces are left out: their type has no null for a
    reason to end, which OpenAI's own service sends, too."""
    create = client.completions.create
    basic = {"model": MODEL, "prompt": "Once upon a time", "max_tokens": 8}
    yield "completion", lambda: create(**basic)
    yield "completion with log-probabilities", lambda: create(**basic, logprobs=2)
    yield "models", lambda: list(client.models.list())


def responses(client):
    """Yield the same for responses."""
    create = client.responses.create
    basic = {"model": MODEL, "input": "Once upon a time", "max_output_tokens": 60}
    tools = {"tools": [{"type": "function", "strict": True, **TOOL}], "tool_choice": "required"}
    yield "response", lambda: create(**basic)
    yield "response with tools", lambda: create(**basic, **tools)
    yield "response with effort", lambda: create(**basic, reasoning={"effort": "low"})
    yield "response in pieces", lambda: list(create(**basic, stream=True))
    yield "response with tools in pieces", lambda: list(create(**basic, **tools, stream=True))


def messages(client):
    """Yield the same for Anthropic's messages."""
    create = client.messages.create
    basic = {"model": MODEL, "messages": MESSAGES, "max_tokens": 60}
    tool = {"name": TOOL["name"], "description": TOOL["description"], "input_schema": SCHEMA}
    tools = {"tools": [tool], "tool_choice": {"type": "any"}}
    yield "message", lambda: create(**basic)
    yield "message with tools", lambda: create(**basic, **tools)
    yield "message in pieces", lambda: list(create(**basic, stream=True))
    yield "message with tools in pieces", lambda: list(create(**basic, **tools, stream=True))
    yield "count", lambda: client.messages.count_tokens(model=MODEL, messages=MESSAGES)


def main():
    [address] = sys.argv[1:]
    strict = {"api_key": "none", "max_retries": 0, "_strict_response_validation": True}
    of_openai = openai.OpenAI(base_url=f"{address}/v1", **strict)
    of_anthropic = anthropic.Anthropic(base_url=address, **strict)
    ways = [*chats(of_openai), *completions(of_openai), *responses(of_openai), *messages(of_anthropic)]
    n_wrong = 0
    for name, ask in ways:
        try:
            ask()
        except Exception as error:
            n_wrong += 1
            print(f"{name}: {error} {error.__cause__ or ''}"[:2000])
    print(f"{len(ways) - n_wrong} of {len(ways)} answers are as their types say")
    sys.exit(n_wrong > 0)


if __name__ == "__main__":
    main()
