//! Templates as programs whose every step that grows or compares values is metered.
//!
//! The template language has operators and blocks that double a text at the cost of one step, and the engine has no hook
//! for them; nor has it one for comparisons, which go through all there is inside. So the compiled program is rewritten:
//! operators become calls of functions in `operators.rs` that pay first, plain text goes out through the metered
//! formatter, and what calls return is paid for. Positions in
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
/// See [`ADD`].
pub(super) const EQUAL: &str = "==";
/// See [`ADD`].
pub(super) const UNEQUAL: &str = "!=";
/// See [`ADD`].
pub(super) const LESS: &str = "<";
/// See [`ADD`].
pub(super) const AT_MOST: &str = "<=";
/// See [`ADD`].
pub(super) const MORE: &str = ">";
/// See [`ADD`].
pub(super) const AT_LEAST: &str = ">=";
/// See [`ADD`].
pub(super) const IN: &str = "x in y";
/// See [`ADD`].
pub(super) const ITEM: &str = "[x]";
/// Makes a map of keys and values, one after the other.
pub(super) const MAP: &str = "{}";
/// Pays for its argument and returns it, as a list if it is made while it is read.
pub(super) const PAY: &str = "=";
/// Pays for going through a text and returns the argument.
pub(super) const PAY_LOOP: &str = "for";
/// Pays for comparing two values or for looking for one in the other and returns a list of them, last one first, as unpacking wants it.
pub(super) const PAY_PAIR: &str = "x op y op";
/// The same for what is to be cut and the three numbers that say where.
pub(super) const PAY_SLICE: &str = "[x:y:z]";
/// The same for lists that are to be spread out.
pub(super) const PAY_SPREAD: &str = "*x";

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
        start += with_meter(step)?.iter().flatten().count() as u32;
    }
    starts.push(start);
    let mut new = Instructions::new(NAME, program.source());
    for (at, step) in (0..).zip(old) {
        let line = program.get_line(at).and_then(|line| line.try_into().ok()).unwrap_or(0);
        for mut step in with_meter(step)?.into_iter().flatten() {
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

/// At most so many steps stand for one.
const MOST: usize = 4;

/// What stands for one step in the metered program.
fn with_meter<'s>(step: &Instruction<'s>) -> Result<[Option<Instruction<'s>>; MOST], Error> {
    let refused = |what| Err(Error::new(ErrorKind::InvalidOperation, what));
    let call = |name, n_args| Instruction::CallFunction(name, Some(n_args));
    let operator = |name| [Some(call(name, 2)), None, None, None];
    // Calls a function that pays for the topmost values and puts them back.
    let after_paying = |name, n_args: u16, then| {
        [Some(call(name, n_args)), Some(Instruction::UnpackList(n_args.into())), Some(step.clone()), then]
    };
    Ok(match step {
        Instruction::Add => operator(ADD),
        Instruction::Mul => operator(MULTIPLY),
        Instruction::StringConcat => operator(JOIN),
        Instruction::Eq => operator(EQUAL),
        Instruction::Ne => operator(UNEQUAL),
        Instruction::Lt => operator(LESS),
        Instruction::Lte => operator(AT_MOST),
        Instruction::Gt => operator(MORE),
        Instruction::Gte => operator(AT_LEAST),
        Instruction::In => operator(IN),
        Instruction::GetItem => operator(ITEM),
        Instruction::CompareAndPreserve(_) => after_paying(PAY_PAIR, 2, None),
        Instruction::Slice => after_paying(PAY_SLICE, 4, Some(call(PAY, 1))),
        Instruction::UnpackLists(n) => match u16::try_from(*n) {
            Ok(n) => after_paying(PAY_SPREAD, n, None),
            Err(_) => return refused("too many lists to spread out"),
        },
        Instruction::BuildMap(n) => match u16::try_from(n.saturating_mul(2)) {
            Ok(n_args) => [Some(call(MAP, n_args)), None, None, None],
            Err(_) => return refused("too many entries in a map"),
        },
        Instruction::PushLoop(_) => [Some(call(PAY_LOOP, 1)), Some(step.clone()), None, None],
        Instruction::EmitRaw(text) => {
            [Some(Instruction::LoadConst(Value::from(*text))), Some(Instruction::Emit), None, None]
        }
        Instruction::Include(_) | Instruction::LoadBlocks => return refused("there are no other templates"),
        // It compares what it is given with what it was given last.
        Instruction::CallMethod("changed", _) => return refused("`changed` is not known"),
        Instruction::ApplyFilter(..)
        | Instruction::CallFunction(..)
        | Instruction::CallMethod(..)
        | Instruction::CallObject(..) => [Some(step.clone()), Some(call(PAY, 1)), None, None],
        _ => [Some(step.clone()), None, None, None],
    })
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
