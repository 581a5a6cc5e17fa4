"""Saved sessions: exact in another process, and suspicious of what they read."""

import subprocess
import sys

import backstitch
import pytest
from conftest import GOLDENS

CONTINUE = """
import sys, backstitch
session = backstitch.Session.restore(backstitch.Model(), sys.argv[1], n_ctx=256, n_threads=1)
sys.stdout.buffer.write(bytes(session.logits().numpy()) + session.generate(30).text().encode())
"""


@pytest.fixture
def story(session):
    session.settings = backstitch.Settings(seed=3)
    session.prompt("Once upon a time")
    session.generate(20).text()
    return session


def test_another_process_goes_on_with_the_same_bits(story, tmp_path):
    story.save(tmp_path / "story.bst")
    bits = bytes(story.logits().numpy())
    text = story.generate(30).text()
    found = subprocess.run(
        [sys.executable, "-c", CONTINUE, str(tmp_path / "story.bst")], check=True, stdout=subprocess.PIPE
    ).stdout
    assert found == bits + text.encode()


def test_bytes_are_a_session_too(kind):
    session = backstitch.Session(kind, n_ctx=128)
    session.feed([5 + i % 50 for i in range(100)])
    data = session.to_bytes(metadata=b"a title")
    other = backstitch.Session.from_bytes(kind, data, n_ctx=256, n_threads=1)
    assert other.tokens == session.tokens and other.metadata == b"a title"
    assert other.logits().tolist() == session.logits().tolist()
    other.rollback(90)
    session.rollback(90)
    assert other.logits().tolist() == session.logits().tolist()


def test_all_sessions_of_a_context_come_back(story, tmp_path):
    fork = story.fork()
    fork.reseed(9)
    fork.generate(5).text()
    story.save_all(str(tmp_path / "all.bst"), metadata=b"two", sync=False)
    restored = backstitch.Session.restore_all(story.model, tmp_path / "all.bst", n_ctx=512)
    assert [session.tokens for session in restored] == [story.tokens, fork.tokens]
    assert [session.metadata for session in restored] == [b"two"] * 2
    assert restored[1].generate(10).text() == fork.generate(10).text()
    with pytest.raises(backstitch.ForeignStateError):
        backstitch.Session.restore(story.model, tmp_path / "all.bst")


def test_every_cut_is_noticed(story):
    data = story.to_bytes()
    for end in [*range(0, 300, 7), *range(300, len(data), len(data) // 60)]:
        with pytest.raises(backstitch.StateError):
            backstitch.Session.from_bytes(story.model, data[:end], n_ctx=512)


def test_every_changed_byte_is_noticed_or_harmless(story):
    data, logits = story.to_bytes(), story.logits().tolist()
    n_noticed = 0
    for place in range(0, len(data), len(data) // 150):
        damaged = bytearray(data)
        damaged[place] ^= 0x10
        try:
            other = backstitch.Session.from_bytes(story.model, bytes(damaged), n_ctx=512)
        except backstitch.StateError:
            n_noticed += 1
        else:  # padding between sections
            assert other.logits().tolist() == logits
    assert n_noticed > 100


def test_a_state_of_another_model_is_refused(story):
    llama = backstitch.Model(GOLDENS / "models" / "llama.gguf")
    with pytest.raises(backstitch.ForeignStateError, match="open the model"):
        backstitch.Session.from_bytes(llama, story.to_bytes())
    with pytest.raises(backstitch.ForeignStateError, match="not a state file"):
        backstitch.Session.from_bytes(story.model, b"no state at all, but long enough" * 20)


def test_another_type_of_cells_has_to_be_asked_for(story):
    data = story.to_bytes()
    with pytest.raises(backstitch.ForeignStateError, match="f16"):
        backstitch.Session.from_bytes(story.model, data, cache_type_k="f32", cache_type_v="f32")
    other = backstitch.Session.from_bytes(
        story.model, data, convert=True, cache_type_k="f32", cache_type_v="f32"
    )
    assert other.tokens == story.tokens


def test_a_context_that_is_too_small_is_an_error(story):
    with pytest.raises(backstitch.CapacityError):
        backstitch.Session.from_bytes(story.model, story.to_bytes(), n_ctx=16)


def test_files_raise_errors_of_files(story, tmp_path):
    with pytest.raises(FileNotFoundError):
        backstitch.Session.restore(story.model, tmp_path / "nowhere.bst")
    with pytest.raises(OSError):
        story.save(tmp_path / "no folder" / "story.bst")
    with pytest.raises(OSError):
        story.save(tmp_path)


def test_a_saved_file_is_replaced_by_the_newer_session(story, tmp_path):
    path = tmp_path / "story.bst"
    story.save(path)
    story.generate(5).text()
    story.save(path)
    assert backstitch.Session.restore(story.model, path).tokens == story.tokens
    assert [entry.name for entry in tmp_path.iterdir() if entry.suffix == ".bst"] == ["story.bst"]
