//! Templates that would take for ever, use up the memory or the stack, or fall into holes of the
//! arithmetic. Each has to end soon, with a text or an error.

use std::time::{Duration, Instant};

use super::*;
use crate::Cancel;

/// Longer than the deadline, for machines that have other things to do.
const SOON: Duration = Duration::from_secs(6);

/// Return the outcome of a template, and check that it comes soon.
fn ends(source: &str, conversation: &Conversation) -> Result<String, ChatError> {
    let start = Instant::now();
    let result = ChatTemplate::from_source(source).and_then(|template| template.render(conversation));
    let took = start.elapsed();
    assert!(took < SOON, "{took:?}");
    result.map(String::from)
}

fn stopped(source: &str) -> bool {
    let stopped = ends(source, &Conversation::new(TALK));
    matches!(stopped, Err(ChatError::TooMuchWork | ChatError::TooSlow))
}

fn failed(source: &str) -> bool {
    matches!(ends(source, &Conversation::new(TALK)), Err(ChatError::Failed { .. }))
}

/// Endless loops do not exist in the language, but loops in loops and calls in calls do.
#[test]
fn a_template_that_loops_is_stopped() {
    for source in [
        "{% for a in range(9999) %}{% for b in range(9999) %}{% for c in range(9999) %}{% endfor %}{% endfor %}{% endfor %}",
        "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(40) }}",
        "{% set l = [1] %}{% for x in range(99999) %}{% for y in range(99999) %}{{ loop.index }}{% endfor %}{% endfor %}",
    ] {
        assert!(stopped(source), "{source}");
    }
    // A list that grows while it is gone through is gone through as it was.
    let grows = "{% set l = [1] %}{% for x in l %}{% set _ = l.append(1) %}{% endfor %}{{ l | length }}";
    assert_eq!(render(grows).as_deref(), Ok("2"));
}

/// Each of these would take terabytes.
#[test]
fn a_template_that_makes_too_much_is_stopped() {
    let twice = |step: &str| alloc::format!("{{% set x = 'abcdefgh' %}}{}{{{{ x }}}}", step.repeat(60));
    let cases = [
        twice("{% set x = x ~ x %}"),
        twice("{% set x = x + x %}"),
        twice("{% set x = x * 2 %}"),
        twice("{% set x %}{{ x }}{{ x }}{% endset %}"),
        twice("{% set x = [x, x] | join %}"),
        twice("{% set x = ''.join([x, x]) %}"),
        twice("{% set x = x | replace('a', x) %}"),
        twice("{% set x = x.replace('a', x) %}"),
        twice("{% set x = '%s%s' % (x, x) %}"),
        twice("{% set x = '{0}{0}'.format(x) %}"),
        twice("{% set x = [x, x] %}"),
        twice("{% set x = [x, x] %}") + "{{ x | upper }}",
        twice("{% set x = [x, x] %}") + "{{ x | tojson }}",
        twice("{% set x = dict(a=x, b=x) %}"),
        "{{ 'a' * 999999999999 }}".into(),
        "{{ [0] * 999999999999 }}".into(),
        "{{ (0,) * 999999999999 }}".into(),
        "{{ 'a\nb' | indent(999999999999) }}".into(),
        "{{ 'a'.center(999999999999) }}".into(),
        "{{ [[1]] | tojson(indent=999999999999) }}".into(),
        "{% set ns = namespace(l=[0]) %}{% for i in range(60) %}{% set ns.l = ns.l + ns.l %}{% endfor %}".into(),
        "{% set l = [0] %}{% for i in range(60) %}{% set _ = l.extend(l) %}{% endfor %}".into(),
        alloc::format!("{{% for i in range(9999) %}}{}{{% endfor %}}", "x".repeat(9999)),
        "{% set ns = namespace(l=[1]) %}{% macro f() %}{% endmacro %}{% for i in range(40) %}{% set ns.l = ns.l * 2 %}{% endfor %}{{ f(*ns.l, *ns.l) }}".into(),
    ];
    backstitch_testing::each(cases, |source| assert!(stopped(source)));
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
        lists("{{ {'x': ns.a} == {'x': ns.b} }}"),
        lists("{{ ns.a not in [ns.b] }}"),
        lists("{{ ns.a is eq(ns.b) }}"),
        lists("{{ ns.a is ne ns.b }}"),
        lists("{{ ns.a is in [ns.b] }}"),
        lists("{{ [ns.a] | select('eq', ns.b) | list }}"),
        lists("{{ [ns.a, ns.b] | sort }}"),
        lists("{{ [ns.a, ns.b] | min }}"),
        lists("{{ [ns.a, ns.b] | max }}"),
        lists("{{ {'x': ns.a, 'y': ns.b} | dictsort(by='value') }}"),
        lists("{{ [ns.a].count(ns.b) }}"),
        lists("{{ '%s' | format(ns.a) }}"),
        long("{{ 'b' in s }}"),
        long("{{ s | length }}"),
        long("{{ s | last }}"),
        long("{{ s[7999999] }}"),
        long("{{ s[7999999:] }}"),
        long("{{ s.find('b') }}"),
        long("{{ s.count('b') }}"),
        long("{{ s.isalpha() }}"),
        long("{{ s | wordcount }}"),
        long("{{ s is lower }}"),
        long("{{ s == 'y' * 8000000 }}"),
        long("{{ s.split('b') | length }}"),
        long("{% for c in s %}{% break %}{% endfor %}"),
        long("{% if {s: 1}[s] %}{% endif %}"),
    ];
    backstitch_testing::each(cases, |source| assert!(stopped(source)));
}

