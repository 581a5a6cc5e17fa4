//! The chat template of the server: the model's, one that was given, or one with a name.

use crate::args::AnswerArgs;
use crate::error::Error;
use crate::whole_file;
use backstitch_models::chat::ChatTemplate;
use backstitch_server::conversation::{builtin_names, builtin_template};

/// Return the source of the template that was asked for; `None` for the model's.
///
/// # Errors
/// [`Error::Read`] if the file cannot be read; [`Error::Refused`] if it is too long, a name is
/// unknown or the template cannot be parsed.
pub fn read(args: &AnswerArgs) -> Result<Option<String>, Error> {
    let source = match (&args.chat_template, &args.chat_template_file) {
        (Some(text), _) if text.contains(['{', ' ']) => text.clone(),
        (Some(name), _) => named(name)?,
        (None, Some(path)) => whole_file::written(path)?,
        (None, None) => return Ok(None),
    };
    match ChatTemplate::from_source(&source) {
        Ok(_) => Ok(Some(source)),
        Err(error) => Err(Error::Refused(format!("--chat-template: {error}"))),
    }
}

/// Return the source of a template that the server knows by name.
///
/// # Errors
/// [`Error::Refused`] with all names, if there is no such template.
fn named(name: &str) -> Result<String, Error> {
    builtin_template(name).ok_or_else(|| {
        let names = builtin_names().join(", ");
        Error::Refused(format!("--chat-template {name}: there are {names}; or give a template in Jinja"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_not_known_is_refused_with_those_that_are() {
        assert!(named("llama3").is_ok_and(|source| ChatTemplate::from_source(&source).is_ok()));
        assert!(named("llama33").unwrap_err().to_string().contains("chatml"));
    }
}
