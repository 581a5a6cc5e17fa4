"""The exceptions of Backstitch.

Each is an :class:`Error`. Those that mean what a built-in exception means are that too, so
``except ValueError`` also catches an :class:`ArgumentError`. Files that cannot be read or written
raise the built-in :class:`OSError` and its subclasses. An operation that raises has changed
nothing, unless its documentation says otherwise.
"""

__all__ = [
    "ArgumentError",
    "CancelledError",
    "CapacityError",
    "ChatError",
    "ContextFullError",
    "DamagedStateError",
    "Error",
    "ForeignStateError",
    "GrammarError",
    "InternalError",
    "ModelError",
    "NoTokenError",
    "OutOfMemoryError",
    "SequenceError",
    "StateError",
    "TooManySequencesError",
    "UnsupportedError",
]


class Error(Exception):
    """Base of all exceptions of this package."""


class ArgumentError(Error, ValueError):
    """An argument has a value that is not possible."""


class ModelError(Error):
    """A file is no model that this package can use: damaged, or of an unknown kind."""


class UnsupportedError(Error):
    """The model, or this processor, cannot do what was asked for."""


class CapacityError(Error):
    """Something is used up that was set when the session was made."""


class ContextFullError(CapacityError):
    """The context has no room for these tokens, or for another pin; raise ``n_ctx``."""


class TooManySequencesError(CapacityError):
    """All sequences of the context are in use; close a session, or raise ``n_seq_max``."""


class OutOfMemoryError(Error, MemoryError):
    """The system refused memory."""


class SequenceError(Error):
    """The session is not in a state for this: it is empty, or was changed meanwhile."""


class NoTokenError(SequenceError):
    """The samplers or the grammar left no token to draw."""


class StateError(Error):
    """A saved state cannot be restored."""


class DamagedStateError(StateError):
    """A saved state is not as it was written: cut off, or changed."""


class ForeignStateError(StateError):
    """A saved state is of another model, another kind of cache or another format."""


class GrammarError(Error):
    """A grammar or a JSON schema cannot be used."""


class ChatError(Error):
    """A chat template cannot be read, or refuses the messages."""


class CancelledError(Error):
    """The computation was cancelled by :meth:`Cancel.cancel`."""


class InternalError(Error):
    """A fault of this package."""
