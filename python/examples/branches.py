# A conversation that is edited and branched, cell by cell as in a notebook.
#
#     python branches.py [model.gguf]
#
# Editors that know cells ("# %%") run them one by one.

# %% A session. Without a file this is the small story model inside the package, which has no chat
# template; a plain one joins the messages to one story.
import sys

import backstitch

model = backstitch.Model(sys.argv[1] if len(sys.argv) > 1 else None)
template = model.chat_template or backstitch.ChatTemplate(
    "{% for m in messages %}{{ m.content }}{{ '' if loop.last else ' ' }}{% endfor %}"
)
session = backstitch.Session(model, n_ctx=1024, settings=backstitch.Settings(seed=1))


def ask(session, messages):
    """Bring the session to these messages, let the model answer, and return what that took."""
    reuse = session.set_messages(messages, template=template)
    answer = session.generate(40, stop="\n").text().strip()
    messages.append({"role": "assistant", "content": answer})
    return reuse


def show(title, messages, reuse):
    print(f"{title}: {reuse.kept} tokens kept, {reuse.evaluated} evaluated,")
    print(f"  rolled back with {reuse.rollback.reevaluated} tokens re-evaluated")
    print(f"  {messages[-1]['content']}\n")


# %% A first answer.
messages = [{"role": "user", "content": "Once there was a cat who could not sleep."}]
show("first answer", messages, ask(session, messages))

# %% Another answer from the same past. A fork copies nothing, and the question is not evaluated
# again; other random numbers give another answer.
other_messages = messages[:1]
other = session.fork()
other.reseed(2)
show("another answer", other_messages, ask(other, other_messages))

# %% Both go on, each with its own past.
for branch, said in [(session, messages), (other, other_messages)]:
    said.append({"role": "user", "content": "Then the moon said to her,"})
    show("followed up", said, ask(branch, said))

# %% An edit in the middle: only what follows it is evaluated.
messages = [*messages[:2], {"role": "user", "content": "Then a dog came and said,"}]
show("edited", messages, ask(session, messages))

# %% What a rollback to each position costs is known beforehand.
for cost in session.rollback_costs():
    print(f"positions {cost.start} to {cost.stop - 1}: {cost.cost}, from {cost.restored_from}")

# %% A try that is taken back: all of it, if the block raises.
before = session.tokens
try:
    with session.savepoint():
        session.feed(" The end.")
        if session.logits().argmax() not in model.vocab.eog:
            raise ValueError("the story goes on")
except ValueError as error:
    print(f"\ntaken back: {error}")
assert session.tokens == before or session.text().endswith("The end.")

# %% Tomorrow is another day: the same bits, the same random numbers.
data = session.to_bytes()
tomorrow = backstitch.Session.from_bytes(model, data, n_ctx=1024)
assert tomorrow.logits().tolist() == session.logits().tolist()
print(f"saved and restored: {len(data)} bytes for {tomorrow.pos} tokens")
