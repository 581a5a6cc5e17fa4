//! Formatting as in Python: `'…' % arguments`, the filter `format`, and the method `format`.
//!
//! Both mini-languages are those of Python
//! (<https://docs.python.org/3/library/string.html#formatspec>). Widths and precisions are bounded,
//! and padding is charged to the budget.

use alloc::format;
use alloc::string::{String, ToString};

use super::arguments::Arguments;
use super::error::{Eval, Fault};
use super::heap::Val;
use super::machine::Machine;
use super::numbers;
use super::text::{Buf, Origin, Str};

/// The format of one value.
#[derive(Clone, Debug, Default)]
struct Spec {
    /// The character that pads the field; a space by default.
    fill: Option<char>,
    /// The side to pad: `<`, `>`, `^` or `=`.
    align: Option<char>,
    /// The sign of numbers that are not negative: `+` or a space.
    sign: Option<char>,
    /// True for `#`, which adds the prefix of a base.
    alternate: bool,
    /// True for `0`, which pads numbers with zeros behind the sign.
    zero: bool,
    /// The width of the field, in characters.
    width: usize,
    /// The separator between groups of three digits.
    grouping: Option<char>,
    /// The digits of a float, or the most characters of a text.
    precision: Option<usize>,
    /// The letter of the format, such as `d` or `s`.
    kind: Option<char>,
}

/// The widest field and the most digits. No template needs more.
const MOST: usize = 1 << 12;

/// Read a number at the start of `rest`; `None` if there is none.
///
/// # Errors
/// [`Fault::Failed`] for a number above [`MOST`].
fn digits(rest: &mut &str) -> Eval<Option<usize>> {
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let (number, after) = rest.split_at(end);
    *rest = after;
    match number.parse() {
        Ok(n) if n <= MOST => Ok(Some(n)),
        Err(_) if number.is_empty() => Ok(None),
        _ => Err(Fault::failed("a field wider than any text needs")),
    }
}

/// Skip the next character if it is one of `wanted`, and return it.
fn pass(rest: &mut &str, wanted: &str) -> Option<char> {
    let c = rest.chars().next().filter(|c| wanted.contains(*c))?;
    *rest = rest.get(c.len_utf8()..).unwrap_or("");
    Some(c)
}

/// Evaluate `template % args`, or the filter `format` with named arguments: `'%s is %.1f' % ('pi',
/// 3.14)` is `'pi is 3.1'`.
///
/// # Errors
/// [`Fault::Failed`] if arguments are missing or left over, or do not fit their letter.
pub(super) fn percent(
    machine: &mut Machine<'_, '_>,
    template: &Str,
    args: &[Val],
    named: &[(Str, Val)],
) -> Eval<Str> {
    machine.budget.bytes(template.len().saturating_mul(2))?;
    let mut out = Buf::default();
    let mut next = args.iter();
    let mut rest = template.as_str();
    while let Some((before, after)) = rest.split_once('%') {
        out.push_str(&template.subslice(before));
        rest = after;
        let mut value = None;
        if let Some((name, after)) = rest.strip_prefix('(').and_then(|rest| rest.split_once(')')) {
            rest = after;
            value = Some(by_name(machine, name, args, named)?);
        }
        let mut spec = Spec::default();
        while let Some(flag) = pass(&mut rest, "#0- +") {
            match flag {
                '#' => spec.alternate = true,
                '0' => spec.zero = true,
                '-' => spec.align = Some('<'),
                sign => spec.sign = Some(sign),
            }
        }
        spec.width = digits(&mut rest)?.unwrap_or(0);
        if pass(&mut rest, ".").is_some() {
            spec.precision = Some(digits(&mut rest)?.unwrap_or(0));
        }
        spec.kind = pass(&mut rest, "diouxXeEfFgGcrsa%");
        if spec.kind == Some('%') {
            out.push("%", Origin::Value);
            continue;
        }
        let value = value.or_else(|| next.next().cloned());
        let value = value.ok_or_else(|| Fault::failed("not enough arguments for the format"))?;
        spec.align = spec.align.or(Some('>'));
        let text = converted(machine, &value, &mut spec)?;
        pad(machine, &text, &spec, &mut out)?;
    }
    if next.next().is_some() && !matches!(args, [Val::Dict(_)]) {
        return Err(Fault::failed("too many arguments for the format"));
    }
    out.push_str(&template.subslice(rest));
    Ok(out.finish())
}

