"""Sessions: going back, branching, and what happens when something is used up."""

import gc

import backstitch
import pytest

TOKENS = [5 + 7 * i % 50 for i in range(120)]


def bits(session):
    return bytes(session.logits().numpy())


def fresh(model, tokens, **options):
    session = backstitch.Session(model, n_ctx=512, n_threads=1, **options)
    session.feed(tokens)
    return session


def test_a_rollback_gives_the_bits_of_a_fresh_evaluation(kind):
    session = fresh(kind, TOKENS)
    for pos in [119, 100, 63, 7, 1]:
        rollback = session.rollback(pos)
        assert rollback.restored_from + rollback.replayed + rollback.reevaluated == pos
        assert session.pos == pos and session.tokens == TOKENS[:pos]
        assert bits(session) == bits(fresh(kind, TOKENS[:pos])), pos
    session.feed(TOKENS[1:])
    assert bits(session) == bits(fresh(kind, TOKENS))


def test_costs_are_known_before_a_rollback(kind):
    session = fresh(kind, TOKENS)
    costs = session.rollback_costs()
    assert costs[0].start == 0 and costs[-1].stop == len(TOKENS) + 1
    assert all(a.stop == b.start for a, b in zip(costs, costs[1:]))
    found = next(cost for cost in costs if cost.start <= 50 < cost.stop)
    rollback = session.rollback(50)
    assert (rollback.reevaluated > 0) == (found.cost == "reevaluated")
    assert (rollback.replayed > 0) == (found.cost == "replayed")


def test_any_chunking_and_number_of_threads_gives_the_same_bits(kind):
    session = backstitch.Session(kind, n_ctx=256, n_threads=2, n_ubatch=16)
    for start in range(0, len(TOKENS), 13):
        session.feed(TOKENS[start : start + 13])
    assert bits(session) == bits(fresh(kind, TOKENS))


def test_forks_do_not_know_of_each_other(kind):
    session = fresh(kind, TOKENS[:60])
    fork = session.fork()
    fork.feed([9, 8, 7])
    session.rollback(10)
    session.feed([6])
    assert fork.tokens == TOKENS[:60] + [9, 8, 7]
    assert session.tokens == TOKENS[:10] + [6]
    assert bits(fork) == bits(fresh(kind, TOKENS[:60] + [9, 8, 7]))
    assert bits(session) == bits(fresh(kind, TOKENS[:10] + [6]))


def test_a_fork_goes_on_with_the_same_random_numbers(session):
    session.settings = backstitch.Settings(seed=4)
    session.prompt("Once upon a time")
    session.generate(5).text()
    fork = session.fork()
    assert fork.generate(20).text() == session.generate(20).text()
    other = session.fork()
    other.reseed(99)
    assert other.generate(20).text() != session.generate(20).text()


def test_an_edit_is_the_text_that_it_says(session):
    end = session.prompt("Once upon a time there was a cat")
    cut = len(session.model.vocab.tokenize("Once upon a time"))
    session.edit(cut, " there was a dog")
    assert session.text() == "Once upon a time there was a dog"
    other = backstitch.Session(session.model, n_ctx=64)
    other.prompt(session.tokens)
    assert bits(session) == bits(other) and session.pos == end


def test_an_edit_that_does_not_fit_changes_nothing(session):
    session.prompt("Once upon a time")
    before = session.tokens
    with pytest.raises(backstitch.ContextFullError, match="512"):
        session.edit(2, [5] * 600)
    for token in [10**6, -1]:
        with pytest.raises(backstitch.ArgumentError, match="token"):
            session.edit(2, [token])
    with pytest.raises(TypeError):
        session.edit(2, 5)
    assert session.tokens == before


def test_setting_tokens_keeps_the_common_beginning(session):
    session.set_tokens("One day, a girl went home.")
    reuse = session.set_tokens("One day, a girl went out.")
    assert reuse.kept > 4 and reuse.evaluated <= 3
    assert session.text() == "One day, a girl went out."


