"""Chat templates."""

import backstitch
import pytest

TEMPLATE = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}{{ note }}"
)


def test_messages_become_text():
    template = backstitch.ChatTemplate(TEMPLATE)
    messages = [{"role": "user", "content": "Hi"}]
    assert str(template.render(messages)) == "<user>Hi\n<assistant>"
    assert str(template.render(messages, add_generation_prompt=False, note="!")) == "<user>Hi\n!"
    assert template.source == TEMPLATE


def test_users_cannot_write_control_tokens(demo):
    control = demo.vocab.detokenize([demo.vocab.bos], write_special=True)
    template = backstitch.ChatTemplate(control + "{{ messages[0].content }}")
    rendered = template.render([{"role": "user", "content": control}], demo.vocab)
    assert rendered.tokenize(demo.vocab).count(demo.vocab.bos) == 1


def test_a_conversation_that_goes_on_evaluates_what_is_new(session):
    template = backstitch.ChatTemplate(TEMPLATE)
    messages = [{"role": "user", "content": "Tell me a story about a cat and a dog."}]
    session.set_messages(messages, template=template)
    answer = session.generate(20, "<").text()
    messages += [{"role": "assistant", "content": answer}, {"role": "user", "content": "And then?"}]
    reuse = session.set_messages(messages, template=template)
    assert reuse.kept > reuse.evaluated > 0
    assert answer in session.text()


def test_templates_that_fail_say_why(session):
    with pytest.raises(backstitch.ChatError, match="line 1"):
        backstitch.ChatTemplate("{% for %}")
    template = backstitch.ChatTemplate("{{ raise_exception('no messages') }}")
    with pytest.raises(backstitch.ChatError, match="no messages"):
        template.render([])
    with pytest.raises(backstitch.ArgumentError, match="list"):
        template.render({"role": "user"})
    with pytest.raises(TypeError):
        template.render([object()])
    with pytest.raises(backstitch.ChatError, match="template"):
        session.set_messages([{"role": "user", "content": "Hi"}])
