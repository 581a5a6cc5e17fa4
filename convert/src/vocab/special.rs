//! Tokens with roles (beginning, end, padding and so on), what is added to texts, and chat
//! templates.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::Value;

use super::tokenizer::text_of;
use super::{Sources, Tokenizer};
use crate::error::Error;
use crate::json::{read_json, read_text};
use crate::metadata::Metadata;

/// Names of roles in files, and the key of their token in GGUF.
const ROLES: [(&str, &str); 9] = [
    ("bos", "bos_token_id"),
    ("eos", "eos_token_id"),
    ("unk", "unknown_token_id"),
    ("sep", "seperator_token_id"),
    ("pad", "padding_token_id"),
    ("cls", "cls_token_id"),
    ("mask", "mask_token_id"),
    ("eot", "eot_token_id"),
    ("eom", "eom_token_id"),
];

/// Roles of which GGUF says whether they are added to texts.
const ADDED: [&str; 3] = ["bos", "eos", "sep"];

/// Most chat templates of a folder. Each becomes a key of the file; real models have a few.
const MAX_TEMPLATES: usize = 64;

/// A chat template by its name; "default" is the usual one.
type Template = (String, String);

/// The special tokens of a folder.
#[derive(Clone, Debug, Default)]
pub(super) struct Specials {
    /// Token of each role.
    pub ids: BTreeMap<&'static str, u32>,
    /// True for roles that are added to texts.
    pub add: BTreeMap<&'static str, bool>,
    templates: Vec<Template>,
    /// True if a space is put before texts, where the family lets the files say so.
    prefix: Option<bool>,
    lowercase: Option<bool>,
    strip_accents: Option<bool>,
}

/// The texts of special tokens, as `tokenizer_config.json` and the post-processor name them.
#[derive(Debug, Default)]
struct Texts {
    texts: BTreeMap<&'static str, String>,
    /// True if there is a `tokenizer_config.json`; without one the post-processor decides.
    configured: bool,
}

impl Texts {
    fn get(&self, role: &'static str) -> Option<&str> {
        self.texts.get(role).map(String::as_str)
    }

    fn set(&mut self, role: &'static str, text: &str) {
        self.texts.insert(role, text.into());
    }

    /// Set a role that has no token yet.
    fn set_missing(&mut self, role: &'static str, text: Option<&str>) {
        if let (None, Some(text)) = (self.get(role), text) {
            let text = text.to_owned();
            self.set(role, &text);
        }
    }
}

impl Specials {
    /// Read the special tokens of a vocabulary of `n_tokens`.
    ///
    /// # Errors
    /// [`Error::Read`], [`Error::FileTooLarge`] or [`Error::Format`] if files are unlike their
    /// names.
    pub fn read(sources: Sources<'_>, tokenizer: Option<&Tokenizer>, n_tokens: usize) -> Result<Self, Error> {
        let folder = sources.folder;
        let config = read_json(&folder.join("tokenizer_config.json"))?;
        let config = config.or_else(|| tokenizer?.roles.clone());
        let mut specials = Self::default();
        let mut texts = Texts { configured: config.is_some(), ..Texts::default() };
        if let Some(config) = &config {
            let prefix = config.get("add_prefix_space").and_then(Value::as_bool);
            specials.prefix = prefix.filter(|_| sources.notes_prefix);
            for (role, _) in ROLES {
                let text = config.get(format!("{role}_token")).and_then(text_of);
                texts.texts.extend(text.map(|text| (role, text.to_owned())));
            }
        }
        if let Some(tokenizer) = tokenizer {
            specials.normalize(&tokenizer.file.normalizer);
            let cls = texts.get("cls").map(str::to_owned);
            texts.set_missing("bos", cls.as_deref());
            let sep = texts.get("sep").map(str::to_owned);
            texts.set_missing("eos", sep.as_deref());
            specials.post_process(&tokenizer.file.post_processor, &mut texts);
        }
        if let Some(config) = &config {
            specials.templates = templates(folder, config)?;
            for role in ADDED {
                let flag = config.get(format!("add_{role}_token")).and_then(Value::as_bool);
                specials.add.extend(flag.map(|flag| (role, flag)));
            }
            specials.find(tokenizer, &texts, n_tokens);
        }
        specials.find_configured(sources, n_tokens);
        Ok(specials)
    }

