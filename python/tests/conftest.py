"""What the tests share: models, and where their files are."""

from pathlib import Path

import backstitch
import pytest

GOLDENS = Path(__file__).parents[2] / "goldens"
#: A model of each kind of memory: all cells, windows, recurrent states, and both.
KINDS = ["llama", "gemma2", "mamba", "rwkv7", "falcon_h1"]


@pytest.fixture(scope="session")
def demo():
    return backstitch.Model()


@pytest.fixture
def session(demo):
    with backstitch.Session(demo, n_ctx=512, n_threads=2, settings=backstitch.Settings(seed=0)) as session:
        yield session


@pytest.fixture(params=KINDS)
def kind(request):
    """A small model of each kind of memory, with random weights."""
    return backstitch.Model(GOLDENS / "models" / f"{request.param}.gguf")


@pytest.fixture
def greedy():
    return backstitch.Settings(temp=0)
