"""Generating: streams, stop strings, samplers, grammars."""

import json
import re

import backstitch
import pytest


@pytest.fixture
def story(session):
    session.settings = backstitch.Settings(seed=3)
    session.prompt("Once upon a time")
    return session


def test_a_stream_is_the_same_text_as_without(story):
    other = story.fork()
    generation = story.generate(60)
    chunks = list(generation)
    assert "".join(map(str, chunks)) == other.generate(60).text()
    assert sum((chunk.tokens for chunk in chunks), []) == other.tokens[-60:] == story.tokens[-60:]
    assert generation.finish == "limit" and len(chunks) >= 60
    assert list(generation) == []


def test_the_text_is_that_of_the_tokens(story):
    start = story.pos
    text = story.generate(40).text()
    assert text == story.text(start)


def test_no_chunk_tears_a_character(story):
    chunks = list(story.generate(100, regex="(€|日|🧵|é){6}"))
    text = "".join(map(str, chunks))
    assert re.fullmatch("(€|日|🧵|é){6}", text)
    assert sum(len(chunk.tokens) for chunk in chunks) > 6  # characters of several tokens
    assert all("\ufffd" not in chunk.text for chunk in chunks)
    assert any(chunk.text == "" for chunk in chunks)


def test_a_stop_string_ends_the_text_and_is_not_shown(story):
    generation = story.generate(100, stop=["zebra", "."])
    text = generation.text()
    assert text and "." not in text
    assert (generation.finish, generation.stop_index) == ("stop", 1)
    assert story.text().endswith(".")
    story.cut_stop()
    assert story.text() == "Once upon a time" + text
    assert story.cut_stop() is None


def test_one_stop_string_needs_no_list(story):
    assert "," not in story.fork().generate(50, ",").text()
    assert "," not in story.generate(50, stop=",").text()


def test_the_same_seed_gives_the_same_text_and_another_another(demo):
    def text(**settings):
        session = backstitch.Session(demo, settings=backstitch.Settings(**settings), n_ctx=128)
        session.prompt("Once upon a time")
        return session.generate(30).text()

    assert text(seed=1) == text(seed=1) != text(seed=2)
    assert text(temp=0, seed=1) == text(temp=0, seed=2) == text(top_k=1, seed=5)
    assert text(temp=0).startswith(", there was a little")


def test_without_a_seed_every_session_draws_its_own(demo):
    def told(settings):
        session = backstitch.Session(demo, settings=settings, n_ctx=128)
        session.prompt("Once upon a time")
        return session.seed, session.generate(30, ignore_eos=True).text()

    found = [told(settings) for settings in [None, backstitch.Settings(), backstitch.Settings(seed=-1)] * 2]
    assert len({seed for seed, _ in found}) == 6 and len({text for _, text in found}) > 3
    for seed, text in found:
        assert told(backstitch.Settings(seed=seed)) == (seed, text)
    assert backstitch.Settings().seed == -1 and backstitch.Settings() == backstitch.Settings(seed=-1)
    assert backstitch.Settings(seed=2**64 - 1).seed == 2**64 - 1


def test_a_seed_that_was_drawn_stays_until_another_is_asked_for(session):
    session.settings = backstitch.Settings()
    seed = session.seed
    session.prompt("Once upon a time")
    session.generate(regex="[0-9]{3}").text()
    assert [session.seed, session.fork().seed, session.empty_branch().seed] == [seed] * 3
    session.generate(5).text()
    assert session.seed == seed and session.settings.seed == -1
    session.reseed(-1)
    drawn = session.seed
    session.generate(5).text()
    session.regenerate(seed=-1)
    assert len({seed, drawn, session.seed}) == 3
    session.reseed(7)
    assert session.seed == 7


def test_minus_one_is_what_llama_cpp_takes_it_for(demo):
    def text(limit, **settings):
        session = backstitch.Session(demo, settings=backstitch.Settings(seed=1, **settings), n_ctx=64)
        session.prompt("Once upon a time")
        return session.generate(limit).text()

    assert text(-1) == text(None)
    assert text(20, top_k=-1) == text(20, top_k=-7) == text(20, top_k=0)
    penalised = [text(-1, repeat_last_n=n, repeat_penalty=1.5) for n in [-1, 64, 2**40, 1]]
    assert penalised[0] == penalised[1] == penalised[2] != penalised[3]
    assert backstitch.Settings(repeat_last_n=-1).repeat_last_n == -1
    assert backstitch.Settings(top_k=-1).top_k == 0


def test_a_temperature_of_zero_takes_the_likeliest_token(story, greedy):
    best = story.logits().argmax()
    chunk = next(story.generate(1, settings=greedy))
    assert chunk.tokens == [best]
    assert story.settings == greedy


def test_generating_again_repeats_or_goes_on(story):
    first = story.generate(20).text()
    story.regenerate()
    assert story.generate(20).text() == first
    story.regenerate("continue")
    other = story.generate(20).text()
    story.regenerate(seed=3)
    seeded = story.generate(20).text()
    story.regenerate(seed=3)
    assert story.generate(20).text() == seeded
    assert other != first
    with pytest.raises(backstitch.ArgumentError):
        story.regenerate("maybe")
    story.rollback(2)
    with pytest.raises(backstitch.SequenceError, match="no generation"):
        story.regenerate()


def test_a_generation_that_is_left_holds_what_was_yielded(story):
    start, shown = story.pos, []
    for chunk in story.generate(50):
        shown += chunk.tokens
        if len(shown) == 7:
            break
    assert story.tokens[start:] == shown