/// Templates that hung for hours, cost nothing, or ended the process when another interpreter was
/// metered from outside.
#[test]
fn costs_follow_what_is_done() {
    let path = "a.".repeat(60_000) + "a";
    let through_itself = |filter: &str| {
        alloc::format!(
            "{{% set ns = namespace() %}}{{% set ns.a = ns %}}{{% set p = 'a.' * 500000 ~ 'a' %}}\
             {{% for i in range(1000) %}}{{{{ [ns] | {filter} | list | length }}}}{{% endfor %}}"
        )
    };
    let cases = [
        "{% set s='a'*1000000 %}{% set t='b'*1000000~'a' %}{{ s.strip(t)|length }}".to_string(),
        "{% set s='a'*1000000 %}{% set t='b'*1000000~'a' %}{% for i in range(1000) %}{{ s.lstrip(t)|length }}{{ s | trim(t) | length }}{% endfor %}".into(),
        through_itself("map(attribute=p)"),
        through_itself("selectattr(p)"),
        through_itself("selectattr(p, 'defined')"),
        through_itself("sort(attribute=p)"),
        alloc::format!("{{% set ns = namespace() %}}{{% set ns.a = ns %}}{{{{ [ns] | map(attribute='{path}') | list | length }}}}"),
        "{% set s = 'x' * 4000000 %}{% set l = [''] * 4000 %}{{ l | map('default', s, true) | join | length }}".into(),
        "{% set s = 'x' * 4000000 %}{{ ([s] * 100000) | map('default', s) | map('upper') | list | length }}".into(),
        "{% set s = 'x' * 4000000 %}{{ ([s] * 100000) | unique | list | length }}".into(),
        "{% set s = 'x' * 4000000 %}{{ ([s] * 100000) | sort | length }}".into(),
        "{% set s = 'x' * 4000000 %}{{ ([s] * 100000) | map('tojson') | list | length }}".into(),
        "{% set s = 'x' * 4000000 %}{{ 'y' in ([s] * 100000) }}".into(),
        "{% set s = 'xy' * 10000000 %}{% for i in range(9999) %}{{ ''.split(s) | length }}{% endfor %}".into(),
        "{% set s = 'xy' * 10000000 %}{% for i in range(9999) %}{{ 'a'.rsplit(s, 1) | length }}{% endfor %}".into(),
    ];
    backstitch_testing::each(cases, |source| drop(ends(source, &Conversation::new(TALK))));
}

