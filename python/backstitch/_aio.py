"""Computations beside an event loop: in a thread, ended when the task that waits is cancelled."""

from __future__ import annotations

import asyncio
import functools
from typing import Any, AsyncIterator, Callable, Optional, TypeVar

from ._native import Cancel, Chunk, Generation

T = TypeVar("T")


async def in_thread(
    call: Callable[..., T], /, *args: Any, cancel: Optional[Cancel] = None, **kwargs: Any
) -> T:
    """Run ``call(*args, cancel=..., **kwargs)`` in a thread, and return its result.

    ``call`` is a method that takes a :class:`Cancel`, such as ``session.prompt``. If the task that
    waits is cancelled, the computation is cancelled too, and has ended when the task ends.
    """
    cancel = Cancel() if cancel is None else cancel
    return await _finished(functools.partial(call, *args, cancel=cancel, **kwargs), cancel.cancel)


async def chunks(generation: Generation) -> AsyncIterator[Chunk]:
    """Yield the chunks of a generation; ``async for`` calls this."""
    while True:
        await _finished(generation._compute, generation.cancel)
        chunk = generation._take()
        if chunk is None:
            return
        yield chunk


async def _finished(call: Callable[[], T], cancel: Callable[[], None]) -> T:
    """Run ``call`` in a thread. If the task is cancelled, call ``cancel`` and wait for the end."""
    future = asyncio.get_running_loop().run_in_executor(None, call)
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        cancel()
        await asyncio.wait([future])
        if not future.cancelled():
            future.exception()  # what was cancelled has nothing to say
        raise
