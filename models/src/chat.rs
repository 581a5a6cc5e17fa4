//! Chat templates: from messages to the text a model was trained to continue.
//!
//! Model files carry a template in Jinja, a small programming language, written by whoever made the file. So a template
//! is run like any other hostile program: it gets a number of steps, a number of bytes it may make, a depth of calls, a
//! stack of its own, and nothing of the machine but the date. [`ChatTemplate`] is what callers need; `meter.rs` counts
//! bytes, `walk.rs` goes through values at a price, `program.rs` puts a meter into the compiled template, `operators.rs` is what
//! its operators do, `library.rs` is what templates may call, `date.rs` writes the date.

mod date;
mod library;
mod meter;
mod operators;
mod program;
mod walk;

use alloc::boxed::Box;
use alloc::string::{String, ToString};
use core::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use minijinja::value::Value;
use minijinja::{AutoEscape, Environment, machinery};

use self::meter::{Meter, Stop};

/// The longest template. The longest known one has 40 kB.
const MAX_SOURCE: usize = 1 << 17;
/// The longest tag of a template: parsing takes time quadratic in it and stack linear in it.
const MAX_TAG: usize = 1 << 14;
/// Steps for the template itself and for each message.
const STEPS: u64 = 100_000;
const STEPS_PER_MESSAGE: u64 = 4_000;
/// Bytes of text that may be made, and their number for each byte of the input.
const BYTES: u64 = 1 << 24;
const BYTES_PER_BYTE: u64 = 64;
/// How deep macros and loops may call each other.
const DEPTH: usize = 100;
/// Stack of the thread that runs a template: values can be nested as deep as there are steps. Only what is touched takes memory.
#[cfg(not(target_family = "wasm"))]
const STACK: usize = 1 << 28;

/// One message of a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// Who speaks: `system`, `user`, `assistant`, or what else the template knows.
    pub role: &'a str,
    /// What is said.
    pub content: &'a str,
}

/// Whether the text ends where the assistant is to speak next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GenerationPrompt {
    /// It ends with the last message.
    No,
    /// It ends with the beginning of the assistant's next message.
    Yes,
}

/// The template of a model.
///
/// ```
/// use backstitch_models::chat::{ChatTemplate, GenerationPrompt, Message};
///
/// let template = ChatTemplate::from_source("{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}{% endfor %}{{ eos_token }}")?;
/// let messages = [Message { role: "user", content: " Hello " }];
/// assert_eq!(template.render(&messages, GenerationPrompt::No, "<s>", "</s>")?, "<user>Hello</s>");
/// # Ok::<(), backstitch_models::chat::ChatError>(())
/// ```
#[derive(Clone, Debug)]
pub struct ChatTemplate {
    source: Box<str>,
}

impl ChatTemplate {
    /// Takes a template as it stands in `tokenizer.chat_template`.
    ///
    /// # Errors
    /// [`ChatError::TooLong`] beyond 128 kB or for a tag beyond 16 kB, [`ChatError::Syntax`].
    pub fn from_source(source: &str) -> Result<Self, ChatError> {
        if source.len() > MAX_SOURCE || longest_tag(source) > MAX_TAG {
            return Err(ChatError::TooLong);
        }
        let source: Box<str> = program::without_generation_tags(source).into();
        on_its_own_stack(|| {
            program::compile(&source).map(|_| ()).map_err(|error| ChatError::syntax(&error))
        })?;
        Ok(Self { source })
    }

