//! Options that stand for every run: those of a configuration file, and of environment variables.
//!
//! Both become words before those that were typed, so that what was typed counts: the file first,
//! then the environment. A key of the file is the long name of an option. It stands at the top, for
//! every command that has the option, or in a table with the name of a command. The variable
//! `BACKSTITCH_CTX_SIZE` is the option `--ctx-size`.

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
    /// named on the command line.
    ///
    /// # Errors
    /// One line about a file that cannot be read, or an option that it should not have.
    pub fn words(&self, config: Option<&OsStr>) -> Result<Vec<OsString>, String> {
        let mut words = Vec::new();
        if let Some(file) = self.file(config) {
            let at = |error| format!("{}: {error}", file.display());
            let table = read(&file).map_err(at)?;
            self.of_table(&table, &mut words).map_err(at)?;
        }
        for arg in self.command.get_arguments().filter(|arg| self.may_set(arg)) {
            let Some(long) = arg.get_long() else { continue };
            let name = format!("BACKSTITCH_{}", long.to_uppercase().replace('-', "_"));
            let Some(value) = (self.variable)(&name).filter(|value| !value.is_empty()) else { continue };
            match (arg.get_action().takes_values(), value.to_str()) {
                (true, _) => words.extend([format!("--{long}").into(), value]),
                (false, Some("1" | "true" | "yes" | "on")) => words.push(format!("--{long}").into()),
                (false, Some("0" | "false" | "no" | "off")) => {}
                (false, _) => return Err(format!("{name} is {}, not 1 or 0", value.display())),
            }
        }
        Ok(words)
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

    /// Return true if a default may set this option: nothing that was typed excludes it.
    fn may_set(&self, arg: &Arg) -> bool {
        let positional = self.command.get_positionals().take(self.n_positional);
        let mut typed = self.typed.iter().filter_map(|name| known(self.command, name)).chain(positional);
        let excludes = |one: &Arg, other: &Arg| {
            self.command.get_arg_conflicts_with(one).iter().any(|arg| arg.get_id() == other.get_id())
        };
        let is_free = !arg.is_positional() && arg.get_long().is_some_and(|long| !NEVER.contains(&long));
        is_free && typed.all(|typed| !excludes(arg, typed) && !excludes(typed, arg))
    }

    /// Add the options of a file: those at its top, then those of the command's own table.
    fn of_table(&self, table: &Map<String, Value>, words: &mut Vec<OsString>) -> Result<(), String> {
        for (key, value) in table.iter().filter(|(_, value)| !value.is_object()) {
            let name = format!("--{key}");
            match known(self.command, &name) {
                Some(arg) => self.add(arg, value, words)?,
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
            self.add(arg.ok_or_else(missing)?, value, words)?;
        }
        Ok(())
    }

    /// Add an option with its value; a list is the option several times.
    fn add(&self, arg: &Arg, value: &Value, words: &mut Vec<OsString>) -> Result<(), String> {
        let Some(long) = arg.get_long() else { return Ok(()) };
        if NEVER.contains(&long) {
            return Err(format!("{long} stands on the command line alone"));
        }
        if !self.may_set(arg) {
            return Ok(());
        }
        let option = format!("--{long}");
        let text = match value {
            Value::Bool(is_on) if !arg.get_action().takes_values() => {
                words.extend(is_on.then(|| option.into()));
                return Ok(());
            }
            Value::Array(values) => return values.iter().try_for_each(|value| self.add(arg, value, words)),
            Value::String(text) if arg.get_action().takes_values() => self.at_home(text),
            Value::Number(number) if arg.get_action().takes_values() => number.to_string().into(),
            _ if arg.get_action().takes_values() => {
                return Err(format!("{long} is {value}, not a text or a number"));
            }
            _ => return Err(format!("{long} is {value}, not true or false")),
        };
        words.extend([option.into(), text]);
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
        let words = defaults.words(Some(config.as_os_str()))?;
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
        assert_eq!(
            all,
            "--threads 4 --verbose --temp 0.5 --stop a --stop b --model /home/me/m.gguf --temp 1 --threads 2 --lookup"
        );
        assert_eq!(words("threads = 4", &[], "inspect", &[]).unwrap(), [""; 0], "it has no threads");
    }

    #[test]
    fn what_is_typed_excludes_defaults_that_it_conflicts_with() {
        let file = "prompt-cache = 'a'\nlookup = true";
        assert_eq!(words(file, &[], "run", &["--restore"]).unwrap(), ["--lookup"]);
        assert_eq!(words(file, &[], "run", &["-p", "--draft-model"]).unwrap(), ["--prompt-cache", "a"]);
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
