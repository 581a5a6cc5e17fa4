"""Tokenising."""

import backstitch
import pytest


def test_a_text_comes_back_from_its_tokens(demo):
    for text in ["Once upon a time", " two  spaces\n\ttab", "naïve € 日本 🧵"]:
        tokens = demo.vocab.tokenize(text, add_special=False)
        assert b"".join(map(demo.vocab.piece, tokens)).decode() == text
        assert demo.vocab.detokenize(tokens) == text


def test_control_tokens_in_a_text_are_text_unless_asked_for(demo):
    vocab = demo.vocab
    text = vocab.detokenize([vocab.bos], write_special=True)
    assert vocab.bos not in vocab.tokenize(text, add_special=False)
    assert vocab.tokenize(text, add_special=False, parse_special=True) == [vocab.bos]
    assert vocab.find(text) == vocab.bos
    assert vocab.detokenize([vocab.bos]) == ""


def test_half_a_character_is_bytes_or_a_replacement(demo):
    vocab = demo.vocab
    tokens = vocab.tokenize("🧵", add_special=False)
    assert len(tokens) > 1
    assert vocab.detokenize_bytes(tokens[:1]) == "🧵".encode()[: len(vocab.piece(tokens[0]))]
    assert "\ufffd" in vocab.detokenize(tokens[:1])


def test_ends_of_generations_are_known(demo):
    assert all(map(demo.vocab.is_eog, demo.vocab.eog))
    assert demo.vocab.eos in demo.vocab.eog


def test_what_is_no_token_has_no_text_or_is_refused(demo):
    assert demo.vocab.piece(len(demo.vocab)) == b""
    with pytest.raises(backstitch.ArgumentError, match="-1 is no token"):
        demo.vocab.detokenize([-1])
    with pytest.raises(ValueError):
        demo.vocab.detokenize([2**40])
    with pytest.raises(TypeError):
        demo.vocab.detokenize(["a"])
