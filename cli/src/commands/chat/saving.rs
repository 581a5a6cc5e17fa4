//! Conversations in files: saved states of all branches, with the messages beside them.
//!
//! The messages are the metadata of the state, JSON that `docs/chat.md` describes. A conversation
//! that comes back continues bit for bit: tokens, memory and samplers are those that were saved. A
//! branch that has no sequence is saved as messages alone.

use super::branches::Branch;
use super::conversation::Conversation;
use super::template::Template;
use super::{Chat, Place};
use crate::args::ChatArgs;
use crate::error::Error;
use crate::interrupt::Stoppable;
use crate::output::{bytes, counted, note, one_line};
use crate::progress::Progress;
use crate::session::Session;
use crate::target::{Kind, Saving, Stamp, Target, Text};
use backstitch_kv::SeqId;
use backstitch_models::Model;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// Version of the JSON.
const VERSION: u64 = 1;

/// The beginning of a chat: a new one, or one that came back from a file.
pub struct Loaded {
    /// The tokens that are evaluated.
    pub session: Session,
    /// The branches, at least one.
    pub branches: Vec<Branch>,
    /// Index of the current branch.
    pub current: usize,
    /// The source of the chat template, if the conversation had another than its model.
    pub template: Option<String>,
    /// The file; none for a new chat.
    pub place: Option<Place>,
}

impl Loaded {
    /// Return the chat template of the conversation: the one that was asked for, or the one that it
    /// had.
    ///
    /// # Errors
    /// The errors of [`Template::choose`].
    pub fn template(&self, model: &Model, args: &ChatArgs) -> Result<Template, Error> {
        match self.template.clone().filter(|_| args.chat_template.is_none()) {
            Some(source) => Template::of_source(source, model.vocab()),
            None => Template::choose(args.chat_template.as_deref(), model),
        }
    }
}

impl Chat<'_> {
    /// Save all branches to `path`, or to the file in which the chat was saved last. `force`
    /// replaces a saved state of another text.
    pub(super) fn save(
        &mut self,
        path: Option<PathBuf>,
        option: &'static str,
        force: bool,
    ) -> Result<(), Error> {
        let _stoppable = Stoppable::begin();
        let Some(path) = path.or_else(|| self.places.last().map(|place| place.path.clone())) else {
            return Err(Error::Refused("/save needs the name of a file".into()));
        };
        if self.session.tokens().is_empty() && !self.has_turns() {
            return Err(Error::Refused("there is nothing to save yet".into()));
        }
        let stamp = self.places.iter().find(|place| place.path == path).and_then(|place| place.stamp);
        let models = [&self.args.model.model, &self.args.speculation.draft_model].map(|path| path.as_deref());
        let target = Target::check(&path, option, Kind::State, &models)?.continuing(stamp);
        let metadata = self.metadata().to_string();
        let (fingerprint, tokens) = (self.session.fingerprint(), self.session.tokens().to_vec());
        let text = Text { model: &fingerprint, tokens: &tokens, saving: Saving::Chat };
        target.expect_text(text).or_else(|error| if force { Ok(()) } else { Err(error) })?;
        let progress = Progress::endless("saving");
        let (path, saved) = target
            .save(text, force, |path, watch| self.session.save_branches(path, metadata.as_bytes(), watch))?;
        drop(progress);
        if self.args.verbose || option != "--save" {
            let (name, written) = (one_line(&path.display().to_string()), bytes(saved.container.written));
            let branches = counted(self.branches.len(), "branch");
            note("note", format_args!("saved {branches} to {name}, {written} written"));
        }
        self.places.retain(|place| place.path != path);
        self.places.push(Place { stamp: Stamp::of(&path), path });
        self.keep();
        Ok(())
    }

    /// Remember the conversations as those that a file has.
    pub(super) fn keep(&mut self) {
        self.kept = self.branches.iter().map(|branch| branch.conversation.clone()).collect();
    }

    /// Return true if a person said something in any branch.
    fn has_turns(&self) -> bool {
        self.branches.iter().any(|branch| branch.conversation.n_turns() > 0)
    }

    /// Return true if there are messages that no file has as they are.
    pub(super) fn is_unsaved(&self) -> bool {
        self.has_turns() && !self.branches.iter().map(|branch| &branch.conversation).eq(&self.kept)
    }

    /// Return true if this conversation may be replaced: it is saved, or a person says so.
    fn may_be_replaced(&mut self) -> Result<bool, Error> {
        if !self.is_unsaved() {
            return Ok(true);
        }
        let asked = self.input.ask("This conversation is not saved. Replace it?")?;
        asked.ok_or_else(|| {
            Error::Refused(
                "this conversation is not saved: /save FILE saves it, /load! FILE replaces it".into(),
            )
        })
    }

    /// Save to the file of `--save`, if there is one.
    pub(super) fn save_after_answer(&mut self) -> Result<(), Error> {
        let Some(path) = &self.args.file.save else { return Ok(()) };
        // A chat that was saved beside a file that another process has changed stays there.
        let path = self.saved_as.clone().unwrap_or_else(|| path.clone());
        let force = self.args.file.force && self.saved_as.is_none();
        self.save(Some(path), "--save", force)?;
        self.saved_as = self.places.last().map(|place| place.path.clone());
        Ok(())
    }

    /// Return the JSON that is saved beside the state.
    fn metadata(&self) -> Value {
        let branch = |branch: &Branch| {
            let mut value = branch.conversation.to_json();
            value["sequence"] = json!(branch.seq.map(|seq| seq.0));
            value
        };
        json!({
            "backstitch_chat": VERSION,
            "template": self.template.source,
            "current": self.current,
            "branches": self.branches.iter().map(branch).collect::<Vec<_>>(),
        })
    }

    /// Continue the conversation in a file in place of this one. Without `force`, one that is not
    /// saved is replaced only if a person says so.
    pub(super) fn load(&mut self, path: &Path, force: bool) -> Result<(), Error> {
        let loaded = load(path, self.model, self.args)?;
        let template = loaded.template(self.model, self.args)?;
        if !force && !self.may_be_replaced()? {
            note("note", "the conversation is as it was");
            return Ok(());
        }
        self.template = template;
        let stats = self.session.stats;
        self.session = loaded.session;
        self.session.stats = stats;
        (self.branches, self.current) = (loaded.branches, loaded.current);
        self.places = loaded.place.into_iter().collect();
        self.keep();
        // The file of --save keeps the conversation that it has.
        self.saved_as = self.places.last().map(|place| place.path.clone());
        self.say_restored();
        self.draft()
    }

    /// Say what came back from a file.
    pub(super) fn say_restored(&self) {
        let messages = counted(self.branch().conversation.n_turns(), "message");
        let tokens = counted(self.session.tokens().len(), "token");
        note("note", format_args!("restored {messages}, {tokens}; /list shows them"));
    }
}

