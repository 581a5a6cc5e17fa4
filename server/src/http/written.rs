//! Answers as JSON text. Long ones are written beside the thread that serves all clients, which
//! would otherwise answer nobody meanwhile.

use super::client::Client;
use super::error::ApiError;
use super::events::Outcome;
use super::work::{Class, blocking};
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};

/// The most values of an answer that is written on the thread of all clients: some milliseconds of
/// work.
const MOST_VALUES: usize = 1024;
/// The most values of an answer whose work is short: some tenths of a second.
const MOST_SHORT: usize = 1 << 16;

/// Answer with the JSON text that `write` makes, which has about `n_values` values.
///
/// # Errors
/// Those of [`blocking`].
pub(crate) async fn write_json(
    client: &Client,
    n_values: usize,
    write: impl FnOnce() -> String + Send + 'static,
) -> Result<Response, ApiError> {
    let class = if n_values <= MOST_SHORT { Class::Short } else { Class::Long };
    let text = match n_values <= MOST_VALUES {
        true => write(),
        false => blocking(client, class, move |_| Ok(write())).await?,
    };
    Ok(json_text(text))
}

/// Return about the number of values that answers about these outcomes have.
pub(crate) fn n_values(outcomes: &[Outcome]) -> usize {
    let of_one = |outcome: &Outcome| {
        let listed = outcome.prompt_logprobs.iter().chain(&outcome.logprobs);
        let n_listed: usize = listed.map(|token| 1 + token.top.len()).sum();
        // Reading a text for calls and writing it costs as much as a value for some bytes.
        n_listed + outcome.text.len() / 16
    };
    outcomes.iter().map(of_one).sum()
}

/// Answer with a text that is JSON already.
pub(crate) fn json_text(text: String) -> Response {
    ([(CONTENT_TYPE, "application/json")], text).into_response()
}

/// Return a list of values that are texts already.
pub(crate) fn json_list(values: impl Iterator<Item = String>) -> String {
    let mut list = "[".to_owned();
    for (i, value) in values.enumerate() {
        list.push_str(if i == 0 { "" } else { "," });
        list.push_str(&value);
    }
    list + "]"
}

#[cfg(test)]
mod tests {
    use super::*;
    use backstitch_models::Token;
    use backstitch_models::session::TokenLogprobs;
    use std::thread::{ThreadId, current};

    #[test]
    fn long_answers_are_written_beside_the_thread_of_all_clients() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let thread = |n_values| -> ThreadId {
            let (sender, receiver) = std::sync::mpsc::channel();
            let write = move || {
                sender.send(current().id()).unwrap();
                "{}".to_owned()
            };
            runtime.block_on(write_json(&Client::default(), n_values, write)).unwrap();
            receiver.recv().unwrap()
        };
        assert_eq!(thread(MOST_VALUES), current().id());
        assert_ne!(thread(MOST_VALUES + 1), current().id());
    }

    #[test]
    fn probabilities_make_an_answer_long() {
        let outcome = Outcome { text: "a".repeat(64), ..Outcome::default() };
        assert_eq!(n_values(std::slice::from_ref(&outcome)), 4);
        let logprobs = vec![TokenLogprobs::unpredicted(Token(1)); 3];
        assert_eq!(n_values(&[Outcome { logprobs, ..outcome.clone() }, outcome]), 11);
    }

    #[test]
    fn lists_are_json() {
        assert_eq!(json_list(["1", "[]"].map(str::to_owned).into_iter()), "[1,[]]");
        assert_eq!(json_list(std::iter::empty()), "[]");
    }
}