    /// The text for `messages`. `bos` and `eos` are the texts of the tokens at the beginning and end of a sequence. The
    /// date, for templates that want it, is today's in UTC.
    ///
    /// # Errors
    /// [`ChatError::Raised`] when the template refuses the messages, [`ChatError::Steps`], [`ChatError::Bytes`] and
    /// [`ChatError::Failed`] when it does not get to its end.
    pub fn render(
        &self,
        messages: &[Message<'_>],
        prompt: GenerationPrompt,
        bos: &str,
        eos: &str,
    ) -> Result<String, ChatError> {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
        on_its_own_stack(|| self.render_at(now, messages, prompt, bos, eos))
    }

    fn render_at(
        &self,
        now: Duration,
        messages: &[Message<'_>],
        prompt: GenerationPrompt,
        bos: &str,
        eos: &str,
    ) -> Result<String, ChatError> {
        let n_bytes: usize = messages.iter().map(|message| message.role.len() + message.content.len()).sum();
        let meter = Arc::new(Meter::new(BYTES + BYTES_PER_BYTE * n_bytes as u64));
        let mut env = Environment::empty();
        env.set_fuel(Some(STEPS + STEPS_PER_MESSAGE * messages.len() as u64));
        env.set_recursion_limit(DEPTH);
        library::fill(&mut env, &meter, now);
        let program = program::compile(&self.source).map_err(|error| ChatError::syntax(&error))?;
        let mut text = String::new();
        let mut out = machinery::make_string_output(&mut text);
        let input = input(messages, prompt, bos, eos);
        let end = machinery::eval(&env, &program.main, input, &program.blocks, &mut out, AutoEscape::None);
        match end {
            Ok(_) => {
                drop(end);
                drop(out);
                Ok(text)
            }
            Err(error) => Err(ChatError::stopped(&error, meter.stop())),
        }
    }
}

/// What templates see.
fn input(messages: &[Message<'_>], prompt: GenerationPrompt, bos: &str, eos: &str) -> Value {
    let messages = messages.iter().map(|message| {
        Value::from_pairs([("role", Value::from(message.role)), ("content", Value::from(message.content))])
    });
    Value::from_pairs([
        ("messages", messages.collect()),
        ("add_generation_prompt", Value::from(prompt == GenerationPrompt::Yes)),
        ("bos_token", Value::from(bos)),
        ("eos_token", Value::from(eos)),
    ])
}

/// The length of the longest `{{ … }}` or `{% … %}`.
fn longest_tag(source: &str) -> usize {
    let (mut longest, mut start) = (0, 0);
    for (at, pair) in source.as_bytes().windows(2).enumerate() {
        if pair == b"}}" || pair == b"%}" {
            longest = longest.max(at - start);
            start = at;
        } else if pair == b"{{" || pair == b"{%" {
            start = start.max(at);
        }
    }
    longest
}

/// Runs `work` where deep recursion has room.
#[cfg(not(target_family = "wasm"))]
fn on_its_own_stack<T: Send>(work: impl FnOnce() -> Result<T, ChatError> + Send) -> Result<T, ChatError> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, work);
        let ended = thread.map_err(|_| ChatError::Thread)?.join();
        ended.unwrap_or(Err(ChatError::Thread))
    })
}

/// Threads have no place here; the host bounds the stack and survives its end.
#[cfg(target_family = "wasm")]
fn on_its_own_stack<T>(work: impl FnOnce() -> Result<T, ChatError>) -> Result<T, ChatError> {
    work()
}

/// Why a template gave no text.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChatError {
    /// The template, or one of its tags, is longer than any real one.
    TooLong,
    /// The template cannot be read.
    Syntax {
        /// Where, counted from 1; 0 if unknown.
        line: usize,
        /// What is wrong.
        detail: Box<str>,
    },
    /// The template refuses the messages and says why.
    Raised {
        /// In its own words.
        message: Box<str>,
    },
    /// The template took more steps than any real one needs for so many messages: it loops.
    Steps,
    /// The template made more text than any real one needs for such messages.
    Bytes,
    /// Something the template does has no meaning.
    Failed {
        /// Where, counted from 1; 0 if unknown.
        line: usize,
        /// What is wrong.
        detail: Box<str>,
    },
    /// There is no thread to run the template on.
    Thread,
}

impl ChatError {
    fn syntax(error: &minijinja::Error) -> Self {
        Self::Syntax { line: error.line().unwrap_or(0), detail: cause(error) }
    }