/// Make a new chat.
///
/// # Errors
/// The errors of [`Session::with_branches`].
pub fn fresh(model: &Model, args: &ChatArgs) -> Result<Loaded, Error> {
    let session = Session::with_branches(model, &args.context, &args.sampling)?;
    let branch = Branch { seq: Some(session.current()), ..Branch::default() };
    Ok(Loaded { session, branches: vec![branch], current: 0, template: None, place: None })
}

/// Restore the chat in a file.
///
/// # Errors
/// - The errors of [`Session::restore_branches`].
/// - [`Error::Refused`] if the file holds no conversation.
pub fn load(path: &Path, model: &Model, args: &ChatArgs) -> Result<Loaded, Error> {
    let stamp = Stamp::of(path);
    let (mut session, metadata) = Session::restore_branches(model, &args.context, &args.sampling, path)?;
    let Some((branches, current, template)) = parse(&metadata, &session.branches()) else {
        let name = one_line(&path.display().to_string());
        return Err(Error::Refused(format!(
            "{name} holds no conversation; `backstitch state inspect` shows what it holds"
        )));
    };
    session
        .switch(branches.get(current).and_then(|branch| branch.seq).unwrap_or_else(|| session.current()))?;
    let place = Some(Place { path: path.into(), stamp });
    Ok(Loaded { session, branches, current, template, place })
}

/// Read the JSON of [`Chat::metadata`]. The current branch has a sequence, and each sequence
/// belongs to one branch; none if that is not so, or the JSON is anything else.
fn parse(metadata: &[u8], seqs: &[SeqId]) -> Option<(Vec<Branch>, usize, Option<String>)> {
    let value: Value = serde_json::from_slice(metadata).ok()?;
    if value.get("backstitch_chat")?.as_u64()? != VERSION {
        return None;
    }
    let (mut branches, mut seqs) = (Vec::new(), seqs.to_vec());
    for branch in value.get("branches")?.as_array()? {
        let seq = match branch.get("sequence")? {
            Value::Null => None,
            number => {
                let id = u32::try_from(number.as_u64()?).ok()?;
                Some(seqs.swap_remove(seqs.iter().position(|seq| seq.0 == id)?))
            }
        };
        branches.push(Branch { conversation: Conversation::from_json(branch)?, seq, pins: Vec::new() });
    }
    let current = usize::try_from(value.get("current")?.as_u64()?).ok()?;
    let template = value.get("template")?.as_str().map(String::from);
    let is_whole = seqs.is_empty() && branches.get(current)?.seq.is_some();
    is_whole.then_some((branches, current, template))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sequence_belongs_to_one_branch() {
        let branch = |seq: Value| json!({ "sequence": seq, "left_out": 0, "messages": [] });
        let parsed = |branches: Value, current: usize| {
            let value =
                json!({ "backstitch_chat": 1, "template": null, "current": current, "branches": branches });
            parse(value.to_string().as_bytes(), &[SeqId(0), SeqId(2)])
        };
        let (two, none) = (json!([branch(json!(2)), branch(json!(null)), branch(json!(0))]), json!(null));
        let (branches, current, template) = parsed(two.clone(), 2).unwrap();
        assert_eq!(
            branches.iter().map(|branch| branch.seq).collect::<Vec<_>>(),
            [Some(SeqId(2)), None, Some(SeqId(0))]
        );
        assert_eq!((current, template), (2, None));
        for (branches, current) in [
            (two.clone(), 1),
            (two, 3),
            (json!([branch(json!(0))]), 0),
            (json!([branch(json!(0)), branch(json!(0)), branch(json!(2))]), 0),
            (json!([branch(json!(0)), branch(json!(1)), branch(json!(2))]), 0),
            (none, 0),
        ] {
            assert!(parsed(branches.clone(), current).is_none(), "{branches} {current}");
        }
        assert!(parse(b"{", &[]).is_none() && parse(b"", &[]).is_none());
    }
}