/// Return the argument called `name`: a named one, or an entry of the only dict.
fn by_name(machine: &mut Machine<'_, '_>, name: &str, args: &[Val], named: &[(Str, Val)]) -> Eval<Val> {
    machine.budget.values(named.len() + 1)?;
    if let Some((_, value)) = named.iter().find(|(known, _)| known.as_str() == name) {
        return Ok(value.clone());
    }
    if let [Val::Dict(dict)] = args {
        let found = machine.entry(*dict, &Str::template(name))?;
        return found.ok_or_else(|| Fault::failed(format!("the format finds no {name:?}")));
    }
    Err(Fault::failed(format!("the format finds no {name:?}")))
}

/// Return the text of a value for `%`, before padding.
fn converted(machine: &mut Machine<'_, '_>, value: &Val, spec: &mut Spec) -> Eval<Str> {
    let kind = spec.kind.ok_or_else(|| Fault::failed("a format without its letter"))?;
    match kind {
        's' => machine.text_of(value).map(|text| cut(&text, spec.precision)),
        'r' | 'a' => machine.repr_of(value).map(|text| cut(&text, spec.precision)),
        'c' => match value {
            // The number chooses the character, so the character is input as much as the number.
            Val::Int(n) => {
                let c = u32::try_from(*n).ok().and_then(char::from_u32);
                let c = c.ok_or_else(|| Fault::failed("a number that is no character"))?;
                Ok(Str::new(c.to_string(), Origin::Value))
            }
            Val::Str(text) if text.as_str().chars().count() == 1 => Ok(text.clone()),
            other => Err(Fault::failed(format!("{} as one character", other.kind()))),
        },
        _ => {
            if matches!(kind, 'd' | 'i' | 'u')
                && let Val::Float(x) = value
            {
                let n = numbers::truncated(*x).ok_or_else(|| Fault::failed("a number beyond 64 bits"))?;
                return number(&Val::Int(n), spec).map(|text| Str::template(&text));
            }
            if matches!(kind, 'i' | 'u') {
                spec.kind = Some('d');
            }
            number(value, spec).map(|text| Str::template(&text))
        }
    }
}

/// Return the first `most` characters.
fn cut(text: &Str, most: Option<usize>) -> Str {
    let end = most.and_then(|most| text.as_str().char_indices().nth(most));
    end.map_or_else(|| text.clone(), |(end, _)| text.slice(0..end))
}

/// Return a number in its format, with its sign and leading zeros.
fn number(value: &Val, spec: &mut Spec) -> Eval<String> {
    let kind = spec.kind.unwrap_or(if let Val::Float(_) = value { 'r' } else { 'd' });
    let (negative, digits) = match (kind, value.as_int(), value.as_float()) {
        ('d' | 'n', Some(n), _) => (n < 0, n.unsigned_abs().to_string()),
        ('x' | 'X' | 'o' | 'b', Some(n), _) => (n < 0, based(n.unsigned_abs(), kind, spec.alternate)),
        ('e' | 'E' | 'f' | 'F' | 'g' | 'G' | '%' | 'r', _, Some(x)) => {
            (x.is_sign_negative() && !x.is_nan(), float(libm::fabs(x), kind, spec))
        }
        _ => {
            return Err(Fault::failed(format!(
                "{} cannot be written with the format {kind:?}",
                value.kind()
            )));
        }
    };
    let digits = match spec.grouping {
        Some(separator) => grouped(&digits, separator),
        None => digits,
    };
    let sign = match (negative, spec.sign) {
        (true, _) => "-",
        (false, Some('+')) => "+",
        (false, Some(' ')) => " ",
        _ => "",
    };
    let zeros = if spec.zero && spec.align.is_none_or(|align| align == '>') {
        spec.width.saturating_sub(sign.len() + digits.len())
    } else {
        0
    };
    Ok(format!("{sign}{}{digits}", "0".repeat(zeros)))
}

