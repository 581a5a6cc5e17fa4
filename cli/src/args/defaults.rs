//! Options that stand for every run: those of a configuration file, and of environment variables.
//!
//! Both become words before those that were typed. They are levels, each of which counts more than
//! the one before: the top of the file, the table of the command, llama-server's variables, those
//! of Backstitch, and what was typed. An option that a level sets is not set by those below it, and
//! neither is one that it excludes, so lists are not added up. A key of the file is the long name
//! of an option. It stands at the top, for every command that has the option, or in a table with
//! the name of a command. The variable `BACKSTITCH_CTX_SIZE` is the option `--ctx-size`.

use super::expand::{known, known_anywhere};
use crate::error::plain;
use clap::{Arg, Command};
use serde_json::{Map, Value};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Variable that names the configuration file; an empty one means none.
const CONFIG: &str = "BACKSTITCH_CONFIG";
/// Largest configuration file, in bytes.
const MAX_BYTES: u64 = 1 << 20;
/// Options that no file and no variable sets.
const NEVER: [&str; 3] = ["help", "version", "config"];

/// Options that have a meaning only beside another. As a default they are left out without it.
const NEEDS: [(&str, &str); 9] = [
    ("prompt-cache-ro", "prompt-cache"),
    ("prompt-cache-all", "prompt-cache"),
    ("prompt-cache-size", "prompt-cache"),
    ("sequence", "restore"),
    ("force", "save"),
    ("state-mib", "state"),
    ("kl-divergence", "kl-divergence-base"),
    ("lora", "base"),
    ("base", "lora"),
];

/// An option that a level sets.
#[derive(Debug)]
pub struct Setting {
    /// Its name: "--temp".
    option: String,
    /// Its value, if it takes one.
    value: Option<OsString>,
    /// True for a switch that is off, or a list of nothing: no word stands for it, but levels below
    /// do not set the option.
    is_off: bool,
}

impl Setting {
    /// Set the option of that name.
    pub fn new(option: impl Into<String>, value: Option<OsString>) -> Self {
        Self { option: option.into(), value, is_off: false }
    }

    /// Leave out the option of that name.
    pub fn off(option: impl Into<String>) -> Self {
        Self { option: option.into(), value: None, is_off: true }
    }

    /// Return its words on a command line.
    pub fn into_words(self) -> impl Iterator<Item = OsString> {
        let words = (!self.is_off).then(|| std::iter::once(self.option.into()).chain(self.value));
        words.into_iter().flatten()
    }
}

/// An option that is set at some level.
#[derive(Clone, Copy)]
struct Set<'a> {
    arg: &'a Arg,
    is_off: bool,
}

/// The defaults of a command line.
pub struct Defaults<'a> {
    /// The program, with all commands.
    pub root: &'a Command,
    /// The command.
    pub command: &'a Command,
    /// The name of the command: "state trim".
    pub path: &'a str,
    /// Names of the options that were typed: "--temp", "-n".
    pub typed: &'a [String],
    /// Number of words that were typed for positional arguments.
    pub n_positional: usize,
    /// Returns a variable of the environment.
    pub variable: &'a dyn Fn(&str) -> Option<OsString>,
}