    /// Note what the normaliser does that an engine must know.
    fn normalize(&mut self, normalizer: &Value) {
        let flag = |key: &str| normalizer.get(key).and_then(Value::as_bool);
        match normalizer.get("type").and_then(Value::as_str) {
            Some("Lowercase") => self.lowercase = Some(true),
            Some("StripAccents") => self.strip_accents = Some(true),
            Some("BertNormalizer") => {
                self.lowercase = flag("lowercase").or(self.lowercase);
                self.strip_accents = flag("strip_accents").or(self.strip_accents);
            }
            Some("Sequence") => {
                let steps = normalizer.get("normalizers").and_then(Value::as_array);
                steps.into_iter().flatten().for_each(|step| self.normalize(step));
            }
            _ => {}
        }
    }

    /// Note the tokens that the post-processor adds.
    fn post_process(&mut self, processor: &Value, texts: &mut Texts) {
        let list = processor.get("processors").and_then(Value::as_array).cloned();
        for step in list.unwrap_or_else(|| vec![processor.clone()]) {
            match step.get("type").and_then(Value::as_str) {
                Some("RobertaProcessing") => {
                    self.add.extend(ADDED.map(|role| (role, true)));
                    let text = |key: &str| step.get(key).and_then(|pair| pair.get(0)).and_then(Value::as_str);
                    texts.set_missing("cls", text("cls"));
                    texts.set_missing("sep", text("sep"));
                }
                Some("TemplateProcessing") => self.template(&step, texts),
                _ => {}
            }
        }
    }

    /// Note the tokens that a template of one text and of two adds.
    fn template(&mut self, step: &Value, texts: &mut Texts) {
        let list = |key: &str| step.get(key).and_then(Value::as_array).cloned().unwrap_or_default();
        let special = |part: Option<&Value>| -> Option<String> {
            part?.get("SpecialToken")?.get("id")?.as_str().map(str::to_owned)
        };
        let single = list("single");
        if single.len() < 2 {
            return;
        }
        let (first, last) = (special(single.first()), special(single.last()));
        if let Some(first) = first.as_deref() {
            if !texts.configured {
                texts.set("bos", first);
            } else if Some(first) != texts.get("bos") && Some(first) != texts.get("cls") {
                texts.set_missing("bos", Some(first));
                texts.set_missing("cls", Some(first));
            }
            let is_first = Some(first) == texts.get("bos") || Some(first) == texts.get("cls");
            self.add.insert("bos", is_first);
        }
        if let Some(last) = last.as_deref() {
            if texts.configured && Some(last) != texts.get("eos") {
                // What ended a turn until now still does.
                if let Some(old) = texts.get("eos").map(str::to_owned) {
                    texts.set("eot", &old);
                }
            }
            texts.set("eos", last);
            self.add.insert("eos", true);
        }
        self.pair(&list("pair"), first.as_deref(), last.as_deref(), texts);
    }

