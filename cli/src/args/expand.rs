//! The command line as clap can parse it.
//!
//! [`expand`] runs before clap. It spells out llama.cpp's short options of several letters, drops
//! those of its options that change nothing here, with a note, and refuses those that would change
//! the result, with what to do instead. An unknown option becomes an error that names the most
//! similar one. Values are left to clap; the table of llama.cpp's options is in `llama`.

use super::defaults::Defaults;
use super::llama::{self, Takes, Treatment};
use super::serve_environment;
use clap::{Arg, Command, CommandFactory};
use std::ffi::OsString;
use std::iter::Peekable;
use std::vec::IntoIter;

/// llama.cpp's short options of several letters, and other names of its own, with the long options
/// that they stand for.
const LONG_SHORTS: [(&str, &str); 15] = [
    ("-ub", "--ubatch-size"),
    ("-ctk", "--cache-type-k"),
    ("-ctv", "--cache-type-v"),
    ("-sys", "--system-prompt"),
    ("-md", "--draft-model"),
    ("-np", "--parallel"),
    ("-kvu", "--kv-unified"),
    ("-no-kvu", "--no-kv-unified"),
    ("-cram", "--cache-ram"),
    ("-to", "--timeout"),
    ("-rea", "--reasoning"),
    ("--spec-draft-model", "--draft-model"),
    ("--spec-draft-n-max", "--draft-max"),
    ("--draft", "--draft-max"),
    ("--draft-n", "--draft-max"),
];

/// The option that names the configuration file. It is read here, because the file comes before
/// clap, which knows it for the help alone.
const CONFIG: &str = "--config";
/// Error about a `--config` that is the last word.
const NO_CONFIG: &str = "--config needs the name of a file";

/// The command that takes options from llama-server's environment variables.
const SERVE: &str = "serve";

/// A command line for clap.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Expanded {
    /// Words of the command line, the program's name first.
    pub words: Vec<OsString>,
    /// Notes about options that were dropped, for standard error.
    pub notes: Vec<String>,
    /// Name of the command: "run", "state trim"; empty if there is none.
    pub command: String,
}

/// Make a command line for clap. Words after a lone `--` stay as they are. Defaults come from the
/// environment, of which `variable` returns a variable, and from the configuration file.
///
/// # Errors
/// One line about the first option that is unknown or not supported here, or about a default that
/// cannot be used.
pub fn expand(
    words: impl IntoIterator<Item = OsString>,
    variable: &dyn Fn(&str) -> Option<OsString>,
) -> Result<Expanded, String> {
    let mut root = super::Cli::command();
    root.build();
    let mut words = words.into_iter().collect::<Vec<_>>().into_iter().peekable();
    let mut done = Expanded::default();
    done.words.extend(words.next());
    let (command, path, config) = descend(&root, &mut words, &mut done.words)?;
    done.command.clone_from(&path);
    if let Some(first) = words.peek().and_then(|word| word.to_str())
        && path.is_empty()
        && is_option(first)
        && known(command, first).is_none()
    {
        return Err(format!(
            "{first} must follow a command: `backstitch run {first} …`; `backstitch --help` lists the commands"
        ));
    }
    // `state splice` takes any words: it explains why it cannot do what they ask for.
    if command.get_arguments().any(Arg::is_trailing_var_arg_set) {
        done.words.extend(words);
        return Ok(done);
    }
    let (foreign, notes) = match path == SERVE {
        true => serve_environment::options(std::env::vars_os())?,
        false => Default::default(),
    };
    done.notes = notes;
    let read = Reader { command, path: &path, words, read: Read::default() }.read()?;
    if !path.is_empty() {
        let (typed, n_positional) = (&read.options, read.n_positional);
        let defaults = Defaults { root: &root, command, path: &path, typed, n_positional, variable };
        done.words.extend(defaults.words(read.config.or(config).as_deref(), foreign)?);
    }
    done.words.extend(read.words);
    done.notes.extend(read.notes);
    Ok(done)
}

