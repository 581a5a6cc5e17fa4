"""Generating beside an event loop."""

import asyncio
import contextlib
import threading

import backstitch
import pytest

LONG = [5 + i % 90 for i in range(30_000)]


def test_async_for_yields_what_for_does(session):
    session.prompt("Once upon a time")
    other = session.fork()

    async def stream():
        return [chunk.text async for chunk in session.generate(30)]

    assert asyncio.run(stream()) == [chunk.text for chunk in other.generate(30)]


def test_the_event_loop_runs_while_the_model_does(demo):
    session = backstitch.Session(demo, n_ctx=32_768, n_ubatch=16)

    async def work():
        ticks = 0
        task = asyncio.ensure_future(backstitch.in_thread(session.prompt, LONG[:1000]))
        while not task.done():
            await asyncio.sleep(0.005)
            ticks += 1
        return ticks, await task

    ticks, end = asyncio.run(work())
    assert end == 1000 and ticks > 10


def test_several_streams_advance_side_by_side(session):
    session.prompt("Once upon a time")
    forks = [session.fork() for _ in range(3)]
    expected = session.generate(20).text()
    order = []

    async def stream(number, fork):
        text = ""
        async for chunk in fork.generate(20):
            order.append(number)
            text += chunk.text
        return text

    async def all_of_them():
        return await asyncio.gather(*map(stream, range(3), forks))

    assert asyncio.run(all_of_them()) == [expected] * 3
    assert sum(a != b for a, b in zip(order, order[1:])) > 10


def test_a_cancelled_task_ends_its_computation(demo):
    session = backstitch.Session(demo, n_ctx=32_768, n_ubatch=16)

    begun = threading.Event()

    async def work():
        progress = lambda done, all: begun.set() if done else None
        task = asyncio.ensure_future(backstitch.in_thread(session.prompt, LONG, progress=progress))
        while not begun.is_set():
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return session.pos  # nothing computes any more

    assert 0 < asyncio.run(work()) < len(LONG)


def test_a_cancelled_stream_loses_no_token(demo):
    session = backstitch.Session(demo, n_ctx=8192)
    session.prompt("Once upon a time")
    start, shown, generation = session.pos, [], session.generate(ignore_eos=True)

    async def stream():
        async for chunk in generation:
            shown.extend(chunk.tokens)

    async def work():
        task = asyncio.ensure_future(stream())
        await asyncio.sleep(0.3)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    asyncio.run(work())
    shown += [token for chunk in generation for token in chunk.tokens]
    assert generation.finish == "cancelled"
    assert shown and session.tokens[start:] == shown


def test_errors_come_out_of_streams(session):
    async def stream():
        return [chunk async for chunk in session.generate(3)]

    with pytest.raises(backstitch.SequenceError):
        asyncio.run(stream())
