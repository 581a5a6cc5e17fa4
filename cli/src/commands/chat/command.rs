//! The commands of a conversation: lines that begin with a slash.

/// The answer to `/help`: everything that can be typed besides messages.
pub const HELP: &str = "\
/list            the messages of this branch, numbered
/edit [N [TEXT]] change message N, or the last, and get another answer
/regen           another answer to the last message (also /retry)
/undo            forget the last message and its answer
/clear           forget the whole conversation
/system [TEXT]   show or replace the system prompt; /system - removes it
/branch          list branches; /branch new: go on in a copy of this one;
                 /branch N: switch to another; /branch drop N: remove it
/save [FILE]     save all branches; without FILE where they were saved last
/load FILE       continue a saved conversation in place of this one;
                 /load! FILE: even if this one is not saved
/stats           tokens, speed and memory
/exit            leave (so do Ctrl-D and the end of the input)
Ctrl-C drops the line that is being typed, or stops the answer.
Up and Down go through what was typed before, Ctrl-R searches it.
A line that ends in \\ continues in the next one. Pasted lines are one message
if the terminal marks pasted text.";

/// A command.
#[derive(Debug, PartialEq, Eq)]
pub enum Command<'a> {
    /// Show all commands.
    Help,
    /// Show the messages of the current branch.
    List,
    /// Change the message of a turn, the last if none is named, into a text, or ask for the text.
    Edit(Option<usize>, Option<&'a str>),
    /// Get another answer to the last message.
    Regenerate,
    /// Forget the last turn.
    Undo,
    /// Forget all turns.
    Clear,
    /// Show the system prompt, or replace it.
    System(Option<&'a str>),
    /// Look after branches.
    Branch(Branch),
    /// Save to a file, the last one if none is named.
    Save(Option<&'a str>),
    /// Continue the conversation in a file.
    Load {
        /// The file.
        path: &'a str,
        /// True to replace a conversation that is not saved.
        force: bool,
    },
    /// Show tokens, speed and memory.
    Stats,
    /// Leave.
    Exit,
}

/// The work of `/branch`.
#[derive(Debug, PartialEq, Eq)]
pub enum Branch {
    /// Show all branches.
    List,
    /// Copy the current branch, and go on in the copy.
    New,
    /// Make a branch the current one.
    Switch(usize),
    /// Remove a branch.
    Drop(usize),
}

impl<'a> Command<'a> {
    /// Read a message as a command; none if it is a message to the model.
    ///
    /// # Errors
    /// One line about a command that does not exist, or lacks something.
    pub fn parse(message: &'a str) -> Option<Result<Self, String>> {
        let text = message.trim();
        let (name, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        // A path or a comment of a program is no command.
        let is_name = name
            .strip_prefix('/')
            .is_some_and(|name| name.chars().all(|c| c.is_ascii_alphabetic() || c == '!'));
        if !is_name || (text.contains('\n') && !matches!(name, "/edit" | "/system")) {
            return None;
        }
        let rest = rest.trim();
        let given = Some(rest).filter(|rest| !rest.is_empty());
        Some(match name {
            "/help" => Ok(Self::Help),
            "/list" => Ok(Self::List),
            "/edit" => edit(rest),
            "/regen" | "/retry" => Ok(Self::Regenerate),
            "/undo" => Ok(Self::Undo),
            "/clear" => Ok(Self::Clear),
            "/system" => Ok(Self::System(given)),
            "/branch" => branch(rest).map(Self::Branch),
            "/save" => Ok(Self::Save(given)),
            "/load" | "/load!" => {
                let load = given.map(|path| Self::Load { path, force: name == "/load!" });
                load.ok_or_else(|| format!("{name} needs the name of a file"))
            }
            "/stats" => Ok(Self::Stats),
            "/exit" | "/quit" => Ok(Self::Exit),
            name => Err(format!("no such command: {name}; try /help")),
        })
    }
}

/// Read what follows `/edit`: a number, or nothing, then a text, or nothing.
fn edit(rest: &str) -> Result<Command<'_>, String> {
    if rest.is_empty() {
        return Ok(Command::Edit(None, None));
    }
    let (number, text) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
    let number =
        number.parse().map_err(|_| format!("/edit: {number} is no number of a message; try /list"))?;
    Ok(Command::Edit(Some(number), Some(text.trim()).filter(|text| !text.is_empty())))
}

/// Read what follows `/branch`.
fn branch(rest: &str) -> Result<Branch, String> {
    let number = |text: &str| {
        let number = text.trim().parse::<usize>();
        number.map_err(|_| format!("/branch: {text} is no number of a branch; try /branch"))
    };
    match rest.split_once(char::is_whitespace) {
        None if rest.is_empty() => Ok(Branch::List),
        None if rest == "new" => Ok(Branch::New),
        Some(("drop", rest)) => number(rest).map(Branch::Drop),
        _ => number(rest).map(Branch::Switch),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_told_from_messages() {
        for message in ["hello", "/usr/bin/env", "// a comment", "/exit\nnow", ""] {
            assert_eq!(Command::parse(message), None, "{message}");
        }
        let cases = [
            (" /exit ", Command::Exit),
            ("/retry", Command::Regenerate),
            ("/edit", Command::Edit(None, None)),
            ("/edit 2", Command::Edit(Some(2), None)),
            ("/edit 2 one\ntwo", Command::Edit(Some(2), Some("one\ntwo"))),
            ("/system be brief", Command::System(Some("be brief"))),
            ("/system", Command::System(None)),
            ("/branch", Command::Branch(Branch::List)),
            ("/branch new", Command::Branch(Branch::New)),
            ("/branch 3", Command::Branch(Branch::Switch(3))),
            ("/branch drop 3", Command::Branch(Branch::Drop(3))),
            ("/save", Command::Save(None)),
            ("/save my chat.bst", Command::Save(Some("my chat.bst"))),
            ("/load a", Command::Load { path: "a", force: false }),
            ("/load! a b", Command::Load { path: "a b", force: true }),
        ];
        for (text, command) in cases {
            assert_eq!(Command::parse(text), Some(Ok(command)), "{text}");
        }
    }

    #[test]
    fn what_a_command_lacks_is_told() {
        for (text, told) in [
            ("/sing", "no such command: /sing"),
            ("/load", "/load needs"),
            ("/load!", "/load! needs"),
            ("/edit x", "/list"),
            ("/branch x", "/branch"),
        ] {
            let error = Command::parse(text).unwrap().unwrap_err();
            assert!(error.contains(told), "{error}");
        }
    }

    #[test]
    fn the_help_fits_80_columns() {
        assert!(HELP.lines().all(|line| line.chars().count() <= 80));
    }
}