impl Defaults<'_> {
    /// Return the words that stand before those that were typed. `config` is the file that was
    /// named on the command line, `foreign` what llama-server's variables set.
    ///
    /// # Errors
    /// One line about a file that cannot be read, or an option that it should not have.
    pub fn words(&self, config: Option<&OsStr>, foreign: Vec<Setting>) -> Result<Vec<OsString>, String> {
        let [top, own] = match self.file(config) {
            Some(file) => {
                let at = |error| format!("{}: {error}", file.display());
                let table = read(&file).map_err(at)?;
                self.of_table(&table).map_err(at)?
            }
            None => Default::default(),
        };
        let mut levels = vec![top, own, foreign, self.variables()?];
        let positional = self.command.get_positionals().take(self.n_positional);
        let typed = self.typed.iter().filter_map(|name| known(self.command, name));
        let mut set: Vec<Set<'_>> = typed.chain(positional).map(|arg| Set { arg, is_off: false }).collect();
        // What has no meaning should not exclude anything.
        let by_levels = levels.iter().flat_map(|level| self.set_by(level));
        let all: Vec<Set<'_>> = set.iter().copied().chain(by_levels).collect();
        for level in levels.iter_mut().rev() {
            level.retain(|setting| self.has_meaning(setting, &all) && self.may_set(setting, &set));
            set.extend(self.set_by(level));
        }
        let settings = levels.into_iter().flatten().filter(|setting| self.has_meaning(setting, &set));
        Ok(settings.flat_map(Setting::into_words).collect())
    }

    /// Return the options that a level sets.
    fn set_by(&self, level: &[Setting]) -> Vec<Set<'_>> {
        let set = |setting: &Setting| {
            let arg = known(self.command, &setting.option)?;
            Some(Set { arg, is_off: setting.is_off })
        };
        level.iter().filter_map(set).collect()
    }

    /// Return what Backstitch's variables set.
    fn variables(&self) -> Result<Vec<Setting>, String> {
        let mut settings = Vec::new();
        for arg in self.command.get_arguments() {
            let Some(long) = arg.get_long().filter(|long| !NEVER.contains(long)) else { continue };
            let name = format!("BACKSTITCH_{}", long.to_uppercase().replace('-', "_"));
            let Some(value) = (self.variable)(&name).filter(|value| !value.is_empty()) else { continue };
            match (arg.get_action().takes_values(), value.to_str()) {
                (true, _) => settings.push(Setting::new(format!("--{long}"), Some(value))),
                (false, Some("1" | "true" | "yes" | "on")) => {
                    settings.push(Setting::new(format!("--{long}"), None));
                }
                (false, Some("0" | "false" | "no" | "off")) => {
                    settings.push(Setting::off(format!("--{long}")));
                }
                (false, _) => return Err(format!("{name} is {}, not 1 or 0", value.display())),
            }
        }
        Ok(settings)
    }

    /// Return the configuration file: the one that was named, or else the user's, if it exists.
    fn file(&self, named: Option<&OsStr>) -> Option<PathBuf> {
        if let Some(named) = named.map(OsStr::to_owned).or_else(|| (self.variable)(CONFIG)) {
            return (!named.is_empty()).then(|| named.into());
        }
        let folder = |name: &str| (self.variable)(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let own = if cfg!(windows) { folder("APPDATA") } else { folder("XDG_CONFIG_HOME") };
        let own = own.or_else(|| Some(folder("HOME")?.join(".config")))?;
        Some(own.join("backstitch").join("config.toml")).filter(|file| file.is_file())
    }

    /// Return true if a level may set an option beside those that higher levels `set`.
    fn may_set(&self, setting: &Setting, set: &[Set<'_>]) -> bool {
        let excludes = |one: &Arg, other: &Arg| {
            self.command.get_arg_conflicts_with(one).iter().any(|arg| arg.get_id() == other.get_id())
        };
        known(self.command, &setting.option).is_some_and(|arg| {
            set.iter().all(|&Set { arg: other, is_off }| {
                let are_on = !is_off && !setting.is_off;
                other.get_id() != arg.get_id() && !(are_on && (excludes(arg, other) || excludes(other, arg)))
            })
        })
    }

    /// Return true if the option that this one needs is among those that are `set`.
    fn has_meaning(&self, setting: &Setting, set: &[Set<'_>]) -> bool {
        let option = setting.option.trim_start_matches('-');
        let mut needs = NEEDS.iter().filter(|(name, _)| *name == option);
        needs.all(|(_, needed)| {
            let needed = known(self.command, &format!("--{needed}"));
            needed
                .is_none_or(|needed| set.iter().any(|set| !set.is_off && set.arg.get_id() == needed.get_id()))
        })
    }

    /// Return the options of a file: those at its top, and those of the command's own table.
    fn of_table(&self, table: &Map<String, Value>) -> Result<[Vec<Setting>; 2], String> {
        let (mut top, mut settings) = (Vec::new(), Vec::new());
        for (key, value) in table.iter().filter(|(_, value)| !value.is_object()) {
            let name = format!("--{key}");
            match known(self.command, &name) {
                Some(arg) => self.add(arg, value, &mut top)?,
                None if known_anywhere(self.root, &name) => {}
                None => return Err(format!("no command has the option {key}")),
            }
        }
        expect_commands(self.root, table)?;
        // The table of `state trim` is `[state.trim]`.
        let mut own = Some(table);
        for name in self.path.split(' ') {
            own = own.and_then(|table| table.get(name)?.as_object());
        }
        for (key, value) in own.into_iter().flatten().filter(|(_, value)| !value.is_object()) {
            let arg = known(self.command, &format!("--{key}"));
            let missing = || format!("`backstitch {}` has no option {key}", self.path);
            self.add(arg.ok_or_else(missing)?, value, &mut settings)?;
        }
        Ok([top, settings])
    }

    /// Add an option with its value; a list is the option several times.
    fn add(&self, arg: &Arg, value: &Value, settings: &mut Vec<Setting>) -> Result<(), String> {
        let Some(long) = arg.get_long() else { return Ok(()) };
        if NEVER.contains(&long) {
            return Err(format!("{long} stands on the command line alone"));
        }
        let takes_value = arg.get_action().takes_values();
        let value = match value {
            Value::Bool(true) if !takes_value => None,
            Value::Bool(false) if !takes_value => {
                settings.push(Setting::off(format!("--{long}")));
                return Ok(());
            }
            Value::Array(values) if values.is_empty() && takes_value => {
                settings.push(Setting::off(format!("--{long}")));
                return Ok(());
            }
            Value::Array(values) => {
                return values.iter().try_for_each(|value| self.add(arg, value, settings));
            }
            Value::String(text) if takes_value => Some(self.at_home(text)),
            Value::Number(number) if takes_value => Some(number.to_string().into()),
            _ if takes_value => return Err(format!("{long} is {value}, not a text or a number")),
            _ => return Err(format!("{long} is {value}, not true or false")),
        };
        settings.push(Setting::new(format!("--{long}"), value));
        Ok(())
    }

    /// Replace `~/` at the beginning of a text by the user's folder.
    fn at_home(&self, text: &str) -> OsString {
        match (text.strip_prefix("~/"), (self.variable)("HOME")) {
            (Some(rest), Some(home)) => Path::new(&home).join(rest).into(),
            _ => text.into(),
        }
    }
}

/// Check that every table in `table` has the name of a command below `command`.
fn expect_commands(command: &Command, table: &Map<String, Value>) -> Result<(), String> {
    for (name, value) in table {
        let Some(table) = value.as_object() else { continue };
        let below = command.find_subcommand(name).ok_or_else(|| format!("there is no command {name}"))?;
        expect_commands(below, table)?;
    }
    Ok(())
}

/// Read a configuration file. It may be a pipe or a device, whose length nobody knows before.
fn read(file: &Path) -> Result<Map<String, Value>, String> {
    let mut text = String::new();
    let opened = File::open(file).map_err(|error| plain(&error))?;
    opened.take(MAX_BYTES + 1).read_to_string(&mut text).map_err(|error| plain(&error))?;
    if text.len() as u64 > MAX_BYTES {
        return Err("longer than 1 MiB, so it is no configuration file".into());
    }
    basic_toml::from_str(&text).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    /// The words that a file and variables put before these.
    fn words(
        file: &str,
        variables: &[(&str, &str)],
        path: &str,
        typed: &[&str],
    ) -> Result<Vec<String>, String> {
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("config.toml");
        std::fs::write(&config, file).unwrap();
        let mut root = super::super::Cli::command();
        root.build();
        let command = path.split(' ').try_fold(&root, |command, name| command.find_subcommand(name)).unwrap();
        let typed: Vec<String> = typed.iter().map(|name| (*name).into()).collect();
        let variable =
            |name: &str| variables.iter().find(|(other, _)| *other == name).map(|(_, value)| value.into());
        let defaults =
            Defaults { root: &root, command, path, typed: &typed, n_positional: 0, variable: &variable };
        let foreign = (path == "serve").then(|| Setting::new("--port", Some("81".into())));
        let words = defaults.words(Some(config.as_os_str()), foreign.into_iter().collect())?;
        Ok(words.into_iter().map(|word| word.into_string().unwrap()).collect())
    }

    #[test]
    fn the_environment_comes_after_the_file_and_the_command_after_all() {
        let file = "threads = 4\nverbose = true\ntemp = 0.5\nstop = ['a', 'b']\nmodel = '~/m.gguf'\n[chat]\ntemp = 1\n[run]\njson = false";
        let variables = [
            ("HOME", "/home/me"),
            ("BACKSTITCH_THREADS", "2"),
            ("BACKSTITCH_LOOKUP", "1"),
            ("BACKSTITCH_NO_MMAP", "off"),
        ];
        let all = words(file, &variables, "chat", &[]).unwrap().join(" ");
        assert_eq!(all, "--verbose --stop a --stop b --model /home/me/m.gguf --temp 1 --threads 2 --lookup");
        assert_eq!(words("threads = 4", &[], "inspect", &[]).unwrap(), [""; 0], "it has no threads");
    }

    #[test]
    fn what_is_typed_excludes_defaults_that_it_conflicts_with() {
        let file = "prompt-cache = 'a'\nlookup = true";
        assert_eq!(words(file, &[], "run", &["--restore"]).unwrap(), ["--lookup"]);
        assert_eq!(words(file, &[], "run", &["-p", "--draft-model"]).unwrap(), ["--prompt-cache", "a"]);
    }

    #[test]
    fn lists_are_replaced_not_added_to() {
        let file = "stop = ['a', 'b']\n[chat]\nstop = 'c'";
        assert_eq!(words(file, &[], "run", &[]).unwrap(), ["--stop", "a", "--stop", "b"]);
        assert_eq!(words(file, &[], "chat", &[]).unwrap(), ["--stop", "c"]);
        assert_eq!(words(file, &[("BACKSTITCH_STOP", "d")], "chat", &[]).unwrap(), ["--stop", "d"]);
        assert_eq!(words(file, &[], "chat", &["--stop"]).unwrap(), [""; 0]);
        assert_eq!(words("stop = ['a']\n[chat]\nstop = []", &[], "chat", &[]).unwrap(), [""; 0]);
    }

    #[test]
    fn what_is_off_at_one_level_is_not_set_by_those_below() {
        let file = "lookup = true\n[chat]\nlookup = false";
        assert_eq!(words(file, &[], "run", &[]).unwrap(), ["--lookup"]);
        assert_eq!(words(file, &[], "chat", &[]).unwrap(), [""; 0]);
        assert_eq!(words(file, &[("BACKSTITCH_LOOKUP", "0")], "run", &[]).unwrap(), [""; 0]);
        let drafted = [("BACKSTITCH_LOOKUP", "0"), ("BACKSTITCH_DRAFT_MODEL", "a")];
        assert_eq!(words(file, &drafted, "run", &[]).unwrap(), ["--draft-model", "a"]);
    }

    #[test]
    fn variables_of_llama_server_stand_between_the_file_and_those_of_backstitch() {
        assert_eq!(words("port = 80", &[], "serve", &[]).unwrap(), ["--port", "81"]);
        assert_eq!(words("", &[("BACKSTITCH_PORT", "82")], "serve", &[]).unwrap(), ["--port", "82"]);
        assert_eq!(words("", &[], "serve", &["--port"]).unwrap(), [""; 0]);
    }

    #[test]
    fn an_option_that_needs_another_is_no_default_without_it() {
        let file = "prompt-cache-size = '8G'\nforce = true";
        assert_eq!(words(file, &[], "run", &[]).unwrap(), [""; 0]);
        assert_eq!(words(file, &[], "run", &["--save"]).unwrap(), ["--force"]);
        assert_eq!(words(file, &[], "state trim", &[]).unwrap(), ["--force"], "it needs nothing there");
        let file = "[run]\nprompt-cache = 'a'\nprompt-cache-size = '8G'";
        assert_eq!(words(file, &[], "run", &[]).unwrap().len(), 4);
        let variables = [("BACKSTITCH_KL_DIVERGENCE", "1")];
        assert_eq!(words("file = 'a'", &variables, "perplexity", &[]).unwrap(), ["--file", "a"]);
        let variables = [("BACKSTITCH_STATE_MIB", "5")];
        assert_eq!(words("", &variables, "serve", &["--port"]).unwrap(), [""; 0]);
        let root = super::super::Cli::command();
        for name in NEEDS.iter().flat_map(|(option, needed)| [option, needed]) {
            assert!(known_anywhere(&root, &format!("--{name}")), "{name}");
        }
    }

    #[test]
    fn mistakes_are_told() {
        for (file, told) in [
            ("temperatur = 1", "no command has the option temperatur"),
            ("[sing]\ntemp = 1", "no command sing"),
            ("[state.tirm]\nto = 1", "no command tirm"),
            ("[run]\nsvg = 'a'", "`backstitch run` has no option svg"),
            ("temp = true", "temp is true, not a text or a number"),
            ("verbose = 'a'", "not true or false"),
            ("config = 'b.toml'", "on the command line alone"),
            ("temp = ", "line 1"),
        ] {
            let error = words(file, &[], "run", &[]).expect_err(file);
            assert!(error.contains(told) && error.contains("config.toml: "), "{error}");
        }
        assert!(words("", &[("BACKSTITCH_LOOKUP", "maybe")], "run", &[]).unwrap_err().contains("1 or 0"));
    }
}
