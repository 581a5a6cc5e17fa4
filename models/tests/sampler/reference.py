"""Write the tokens that a llama-server draws behind each line of requests.

Usage: reference.py PORT < tokens.txt > new.txt

The server runs the model of the test. A line is `name=value ... : tokens`, with the fields of
`/completion`; lines without a colon are requests whose tokens are not known yet.
"""

import json
import sys
import urllib.request

PROMPT = [1, 30, 31, 32, 30, 31, 40, 30, 31]


def value(name, text):
    if name == "samplers":
        return text.split(";") if ";" in text or "_" in text else text
    return json.loads(text)


for line in sys.stdin:
    request = line.split(":")[0].strip()
    fields = (field.split("=") for field in request.split())
    body = {name: value(name, text) for name, text in fields}
    body |= {"prompt": PROMPT, "n_predict": 40, "return_tokens": True, "cache_prompt": False}
    url = f"http://127.0.0.1:{sys.argv[1]}/completion"
    asked = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    tokens = json.load(urllib.request.urlopen(asked))["tokens"]
    print(request, ":", *tokens)
