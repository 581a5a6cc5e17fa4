"""Savepoints: blocks whose changes of a session are taken back if they raise."""

from __future__ import annotations

from types import TracebackType
from typing import Optional, Type

from ._native import Session


class Savepoint:
    """A context manager that takes back what its block does to a session, if the block raises.

    It keeps a fork of the session, which copies nothing, so even a rollback to before the
    savepoint, and another state of the samplers, are undone. ``rollback`` takes back everything
    without an exception.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._kept: Optional[Session] = None

    def __enter__(self) -> Savepoint:
        if self._kept is not None:
            raise RuntimeError("this savepoint was entered already; make another one")
        self._kept = self._session.fork()
        return self

    def rollback(self) -> None:
        """Take back what the block did so far. The block goes on, and so does the savepoint."""
        if self._kept is None:
            raise RuntimeError("the savepoint is not entered")
        self._session._swap(self._kept)
        self._kept.close()
        self._kept = self._session.fork()

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        if self._kept is None:
            return
        if kind is not None:
            self._session._swap(self._kept)
        self._kept.close()
        self._kept = None
