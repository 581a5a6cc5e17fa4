//! Templates as programs whose every growing step is metered.
//!
//! The template language has operators and blocks that double a text at the cost of one step, and the engine has no hook
//! for them. So the compiled program is rewritten: operators that join or repeat become calls of functions in `library.rs`
//! that pay first, plain text goes out through the metered formatter, and what calls return is paid for. Positions in
//! the program move, so jumps are moved with them.

use alloc::borrow::Cow;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use minijinja::machinery::{CodeGenerator, Instruction, Instructions, parse};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::Value;
use minijinja::{Error, ErrorKind};

/// Names of the functions that stand in for operators: no template can write or hide them.
pub(super) const ADD: &str = "+";
/// See [`ADD`].
pub(super) const MULTIPLY: &str = "*";
/// See [`ADD`].
pub(super) const JOIN: &str = "~";
/// Pays for its argument and returns it.
pub(super) const PAY: &str = "=";

/// A compiled and metered template.
pub(super) struct Program<'s> {
    pub(super) main: Instructions<'s>,
    pub(super) blocks: BTreeMap<&'s str, Instructions<'s>>,
}

const NAME: &str = "chat template";

/// Compiles `source`.
pub(super) fn compile(source: &str) -> Result<Program<'_>, Error> {
    let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?;
    let tree = parse(source, NAME, syntax)?;
    let mut generator = CodeGenerator::new(NAME, source);
    generator.compile_stmt(&tree);
    let (main, blocks) = generator.finish();
    let blocks =
        blocks.iter().map(|(&name, block)| Ok((name, metered(block)?))).collect::<Result<_, Error>>()?;
    Ok(Program { main: metered(&main)?, blocks })
}

/// The same program with a meter in it.
fn metered<'s>(program: &Instructions<'s>) -> Result<Instructions<'s>, Error> {
    let old: Vec<_> = (0..).map_while(|at| program.get(at)).collect();
    let mut starts = Vec::with_capacity(old.len() + 1);
    let mut start = 0;
    for step in &old {
        starts.push(start);
        start += with_meter(step).iter().flatten().count() as u32;
    }
    starts.push(start);
    let mut new = Instructions::new(NAME, program.source());
    for (at, step) in (0..).zip(old) {
        let line = program.get_line(at).and_then(|line| line.try_into().ok()).unwrap_or(0);
        for mut step in with_meter(step).into_iter().flatten() {
            if let Some(target) = target(&mut step) {
                let moved = starts.get(*target as usize).copied();
                *target =
                    moved.ok_or_else(|| Error::new(ErrorKind::BadSerialization, "a jump leads nowhere"))?;
            }
            new.add_with_line(step, line);
        }
    }
    Ok(new)
}

/// What stands for one step in the metered program.
fn with_meter<'s>(step: &Instruction<'s>) -> [Option<Instruction<'s>>; 2] {
    let call = |name| Some(Instruction::CallFunction(name, Some(2)));
    match step {
        Instruction::Add => [call(ADD), None],
        Instruction::Mul => [call(MULTIPLY), None],
        Instruction::StringConcat => [call(JOIN), None],
        Instruction::EmitRaw(text) => {
            [Some(Instruction::LoadConst(Value::from(*text))), Some(Instruction::Emit)]
        }
        Instruction::Slice
        | Instruction::ApplyFilter(..)
        | Instruction::CallFunction(..)
        | Instruction::CallMethod(..)
        | Instruction::CallObject(..) => [Some(step.clone()), Some(Instruction::CallFunction(PAY, Some(1)))],
        _ => [Some(step.clone()), None],
    }
}

/// Where a step may continue other than at the next one.
fn target<'a>(step: &'a mut Instruction<'_>) -> Option<&'a mut u32> {
    match step {
        Instruction::Iterate(target)
        | Instruction::Jump(target)
        | Instruction::JumpIfFalse(target)
        | Instruction::JumpIfFalseOrPop(target)
        | Instruction::JumpIfTrueOrPop(target)
        | Instruction::BuildMacro(_, target, _) => Some(target),
        _ => None,
    }
}

/// `source` with `{% if true %}` and `{% endif %}` for `{% generation %}` and `{% endgeneration %}`, which mark what to train on and
/// mean nothing here.
pub(super) fn without_generation_tags(source: &str) -> Cow<'_, str> {
    if !source.contains("generation") {
        return source.into();
    }
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some((before, tag)) = rest.split_once("{%") {
        out.push_str(before);
        out.push_str("{%");
        rest = tag;
        let word = tag.trim_start_matches(['-', '+']).trim_start();
        for (name, instead) in [("generation", "if true"), ("endgeneration", "endif")] {
            let after = word.strip_prefix(name);
            if let Some(after) =
                after.filter(|after| after.trim_start().trim_start_matches(['-', '+']).starts_with("%}"))
            {
                out.push_str(tag.get(..tag.len() - word.len()).unwrap_or(""));
                out.push_str(instead);
                rest = after;
            }
        }
    }
    out.push_str(rest);
    out.into()
}
