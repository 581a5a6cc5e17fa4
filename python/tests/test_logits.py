"""Logits as arrays: nothing is copied, and nothing changes them."""

import gc

import backstitch
import numpy
import pytest


def test_an_array_shares_the_memory_of_the_logits(session):
    session.prompt("Once upon a time")
    logits = session.logits()
    one, other = logits.numpy(), numpy.asarray(logits)
    assert one.dtype == numpy.float32 and one.shape == (session.model.n_vocab,)
    assert numpy.shares_memory(one, other)
    assert one.ctypes.data == logits.__array_interface__["data"][0]
    assert one.base is not None


def test_two_views_of_the_same_logits_are_the_same_memory(session):
    session.prompt("Once upon a time")
    assert numpy.shares_memory(session.logits().numpy(), session.logits().numpy())
    assert numpy.shares_memory(session.logits().numpy(), session.fork().logits().numpy())


def test_logits_are_read_only(session):
    session.prompt("Once")
    array = session.logits().numpy()
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 1
    with pytest.raises(ValueError):
        array.setflags(write=True)


def test_later_evaluations_do_not_change_logits(session):
    session.prompt("Once upon a time")
    held, copies = [], []
    for _ in range(20):
        array = session.logits().numpy()
        held.append(array)
        copies.append(array.copy())
        session.generate(1).text()
    for array, copy in zip(held, copies):
        assert numpy.array_equal(array, copy)
    assert not any(numpy.shares_memory(a, b) for a, b in zip(held, held[1:]))


def test_logits_outlive_their_session_and_model(demo):
    session = backstitch.Session(backstitch.Model(), n_ctx=64)
    session.prompt("Once upon a time")
    array = session.logits().numpy()
    copy = array.copy()
    del session
    gc.collect()
    junk = [backstitch.Session(demo, n_ctx=64) for _ in range(4)]
    for other in junk:
        other.prompt("Other text in the memory that is free now")
        other.logits()
    assert numpy.array_equal(array, copy)


def test_logits_of_a_row_among_many_are_right(session):
    tokens = session.model.vocab.tokenize("Once upon a time there was a cat. " * 20)
    session.score(tokens)
    many = session.logits()
    other = backstitch.Session(session.model, n_ctx=512)
    other.feed(tokens)
    assert many.tolist() == other.logits().tolist()


def test_logits_are_a_sequence_without_numpy(session):
    session.prompt("Once upon a time")
    logits = session.logits()
    values = logits.tolist()
    assert len(logits) == len(values) == session.model.n_vocab
    assert list(logits) == values and logits[0] == values[0] and logits[-1] == values[-1]
    assert logits.argmax() == max(range(len(values)), key=values.__getitem__)
    best = logits.top(5)
    assert [token for token, _ in best] == sorted(range(len(values)), key=lambda t: -values[t])[:5]
    assert best[0][1] == logits.logprob(best[0][0]) < 0
    assert len(logits.top(10**9)) == len(values)
    for place in [len(values), -len(values) - 1]:
        with pytest.raises(IndexError):
            logits[place]
    with pytest.raises(backstitch.ArgumentError):
        logits.logprob(len(values))


def test_an_empty_session_has_no_logits(session):
    with pytest.raises(backstitch.SequenceError):
        session.logits()
