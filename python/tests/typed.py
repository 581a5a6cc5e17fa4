# Calls of most of the package with the types that the stubs give them; a type checker reads this.

from typing import Dict, List, Optional, Tuple

import backstitch


def calls(model: backstitch.Model) -> None:
    session = backstitch.Session(model, settings=backstitch.Settings(temp=0.5, top_k=4), n_ctx=512)
    end: int = session.prompt("Once", progress=lambda done, all: None)
    rollback: backstitch.Rollback = session.rollback(end - 1)
    texts: List[str] = [chunk.text for chunk in session.generate(5, stop=["."], regex="[a-z]+")]
    schema: Dict[str, str] = {"type": "object"}
    finish: Optional[str] = session.generate(5, json_schema=schema).finish
    best: List[Tuple[int, float]] = session.logits().top(3)
    size: int = session.logits().numpy().size
    again = backstitch.Session.from_bytes(model, session.to_bytes(), n_ctx=512)
    with again.savepoint() as savepoint, again.fork() as fork:
        fork.feed([1, 2, 3])
        savepoint.rollback()
    rows: Tuple[int, int] = backstitch.Embedder(model, pooling="mean").embed(texts).shape
    print(rollback.reevaluated, finish, best, size, rows)


async def streams(session: backstitch.Session) -> str:
    await backstitch.in_thread(session.prompt, "Once")
    return "".join([chunk.text async for chunk in session.generate(5)])


calls(backstitch.Model())
