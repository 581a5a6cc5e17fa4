//! `config.json`: the numbers of a model under the many names that they have.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use crate::error::Error;
use crate::json::{parse, read_file, shown};

/// Most layers of a model.
const MAX_LAYERS: u64 = 4096;
/// Most dimensions of a head. Factors of the rotary embedding are made for each, so the number must
/// not size an allocation unchecked.
const MAX_HEAD_DIM: usize = 65536;
/// Names of the key that holds the width of the model.
const WIDTH: &[&str] = &["hidden_size", "n_embd", "dim", "d_model", "n_embed"];

/// The numbers of a model. Those of a nested text model stand beside the others.
#[derive(Clone, Debug)]
pub struct Config {
    path: PathBuf,
    map: Map<String, Value>,
    /// Parameters of the rotary embedding, with those that some files keep outside.
    rope: Map<String, Value>,
}

impl Config {
    /// Read `config.json` of a folder.
    ///
    /// # Errors
    /// [`Error::Read`], [`Error::FileTooLarge`] or [`Error::Format`] if there is no JSON object.
    pub fn read(path: &Path) -> Result<Self, Error> {
        Self::parse(path, &read_file(path)?)
    }

    /// Parse `config.json`; `path` is for errors.
    ///
    /// # Errors
    /// [`Error::Format`] if it is no JSON object.
    pub fn parse(path: &Path, bytes: &[u8]) -> Result<Self, Error> {
        let mut map: Map<String, Value> = parse(path, bytes)?;
        // Qwen 2.5 Omni nests them twice, beside the model that speaks.
        let thinker = map.get("thinker_config").and_then(|thinker| thinker.get("text_config"));
        if let Some(text) = thinker.cloned() {
            map.insert("text_config".into(), text);
        }
        // Models of pictures or sound nest the numbers of their text model.
        for nested in ["text_config", "llm_config", "lm_config", "language_config"] {
            if let Some(Value::Object(text)) = map.get(nested).cloned() {
                let outer = map.get("architectures").cloned();
                map.extend(text);
                map.extend(outer.map(|outer| ("architectures".into(), outer)));
            }
        }
        let rope = rope_parameters(&map);
        Ok(Self { path: path.into(), map, rope })
    }

    /// Return the name of the class of the model.
    ///
    /// # Errors
    /// [`Error::Key`] if there is none.
    pub fn class(&self) -> Result<&str, Error> {
        let class = self.map.get("architectures").and_then(|classes| classes.get(0)).and_then(Value::as_str);
        // Original checkpoints of state spaces name no class.
        match class {
            None if self.map.contains_key("ssm_cfg") => Ok("MambaForCausalLM"),
            class => class.ok_or_else(|| self.wrong(&["architectures"], "a list with the name of a class")),
        }
    }

    /// Return the value of the first key that is there, unless it is null.
    pub(crate) fn get(&self, keys: &[&str]) -> Option<&Value> {
        keys.iter().find_map(|&key| self.map.get(key)).filter(|value| !value.is_null())
    }

    /// Set a number that other code shall find instead of the file's.
    pub(crate) fn set(&mut self, key: &str, value: impl Into<Value>) {
        self.map.insert(key.into(), value.into());
    }

    /// Make the error of a missing or unusable value.
    pub(crate) fn wrong(&self, keys: &[&str], wanted: &str) -> Error {
        Error::Key {
            path: self.path.clone(),
            key: keys.join(" or "),
            found: self.get(keys).map_or("nothing".into(), shown),
            wanted: wanted.into(),
        }
    }

    /// Return a number that must be there.
    ///
    /// # Errors
    /// [`Error::Key`] if it is missing or no integer from 0 to 2³¹ - 1.
    pub(crate) fn need(&self, keys: &[&str]) -> Result<u32, Error> {
        self.number(keys)?.ok_or_else(|| self.wrong(keys, "an integer"))
    }

    /// Return a number, if it is there.
    ///
    /// # Errors
    /// [`Error::Key`] if it is no integer from 0 to 2³¹ - 1.
    pub(crate) fn number(&self, keys: &[&str]) -> Result<Option<u32>, Error> {
        let Some(value) = self.get(keys) else { return Ok(None) };
        // Some files write 4096.0.
        let whole = value.as_f64().filter(|x| x.fract() == 0.0 && (0.0..=2_147_483_647.0).contains(x));
        whole.map(|x| Some(x as u32)).ok_or_else(|| self.wrong(keys, "an integer from 0 to 2147483647"))
    }