    /// Note the separator that a template puts between two texts.
    fn pair(&mut self, parts: &[Value], first: Option<&str>, last: Option<&str>, texts: &mut Texts) {
        let id = |part: &Value, kind: &str| -> Option<String> {
            part.get(kind)?.get("id")?.as_str().map(str::to_owned)
        };
        let mut inner = parts;
        if let [head, rest @ ..] = inner
            && first.is_some()
            && id(head, "SpecialToken").as_deref() == first
        {
            inner = rest;
        }
        if let [rest @ .., tail] = inner
            && last.is_some()
            && id(tail, "SpecialToken").as_deref() == last
        {
            inner = rest;
        }
        let [a, between @ .., b] = inner else { return };
        let is_pair = id(a, "Sequence").as_deref() == Some("A") && id(b, "Sequence").as_deref() == Some("B");
        if !is_pair || between.is_empty() {
            return;
        }
        let separates = |part: &Value| {
            let text = id(part, "SpecialToken");
            text.is_some() && (text.as_deref() == texts.get("sep") || text.as_deref() == texts.get("eos"))
        };
        let adds = match between {
            [one] => last.is_none() && separates(one),
            [one, two] => last.is_none() && separates(one) || separates(two),
            _ => between.first().is_some_and(|one| last.is_none() && separates(one)),
        };
        self.add.insert("sep", adds);
        if adds && texts.configured {
            let eos = texts.get("eos").map(str::to_owned);
            texts.set_missing("sep", eos.as_deref());
        }
    }

    /// Find the numbers of special tokens by their texts.
    fn find(&mut self, tokenizer: Option<&Tokenizer>, texts: &Texts, n_tokens: usize) {
        let Some(tokenizer) = tokenizer else { return };
        for (role, _) in ROLES {
            let Some(text) = texts.get(role) else { continue };
            let id = tokenizer.listed().find(|added| added.content == text).map(|added| added.id);
            if let Some(id) = id.filter(|&id| id < n_tokens).and_then(|id| u32::try_from(id).ok()) {
                self.ids.entry(role).or_insert(id);
            }
        }
    }

    /// Take numbers of special tokens from `config.json` where nothing else gave one.
    fn find_configured(&mut self, sources: Sources<'_>, n_tokens: usize) {
        for (role, _) in ROLES {
            let key = format!("{role}_token_id");
            // Some files write -1 for "none", and lists of all tokens that end a text.
            let Ok(Some(id)) = sources.config.number(&[&key]) else { continue };
            if (id as usize) < n_tokens {
                self.ids.entry(role).or_insert(id);
            }
        }
    }

    /// Set the keys.
    pub fn write(&self, meta: &mut Metadata) {
        for (role, key) in ROLES {
            // GGUF has no key for the token of a class: it is the beginning of a text.
            if let Some(&id) = self.ids.get(role).filter(|_| role != "cls") {
                meta.set(&format!("tokenizer.ggml.{key}"), id);
            }
        }
        for (role, add) in &self.add {
            meta.set(&format!("tokenizer.ggml.add_{role}_token"), *add);
        }
        if let Some(prefix) = self.prefix {
            meta.set("tokenizer.ggml.add_space_prefix", prefix);
        }
        for (name, template) in &self.templates {
            let dot = if name == "default" { String::new() } else { format!(".{name}") };
            meta.set(&format!("tokenizer.chat_template{dot}"), template.as_str());
        }
        let named: Vec<String> =
            self.templates.iter().map(|t| t.0.clone()).filter(|name| name != "default").collect();
        if !named.is_empty() {
            meta.set("tokenizer.chat_templates", named);
        }
        let normalizer = [("lowercase", self.lowercase), ("strip_accents", self.strip_accents)];
        for (key, flag) in normalizer {
            if let Some(flag) = flag {
                meta.set(&format!("tokenizer.ggml.normalizer.{key}"), flag);
            }
        }
    }
}

/// Read the chat templates of a folder: those of `tokenizer_config.json`, else of files.
///
/// # Errors
/// [`Error::Format`] if there are too many, and the errors of reading them.
fn templates(folder: &Path, config: &Value) -> Result<Vec<Template>, Error> {
    let one = |text: &str| vec![("default".to_owned(), text.to_owned())];
    match config.get("chat_template") {
        Some(Value::String(text)) => return Ok(one(text)),
        Some(Value::Array(list)) => {
            expect_few(&folder.join("tokenizer_config.json"), list.len())?;
            return Ok(list.iter().filter_map(named).collect());
        }
        _ => {}
    }
    if let Some(text) = read_text(&folder.join("chat_template.jinja"))? {
        let mut templates = one(&text);
        templates.extend(additional(&folder.join("additional_chat_templates"))?);
        return Ok(templates);
    }
    let file = read_json(&folder.join("chat_template.json"))?;
    let text = file.as_ref().and_then(|file| file.get("chat_template")).and_then(Value::as_str);
    Ok(text.map(one).unwrap_or_default())
}