#[test]
fn arithmetic_without_a_result_is_an_error() {
    for source in [
        "{{ 4 is divisibleby(0) }}",
        "{{ 4 is divisibleby 0 }}",
        "{{ 1 / 0 }}",
        "{{ 1 // 0 }}",
        "{{ 1 % 0 }}",
        "{{ 1.5 % 0.0 }}",
        "{{ 0 ** -1 }}",
        "{{ 0.0 ** -1 }}",
        "{{ 10 ** 100 }}",
        "{{ 9223372036854775807 + 1 }}",
        "{{ 9223372036854775807 * 2 }}",
        "{{ -9223372036854775807 - 2 }}",
        "{{ (-9223372036854775807 - 1) // -1 }}",
        "{{ (-9223372036854775807 - 1) | abs }}",
        "{{ -(-9223372036854775807 - 1) }}",
        "{{ [1, 2][::0] }}",
        "{{ range(0, 9, 0) }}",
        "{{ range(999999999999) }}",
        "{{ [1] | batch(0) }}",
        "{{ '%c' % -1 }}",
        "{{ '%9999999999d' % 1 }}",
        "{{ '{:9999999999}'.format(1) }}",
        "{{ 'a'.split('') }}",
        "{{ 'a'.center(9223372036854775807, '') }}",
        "{{ 'a'.ljust(9223372036854775807, '') }}",
        "{{ 'a'.rjust(9, 'ab') }}",
        "{{ [].pop() }}",
        "{{ {}.get() }}",
        "{{ {}.setdefault() }}",
        "{{ 'abc' | truncate(-1, end='') }}",
        "{{ 'abc' | truncate(9, leeway=-1) }}",
    ] {
        assert!(failed(source), "{source}: {:?}", render(source));
    }
    for (source, wanted) in [
        ("{{ 'abc'[9223372036854775807:] }}{{ 'abc'[-9223372036854775807::9223372036854775807] }}", "a"),
        ("{{ 'abc'[::-9223372036854775807] }}{{ [1, 2][9223372036854775807] }}", "c"),
        ("{{ 1e308 * 10 }}{{ '1e999' | float | int }}{{ 'x'.center(-5) }}", "inf0x"),
        ("{{ range(9223372036854775806, 9223372036854775807) | list }}", "[9223372036854775806]"),
        (
            "{{ range(9223372036854775807, 9223372036854775806, -1) }}",
            "range(9223372036854775807, 9223372036854775807)",
        ),
    ] {
        assert_eq!(render(source).as_deref(), Ok(wanted), "{source}");
    }
}

#[test]
fn what_has_no_meaning_here_is_refused() {
    assert!(failed("{{ {[1]: 2} if x else {messages: 2} }}"));
    for source in
        ["{% include ['a'] * 99 %}", "{% import 'a' as b %}", "{% break %}", "{% endfor %}", "{{ 'a", "{# x"]
    {
        assert!(matches!(render(source), Err(ChatError::Syntax { .. })), "{source}");
    }
}

/// Values as deep as there are steps, dropped, printed and compared, and values that contain
/// themselves.
#[test]
fn deep_values_do_not_end_the_stack() {
    let deep = |then: &str| {
        alloc::format!(
            "{{% set ns = namespace(x=[], d={{}}, t=()) %}}{{% for i in range(9000) %}}{{% set ns.x = [ns.x] %}}{{% set ns.d = {{'a': ns.d}} %}}{{% set ns.t = (ns.t,) %}}{{% endfor %}}{then}"
        )
    };
    assert_eq!(render(&deep("done")).as_deref(), Ok("done"));
    for then in [
        "{{ ns.x }}",
        "{{ ns.x | tojson }}",
        "{{ ns.x | tojson(indent=16) }}",
        "{{ ns.x == [[ns.x]] }}",
        "{{ ns.x < [[ns.x]] }}",
        "{{ ns.d }}",
        "{{ ns.d == {'a': {'a': ns.d}} }}",
        "{{ {ns.t: 1} }}",
        "{{ [ns.t, (ns.t,)] | unique | list }}",
        "{{ ns }}",
    ] {
        assert!(failed(&deep(then)), "{then}");
    }
    let itself = "{% set ns = namespace() %}{% set ns.x = ns %}{% set l = [] %}{% set _ = l.append(l) %}{% set d = {} %}{% set _ = d.update(a=d) %}";
    for then in [
        "{{ ns }}",
        "{{ l }}",
        "{{ l | tojson }}",
        "{{ d }}",
        "{{ d | tojson }}",
        "{{ l == [l] * 1 }}{{ l }}",
    ] {
        assert!(failed(&alloc::format!("{itself}{then}")), "{then}");
    }
    assert_eq!(
        render(&alloc::format!("{itself}{{{{ l == l }}}}{{{{ ns.x.x == ns }}}}")).as_deref(),
        Ok("TrueTrue")
    );
}

