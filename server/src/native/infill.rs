//! `/infill`: text between a prefix and a suffix.

use super::completion::answer;
use crate::http::{ApiError, App, Body, Client, Ready};
use crate::params::Fields;
use axum::response::Response;
use backstitch_models::Token;
use backstitch_models::vocab::{AddSpecial, ParseSpecial, Vocab};
use serde_json::Value;

/// The texts of the tokens before the prefix, the suffix and the middle in Codestral's
/// vocabulary, where no role tells them.
const CODESTRAL: [&str; 3] = ["[PREFIX]", "[SUFFIX]", "[MIDDLE]"];
/// The most tokens of one text, of which the prompt has a part.
const MAX_TOKENS: usize = 1 << 20;
/// The most files of context.
const MAX_EXTRA: usize = 1024;

/// The tokens that mark the parts of a prompt.
struct Marks {
    prefix: Token,
    suffix: Token,
    middle: Token,
    repository: Option<Token>,
    file: Option<Token>,
}

impl Marks {
    fn of(vocab: &Vocab) -> Option<Self> {
        let roles = vocab.roles();
        let told = [roles.fim_pre, roles.fim_suf, roles.fim_mid].map(|id| id.map(Token));
        let [prefix, suffix, middle] = match told {
            [Some(_), Some(_), Some(_)] => told,
            _ => CODESTRAL.map(|text| vocab.find(text.as_bytes())),
        };
        let (prefix, suffix, middle) = (prefix?, suffix?, middle?);
        let (repository, file) = (roles.fim_rep.map(Token), roles.fim_sep.map(Token));
        Some(Marks { prefix, suffix, middle, repository, file })
    }
}

/// Complete the text between `input_prefix` and `input_suffix`; `prompt` is its beginning, and
/// `input_extra` has files that the model should know.
pub(super) async fn infill(Ready(app): Ready, client: Client, body: Body) -> Result<Response, ApiError> {
    answer(app, client, body, |app: &App, client: &Client, fields: Fields<'_>| {
        let text = |name: &str| fields.str(name)?.ok_or_else(|| ApiError::missing(name));
        let (prefix, suffix) = (text("input_prefix")?, text("input_suffix")?);
        let gap = Gap {
            prefix,
            suffix,
            beginning: fields.str("prompt")?.unwrap_or_default(),
            extra: read_extra(fields.array("input_extra")?.unwrap_or_default())?,
        };
        let n_predict = fields.i64("n_predict")?.or(app.params().n_predict.map(|n| n as i64));
        Ok(vec![gap.tokens(app, client, n_predict.unwrap_or(-1))?])
    })
    .await
}

/// A gap in a text, for the model to fill.
#[derive(Debug, Default)]
pub(crate) struct Gap<'a> {
    /// The text before the gap.
    pub prefix: &'a str,
    /// The text behind the gap.
    pub suffix: &'a str,
    /// The beginning of what is missing.
    pub beginning: &'a str,
    /// Files that the model should know: names and texts.
    pub extra: Vec<(&'a str, &'a str)>,
}

impl Gap<'_> {
    /// Return true if a vocabulary has the tokens that mark a gap.
    pub fn is_known(vocab: &Vocab) -> bool {
        Marks::of(vocab).is_some()
    }

    /// Return the prompt that asks for `n_predict` tokens in the gap; -1 for any number.
    ///
    /// # Errors
    /// [`ErrorKind::NotSupported`](crate::http::ErrorKind::NotSupported) if the model has no tokens
    /// for it; [`ErrorKind::TooLong`](crate::http::ErrorKind::TooLong) for texts that are far too
    /// long.
    pub fn tokens(&self, app: &App, client: &Client, n_predict: i64) -> Result<Vec<Token>, ApiError> {
        let marks = Marks::of(app.vocab()).ok_or_else(|| {
            ApiError::not_supported("Infill is not supported by this model: it has no tokens for it")
        })?;
        Prompt { app, client, marks: &marks }.tokens(self, n_predict)
    }
}

