//! The control tokens in the texts of a format.

use alloc::vec::Vec;

/// The longest text of a control token, in bytes.
const MAX_TOKEN: usize = 64;

/// The identifier of a control token by its text.
pub(super) type TokenOf<'t> = &'t dyn Fn(&str) -> Option<u32>;

/// A piece of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Piece<'t> {
    /// Text.
    Text(&'t str),
    /// A control token.
    Token(u32),
}

impl<'t> Piece<'t> {
    /// Return the text; none for a control token.
    pub(super) fn text(self) -> &'t str {
        match self {
            Self::Text(text) => text,
            Self::Token(_) => "",
        }
    }
}

/// Split `text` at its control tokens, of which the longest counts where several begin.
pub(super) fn pieces<'t>(text: &'t str, token: TokenOf<'_>) -> Vec<Piece<'t>> {
    let mut pieces = Vec::new();
    let (mut from, mut at) = (0, 0);
    while let Some(c) = text.get(at..).and_then(|rest| rest.chars().next()) {
        let Some((id, len)) = tokens_at(text, at, token).last() else {
            at += c.len_utf8();
            continue;
        };
        pieces.extend(text.get(from..at).filter(|before| !before.is_empty()).map(Piece::Text));
        pieces.push(Piece::Token(id));
        at += len;
        from = at;
    }
    pieces.extend(text.get(from..).filter(|rest| !rest.is_empty()).map(Piece::Text));
    pieces
}

/// Return all control tokens whose text occurs in `text`.
pub(super) fn tokens_within(text: &str, token: TokenOf<'_>) -> Vec<u32> {
    let starts = text.char_indices().map(|(at, _)| at);
    starts.flat_map(|at| tokens_at(text, at, token).map(|(id, _)| id)).collect()
}

/// Return the control tokens at `at`, shortest first, with their lengths. Their texts begin and end
/// with marks such as brackets.
fn tokens_at<'t>(text: &'t str, at: usize, token: TokenOf<'t>) -> impl Iterator<Item = (u32, usize)> {
    let is_mark = |c: char| !c.is_alphanumeric() && !c.is_whitespace();
    let rest = text.get(at..).filter(|rest| rest.starts_with(is_mark)).unwrap_or("");
    let ends = rest.char_indices().filter(move |(_, c)| is_mark(*c)).map(|(i, c)| i + c.len_utf8());
    ends.take_while(|end| *end <= MAX_TOKEN)
        .filter_map(move |end| rest.get(..end).and_then(token).map(|id| (id, end)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_split_at_their_control_tokens() {
        let token = |text: &str| match text {
            "<|sep|>" => Some(1),
            "<|sep|>>" => Some(2),
            "｜DSML｜" => Some(3),
            _ => None,
        };
        let all = [Piece::Token(1), Piece::Text("\n\ncall"), Piece::Token(2), Piece::Text(" ")];
        assert_eq!(pieces("<|sep|>\n\ncall<|sep|>> ", &token), all);
        assert_eq!(pieces("</｜DSML｜a>", &token), [Piece::Text("</"), Piece::Token(3), Piece::Text("a>")]);
        assert_eq!(pieces("", &token), []);
        assert_eq!(tokens_within("a<|sep|>>", &token), [1, 2]);
    }
}