    fn stopped(error: &minijinja::Error, stop: Option<Stop>) -> Self {
        match stop {
            Some(Stop::Raised(message)) => Self::Raised { message },
            Some(Stop::Bytes) => Self::Bytes,
            None if error.kind() == minijinja::ErrorKind::OutOfFuel => Self::Steps,
            None => Self::Failed { line: error.line().unwrap_or(0), detail: cause(error) },
        }
    }
}

/// What the innermost error says, at most 200 characters of it: it can quote the template.
fn cause(error: &minijinja::Error) -> Box<str> {
    let mut innermost = error;
    while let Some(inner) = core::error::Error::source(innermost).and_then(|source| source.downcast_ref()) {
        innermost = inner;
    }
    let text = innermost.detail().map_or_else(|| innermost.kind().to_string(), ToString::to_string);
    text.chars().filter(|c| !c.is_control()).take(200).collect::<String>().into()
}

impl fmt::Display for ChatError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong => f.write_str("the chat template is too long; give another one"),
            Self::Syntax { line, detail } => {
                write!(f, "the chat template cannot be read: line {line}: {detail}")
            }
            Self::Raised { message } => write!(f, "the chat template refuses these messages: {message}"),
            Self::Steps => {
                f.write_str("the chat template takes too many steps, it may loop; give another one")
            }
            Self::Bytes => f.write_str("the chat template makes too much text; give another one"),
            Self::Failed { line, detail } => write!(f, "the chat template fails: line {line}: {detail}"),
            Self::Thread => {
                f.write_str("there is no thread to run the chat template on; close other programs")
            }
        }
    }
}

impl core::error::Error for ChatError {}

#[cfg(test)]
mod tests {
    use super::*;