    /// Return a number that must be there and not be 0.
    ///
    /// # Errors
    /// [`Error::Key`] if it is missing, 0, or no integer.
    pub(crate) fn size(&self, keys: &[&str]) -> Result<usize, Error> {
        match self.need(keys)? {
            0 => Err(self.wrong(keys, "at least 1")),
            n => Ok(n as usize),
        }
    }

    /// Return a finite number with a fraction, if it is there.
    ///
    /// # Errors
    /// [`Error::Key`] if it is something else.
    pub(crate) fn float(&self, keys: &[&str]) -> Result<Option<f32>, Error> {
        let Some(value) = self.get(keys) else { return Ok(None) };
        let x = value.as_f64().filter(|x| (*x as f32).is_finite());
        x.map(|x| Some(x as f32)).ok_or_else(|| self.wrong(keys, "a number"))
    }

    /// Return a finite number with a fraction that must be there.
    ///
    /// # Errors
    /// [`Error::Key`] if it is missing or something else.
    pub(crate) fn need_float(&self, keys: &[&str]) -> Result<f32, Error> {
        self.float(keys)?.ok_or_else(|| self.wrong(keys, "a number"))
    }

    /// Return finite numbers that must be there.
    ///
    /// # Errors
    /// [`Error::Key`] if they are missing or something else.
    pub(crate) fn floats(&self, key: &str) -> Result<Vec<f32>, Error> {
        let list = self.get(&[key]).and_then(Value::as_array);
        let floats = list.and_then(|list| list.iter().map(|x| Some(x.as_f64()? as f32)).collect());
        floats.ok_or_else(|| self.wrong(&[key], "a list of numbers"))
    }

    /// Return a truth value; `None` if it is not there or something else.
    pub(crate) fn flag(&self, key: &str) -> Option<bool> {
        self.get(&[key]).and_then(Value::as_bool)
    }

    /// Return a text; `None` if it is not there or something else.
    pub(crate) fn text(&self, keys: &[&str]) -> Option<&str> {
        self.get(keys).and_then(Value::as_str)
    }

    /// Return true if there are no keys.
    pub(crate) fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    /// Return a list of texts, empty if there is none.
    pub(crate) fn texts(&self, key: &str) -> Vec<&str> {
        let list = self.get(&[key]).and_then(Value::as_array);
        list.map(|list| list.iter().filter_map(Value::as_str).collect()).unwrap_or_default()
    }

    /// Return the number of layers.
    ///
    /// # Errors
    /// [`Error::Key`] if it is missing, 0 or beyond 4096.
    pub(crate) fn n_layers(&self) -> Result<usize, Error> {
        const KEYS: &[&str] = &["n_layers", "num_hidden_layers", "n_layer", "num_layers"];
        let n = self.size(KEYS)?;
        if n as u64 > MAX_LAYERS { Err(self.wrong(KEYS, "at most 4096")) } else { Ok(n) }
    }

    /// Return the number of heads of queries.
    ///
    /// # Errors
    /// [`Error::Key`] if it is missing or 0.
    pub(crate) fn n_heads(&self) -> Result<usize, Error> {
        self.size(&["n_heads", "num_attention_heads", "n_head"])
    }

    /// Return the number of heads of keys; that of queries if the file says nothing else.
    ///
    /// # Errors
    /// [`Error::Key`] if it is 0, or there is neither number.
    pub(crate) fn n_heads_kv(&self) -> Result<usize, Error> {
        const KEYS: &[&str] = &["n_kv_heads", "num_key_value_heads"];
        if self.get(KEYS).is_some() { self.size(KEYS) } else { self.n_heads() }
    }

    /// Return the width of the model.
    ///
    /// # Errors
    /// [`Error::Key`] if it is missing or 0.
    pub(crate) fn width(&self) -> Result<usize, Error> {
        self.size(WIDTH)
    }

    /// Return the number of dimensions of a head.
    ///
    /// # Errors
    /// [`Error::Key`] if the numbers that say so are missing or 0, or it is beyond 65536.
    pub(crate) fn head_dim(&self) -> Result<usize, Error> {
        if self.get(&["head_dim"]).is_some() {
            return self.head_dim_of(&["head_dim"]);
        }
        let dim = self.width()? / self.n_heads()?;
        if dim > MAX_HEAD_DIM {
            return Err(self.wrong(WIDTH, "at most 65536 for each head"));
        }
        Ok(dim)
    }

    /// Return the number of dimensions of a head, as one of these keys says.
    ///
    /// # Errors
    /// [`Error::Key`] if it is missing, 0 or beyond 65536.
    pub(crate) fn head_dim_of(&self, keys: &[&str]) -> Result<usize, Error> {
        let dim = self.size(keys)?;
        if dim > MAX_HEAD_DIM { Err(self.wrong(keys, "at most 65536")) } else { Ok(dim) }
    }

