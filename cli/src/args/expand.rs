//! The command line as clap takes it: llama.cpp's short options of several letters are spelled out, and its
//! options that have no meaning here are taken away or refused by name.

use super::llama::{self, Fate, Takes};
use clap::{Arg, Command, CommandFactory};
use std::ffi::OsString;
use std::iter::Peekable;
use std::vec::IntoIter;

/// Short options of several letters, as llama.cpp has them.
const LONG_SHORTS: [(&str, &str); 7] = [
    ("-ub", "--ubatch-size"),
    ("-ctk", "--cache-type-k"),
    ("-ctv", "--cache-type-v"),
    ("-sys", "--system-prompt"),
    ("-md", "--draft-model"),
    ("--draft", "--draft-max"),
    ("--draft-n", "--draft-max"),
];

/// A command line for clap.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Expanded {
    /// Its words.
    pub words: Vec<OsString>,
    /// Notes about options that were taken away.
    pub notes: Vec<String>,
    /// The command that they name: "run", "state trim"; empty if none.
    pub command: String,
}

/// Makes a command line for clap. What follows a lone `--` stays as it is.
///
/// # Errors
/// One line about an option that is not known, or cannot be had here.
pub fn expand(words: impl IntoIterator<Item = OsString>) -> Result<Expanded, String> {
    let mut root = super::Cli::command();
    root.build();
    let mut words = words.into_iter().collect::<Vec<_>>().into_iter().peekable();
    let mut done = Expanded::default();
    done.words.extend(words.next());
    let (command, path) = descend(&root, &mut words, &mut done.words);
    done.command.clone_from(&path);
    let first = words.peek().and_then(|word| word.to_str()).unwrap_or_default();
    if path.is_empty() && is_option(first) && known(command, first).is_none() {
        return Err(format!(
            "{first} follows a command: `backstitch run {first} …`; `backstitch --help` lists them"
        ));
    }
    if command.get_arguments().any(Arg::is_trailing_var_arg_set) {
        done.words.extend(words);
        return Ok(done);
    }
    Reader { command, path: &path, words, done }.read()
}

/// The command that the first words name.
fn descend<'a>(
    root: &'a Command,
    words: &mut Peekable<IntoIter<OsString>>,
    done: &mut Vec<OsString>,
) -> (&'a Command, String) {
    let (mut command, mut path) = (root, String::new());
    while let Some(next) = words.peek().and_then(|word| command.find_subcommand(word)) {
        path = format!("{path} {}", next.get_name()).trim_start().into();
        command = next;
        done.extend(words.next());
    }
    (command, path)
}

struct Reader<'a> {
    command: &'a Command,
    path: &'a str,
    words: Peekable<IntoIter<OsString>>,
    done: Expanded,
}

impl Reader<'_> {
    fn read(mut self) -> Result<Expanded, String> {
        while let Some(word) = self.words.next() {
            match word.to_str() {
                Some("--") => {
                    self.done.words.push(word);
                    self.done.words.extend(self.words.by_ref());
                }
                Some(text) if is_option(text) => self.option(text)?,
                _ => self.done.words.push(word),
            }
        }
        Ok(self.done)
    }

    fn option(&mut self, text: &str) -> Result<(), String> {
        let (name, value) = text.split_at(text.find('=').unwrap_or(text.len()));
        let long = LONG_SHORTS.into_iter().find(|(short, _)| *short == name).map(|(_, long)| long);
        let name = long.filter(|long| known(self.command, long).is_some()).unwrap_or(name);
        if let Some(arg) = known(self.command, name) {
            let needs_value = value.is_empty() && arg.get_action().takes_values();
            self.done.words.push(format!("{name}{value}").into());
            self.done.words.extend(needs_value.then(|| self.words.next()).flatten());
            return Ok(());
        }
        if let Some(flag) = llama::find(name, self.path) {
            let value = value.strip_prefix('=').map(str::to_owned).or_else(|| self.value(flag.takes));
            return self.foreign(name, value.as_deref(), flag.fate);
        }
        if has_value_attached(self.command, text) {
            self.done.words.push(text.into());
            return Ok(());
        }
        let (nearest, path) = (nearest(self.command, name), self.path);
        Err(format!(
            "no such option: {name}; the nearest is {nearest}; `backstitch {path} --help` lists them all"
        ))
    }

    /// The word that belongs to an option.
    fn value(&mut self, takes: Takes) -> Option<String> {
        let belongs = match (takes, self.words.peek().and_then(|word| word.to_str())) {
            (Takes::Nothing, _) | (_, None) => false,
            (Takes::Value, Some(_)) => true,
            (Takes::Maybe(words), Some(word)) => words.contains(&word),
        };
        if belongs { self.words.next()?.into_string().ok() } else { None }
    }

    fn foreign(&mut self, name: &str, value: Option<&str>, fate: Fate) -> Result<(), String> {
        match fate {
            Fate::Ignored(why) => self.done.notes.push(format!("{name} is ignored: {why}")),
            Fate::Off(values, _) if value.is_some_and(|value| values.contains(&value)) => {}
            Fate::Refused(instead) | Fate::Off(_, instead) => return Err(format!("{name}: {instead}")),
        }
        Ok(())
    }
}

/// Returns true for what looks like an option and no number.
fn is_option(text: &str) -> bool {
    let mut letters = text.chars();
    letters.next() == Some('-')
        && letters.next().is_some_and(|second| !second.is_ascii_digit() && second != '.')
}

/// The option of that name.
fn known<'a>(command: &'a Command, name: &str) -> Option<&'a Arg> {
    let mut args = command.get_arguments();
    match name.strip_prefix("--") {
        Some(long) => args.find(|arg| {
            arg.get_long() == Some(long) || arg.get_all_aliases().is_some_and(|names| names.contains(&long))
        }),
        None => {
            let mut letters = name.chars().skip(1);
            let short = letters.next().filter(|_| letters.next().is_none())?;
            args.find(|arg| arg.get_short() == Some(short))
        }
    }
}

/// Returns true for a short option with its number right behind it: `-n5`.
fn has_value_attached(command: &Command, text: &str) -> bool {
    let mut letters = text.chars().skip(1);
    let (Some(short), Some(next)) = (letters.next(), letters.next()) else { return false };
    let arg = command.get_arguments().find(|arg| arg.get_short() == Some(short));
    !next.is_alphabetic() && arg.is_some_and(|arg| arg.get_action().takes_values())
}

/// An option of the command is meant if it is as like as this; else it may be one of llama.cpp.
const ALIKE: f64 = 0.8;

/// The name that is most like this one: an option of the command before one of llama.cpp.
fn nearest(command: &Command, name: &str) -> String {
    let own = command.get_arguments().filter_map(|arg| arg.get_long()).map(|long| format!("--{long}"));
    let shorts = LONG_SHORTS.into_iter().filter(|(_, long)| known(command, long).is_some());
    let own = likest(name, own.chain(shorts.map(|(short, _)| short.into())));
    let foreign = likest(name, llama::names().map(String::from));
    if own.0 >= ALIKE || own.0 >= foreign.0 { own.1 } else { format!("{} of llama.cpp", foreign.1) }
}

/// The likest of the names, and how like it is.
fn likest(name: &str, all: impl Iterator<Item = String>) -> (f64, String) {
    let bare = name.trim_start_matches('-');
    let likeness = |other: String| (strsim::jaro_winkler(other.trim_start_matches('-'), bare), other);
    all.map(likeness).max_by(|a, b| a.0.total_cmp(&b.0)).unwrap_or_default()
}