/// Find the command that the first words name, and move those words to `done`. Returns the command,
/// its name, which is empty for the program itself, and the value of the last `--config` before the
/// end of that name.
///
/// # Errors
/// One line about a `--config` without a value.
fn descend<'a>(
    root: &'a Command,
    words: &mut Peekable<IntoIter<OsString>>,
    done: &mut Vec<OsString>,
) -> Result<(&'a Command, String, Option<OsString>), String> {
    let (mut command, mut path, mut config) = (root, String::new(), None);
    // Behind the name of a command without subcommands, options are that command's.
    while command.has_subcommands()
        && let Some(word) = words.peek()
    {
        if let Some(next) = command.find_subcommand(word) {
            path = format!("{path} {}", next.get_name()).trim_start().into();
            command = next;
            done.extend(words.next());
        } else if let Some(value) = word.to_str().and_then(config_value) {
            let value = value.map(OsString::from);
            words.next();
            config = Some(value.or_else(|| words.next()).ok_or(NO_CONFIG)?);
        } else {
            break;
        }
    }
    Ok((command, path, config))
}

/// Return the value in a word that is the option `--config`: none if the value is the next word.
/// Returns `None` for another word.
fn config_value(word: &str) -> Option<Option<&str>> {
    let rest = word.strip_prefix(CONFIG)?;
    if rest.is_empty() { Some(None) } else { rest.strip_prefix('=').map(Some) }
}

/// The words that were typed after the name of a command.
#[derive(Default)]
struct Read {
    /// The words for clap.
    words: Vec<OsString>,
    /// Names of the command's options among them: "--temp", "-n".
    options: Vec<String>,
    /// Number of words among them that belong to no option.
    n_positional: usize,
    /// The value of the last `--config`, which is not among the words.
    config: Option<OsString>,
    /// Notes about options that were dropped.
    notes: Vec<String>,
}

/// The words after the name of a command, on their way to clap.
///
/// Each word is either passed on as it is, or an option with its value. Options of the command are
/// passed on under their long names, options of llama.cpp are treated as its table says, and others
/// are errors. A word that is the value of an option is never taken for an option.
struct Reader<'a> {
    command: &'a Command,
    /// Name of the command, as in [`Expanded::command`].
    path: &'a str,
    /// Words that are still to be read.
    words: Peekable<IntoIter<OsString>>,
    read: Read,
}

impl Reader<'_> {
    /// Read all words.
    fn read(mut self) -> Result<Read, String> {
        while let Some(word) = self.words.next() {
            match word.to_str() {
                Some("--") => {
                    self.read.words.push(word);
                    let n_before = self.read.words.len();
                    self.read.words.extend(self.words.by_ref());
                    self.read.n_positional += self.read.words.len() - n_before;
                }
                Some(text) if is_option(text) => self.option(text)?,
                _ => {
                    self.read.words.push(word);
                    self.read.n_positional += 1;
                }
            }
        }
        Ok(self.read)
    }

    /// Read an option, `--name`, `--name=value` or `-n`, with its value if that is the next word.
    fn option(&mut self, text: &str) -> Result<(), String> {
        let (name, value) = text.split_at(text.find('=').unwrap_or(text.len()));
        let long = LONG_SHORTS.into_iter().find(|(short, _)| *short == name).map(|(_, long)| long);
        let name = long.filter(|long| known(self.command, long).is_some()).unwrap_or(name);
        if let Some(value) = config_value(text) {
            let value = value.map(OsString::from).or_else(|| self.words.next());
            self.read.config = Some(value.ok_or(NO_CONFIG)?);
            return Ok(());
        }
        if let Some(arg) = known(self.command, name) {
            let takes = arg.get_num_args().map_or(1, |range| range.min_values().max(1));
            let n_values = if value.is_empty() && arg.get_action().takes_values() { takes } else { 0 };
            self.read.options.push(name.into());
            self.read.words.push(format!("{name}{value}").into());
            self.read.words.extend(self.words.by_ref().take(n_values));
            return Ok(());
        }
        if let Some(flag) = llama::find(name, self.path) {
            let value = value.strip_prefix('=').map(str::to_owned).or_else(|| self.value(flag.takes));
            return self.foreign(name, value.as_deref(), flag.treatment);
        }
        if let Some(short) = with_value_attached(self.command, text) {
            self.read.options.push(format!("-{short}"));
            self.read.words.push(text.into());
            return Ok(());
        }
        let (nearest, path) = (nearest(self.command, name), self.path);
        Err(format!(
            "no such option: {name}; the nearest is {nearest}; `backstitch {path} --help` lists them all"
        ))
    }

    /// Take the next word if it is the value of an option of llama.cpp.
    fn value(&mut self, takes: Takes) -> Option<String> {
        let belongs = match (takes, self.words.peek().and_then(|word| word.to_str())) {
            (Takes::Nothing, _) | (_, None) => false,
            (Takes::Value, Some(_)) => true,
            (Takes::Maybe(words), Some(word)) => words.contains(&word),
        };
        if belongs { self.words.next()?.into_string().ok() } else { None }
    }

    /// Drop or refuse an option of llama.cpp.
    fn foreign(&mut self, name: &str, value: Option<&str>, treatment: Treatment) -> Result<(), String> {
        match treatment {
            Treatment::Ignored(why) => self.read.notes.push(format!("{name} is ignored: {why}")),
            Treatment::Off(values, _) if value.is_some_and(|value| values.contains(&value)) => {}
            Treatment::Refused(instead) | Treatment::Off(_, instead) => {
                return Err(format!("{name}: {instead}"));
            }
        }
        Ok(())
    }
}

