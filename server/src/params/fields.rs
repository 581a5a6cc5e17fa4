//! Typed fields of a JSON object.

use crate::http::ApiError;
use serde_json::{Map, Value};

/// The fields of a JSON object. Unknown fields are ignored; `null` counts as absent; a value of the
/// wrong type is an error that names its field.
///
/// # Example
/// ```
/// use backstitch_server::params::Fields;
///
/// let object = serde_json::json!({"top_k": 40, "stream": null, "seed": "x"});
/// let fields = Fields::new(object.as_object().unwrap());
/// assert_eq!(fields.u64("top_k")?, Some(40));
/// assert_eq!(fields.bool("stream")?, None);
/// let error = fields.u64("seed").unwrap_err();
/// assert!(error.message().starts_with("\"seed\" must be a whole number"));
/// # Ok::<(), backstitch_server::http::ApiError>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Fields<'a>(&'a Map<String, Value>);

impl<'a> Fields<'a> {
    /// Read the fields of `object`.
    pub fn new(object: &'a Map<String, Value>) -> Self {
        Fields(object)
    }

    /// Return the value of a field; `None` if it is absent or null.
    pub fn get(&self, name: &str) -> Option<&'a Value> {
        self.0.get(name).filter(|value| !value.is_null())
    }

    /// Return true if a field is there and not null.
    pub fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// Return all fields, also those that are null.
    pub(super) fn entries(&self) -> impl Iterator<Item = (&'a String, &'a Value)> {
        self.0.iter()
    }

    /// Return the first of several names that the object has.
    pub fn first<'n>(&self, names: &[&'n str]) -> Option<&'n str> {
        names.iter().copied().find(|name| self.has(name))
    }

    /// Return what `read` makes of a field.
    fn typed<T>(
        &self,
        name: &str,
        wanted: &str,
        read: impl Fn(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, ApiError> {
        self.get(name).map(|value| read(value).ok_or_else(|| ApiError::field(name, wanted))).transpose()
    }

    /// Return a whole number that is not negative. A float without a fraction counts.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::http::ErrorKind::Invalid) for anything else.
    pub fn u64(&self, name: &str) -> Result<Option<u64>, ApiError> {
        self.typed(name, "a whole number, zero or above", |value| {
            whole(value).and_then(|number| u64::try_from(number).ok())
        })
    }

    /// Return a whole number.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::http::ErrorKind::Invalid) for anything else.
    pub fn i64(&self, name: &str) -> Result<Option<i64>, ApiError> {
        self.typed(name, "a whole number", |value| whole(value).and_then(|number| i64::try_from(number).ok()))
    }

    /// Return a number that `f32` can hold.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::http::ErrorKind::Invalid) for anything else.
    pub fn f32(&self, name: &str) -> Result<Option<f32>, ApiError> {
        let finite = |number: f64| Some(number as f32).filter(|number| number.is_finite());
        self.typed(name, "a number", |value| value.as_f64().and_then(finite))
    }

    /// Return a boolean.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::http::ErrorKind::Invalid) for anything else.
    pub fn bool(&self, name: &str) -> Result<Option<bool>, ApiError> {
        self.typed(name, "true or false", Value::as_bool)
    }

    /// Return a text.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::http::ErrorKind::Invalid) for anything else.
    pub fn str(&self, name: &str) -> Result<Option<&'a str>, ApiError> {
        self.typed(name, "a string", Value::as_str)
    }

    /// Return a list.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::http::ErrorKind::Invalid) for anything else.
    pub fn array(&self, name: &str) -> Result<Option<&'a [Value]>, ApiError> {
        self.typed(name, "an array", |value| value.as_array().map(Vec::as_slice))
    }

    /// Return an object.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::http::ErrorKind::Invalid) for anything else.
    pub fn object(&self, name: &str) -> Result<Option<&'a Map<String, Value>>, ApiError> {
        self.typed(name, "an object", Value::as_object)
    }

    /// Return the texts of a list, or of a text alone.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::http::ErrorKind::Invalid) for anything else.
    pub fn strings(&self, name: &str) -> Result<Option<Vec<&'a str>>, ApiError> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(vec![text.as_str()])),
            Some(Value::Array(texts)) => {
                let wrong = |i| ApiError::field(&format!("{name}[{i}]"), "a string");
                let texts = texts.iter().enumerate().map(|(i, text)| text.as_str().ok_or_else(|| wrong(i)));
                texts.collect::<Result<_, _>>().map(Some)
            }
            Some(_) => Err(ApiError::field(name, "a string or an array of strings")),
        }
    }
}

/// Return a whole number, also of a float without a fraction, as some clients write it.
fn whole(value: &Value) -> Option<i128> {
    let exact = value.as_i64().map(i128::from).or_else(|| value.as_u64().map(i128::from));
    let float = value.as_f64().filter(|number| number.fract() == 0.0 && number.abs() < 1e18);
    exact.or(float.map(|number| number as i128))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn wrong_types_name_the_field() {
        let object = json!({"n": "1", "f": [], "b": 1, "s": 2, "a": {}, "o": [], "l": ["x", 1]});
        let fields = Fields::new(object.as_object().unwrap());
        let errors = [
            fields.u64("n").map(drop),
            fields.f32("f").map(drop),
            fields.bool("b").map(drop),
            fields.str("s").map(drop),
            fields.array("a").map(drop),
            fields.object("o").map(drop),
            fields.strings("l").map(drop),
        ];
        for (name, error) in ["n", "f", "b", "s", "a", "o", "l[1]"].iter().zip(errors) {
            let error = error.unwrap_err();
            assert!(error.message().starts_with(&format!("\"{name}\" must be ")), "{}", error.message());
        }
    }

    #[test]
    fn numbers_have_their_range() {
        let object = json!({"neg": -1, "float": 4.0, "half": 4.5, "huge": 1e300, "big": u64::MAX});
        let fields = Fields::new(object.as_object().unwrap());
        assert!(fields.u64("neg").is_err() && fields.i64("big").is_err());
        assert_eq!((fields.i64("neg").unwrap(), fields.u64("float").unwrap()), (Some(-1), Some(4)));
        assert!(fields.u64("half").is_err() && fields.f32("huge").is_err());
        assert_eq!(fields.u64("big").unwrap(), Some(u64::MAX));
    }
}