/// Return a number in another base, with its prefix if `alternate`.
fn based(n: u64, kind: char, alternate: bool) -> String {
    match (kind, alternate) {
        ('x', false) => format!("{n:x}"),
        ('x', true) => format!("{n:#x}"),
        ('X', false) => format!("{n:X}"),
        ('X', true) => format!("0X{n:X}"),
        ('o', false) => format!("{n:o}"),
        ('o', true) => format!("{n:#o}"),
        (_, false) => format!("{n:b}"),
        (_, true) => format!("{n:#b}"),
    }
}

/// Return the digits of a number that is not negative.
fn float(x: f64, kind: char, spec: &Spec) -> String {
    if !x.is_finite() {
        return numbers::repr(x);
    }
    let precision = spec.precision.unwrap_or(6);
    match kind {
        'f' | 'F' => format!("{x:.precision$}"),
        '%' => format!("{:.precision$}%", x * 100.0),
        'e' | 'E' => {
            let (digits, exponent) = numbers::scientific(&format!("{x:.precision$e}"));
            let text = numbers::with_exponent(&digits, exponent);
            if kind == 'E' { text.to_uppercase() } else { text }
        }
        'r' if spec.precision.is_none() => numbers::repr(x),
        _ => {
            let text = general(x, precision.max(1));
            if kind == 'G' { text.to_uppercase() } else { text }
        }
    }
}

/// Return so many significant digits, in the shorter of the two notations.
fn general(x: f64, precision: usize) -> String {
    let (digits, power) = numbers::scientific(&format!("{x:.*e}", precision - 1));
    let strip = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_string(),
        false => text.to_string(),
    };
    if (-4..precision as i64).contains(&power.into()) {
        return strip(&format!("{x:.*}", (precision as i64 - 1 - i64::from(power)).max(0) as usize));
    }
    numbers::with_exponent(&strip(&digits), power)
}

/// Return digits in groups of three before the point.
fn grouped(digits: &str, separator: char) -> String {
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    let (whole, rest) = digits.split_at(end);
    let mut out = String::new();
    for (i, c) in whole.chars().enumerate() {
        if i > 0 && (whole.len() - i).is_multiple_of(3) {
            out.push(separator);
        }
        out.push(c);
    }
    out + rest
}

/// Append a text in a field of the wanted width. The fill character comes from the format, which
/// may be input, so it counts as input.
fn pad(machine: &mut Machine<'_, '_>, text: &Str, spec: &Spec, out: &mut Buf) -> Eval<()> {
    machine.budget.bytes(text.len() + spec.width)?;
    let missing = spec.width.saturating_sub(text.as_str().chars().count());
    let left = match spec.align {
        Some('>') => missing,
        Some('^') => missing / 2,
        _ => 0,
    };
    let fill = spec.fill.unwrap_or(' ');
    (0..left).for_each(|_| out.push_char(fill, Origin::Value));
    out.push_str(text);
    (left..missing).for_each(|_| out.push_char(fill, Origin::Value));
    Ok(())
}

/// Evaluate `template.format(…)`: `'{} {name:>4}'.format(1, name=2)` is `'1    2'`.
///
/// # Errors
/// [`Fault::Failed`] if a field names no argument or cannot be parsed.
pub(super) fn braces(machine: &mut Machine<'_, '_>, template: &Str, given: Arguments) -> Eval<Str> {
    machine.budget.bytes(template.len().saturating_mul(2))?;
    let mut out = Buf::default();
    let mut automatic = 0;
    let mut rest = template.as_str();
    while let Some(at) = rest.find(['{', '}']) {
        let (before, from) = rest.split_at(at);
        out.push_str(&template.subslice(before));
        if from.starts_with("{{") || from.starts_with("}}") {
            out.push_str(&template.subslice(from.get(..1).unwrap_or("")));
            rest = from.get(2..).unwrap_or("");
            continue;
        }
        let field = from.strip_prefix('{').and_then(|from| from.split_once('}'));
        let (field, after) = field.ok_or_else(|| Fault::failed("a single brace in the format"))?;
        rest = after;
        let (field_name, spec) = field.split_once(':').unwrap_or((field, ""));
        let (field_name, conversion) = field_name.split_once('!').unwrap_or((field_name, ""));
        let value = field_value(machine, field_name, &given, &mut automatic)?;
        let value = match conversion {
            "" => value,
            "s" => Val::Str(machine.text_of(&value)?),
            "r" | "a" => Val::Str(machine.repr_of(&value)?),
            _ => return Err(Fault::failed("the format knows the conversions !s, !r and !a")),
        };
        formatted(machine, &value, spec, &mut out)?;
    }
    out.push_str(&template.subslice(rest));
    Ok(out.finish())
}

