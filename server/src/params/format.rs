//! The format of an answer that a request of any interface asks for, as a JSON schema.

use super::fields::Fields;
use crate::http::ApiError;
use serde_json::{Map, Value, json};

/// The field of chat completions for the format. Its schema stands in an object of its own.
const CHAT: &str = "response_format";
/// The field of llama-server for the schema.
const SCHEMA: &str = "json_schema";

/// The fields of a request, with the format of the answer in llama-server's words.
pub(crate) struct Formatted {
    /// The fields.
    pub fields: Map<String, Value>,
    /// The path of the schema in the request, and of the format, if the request has one.
    path: Option<Path>,
}

/// The paths of a schema, and of the format that holds it.
#[derive(Debug, PartialEq)]
struct Path {
    schema: String,
    format: String,
}

impl Formatted {
    /// Read the format in `fields`, and add its schema to those of the fields that are `kept`.
    ///
    /// # Errors
    /// [`ApiError`] for a format that is not known, and for a schema that is missing.
    pub fn read(fields: Fields<'_>, kept: impl Fn(&str) -> bool) -> Result<Self, ApiError> {
        let found = match find(fields)? {
            Some(format) => {
                format.read()?.map(|(path, schema)| (Path { schema: path, format: format.path }, schema))
            }
            None => None,
        };
        let entries = fields.entries().filter(|(name, _)| kept(name));
        let mut fields: Map<String, Value> =
            entries.map(|(name, value)| (name.clone(), value.clone())).collect();
        let path = found.map(|(path, schema)| {
            fields.insert(SCHEMA.into(), schema);
            path
        });
        Ok(Formatted { fields, path })
    }

    /// Return an error about the fields with the name that the client gave to the schema.
    pub fn named(&self, error: ApiError) -> ApiError {
        match &self.path {
            Some(path) => error.renamed(SCHEMA, &path.schema),
            None => error,
        }
    }

    /// Return the error that the constraint in the field `name` cannot be used beside `other`.
    pub fn conflict(&self, name: &str, other: &str) -> ApiError {
        let name = self.path.as_ref().filter(|_| name == SCHEMA).map_or(name, |path| &path.format);
        ApiError::invalid(format!("\"{name}\" and {other} cannot be used together")).about(name)
    }
}

/// The format of an answer.
struct AnswerFormat<'a> {
    fields: Fields<'a>,
    /// The path of the field that holds it.
    path: String,
}

/// Find the format of the answer.
fn find(fields: Fields<'_>) -> Result<Option<AnswerFormat<'_>>, ApiError> {
    // Chat completions, and the first form of Anthropic's messages.
    for name in [CHAT, "output_format"] {
        if let Some(format) = fields.object(name)? {
            return Ok(Some(AnswerFormat { fields: Fields::new(format), path: name.into() }));
        }
    }
    // Responses, and Anthropic's messages, have it among other options of the output. Elsewhere the
    // names mean nothing.
    for name in ["text", "output_config"] {
        let Some(options) = fields.get(name).and_then(Value::as_object) else { continue };
        let path = format!("{name}.format");
        let format = Fields::new(options).object("format").map_err(|error| error.renamed("format", &path))?;
        if let Some(format) = format {
            return Ok(Some(AnswerFormat { fields: Fields::new(format), path }));
        }
    }
    Ok(None)
}

impl<'a> AnswerFormat<'a> {
    /// Return the JSON schema that the format asks for, with its path.
    fn read(&self) -> Result<Option<(String, Value)>, ApiError> {
        let AnswerFormat { fields, path } = self;
        let at = |name: &str| format!("{path}.{name}");
        let kind = fields.str("type").map_err(|error| error.renamed("type", &at("type")))?;
        let (path, schema) = match kind {
            None | Some("text") => return Ok(None),
            Some("json_object") => (at("schema"), fields.get("schema")),
            Some("json_schema") => self.schema()?,
            Some(_) => {
                let wanted = "\"text\", \"json_object\" or \"json_schema\"";
                return Err(ApiError::field(&at("type"), wanted));
            }
        };
        match schema {
            None if kind == Some("json_object") => Ok(Some((path, json!({"type": "object"})))),
            None => Err(ApiError::missing(&path)),
            Some(schema @ (Value::Object(_) | Value::Bool(_))) => Ok(Some((path, schema.clone()))),
            Some(_) => Err(ApiError::field(&path, "a JSON schema")),
        }
    }

    /// Return the path of the schema of the type `json_schema`, and the schema. Chat completions
    /// have it within an object, other interfaces beside the type.
    fn schema(&self) -> Result<(String, Option<&'a Value>), ApiError> {
        let AnswerFormat { fields, path } = self;
        let at = format!("{path}.{SCHEMA}");
        let within = fields.object(SCHEMA).map_err(|error| error.renamed(SCHEMA, &at))?;
        Ok(match (within, fields.get("schema")) {
            (Some(within), _) => (format!("{at}.schema"), Fields::new(within).get("schema")),
            (None, None) if path == CHAT => (format!("{at}.schema"), None),
            (None, schema) => (format!("{path}.schema"), schema),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Return the path of the schema, or that of the error.
    fn path(body: Value) -> Result<Option<String>, String> {
        let read = Formatted::read(Fields::new(body.as_object().unwrap()), |_| true);
        let param = |error: ApiError| error.body()["error"]["param"].as_str().unwrap().to_owned();
        read.map(|formatted| formatted.path.map(|path| path.schema)).map_err(param)
    }

    #[test]
    fn schemas_have_their_path_in_the_request() {
        let schema = json!({"type": "null"});
        let inner = json!({"type": "json_schema", "schema": schema});
        for (body, wanted) in [
            (json!({}), None),
            (json!({"response_format": {"type": "text"}}), None),
            (json!({"response_format": {"type": "json_object"}}), Some("response_format.schema")),
            (
                json!({"response_format": {"type": "json_schema", "json_schema": {"schema": schema}}}),
                Some("response_format.json_schema.schema"),
            ),
            (json!({"response_format": inner}), Some("response_format.schema")),
            (json!({"text": {"format": inner}}), Some("text.format.schema")),
            (json!({"output_config": {"format": inner}}), Some("output_config.format.schema")),
        ] {
            assert_eq!(path(body.clone()), Ok(wanted.map(str::to_owned)), "{body}");
        }
    }

    #[test]
    fn a_schema_that_is_missing_or_none_is_told_by_its_path() {
        let kind = json!({"type": "json_schema"});
        for (body, wanted) in [
            (json!({"response_format": kind}), "response_format.json_schema.schema"),
            (
                json!({"response_format": {"type": "json_schema", "json_schema": {}}}),
                "response_format.json_schema.schema",
            ),
            (
                json!({"response_format": {"type": "json_schema", "json_schema": {"schema": "x"}}}),
                "response_format.json_schema.schema",
            ),
            (
                json!({"response_format": {"type": "json_schema", "json_schema": 5}}),
                "response_format.json_schema",
            ),
            (json!({"text": {"format": kind}}), "text.format.schema"),
            (json!({"output_config": {"format": kind}}), "output_config.format.schema"),
        ] {
            assert_eq!(path(body.clone()), Err(wanted.into()), "{body}");
        }
    }
}