    /// Return the parameters of the rotary embedding of full attention.
    pub(crate) fn rope(&self) -> Self {
        let full = self.rope.get("full_attention").and_then(Value::as_object);
        self.with(full.unwrap_or(&self.rope))
    }

    /// Return the parameters of the rotary embedding outside of any kind of attention.
    pub(crate) fn rope_outer(&self) -> Self {
        self.with(&self.rope)
    }

    /// Return the parameters of the rotary embedding of sliding attention, if they differ.
    pub(crate) fn rope_sliding(&self) -> Option<Self> {
        self.rope.get("sliding_attention").and_then(Value::as_object).map(|map| self.with(map))
    }

    /// Return an object of the file as numbers of their own.
    pub(crate) fn within(&self, key: &str) -> Option<Self> {
        self.get(&[key]).and_then(Value::as_object).map(|map| self.with(map))
    }

    fn with(&self, map: &Map<String, Value>) -> Self {
        Self { path: self.path.clone(), map: map.clone(), rope: Map::new() }
    }
}

/// Collect the parameters of the rotary embedding, which older files spread over several keys.
fn rope_parameters(map: &Map<String, Value>) -> Map<String, Value> {
    let named = |keys: &[&str]| keys.iter().find_map(|&key| map.get(key)).filter(|x| !x.is_null()).cloned();
    let given = map.get("rope_parameters").or_else(|| map.get("rope_scaling")).and_then(Value::as_object);
    let mut rope = given.cloned().unwrap_or_default();
    if rope.contains_key("full_attention") || rope.contains_key("sliding_attention") {
        return rope;
    }
    const SLIDING: &[&str] = &[
        "local_rope_theta",
        "rope_local_theta",
        "rope_theta_local",
        "swa_rope_theta",
        "rope_local_base_freq",
    ];
    if let Some(theta) = named(SLIDING) {
        let sliding = Map::from_iter([("rope_theta".to_owned(), theta)]);
        rope.insert("sliding_attention".into(), sliding.into());
    }
    let old_type = rope.get("type").cloned();
    let outside = [
        (
            "rope_theta",
            named(&[
                "global_rope_theta",
                "rope_global_theta",
                "rope_theta_global",
                "rope_theta",
                "rotary_emb_base",
            ]),
        ),
        ("rope_type", old_type),
        ("partial_rotary_factor", named(&["partial_rotary_factor", "rope_pct", "rope_percent"])),
        ("original_max_position_embeddings", named(&["original_max_position_embeddings"])),
    ];
    for (key, value) in outside {
        if let Some(value) = value {
            rope.entry(key).or_insert(value);
        }
    }
    rope
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> Config {
        Config::parse(Path::new("config.json"), text.as_bytes()).unwrap()
    }

    #[test]
    fn numbers_out_of_range_are_refused() {
        let config = config(
            r#"{"architectures": ["X"], "num_hidden_layers": 5000, "n_head": 0, "a": -1, "b": 1.5,
                "c": 1e300, "d": "7", "e": 8.0, "f": null, "g": 2147483648}"#,
        );
        assert_eq!(config.class().unwrap(), "X");
        let refused = [
            config.n_layers().unwrap_err(),
            config.n_heads().unwrap_err(),
            config.number(&["a"]).unwrap_err(),
            config.number(&["b"]).unwrap_err(),
            config.float(&["c"]).unwrap_err(),
            config.number(&["d"]).unwrap_err(),
            config.number(&["g"]).unwrap_err(),
            config.need(&["f"]).unwrap_err(),
        ];
        let texts = ["5000", "0", "-1", "1.5", "1e+300", "\"7\"", "2147483648", "nothing"];
        for (error, found) in refused.iter().zip(texts) {
            assert!(error.to_string().contains(&format!("is {found}, wanted")), "{error}");
        }
        assert_eq!(config.number(&["e"]).unwrap(), Some(8));
    }

    #[test]
    fn rotary_parameters_are_found_where_old_files_keep_them() {
        let config = config(
            r#"{"rope_theta": 5000.0, "rope_local_base_freq": 10.0, "rope_scaling": {"type": "linear", "factor": 8}}"#,
        );
        assert_eq!(config.rope().text(&["rope_type"]), Some("linear"));
        assert_eq!(config.rope().float(&["rope_theta"]).unwrap(), Some(5000.0));
        assert_eq!(config.rope_sliding().unwrap().float(&["rope_theta"]).unwrap(), Some(10.0));
    }
}