/// Check the number of chat templates that the file or folder `path` lists.
///
/// # Errors
/// [`Error::Format`] if there are more than [`MAX_TEMPLATES`].
fn expect_few(path: &Path, n_templates: usize) -> Result<(), Error> {
    if n_templates <= MAX_TEMPLATES {
        return Ok(());
    }
    let found = format!("{n_templates} chat templates");
    Err(Error::Format { path: path.into(), found, wanted: format!("at most {MAX_TEMPLATES}") })
}

/// Return a template of a list; its name consists of characters that keys may have.
fn named(entry: &Value) -> Option<Template> {
    let (name, text) = (entry.get("name")?.as_str()?, entry.get("template")?.as_str()?);
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    Some((name.chars().map(plain).collect(), text.into()))
}

/// Read the templates of a folder, named by their files.
fn additional(folder: &Path) -> Result<Vec<Template>, Error> {
    let mut templates = Vec::new();
    let Ok(entries) = fs::read_dir(folder) else { return Ok(templates) };
    for path in entries.flatten().map(|entry| entry.path()) {
        if path.extension().is_some_and(|extension| extension == "jinja")
            && let (Some(name), Some(text)) = (path.file_stem(), read_text(&path)?)
        {
            templates.push((name.to_string_lossy().into_owned(), text));
            expect_few(folder, templates.len())?;
        }
    }
    templates.sort();
    Ok(templates)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn folders_with_too_many_templates_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let list = |n: usize| {
            let one = |i: usize| json!({"name": format!("t{i}"), "template": "x"});
            json!({ "chat_template": (0..n).map(one).collect::<Vec<_>>() })
        };
        assert_eq!(templates(folder.path(), &list(MAX_TEMPLATES)).unwrap().len(), MAX_TEMPLATES);
        let error = templates(folder.path(), &list(MAX_TEMPLATES + 1)).unwrap_err().to_string();
        assert!(error.ends_with("found 65 chat templates, wanted at most 64"), "{error}");
        let more = folder.path().join("additional_chat_templates");
        fs::create_dir(&more).unwrap();
        (0..=MAX_TEMPLATES).for_each(|i| fs::write(more.join(format!("{i}.jinja")), "x").unwrap());
        assert!(matches!(additional(&more), Err(Error::Format { .. })));
    }

    #[test]
    fn templates_of_post_processors_say_what_is_added() {
        let token = |text: &str| json!({"SpecialToken": {"id": text, "type_id": 0}});
        let text = |name: &str| json!({"Sequence": {"id": name, "type_id": 0}});
        let step = json!({"type": "TemplateProcessing",
            "single": [token("[CLS]"), text("A"), token("[SEP]")],
            "pair": [token("[CLS]"), text("A"), token("[SEP]"), text("B"), token("[SEP]")]});
        let mut texts = Texts { configured: true, ..Texts::default() };
        texts.set("cls", "[CLS]");
        texts.set("eos", "[SEP]");
        let mut specials = Specials::default();
        specials.post_process(&step, &mut texts);
        assert_eq!(specials.add, BTreeMap::from([("bos", true), ("eos", true), ("sep", false)]));
        let step = json!({"type": "Sequence", "processors": [{"type": "RobertaProcessing",
            "sep": ["</s>", 2], "cls": ["<s>", 0]}]});
        specials.post_process(&step, &mut texts);
        assert_eq!(specials.add, BTreeMap::from([("bos", true), ("eos", true), ("sep", true)]));
    }
}