    const TALK: [Message<'_>; 2] =
        [Message { role: "user", content: " Hi\n" }, Message { role: "assistant", content: "Hello!" }];

    fn render(source: &str) -> Result<String, ChatError> {
        ChatTemplate::from_source(source)?.render(&TALK, GenerationPrompt::Yes, "<s>", "</s>")
    }

    #[test]
    fn templates_see_messages_tokens_and_the_prompt() {
        let cases = [
            (
                "{{ bos_token }}{% for m in messages %}[{{ m['role'] }}|{{ m.content }}]{% endfor %}",
                "<s>[user| Hi\n][assistant|Hello!]",
            ),
            ("{% if add_generation_prompt %}go{% endif %}{{ eos_token }}", "go</s>"),
            (
                "{% for m in messages %}\n  {% if loop.last %}\n{{ loop.index }}\n  {% endif %}\n{% endfor %}\n",
                "2\n",
            ),
            (
                "{{ messages | length }}{{ messages[-1].content }}{{ tools is defined }}{{ tools is none }}",
                "2Hello!FalseFalse",
            ),
        ];
        for (source, wanted) in cases {
            assert_eq!(render(source).as_deref(), Ok(wanted), "{source}");
        }
    }

    #[test]
    fn templates_in_the_wild_find_what_they_call() {
        let cases = [
            ("{{ messages[0].content.strip() + '|' + messages[0]['content'] | trim }}", "Hi|Hi"),
            ("{{ 'a,b,c'.split(',')[-1] ~ 'xyx'.replace('x', 'zz') ~ ', '.join(['p', 'q']) }}", "czzyzzp, q"),
            (
                "{{ 'abc'.startswith('ab') and not 'abc'.endswith('ab') }}{{ 'Abc'.upper() }}{{ 'a b'.title() }}",
                "TrueABCA B",
            ),
            ("{% for k, v in {'b': 1, 'a': [2]}.items() %}{{ k }}={{ v }};{% endfor %}", "a=[2];b=1;"),
            (
                "{% set ns = namespace(n=0, s='') %}{% for m in messages %}{% set ns.n = ns.n + 2 %}{% set ns.s = ns.s + m.role[0] %}{% endfor %}{{ ns.n }}{{ ns.s }}",
                "4ua",
            ),
            (
                "{% macro f(x, y=3) %}<{{ x * y }}>{% endmacro %}{{ f(2) }}{{ f('ab', y=2) }}{{ f([1], 2) | length }}",
                "<6><abab>8",
            ),
            (
                "{% for x in range(5) %}{% if x == 3 %}{% break %}{% endif %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% endfor %}",
                "02",
            ),
            (
                "{% set x %}a{{ 1 + 2.5 }}{% endset %}{{ x * 2 }}{{ (['a'] + ['b']) | join('-') }}{{ 'n: %s' }}",
                "a3.5a3.5a-bn: %s",
            ),
            (
                "{{ {'b': 'é\"\n', 'a': [1, true, none, 1.5]} | tojson }}",
                r#"{"a": [1, true, null, 1.5], "b": "é\"\n"}"#,
            ),
            ("{{ [{'a': []}] | tojson(indent=2) }}", "[\n  {\n    \"a\": []\n  }\n]"),
            ("{{ 'a\nb\n\nc' | indent(2) }}|{{ 'x' | indent(width=1, first=true) }}", "a\n  b\n\n  c| x"),
            ("{% generation %}a{% endgeneration %}{%- generation -%} b {%- endgeneration -%} c", "abc"),
            (
                "{{ messages | selectattr('role', 'equalto', 'user') | map(attribute='content') | list }}",
                "[' Hi\\n']",
            ),
            (
                "{{ messages[1:] | length }}{{ messages[0].get('name', 'none') }}{{ 'x' if messages[0].name else 'y' }}",
                "1noney",
            ),
            (
                "{% for m in messages recursive %}{{ m.role }}{% endfor %}{% filter upper %}abc{% endfilter %}",
                "userassistantABC",
            ),
            ("{% block b %}in{% endblock %}{% for m in [] %}{% else %}none{% endfor %}", "innone"),
            (
                "{{ 3 * 4 - 2 ** 3 // 2 + 7 % 4 }}{{ true + 1 }}{{ 'a' ~ 1 ~ none }}{{ 0.5 * 4 }}",
                "112a1None2.0",
            ),
        ];
        backstitch_testing::each(cases, |&(source, wanted)| {
            assert_eq!(render(source).as_deref(), Ok(wanted))
        });
    }

    #[test]
    fn a_template_may_refuse_messages_in_its_own_words() {
        let refused = render(
            "{% if messages[0].role != 'system' %}{{ raise_exception('No ' ~ 'system!') }}{% endif %}",
        );
        assert_eq!(refused, Err(ChatError::Raised { message: "No system!".into() }));
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        assert!(matches!(render("a\n{% for %}"), Err(ChatError::Syntax { line: 2, .. })));
        assert!(matches!(render("a\n\n{{ 1 + 'a' }}"), Err(ChatError::Failed { line: 3, .. })));
        assert!(matches!(
            render("{{ x | frobnicate }}"),
            Err(ChatError::Syntax { .. } | ChatError::Failed { .. })
        ));
        assert_eq!(render(&"x".repeat(MAX_SOURCE + 1)), Err(ChatError::TooLong));
        assert_eq!(render(&alloc::format!("{{{{ {} }}}}", "1+".repeat(MAX_TAG))), Err(ChatError::TooLong));
    }

    /// Endless loops do not exist in the language, but loops in loops and calls in calls do.
    #[test]
    fn a_template_that_loops_is_stopped() {
        let nested = "{% for a in range(9999) %}{% for b in range(9999) %}{% for c in range(9999) %}{% endfor %}{% endfor %}{% endfor %}";
        assert_eq!(render(nested), Err(ChatError::Steps));
        let calls = "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}";
        assert!(matches!(render(calls), Err(ChatError::Failed { .. })));
        let forks =
            "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(15) }}";
        assert_eq!(render(forks), Err(ChatError::Steps));
    }

    /// Each of these would take terabytes.
    #[test]
    fn a_template_that_makes_too_much_is_stopped() {
        let twice = |step: &str| alloc::format!("{{% set x = 'abcdefgh' %}}{}{{{{ x }}}}", step.repeat(60));
        for source in [
            twice("{% set x = x ~ x %}"),
            twice("{% set x = x + x %}"),
            twice("{% set x = x * 2 %}"),
            twice("{% set x %}{{ x }}{{ x }}{% endset %}"),
            twice("{% set x = [x, x] | join %}"),
            twice("{% set x = ''.join([x, x]) %}"),
            twice("{% set x = x | replace('a', x) %}"),
            twice("{% set x = x.replace('a', x) %}"),
            twice("{% set x = [x, x] %}"),
            twice("{% set x = [x, x] %}") + "{{ x | upper }}",
            twice("{% set x = [x, x] %}") + "{{ x | tojson }}",
            "{{ 'a' * 999999999999 }}".into(),
            "{{ [0] * 999999999999 }}".into(),
            "{{ 'a\nb' | indent(999999999999) }}".into(),
            "{% set ns = namespace(l=[0]) %}{% for i in range(60) %}{% set ns.l = ns.l + ns.l %}{% endfor %}"
                .into(),
            alloc::format!("{{% for i in range(9999) %}}{}{{% endfor %}}", "x".repeat(9999)),
            alloc::format!(
                "{{% set x %}}{{% for i in range(9999) %}}{}{{% endfor %}}{{% endset %}}",
                "x".repeat(9999)
            ),
        ] {
            assert_eq!(
                render(&source),
                Err(ChatError::Bytes),
                "{}",
                source.chars().take(120).collect::<String>()
            );
        }
    }

    /// Each of these would compare, look for or write 2^60 values, or read terabytes, in a few steps.
    #[test]
    fn a_template_that_looks_at_too_much_is_stopped() {
        let lists = |then: &str| {
            let make = "{% set ns = namespace(a=[1], b=[1]) %}{% for i in range(60) %}{% set ns.a=[ns.a,ns.a] %}{% set ns.b=[ns.b,ns.b] %}{% endfor %}";
            alloc::format!("{make}{then}")
        };
        let long = |then: &str| {
            alloc::format!("{{% set s = 'x' * 8000000 %}}{{% for i in range(20000) %}}{then}{{% endfor %}}")
        };
        let cases = [
            lists("{{ ns.a == ns.b }}"),
            lists("{{ ns.a != ns.b }}"),
            lists("{{ ns.a < ns.b }}"),
            lists("{{ ns.a >= ns.b }}"),
            lists("{{ 1 < ns.a <= ns.b }}"),
            lists("{{ {'x': ns.a} == {'x': ns.b} }}"),
            lists("{{ ns.a in 'x' }}"),
            lists("{{ ns.a not in [ns.b] }}"),
            lists("{{ 1 < 2 in [2] }}{{ 'x' < ns.a in [ns.b] }}"),
            lists("{{ ns.a is eq(ns.b) }}"),
            lists("{{ ns.a is ne ns.b }}"),
            lists("{{ ns.a is in [ns.b] }}"),
            lists("{{ [ns.a] | select('eq', ns.b) | list }}"),
            lists("{{ [ns.a] | select(ns.b) | list }}"),
            lists("{{ [ns.a] | map(attribute=ns.b) | list }}"),
            lists("{{ [ns.a, ns.b] | sort }}"),
            lists("{{ [ns.a, ns.b] | unique }}"),
            lists("{{ [ns.a, ns.b] | min }}"),
            lists("{{ [ns.a, ns.b] | max }}"),
            lists("{{ {'x': ns.a, 'y': ns.b} | dictsort(by='value') }}"),
            lists("{{ [ns.a].count(ns.b) }}"),
            lists("{{ 'x'.find(ns.a) }}"),
            long("{{ 'b' in s }}"),
            long("{{ 'a' < 'b' in s }}"),
            long("{{ s | length }}"),
            long("{{ s | last }}"),
            long("{{ s[7999999] }}"),
            long("{{ s[7999999:] }}"),
            long("{{ s.find('b') }}"),
            long("{% for c in s %}{% break %}{% endfor %}"),
            "{% set ns = namespace() %}{% set ns.x = ns %}{{ ns }}".into(),
            "{% set ns = namespace() %}{% set ns.x = ns %}{{ ns | tojson }}".into(),
            "{% set a = namespace() %}{% set a.x = a %}{% set b = namespace() %}{% set b.x = b %}{{ a == b }}".into(),
            "{% set ns = namespace(l=[1]) %}{% macro f() %}{% endmacro %}{% for i in range(20) %}{% set ns.l = ns.l * 2 %}{% endfor %}{{ f(*ns.l, *ns.l) }}".into(),
        ];
        backstitch_testing::each(cases, |source| assert_eq!(render(source), Err(ChatError::Bytes)));
    }

    #[test]
    fn what_would_escape_the_meter_is_refused() {
        let failed = |source: &str| matches!(render(source), Err(ChatError::Failed { .. }));
        assert!(failed("{{ {[1]: 2} if x else {messages: 2} }}"));
        for source in ["{% include ['a'] * 99 %}", "{% for m in messages %}{{ loop.changed(m) }}{% endfor %}"]
        {
            assert!(matches!(render(source), Err(ChatError::Syntax { .. })), "{source}");
        }
    }

    #[test]
    fn metered_operators_mean_what_they_meant() {
        let cases = [
            ("{{ 1 < 2 <= 2 }}{{ 1 < 3 < 2 }}{{ 'a' in 'abc' in ['abc'] }}", "TrueFalseTrue"),
            ("{{ 'role' in messages[0] }}{{ 'x' not in messages[0] }}{{ 'a' in nothing }}", "TrueTrueFalse"),
            ("{{ [1, 2] == [1, 2] }}{{ [1] < [2] }}{{ {'a': 1} == {'a': 1.0} }}", "TrueTrueTrue"),
            (
                "{{ 'abcdef'[1:4] }}{{ 'abc'[-1] }}{{ [1, 2, 3, 4][::-2] }}{{ messages[[]] is defined }}",
                "bcdc[4, 2]False",
            ),
            ("{{ {'b': 2, 'a': messages, 'b': 3}['b'] }}{{ {}.get([], 5) }}{{ {'a': 1}.get('a') }}", "351"),
            ("{{ [3, 1, 2] | sort | join }}{{ [1, 2] | max }}{{ [2, 2] | unique | list }}", "1232[2]"),
            (
                "{{ [2, 1] | sort(reverse=true) | first }}{{ nothing | default('d') }}{{ 'b' is in ['a'] }}",
                "2dFalse",
            ),
            ("{% macro f(a, b, c) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ f(*[1, 2], *[3]) }}", "123"),
            (
                "{% for x in [[1, [2]], 3] recursive %}{% if x is iterable %}{{ loop(x) }}{% else %}{{ x }}{% endif %}{% endfor %}",
                "123",
            ),
            ("{{ [] * 999999999999 }}{{ 3 | tojson(indent=2) }}", "[]3"),
        ];
        backstitch_testing::each(cases, |&(source, wanted)| {
            assert_eq!(render(source).as_deref(), Ok(wanted))
        });
    }

    /// 16 spaces for each of 5000 levels are more than a width can say.
    #[test]
    fn deep_json_is_indented_or_too_much() {
        let source = "{% set ns = namespace(x=[]) %}{% for i in range(5000) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x | tojson(indent=16) }}";
        assert_eq!(render(source), Err(ChatError::Bytes));
    }

    /// Values as deep as there are steps, dropped, written and compared.
    #[test]
    fn deep_values_do_not_end_the_stack() {
        for then in ["", "{{ ns.x }}", "{{ ns.x | tojson }}", "{{ ns.x == [[ns.x]] }}"] {
            let source = alloc::format!(
                "{{% set ns = namespace(x=[]) %}}{{% for i in range(9000) %}}{{% set ns.x = [ns.x] %}}{{% endfor %}}{then}"
            );
            assert!(render(&source).is_ok(), "{then}");
        }
    }
}
