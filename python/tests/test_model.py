"""Models, and what files can do wrong."""

import backstitch
import pytest
from conftest import GOLDENS

LLAMA = GOLDENS / "models" / "llama.gguf"


def test_the_model_inside_needs_no_file(demo):
    assert demo.architecture == "falcon-h1"
    assert demo.n_vocab == len(demo.vocab)
    assert demo.n_bytes > 1_000_000
    assert demo.chat_template is None and not demo.is_encoder
    assert "falcon-h1" in repr(demo)


def test_a_path_may_be_any_path_and_bytes_are_the_same_model():
    models = [
        backstitch.Model(LLAMA, n_threads=1),
        backstitch.Model(str(LLAMA)),
        backstitch.Model.from_bytes(LLAMA.read_bytes()),
    ]
    assert len({model.fingerprint for model in models}) == 1


def test_progress_ends_with_all_bytes():
    calls = []
    backstitch.Model(LLAMA, progress=lambda done, all: calls.append((done, all)))
    assert calls[-1][0] == calls[-1][1] > 0
    assert [done for done, _ in calls] == sorted(done for done, _ in calls)


def test_an_exception_of_progress_ends_the_loading():
    def refuse(done, all):
        raise LookupError("enough")

    with pytest.raises(LookupError, match="enough"):
        backstitch.Model(LLAMA, progress=refuse)


def test_loading_can_be_cancelled():
    cancel = backstitch.Cancel()
    cancel.cancel()
    with pytest.raises(backstitch.CancelledError):
        backstitch.Model(LLAMA, cancel=cancel)


def test_files_raise_errors_of_files(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere.gguf"):
        backstitch.Model(tmp_path / "nowhere.gguf")
    with pytest.raises(IsADirectoryError):
        backstitch.Model(tmp_path)
    (tmp_path / "empty.gguf").touch()
    with pytest.raises(OSError, match="empty"):
        backstitch.Model(tmp_path / "empty.gguf")


def test_files_that_are_no_model_say_why(tmp_path):
    path = tmp_path / "model.gguf"
    path.write_bytes(b"PK\x03\x04" * 100)
    with pytest.raises(backstitch.ModelError, match="not a GGUF file"):
        backstitch.Model(path)
    path.write_bytes(LLAMA.read_bytes()[:-1000])
    with pytest.raises(backstitch.ModelError, match="truncated"):
        backstitch.Model(path)
    with pytest.raises(backstitch.ModelError):
        backstitch.Model.from_bytes(b"")


def test_numbers_of_threads_are_checked():
    with pytest.raises(ValueError):
        backstitch.Model(LLAMA, n_threads=0)
    with pytest.raises(backstitch.ArgumentError):
        backstitch.Model(LLAMA, n_threads=100_000)
