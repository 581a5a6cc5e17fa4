"""Embeddings."""

import backstitch
import numpy
import pytest
from conftest import GOLDENS


@pytest.fixture(scope="module")
def bert():
    return backstitch.Model(GOLDENS / "models" / "bert.gguf")


def test_embeddings_have_length_one_and_a_row_for_each_text(bert):
    assert bert.is_encoder
    rows = backstitch.Embedder(bert).embed(["hello world", "hello there", "hello world"])
    array = rows.numpy()
    assert rows.shape == array.shape == (3, bert.n_embd) and len(rows) == 3
    assert numpy.allclose((array * array).sum(axis=1), 1, atol=1e-6)
    assert (array[0] == array[2]).all() and not (array[0] == array[1]).all()
    assert rows[1] == array[1].tolist() == rows.tolist()[1] == list(rows)[-2]
    assert numpy.shares_memory(array, rows.numpy()) and not array.flags.writeable


def test_models_that_write_text_make_embeddings_too(demo):
    with pytest.raises(backstitch.UnsupportedError, match="pooling"):
        backstitch.Embedder(demo)
    embedder = backstitch.Embedder(demo, pooling="mean", normalize=False, n_ctx=64)
    rows = embedder.embed(["Once upon a time", [5, 6, 7]])
    assert rows.shape == (2, demo.n_embd)
    assert embedder.embed(["Once upon a time"])[0] == rows[0]


def test_an_encoder_writes_no_text(bert):
    with pytest.raises(backstitch.UnsupportedError):
        backstitch.Session(bert)


def test_an_empty_text_is_named_where_nothing_begins_a_text():
    model = backstitch.Model(GOLDENS / "models" / "rwkv7.gguf")
    assert model.vocab.tokenize("") == []
    embedder = backstitch.Embedder(model, pooling="mean", n_ctx=16)
    with pytest.raises(backstitch.ArgumentError, match="index 0 "):
        embedder.embed([""])
    assert len(embedder.embed(["a"])) == 1


def test_texts_that_cannot_be_embedded_are_errors(bert):
    embedder = backstitch.Embedder(bert, n_ctx=16)
    with pytest.raises(backstitch.Error):
        embedder.embed([[5] * 17])
    with pytest.raises(backstitch.ArgumentError, match="index 1 "):
        embedder.embed(["hello", []])
    for numbers in [{"n_ctx": -1}, {"n_threads": -1}]:
        with pytest.raises(backstitch.ArgumentError, match="is -1"):
            backstitch.Embedder(bert, **numbers)
    with pytest.raises(backstitch.ArgumentError):
        backstitch.Embedder(bert, pooling="median")
    assert len(embedder.embed(["hello"])) == 1
    assert embedder.embed([]).shape == (0, bert.n_embd)
