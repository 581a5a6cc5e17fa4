"""Threads, signals and cancellation. A long evaluation here takes seconds if nothing ends it."""

import os
import signal
import subprocess
import sys
import threading
import time

import backstitch
import pytest

LONG = [5 + i % 90 for i in range(30_000)]


@pytest.fixture
def long_session(demo):
    return backstitch.Session(demo, n_ctx=32_768, n_threads=2, n_seq_max=3, n_ubatch=16)


@pytest.fixture(autouse=True)
def ctrl_c():
    """Let Ctrl-C raise, also in the background, where shells make it be ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def after(seconds, call):
    timer = threading.Timer(seconds, call)
    timer.start()
    return timer


def when_begun(call):
    """Return a `progress` that makes another thread call `call` once something was evaluated."""
    begun = threading.Event()
    threading.Thread(target=lambda: begun.wait() and call()).start()
    return lambda done, all: begun.set() if done else None


def test_another_thread_cancels_an_evaluation(long_session):
    cancel = backstitch.Cancel()
    with pytest.raises(backstitch.CancelledError):
        long_session.prompt(LONG, cancel=cancel, progress=when_begun(cancel.cancel))
    assert 0 < long_session.pos < len(LONG)
    assert cancel.is_cancelled and "cancelled" in repr(cancel)
    kept = long_session.pos
    with pytest.raises(backstitch.CancelledError):
        long_session.feed([5], cancel=cancel)
    cancel.reset()
    assert long_session.feed([5], cancel=cancel) == kept + 1


def test_another_thread_cancels_a_generation(session):
    session.prompt("Once upon a time")
    cancel = backstitch.Cancel()
    generation = session.generate(ignore_eos=True, cancel=cancel)
    next(generation)
    cancel.cancel()
    assert list(generation) == [] and generation.finish == "cancelled"


@pytest.mark.skipif(sys.platform == "win32", reason="signals of Unix")
def test_ctrl_c_ends_a_long_evaluation(long_session):
    press = when_begun(lambda: os.kill(os.getpid(), signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        long_session.prompt(LONG, progress=press)
    assert 0 < long_session.pos < len(LONG)
    long_session.rollback(1)
    assert long_session.feed([7]) == 2


@pytest.mark.skipif(sys.platform == "win32", reason="signals of Unix")
def test_ctrl_c_ends_a_generation_and_loses_no_token(session):
    session.prompt("Once upon a time")
    start, shown = session.pos, []
    timer = after(0.05, lambda: os.kill(os.getpid(), signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        generation = session.generate(ignore_eos=True)
        while True:
            for chunk in generation:
                shown += chunk.tokens
            session.rollback(start)
            shown, generation = [], session.generate(ignore_eos=True)
    timer.join()
    held = session.tokens[start:]
    assert held[: len(shown)] == shown and len(held) <= len(shown) + 1


@pytest.mark.skipif(sys.platform == "win32", reason="signals of Unix")
def test_ctrl_c_ends_waiting_for_a_turn(long_session):
    cancel, begun, ended = backstitch.Cancel(), threading.Event(), threading.Event()

    def compute():
        with pytest.raises(backstitch.CancelledError):
            long_session.prompt(LONG, cancel=cancel, progress=lambda done, all: begun.set() if done else None)
        ended.set()

    thread = threading.Thread(target=compute)
    thread.start()
    begun.wait()
    after(0.1, lambda: os.kill(os.getpid(), signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        long_session.fork()
    assert not ended.is_set()
    cancel.cancel()
    thread.join()
    assert long_session.pos > 0


def test_other_threads_run_while_the_model_does(long_session):
    cancel, count = backstitch.Cancel(), 0
    thread = threading.Thread(
        target=lambda: pytest.raises(backstitch.CancelledError, long_session.prompt, LONG, cancel=cancel)
    )
    thread.start()
    end = time.monotonic() + 0.5
    while time.monotonic() < end:
        count += 1
    alive = thread.is_alive()
    cancel.cancel()
    thread.join()
    assert alive and count > 1000


@pytest.mark.parametrize("name", ["tokenize", "detokenize", "detokenize_bytes"])
def test_other_threads_run_while_a_text_is_tokenised(demo, name):
    text = "Once upon a time " * 300_000
    argument = text if name == "tokenize" else demo.vocab.tokenize(text)
    begin, order = threading.Event(), []
    thread = threading.Thread(target=lambda: begin.wait() and order.append("other"))
    interval = sys.getswitchinterval()
    sys.setswitchinterval(100)  # the other thread runs only where this one lets it
    try:
        thread.start()
        begin.set()
        getattr(demo.vocab, name)(argument)
        order.append("this")
    finally:
        sys.setswitchinterval(interval)
    thread.join()
    assert order == ["other", "this"]


def test_threads_that_generate_take_turns(demo):
    first = backstitch.Session(demo, n_ctx=1024, n_threads=1, settings=backstitch.Settings(seed=1))
    first.prompt("Once upon a time")
    second = first.fork()
    second.reseed(2)
    alone = [first.fork().generate(100, ignore_eos=True).text(), second.fork().generate(100, ignore_eos=True).text()]
    order, texts = [], ["", ""]
    both = threading.Barrier(2)

    def generate(number, session):
        both.wait()
        for chunk in session.generate(100, ignore_eos=True):
            order.append(number)
            texts[number] += chunk.text

    threads = [threading.Thread(target=generate, args=pair) for pair in enumerate([first, second])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert texts == alone
    # One change is the least: one after the other. A busy machine may leave a thread waiting for
    # some of its turns.
    assert sum(a != b for a, b in zip(order, order[1:])) > 4


def test_a_callback_cannot_use_the_session_that_calls_it(session):
    with pytest.raises(RuntimeError, match="callback"):
        session.prompt("Once upon a time", progress=lambda done, all: session.pos)
    assert session.rollback(0).reevaluated == 0


def test_a_session_dropped_during_a_computation_gives_its_sequence_back(demo):
    session = backstitch.Session(demo, n_ctx=512, n_seq_max=2, n_ubatch=32)
    forks = [session.fork()]
    session.prompt([5] * 100, progress=lambda done, all: forks.clear())
    session.fork()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_is_told_to_make_its_own_session(session):
    child = os.fork()
    if child == 0:
        try:
            session.feed([5])
        except RuntimeError:
            os._exit(3)
        os._exit(4)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
    session.feed([5])


FORK = """
import os, sys, backstitch
model = backstitch.Model()
session = backstitch.Session(model, n_ctx=256, n_threads=2)
session.prompt("Once upon a time")
fork, embedder = session.fork(), backstitch.Embedder(model, pooling="mean", n_ctx=64, n_threads=2)
generation = session.generate(5)
next(generation)
child = os.fork()
own = backstitch.Session(model, n_ctx=64, n_threads=2)
own.prompt("One day")
os.write(1, b"%d " % own.seed)
if child == 0:
    fork.close()
    del embedder
    sys.exit(5)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 5
assert generation.text() and fork.feed([5])
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_process_leaves_its_parents_sessions_and_draws_its_own_seeds():
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORK], capture_output=True, text=True, timeout=60
    )
    assert (run.returncode, run.stderr) == (0, "")
    seeds = run.stdout.split()
    assert len(seeds) == 2 and seeds[0] != seeds[1]