/// Return the value that a field names: `0`, `name`, nothing for the next one, followed by
/// attributes and indices.
fn field_value(
    machine: &mut Machine<'_, '_>,
    field_name: &str,
    given: &Arguments,
    automatic: &mut usize,
) -> Eval<Val> {
    let end = field_name.find(['.', '[']).unwrap_or(field_name.len());
    let (name, mut rest) = field_name.split_at(end);
    let number = if name.is_empty() {
        *automatic += 1;
        Some(*automatic - 1)
    } else {
        name.parse().ok()
    };
    machine.budget.values(given.named.len() + 1)?;
    let found = match number {
        Some(n) => given.list.get(n),
        None => given.named.iter().find(|(known, _)| known.as_str() == name).map(|(_, value)| value),
    };
    let mut value = found.cloned().ok_or_else(|| Fault::failed(format!("the format finds no {name:?}")))?;
    while !rest.is_empty() {
        let (key, after) = if let Some(rest) = rest.strip_prefix('.') {
            rest.split_at(rest.find(['.', '[']).unwrap_or(rest.len()))
        } else {
            let inner = rest.strip_prefix('[').and_then(|rest| rest.split_once(']'));
            inner.ok_or_else(|| Fault::failed("the format's field cannot be read"))?
        };
        let key = key.parse().map_or_else(|_| Val::Str(Str::template(key)), Val::Int);
        value = machine.item(&value, &key)?;
        rest = after;
    }
    Ok(value)
}

/// Append a value in the format behind the colon of a field.
fn formatted(machine: &mut Machine<'_, '_>, value: &Val, spec: &str, out: &mut Buf) -> Eval<()> {
    let mut spec = read_spec(spec)?;
    let is_number = value.as_float().is_some() && !(matches!(value, Val::Bool(_)) && spec.kind.is_none());
    let text = if spec.kind == Some('c') {
        converted(machine, value, &mut spec)?
    } else if is_number {
        spec.align = spec.align.or(Some('>'));
        Str::template(&number(value, &mut spec)?)
    } else {
        let text = machine.text_of(value)?;
        if !matches!(spec.kind, None | Some('s')) {
            return Err(Fault::failed(format!("{} is no number to format", value.kind())));
        }
        cut(&text, spec.precision)
    };
    pad(machine, &text, &spec, out)
}

/// Parse `[[fill]align][sign][#][0][width][,][.precision][type]`.
fn read_spec(text: &str) -> Eval<Spec> {
    let mut spec = Spec::default();
    let mut rest = text;
    let mut chars = text.chars();
    if let (Some(fill), Some(align @ ('<' | '>' | '^' | '='))) = (chars.next(), chars.next()) {
        (spec.fill, spec.align) = (Some(fill), Some(align));
        rest = chars.as_str();
    } else {
        spec.align = pass(&mut rest, "<>^=");
    }
    spec.sign = pass(&mut rest, "+- ");
    spec.alternate = pass(&mut rest, "#").is_some();
    spec.zero = pass(&mut rest, "0").is_some();
    spec.width = digits(&mut rest)?.unwrap_or(0);
    spec.grouping = pass(&mut rest, ",_");
    if pass(&mut rest, ".").is_some() {
        spec.precision =
            Some(digits(&mut rest)?.ok_or_else(|| Fault::failed("a format without its precision"))?);
    }
    spec.kind = pass(&mut rest, "bcdeEfFgGnosxX%");
    if rest.is_empty() { Ok(spec) } else { Err(Fault::failed("the format's field cannot be read")) }
}