/// Read files of context, each with a name and a text.
fn read_extra(items: &[Value]) -> Result<Vec<(&str, &str)>, ApiError> {
    let wrong = || {
        ApiError::field(
            "input_extra",
            "an array of at most 1024 objects {\"filename\": string, \"text\": string}",
        )
    };
    if items.len() > MAX_EXTRA {
        return Err(wrong());
    }
    items
        .iter()
        .map(|item| {
            let text = item.get("text").and_then(Value::as_str).ok_or_else(wrong)?;
            let name = match item.get("filename") {
                None => "tmp",
                Some(name) => name.as_str().ok_or_else(wrong)?,
            };
            Ok((name, text))
        })
        .collect()
}

/// Makes the prompt.
struct Prompt<'a> {
    app: &'a App,
    client: &'a Client,
    marks: &'a Marks,
}

impl Prompt<'_> {
    /// Return the tokens of a text in which nothing counts as a control token.
    fn text(&self, text: &str) -> Result<Vec<Token>, ApiError> {
        self.tokens_of(text, ParseSpecial::No)
    }

    fn tokens_of(&self, text: &str, parse: ParseSpecial) -> Result<Vec<Token>, ApiError> {
        let (whole, mut tokens) = (0..text.len(), Vec::new());
        let trusted = if parse == ParseSpecial::Yes { core::slice::from_ref(&whole) } else { &[] };
        let (vocab, cancel) = (self.app.vocab(), self.client.cancel());
        vocab.tokenize_at_most(text, trusted, AddSpecial::No, MAX_TOKENS, cancel, &mut tokens)?;
        Ok(tokens)
    }

    /// Return the files of context, in the pattern of repositories where the model knows that.
    fn extra(&self, extra: &[(&str, &str)]) -> Result<Vec<Token>, ApiError> {
        let mut tokens = Vec::new();
        if let Some(mark) = self.marks.repository {
            tokens.push(mark);
            tokens.extend(self.text("myproject\n")?);
        }
        for (name, text) in extra {
            match self.marks.file {
                Some(mark) => {
                    tokens.push(mark);
                    tokens.extend(self.text(&format!("{name}\n"))?);
                }
                None => tokens.extend(self.text("\n\n--- snippet ---\n\n")?),
            }
            tokens.extend(self.text(text)?);
        }
        if let Some(mark) = self.marks.file {
            tokens.push(mark);
            tokens.extend(self.text("filename\n")?);
        }
        Ok(tokens)
    }

    /// Return the prompt: context, prefix, beginning of the middle, suffix. Prefix and suffix get
    /// three quarters and one quarter of a logical batch, the context what is left.
    fn tokens(&self, gap: &Gap<'_>, n_predict: i64) -> Result<Vec<Token>, ApiError> {
        let engine = self.app.engine().params();
        let (n_batch, n_ctx) = (engine.context.n_batch as usize, engine.n_ctx as usize);
        let (prefix, suffix) = (self.text(gap.prefix)?, self.text(gap.suffix)?);
        let middle = self.tokens_of(gap.beginning, ParseSpecial::Yes)?;
        let n_suffix = suffix.len().min((n_batch / 4).saturating_sub(2 + middle.len()));
        let prefix = last(&prefix, 3 * (n_batch / 4));
        let extra = self.extra(&gap.extra)?;
        let n_predict = usize::try_from(n_predict).unwrap_or(0);
        let room = n_ctx.saturating_sub(n_batch).saturating_sub(n_predict.saturating_mul(2));
        let mut tokens = last(&extra, room).to_vec();
        tokens.extend(self.app.vocab().bos().filter(|_| self.app.vocab().adds_bos()));
        tokens.push(self.marks.prefix);
        tokens.extend(prefix);
        tokens.extend(middle);
        tokens.push(self.marks.suffix);
        tokens.extend(suffix.get(..n_suffix).unwrap_or_default());
        tokens.push(self.marks.middle);
        Ok(tokens)
    }
}

/// Return the last `n` tokens.
fn last(tokens: &[Token], n: usize) -> &[Token] {
    tokens.get(tokens.len().saturating_sub(n)..).unwrap_or_default()
}