/// Return true if the word looks like an option: a dash, then no digit or point, which would be a
/// number.
fn is_option(text: &str) -> bool {
    let mut letters = text.chars();
    letters.next() == Some('-')
        && letters.next().is_some_and(|second| !second.is_ascii_digit() && second != '.')
}

/// Return true if the command, or one below it, has an option of that name.
pub fn known_anywhere(command: &Command, name: &str) -> bool {
    known(command, name).is_some() || command.get_subcommands().any(|below| known_anywhere(below, name))
}

/// Return the command's option of that name: `--long`, an alias of it, or `-s`.
pub fn known<'a>(command: &'a Command, name: &str) -> Option<&'a Arg> {
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

/// Return the letter of a short option with its number attached: `-n5`.
fn with_value_attached(command: &Command, text: &str) -> Option<char> {
    let mut letters = text.chars().skip(1);
    let (short, next) = (letters.next()?, letters.next()?);
    let arg = command.get_arguments().find(|arg| arg.get_short() == Some(short))?;
    (!next.is_alphabetic() && arg.get_action().takes_values()).then_some(short)
}

/// Jaro-Winkler similarity from which an option of the command is suggested before any option of
/// llama.cpp.
const ALIKE: f64 = 0.8;

/// Return the name that is most similar to an unknown one: an option of the command rather than one
/// of llama.cpp.
fn nearest(command: &Command, name: &str) -> String {
    let own = command.get_arguments().filter_map(|arg| arg.get_long()).map(|long| format!("--{long}"));
    let shorts = LONG_SHORTS.into_iter().filter(|(_, long)| known(command, long).is_some());
    let own = most_similar(name, own.chain(shorts.map(|(short, _)| short.into())));
    let foreign = most_similar(name, llama::names().map(String::from));
    match (own, foreign) {
        (Some(own), Some(foreign)) if own.0 < ALIKE && own.0 < foreign.0 => {
            format!("{} of llama.cpp", foreign.1)
        }
        (Some(own), _) => own.1,
        // Every command has at least `--help`.
        (None, _) => "--help".into(),
    }
}

/// Return the most similar of the names, with its similarity from 0 to 1; none if there is no name.
fn most_similar(name: &str, all: impl Iterator<Item = String>) -> Option<(f64, String)> {
    let bare = name.trim_start_matches('-');
    let similarity = |other: String| (strsim::jaro_winkler(other.trim_start_matches('-'), bare), other);
    all.map(similarity).max_by(|a, b| a.0.total_cmp(&b.0))
}