def test_two_generations_advance_by_turns(story):
    other = story.fork()
    other.reseed(8)
    alone = [story.fork().generate(25).text(), other.fork().generate(25).text()]
    texts = ["", ""]
    for one, two in zip(story.generate(25), other.generate(25)):
        texts = [texts[0] + one.text, texts[1] + two.text]
        story.logits()  # in between, anything may happen
    assert texts == alone and texts[0] != texts[1]


def test_a_generation_ends_if_its_session_was_changed(story):
    generation = story.generate(20)
    next(generation)
    story.feed(" and")
    with pytest.raises(backstitch.SequenceError, match="changed"):
        next(generation)
    assert list(generation) == []
    generation, newer = story.generate(5), story.generate(5)
    assert len(list(newer)) >= 5
    with pytest.raises(backstitch.SequenceError):
        next(generation)
    generation = story.generate(20)
    next(generation)
    story.rollback(story.pos - 1)
    with pytest.raises(backstitch.SequenceError):
        next(generation)


def test_a_generation_of_a_closed_session_is_an_error(story):
    fork = story.fork()
    generation = fork.generate(20)
    next(generation)
    fork.close()
    taken = story.fork()  # has the same sequence of the context
    taken.generate(3).text()
    with pytest.raises(backstitch.SequenceError):
        next(generation)


def test_a_generation_keeps_its_session_alive(demo):
    session = backstitch.Session(demo, n_ctx=64, settings=backstitch.Settings(temp=0))
    session.prompt("Once upon a time")
    generation = session.generate(4)
    del session
    assert generation.text() == ", there was a"


def test_a_generation_can_end_itself(story):
    generation = story.generate()
    for n, _ in enumerate(generation):
        if n == 5:
            generation.cancel()
    assert generation.finish == "cancelled" and n == 5


def test_logprobs_are_those_of_the_model(story):
    logits = story.logits()
    chunk = next(story.generate(1, logprobs=3))
    assert len(chunk.logprobs) == 1
    found = chunk.logprobs[0]
    assert found.token == chunk.tokens[0]
    assert found.logprob == logits.logprob(found.token)
    assert found.top == logits.top(3)
    assert next(story.generate(1)).logprobs == []


def test_text_matches_its_grammar(story):
    story = story.fork()
    assert story.fork().generate(grammar='root ::= " yes" | " no"').text() in [" yes", " no"]
    assert re.fullmatch("[0-9]{3}", story.fork().generate(regex="[0-9]{3}").text())
    assert story.fork().generate(lark='start: "a" | "b"').text() in ["a", "b"]
    schema = {"type": "object", "properties": {"n": {"type": "integer", "maximum": 9}}, "required": ["n"],
              "additionalProperties": False}
    for given in [schema, json.dumps(schema)]:
        answer = story.fork().generate(60, json_schema=given).text()
        assert set(json.loads(answer)) == {"n"}


def test_a_grammar_is_for_one_generation(story):
    story.generate(regex="[0-9]{3}").text()
    assert not story.generate(20).text().isdigit()
    story.generate(regex="[0-9]{3}").text()
    story.regenerate()
    again = story.generate(regex="[0-9]{3}").text()
    assert again.isdigit()


def test_grammars_that_cannot_be_used_say_why(story):
    before = story.tokens
    with pytest.raises(backstitch.GrammarError, match="line|expected|rule"):
        story.generate(grammar="root ::= (")
    with pytest.raises(backstitch.GrammarError):
        story.generate(json_schema="{")
    with pytest.raises(backstitch.ArgumentError, match="not several"):
        story.generate(regex="a", lark="start: /a/")
    assert story.tokens == before


def test_arguments_that_are_refused_leave_the_settings(story):
    before, other = story.settings, story.fork()
    for wrong in [{"grammar": "root ::= ("}, {"limit": -2}, {"logprobs": -1}]:
        with pytest.raises(backstitch.Error):
            story.generate(settings=backstitch.Settings(temp=2, seed=9), **wrong)
    assert story.settings == before
    assert story.generate(20).text() == other.generate(20).text()


def test_no_token_left_is_an_error(demo):
    banned = {token: float("-inf") for token in range(demo.n_vocab)}
    session = backstitch.Session(demo, n_ctx=64, settings=backstitch.Settings(logit_bias=banned))
    session.prompt("Once")
    with pytest.raises(backstitch.NoTokenError):
        session.generate(3).text()


def test_settings_are_values(demo):
    settings = backstitch.Settings(temp=0.5, top_k=10)
    assert settings.temp == 0.5 and settings.top_p == 0.95
    assert settings.replace(top_k=20).asdict()["top_k"] == 20
    assert settings.replace(top_k=20).temp == 0.5 and settings.top_k == 10
    assert settings == backstitch.Settings(temp=0.5, top_k=10) != backstitch.Settings()
    assert repr(settings.replace(temp=0.7)) == "Settings(temp=0.7, top_k=10)"
    assert backstitch.Settings(logit_bias={5: 1.0}).logit_bias == {5: 1.0}


def test_settings_out_of_range_are_named(session):
    for name, value in [("temp", -1), ("top_p", 1.5), ("min_p", float("nan")), ("mirostat", 3),
                        ("seed", -2), ("seed", 2**64), ("repeat_last_n", -2), ("top_k", 2**64),
                        ("mirostat", -(2**40)), ("logit_bias", {-1: 1.0})]:
        with pytest.raises(backstitch.ArgumentError):
            backstitch.Settings(**{name: value})
    with pytest.raises(TypeError):
        backstitch.Settings(seed=0.5)
    with pytest.raises(TypeError, match="temperature"):
        backstitch.Settings(temperature=1)
    with pytest.raises(AttributeError):
        backstitch.Settings().temperature
    with pytest.raises(backstitch.ArgumentError, match="vocabulary|token"):
        session.settings = backstitch.Settings(logit_bias={10**6: 1.0})
