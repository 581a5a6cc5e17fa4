//! The order of messages that a template takes.
//!
//! Clients send whatever happened: two messages of the user because an answer was interrupted,
//! results of calls that were cut away, an answer first. Templates of some models refuse what their
//! training never had. Small conversations tell which orders those are; for each, another order
//! that says the same is tried too, so that a template which refuses both is not blamed on it.

use super::capabilities::NEEDLE;
use super::demands::{Messages, SHORT_ID, calling, result};
use super::message::{Content, Message};

/// The orders of user and assistant that a template takes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turns {
    /// The user speaks twice.
    pub two_users: bool,
    /// The assistant answers twice.
    pub two_answers: bool,
    /// The assistant speaks first.
    pub first_answer: bool,
    /// The user speaks behind the result of a call, which was not answered.
    pub user_behind_result: bool,
    /// The assistant calls a tool behind an answer.
    pub call_behind_answer: bool,
    /// There is no message at all.
    pub no_messages: bool,
    /// There is no message of the user.
    pub no_user: bool,
    /// There is no message of the user, but tools.
    pub no_user_with_tools: bool,
}

/// The places and fields of calls and results that a template takes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Results {
    /// The role of results; `None` if the text of none reaches the prompt.
    pub role: Option<&'static str>,
    /// Results without a call.
    pub orphans: bool,
    /// Results without the name of their tool, whose identifier is not that of a call before them.
    pub unnamed: bool,
    /// Calls and results without an identifier.
    pub without_ids: bool,
    /// Several calls in one message.
    pub several_calls: bool,
    /// Several messages with calls before their results.
    pub calls_in_a_row: bool,
    /// Calls at all.
    pub calls: bool,
    /// Text beside calls reaches the prompt.
    pub text_beside_calls: bool,
    /// Text beside reasoning and calls reaches the prompt.
    pub text_beside_thoughts: bool,
}

/// The roles of results, commonest first.
const RESULT_ROLES: [&str; 4] = ["tool", "function", "ipython", "observation"];

/// Return a message of the user.
fn user() -> Message {
    Message::new("user", "Hello")
}

/// Return an answer.
fn answer() -> Message {
    Message::new("assistant", "Yes")
}

/// Return a call with the identifier that every template takes.
fn call() -> Message {
    calling("", SHORT_ID)
}

impl Turns {
    /// Probe a template.
    pub fn of(probe: &Messages<'_>) -> Self {
        let system = || Message::new("system", NEEDLE);
        let called = [call(), result(SHORT_ID)];
        let called = |before: &[Message], behind: &[Message]| [before, &called, behind].concat();
        Turns {
            two_users: probe.takes(&[user(), user()], &[user(), answer(), user()]),
            two_answers: probe.takes(&[user(), answer(), answer(), user()], &[user(), answer(), user()]),
            first_answer: probe.takes(&[answer(), user()], &[user(), answer(), user()]),
            user_behind_result: probe
                .takes(&called(&[user()], &[user()]), &called(&[user()], &[answer(), user()])),
            call_behind_answer: probe.takes(
                &called(&[user(), answer()], &[answer()]),
                &called(&[user(), answer(), user()], &[answer()]),
            ),
            no_messages: probe.takes(&[], &[user()]),
            no_user: probe.shows(&[system()]) || !probe.shows(&[system(), user()]),
            no_user_with_tools: probe.takes_with_tool(&[system()])
                || !probe.takes_with_tool(&[system(), user()]),
        }
    }
}

impl Results {
    /// Probe a template. Results whose text it leaves out are as bad as those that it refuses,
    /// unless they are `joined` to the messages that call.
    pub fn of(probe: &Messages<'_>, joined: bool) -> Self {
        let shows = |role: &&str| {
            let name = Some("probe".into());
            let result = Message { role: (*role).into(), name, ..result(SHORT_ID) };
            let result = Message { content: Content::Text(NEEDLE.into()), ..result };
            let messages = [user(), call(), result, answer(), user()];
            // Some templates write results once they see what follows, and some beside tools alone.
            probe.shows(&messages[..3]) || probe.shows(&messages) || probe.shows_with_tool(&messages)
        };
        let role = RESULT_ROLES.into_iter().find(|role| joined || shows(role));
        let of_role = |message: Message| Message { role: role.unwrap_or("tool").into(), ..message };
        let result = |id: &str| of_role(result(id));
        let (short, other) = (SHORT_ID, "call00001");
        let named = |id: &str| Message { name: Some("probe".into()), ..result(id) };
        let bare = || of_role(Message::new("tool", "Yes"));
        let orphans = [
            vec![user(), result(other), answer(), user()],
            vec![result(other), user()],
            vec![user(), answer(), result(other), user()],
        ];
        let mut two = call();
        two.tool_calls.extend(calling("", other).tool_calls);
        Results {
            role,
            orphans: orphans.iter().all(|messages| probe.takes(messages, &[user(), answer(), user()])),
            unnamed: probe.takes(&[user(), call(), result(other)], &[user(), call(), named(short)]),
            without_ids: probe.takes(&[user(), calling("", ""), bare()], &[user(), call(), result(short)]),
            several_calls: probe
                .takes(&[user(), two, named(short), named(other)], &[user(), call(), named(short)]),
            calls_in_a_row: probe.takes(
                &[user(), call(), calling("", other), result(short), result(other)],
                &[user(), call(), result(short), calling("", other), result(other)],
            ),
            calls: probe.takes(&[user(), call()], &[user(), answer()]),
            text_beside_calls: shows_beside_call(probe, ""),
            text_beside_thoughts: shows_beside_call(probe, "Hm"),
        }
    }

    /// Return true if the text of a message would reach the prompt beside calls.
    pub fn takes_text(&self, message: &Message) -> bool {
        match message.reasoning.is_empty() {
            true => self.text_beside_calls,
            false => self.text_beside_thoughts,
        }
    }
}

/// Return true if a text beside a call and this reasoning reaches the prompt, unless the template
/// refuses that call without a text too.
fn shows_beside_call(probe: &Messages<'_>, reasoning: &str) -> bool {
    let called = |text: &str| {
        let call = Message { reasoning: reasoning.into(), ..calling(text, SHORT_ID) };
        [user(), call, Message { name: Some("probe".into()), ..result(SHORT_ID) }]
    };
    let (with, without) = (called(NEEDLE), called(""));
    let is_shown = probe.shows(&with[..2]) || probe.shows(&with) || probe.shows_with_tool(&with);
    is_shown || [2, 3].into_iter().all(|n| probe.render(&without[..n]).is_none())
}
