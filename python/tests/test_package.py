"""The package as a whole: what it promises to readers of its page."""

import re
import subprocess
import sys
from pathlib import Path

import backstitch
import pytest

REPOSITORY = Path(__file__).parents[2]


def test_every_public_name_is_there_and_documented():
    assert sorted(backstitch.__all__, key=str.lower) == sorted(set(backstitch.__all__), key=str.lower)
    for name in backstitch.__all__:
        assert getattr(backstitch, name).__doc__


def test_every_public_method_is_documented():
    for name in backstitch.__all__:
        kind = getattr(backstitch, name)
        if isinstance(kind, type) and kind.__module__.startswith("backstitch"):
            for method in vars(kind):
                if not method.startswith("_") and not issubclass(kind, Exception):
                    value = getattr(kind, method)
                    simple = name in ("Rollback", "PrefixReuse", "CostRange", "TokenLogprobs", "Chunk")
                    assert simple or value.__doc__, f"{name}.{method}"


def test_errors_are_also_what_python_programs_expect():
    for name in backstitch.__all__:
        kind = getattr(backstitch, name)
        if isinstance(kind, type) and issubclass(kind, Exception):
            assert issubclass(kind, backstitch.Error)
    assert issubclass(backstitch.ArgumentError, ValueError)
    assert issubclass(backstitch.OutOfMemoryError, MemoryError)


def test_options_that_do_not_exist_are_named(demo):
    with pytest.raises(TypeError, match="n_cxt"):
        backstitch.Session(demo, n_cxt=5)
    for options in [{"n_ctx": -1}, {"n_ctx": 2**40}, {"n_seq_max": 0}, {"cache_type_k": "q3"}, {"n_threads": 0},
                    {"checkpoint_bytes": -1}]:
        with pytest.raises(backstitch.ArgumentError):
            backstitch.Session(demo, **options)


def test_positions_that_were_not_reached_are_refused(session):
    session.feed([5, 6, 7])
    for pos in [4, 2**31, 2**40]:
        with pytest.raises(backstitch.ArgumentError):
            session.rollback(pos)
    with pytest.raises(backstitch.ArgumentError):
        session.rollback(-1)
    with pytest.raises(OverflowError):
        session.rollback(2**70)
    assert session.pos == 3


def test_numbers_below_zero_are_named(session):
    session.prompt("Once upon a time")
    calls = [
        lambda: session.text(-5),
        lambda: session.generate(-2),
        lambda: session.generate(logprobs=-1),
        lambda: session.score([5], top=-3),
        lambda: session.reseed(-2),
        lambda: session.logits().top(-1),
        lambda: session.logits().logprob(-1),
        lambda: session.model.vocab.piece(-1),
        lambda: session.model.vocab.is_eog(-1),
        lambda: backstitch.Model(n_threads=-1),
    ]
    for call in calls:
        with pytest.raises(backstitch.ArgumentError, match="-[1235]"):
            call()
    session.generate(1).text()
    with pytest.raises(backstitch.ArgumentError, match="seed is -2"):
        session.regenerate(seed=-2)


@pytest.mark.parametrize("page", ["README.md", "python/README.md", "docs/python.md"])
def test_programs_on_the_pages_run(page, tmp_path):
    programs = re.findall(r"```python\n(.*?)```", (REPOSITORY / page).read_text(encoding="utf-8"), re.S)
    assert programs
    program = "\n".join(programs)
    run = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, encoding="utf-8"
    )
    assert run.returncode == 0, run.stderr
    assert len(run.stdout) > 60


def test_the_example_runs(tmp_path):
    example = REPOSITORY / "python" / "examples" / "branches.py"
    run = subprocess.run([sys.executable, str(example)], cwd=tmp_path, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert "re-evaluated" in run.stdout
