"""Backstitch runs language models on CPUs, with memory that can be trusted.

What a model has read can be forked, rolled back, saved and restored, exactly: the logits of a token
depend on the weights and the tokens before it, and on nothing else::

    import backstitch

    session = backstitch.Session(backstitch.Model())  # the small model inside; or Model("a.gguf")
    session.prompt("Once upon a time")
    for chunk in session.generate(limit=60):
        print(chunk, end="", flush=True)

Computations run without the interpreter's lock, and Ctrl-C ends evaluations, generations and the
loading of files. The guide is docs/python.md in the repository.
"""

from ._native import (
    Cancel,
    ChatTemplate,
    Chunk,
    CostRange,
    Embedder,
    Embeddings,
    Generation,
    Logits,
    Model,
    PrefixReuse,
    Rendered,
    Rollback,
    Session,
    Settings,
    TokenLogprobs,
    Vocab,
    __version__,
)
from ._aio import in_thread
from ._savepoint import Savepoint
from .errors import (
    ArgumentError,
    CancelledError,
    CapacityError,
    ChatError,
    ContextFullError,
    DamagedStateError,
    Error,
    ForeignStateError,
    GrammarError,
    InternalError,
    ModelError,
    NoTokenError,
    OutOfMemoryError,
    SequenceError,
    StateError,
    TooManySequencesError,
    UnsupportedError,
)

__all__ = [
    "ArgumentError",
    "Cancel",
    "CancelledError",
    "CapacityError",
    "ChatError",
    "ChatTemplate",
    "Chunk",
    "ContextFullError",
    "CostRange",
    "DamagedStateError",
    "Embedder",
    "Embeddings",
    "Error",
    "ForeignStateError",
    "Generation",
    "GrammarError",
    "InternalError",
    "Logits",
    "Model",
    "ModelError",
    "NoTokenError",
    "OutOfMemoryError",
    "PrefixReuse",
    "Rendered",
    "Rollback",
    "Savepoint",
    "SequenceError",
    "Session",
    "Settings",
    "StateError",
    "TokenLogprobs",
    "TooManySequencesError",
    "UnsupportedError",
    "Vocab",
    "__version__",
    "in_thread",
]