def test_a_pin_is_reached_at_once(session):
    session.feed([5] * 40)
    mark = session.pin()
    session.feed([6] * 300)
    rollback = session.rollback(mark)
    assert (rollback.restored_from, rollback.replayed, rollback.reevaluated) == (mark, 0, 0)
    assert session.unpin(mark) and not session.unpin(mark)


def test_a_savepoint_takes_back_a_block_that_raises(session):
    session.settings = backstitch.Settings(seed=7)
    session.prompt("Once upon a time")
    before, expected = session.tokens, session.fork().generate(10).text()
    with pytest.raises(LookupError):
        with session.savepoint():
            session.rollback(1)
            session.generate(10).text()
            raise LookupError
    assert session.tokens == before
    assert session.generate(10).text() == expected


def test_a_savepoint_keeps_a_block_that_does_not_raise(session):
    session.prompt("Once")
    with session.savepoint():
        session.feed(" upon")
    assert session.text() == "Once upon"
    with session.savepoint() as savepoint:
        session.feed(" a")
        savepoint.rollback()
        session.feed(" the")
    assert session.text() == "Once upon the"
    assert len([session.fork() for _ in range(3)]) == 3  # all sequences are free again


def test_a_sequence_is_free_when_its_session_is_closed_or_gone(demo):
    session = backstitch.Session(demo, n_ctx=64, n_seq_max=2)
    for _ in range(3):
        with session.fork() as fork:
            fork.feed([5])
    for _ in range(3):
        fork = session.fork()
        fork.feed([5])
        del fork
        gc.collect()
    fork = session.fork()
    with pytest.raises(backstitch.TooManySequencesError, match="n_seq_max|2"):
        session.fork()
    fork.close()
    session.fork()


def test_a_closed_session_says_so(session):
    fork = session.fork()
    fork.close()
    fork.close()
    assert "closed" in repr(fork)
    with pytest.raises(backstitch.SequenceError, match="closed"):
        fork.feed([5])


def test_an_empty_branch_shares_the_context_and_no_tokens(session):
    session.prompt("Once upon a time")
    other = session.empty_branch()
    assert other.tokens == [] and other.pos == 0
    other.prompt("One day")
    assert session.text() == "Once upon a time"


def test_a_full_context_is_an_error_that_changes_nothing(demo):
    session = backstitch.Session(demo, n_ctx=64)
    session.feed([5] * 60)
    with pytest.raises(backstitch.CapacityError):
        session.feed([5] * 10)
    assert session.pos == 60
    session.feed([5] * 4)
    generation = session.generate()
    assert generation.text() == "" and generation.finish == "context_full"


def test_scores_are_the_log_probabilities_of_the_logits(session):
    tokens = session.model.vocab.tokenize("Once upon a time")
    scores = session.fork().score(tokens, top=2)
    assert scores[0].logprob is None
    for n, score in enumerate(scores[1:], 1):
        session.set_tokens(tokens[:n])
        assert score.token == tokens[n]
        assert score.logprob == session.logits().logprob(tokens[n])
        assert score.top == session.logits().top(2)


def test_progress_counts_the_tokens(demo):
    session = backstitch.Session(demo, n_ctx=256, n_ubatch=32)
    calls = []
    session.prompt([5] * 100, progress=lambda done, all: calls.append((done, all)))
    assert calls == [(32, 100), (64, 100), (96, 100), (100, 100)]


def test_an_exception_of_progress_keeps_what_was_evaluated(demo):
    session = backstitch.Session(demo, n_ctx=256, n_ubatch=32)

    def refuse(done, all):
        if done == 64:
            raise LookupError("enough")

    with pytest.raises(LookupError):
        session.prompt([5] * 100, progress=refuse)
    assert session.pos == 64
    session.feed([5] * 36)
    assert bits(session) == bits(fresh(demo, [5] * 100))


def test_the_budget_says_what_memory_is_for(session):
    budget = session.budget()
    assert budget["weights"] == session.model.n_bytes and budget["caches"] > 0
    assert session.n_ctx == 512