/// Each message makes the list deeper.
#[test]
fn thousands_of_messages_may_nest_nothing_deeper_than_the_stack() {
    let messages = || (0..5000).map(|_| Message { role: "user", content: "x" });
    let source = "{% set ns = namespace(x=[]) %}{% for m in messages %}{% for i in range(9) %}{% set ns.x = [ns.x, m] %}{% endfor %}{% endfor %}";
    assert_eq!(ends(source, &Conversation::new(messages())).as_deref(), Ok(""));
    let written = ends(&alloc::format!("{source}{{{{ ns.x }}}}"), &Conversation::new(messages()));
    assert!(matches!(written, Err(ChatError::Failed { .. })));
    let deep = (0..10_000).fold(Value::Null, |value, _| Value::List([value].into()));
    // The caller's own value is the caller's to drop.
    let conversation = Conversation::new([deep]);
    assert!(matches!(ends("x", &conversation), Err(ChatError::Failed { .. })));
    core::mem::forget(conversation);
}

/// Everything that recurses, in a thread with a quarter of the stack that threads usually have.
#[test]
fn nesting_ends_before_a_small_stack_does() -> Result<(), Box<dyn core::error::Error>> {
    let nested = |open: &str, middle: &str, close: &str, n: usize| {
        alloc::format!("{}{middle}{}", open.repeat(n), close.repeat(n))
    };
    let sources = [
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}".to_string(),
        "{% macro f(x) %}{% if true %}{% for i in [1] %}{{ [[((1 + f(x=[x]) ~ 'a') * 2)]] | map('upper') | list }}{% endfor %}{% endif %}{% endmacro %}{{ f(1) }}".into(),
        "{% macro f() %}{% call f() %}{{ caller() }}{% endcall %}{% endmacro %}{{ f() }}".into(),
        "{% macro f(a=f2()) %}{{ f(a=f()) }}{% endmacro %}{{ f(1) }}".into(),
        "{% set l = [] %}{% set _ = l.append(l) %}{% for x in l recursive %}{{ loop(x) }}{% endfor %}".into(),
        "{% macro f() %}{% set x %}{% filter upper %}{% with a = f() %}{% endwith %}{% endfilter %}{% endset %}{% endmacro %}{{ f() }}".into(),
        alloc::format!("{{{{ [[1]] | map({}'upper') | list }}}}", "'map', ".repeat(5000)),
        nested("{% if true %}", "x", "{% endif %}", 2000),
        nested("{% if true %}", "x", "{% endif %}", 90),
        nested("{% for a in [1] %}", "x", "{% endfor %}", 90),
        alloc::format!("{{{{ {} }}}}", nested("(", "1", ")", 5000)),
        alloc::format!("{{{{ {} }}}}", nested("[", "1", "]", 40)),
        alloc::format!("{{{{ {}1 }}}}", "-".repeat(5000)),
        alloc::format!("{{{{ {}1 }}}}", "not ".repeat(5000)),
        alloc::format!("{{{{ {}1 }}}}", "1 if 1 else ".repeat(5000)),
        alloc::format!("{{{{ 1{} }}}}", " if 1".repeat(200_000)),
        alloc::format!("{{{{ 1{} ", " if 1".repeat(200_000)),
        alloc::format!("{{{{ {}1 }}}}", "1 + ".repeat(50_000)),
        alloc::format!("{{{{ x{} is defined }}}}", "|default([])".repeat(50_000)),
        alloc::format!("{{{{ x is eq {} }}}}", nested("[", "1", "]", 5000)),
        alloc::format!("{{% set {} = 1 %}}", nested("(", "a", ")", 5000)),
    ];
    let work = move || {
        sources.iter().for_each(|source| drop(ends(source, &Conversation::new(TALK))));
    };
    std::thread::Builder::new().stack_size(1 << 19).spawn(work)?.join().map_err(|_| "the thread ended")?;
    Ok(())
}

#[test]
fn a_cancelled_template_stops_at_once() {
    let source = "{% for a in range(9999) %}{% for b in range(9999) %}{{ b }}{% endfor %}{% endfor %}";
    let cancel = Cancel::new();
    let conversation = Conversation::new(TALK).cancel(cancel.clone());
    cancel.cancel();
    assert_eq!(ends(source, &conversation), Err(ChatError::Cancelled));
    cancel.reset();
    assert_eq!(ends("x", &conversation).as_deref(), Ok("x"));
    // In the middle: the request is made when it has been looked for some times.
    let looks = core::sync::atomic::AtomicUsize::new(0);
    let later = Cancel::from_fn(move || looks.fetch_add(1, core::sync::atomic::Ordering::Relaxed) > 5);
    assert_eq!(ends(source, &Conversation::new(TALK).cancel(later)), Err(ChatError::Cancelled));
}
