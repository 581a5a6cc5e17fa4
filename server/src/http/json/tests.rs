use super::*;
use backstitch_testing::{Counting, Random};
use serde_json::json;

#[global_allocator]
static ALLOCATOR: Counting = Counting::new();

fn read(text: &str) -> Result<Map<String, Value>, JsonError> {
    read_object(text.as_bytes(), 1 << 20, &Cancel::new()).map(|(fields, _)| fields)
}

#[test]
fn objects_are_read_as_they_are() {
    let text = r#"{"prompt": ["a", 1, -2, 1.5, true, null, {"b": {}, "a": []}], "top_k": 40, "z": "\u00e9"}"#;
    let expected: Value = serde_json::from_str(text).unwrap();
    let fields = read(text).unwrap();
    assert_eq!(Value::Object(fields.clone()), expected);
    let names: Vec<&String> = fields["prompt"][6].as_object().unwrap().keys().collect();
    assert_eq!(names, ["b", "a"], "the order reaches the model");
    assert_eq!(read("{\"a\": 1, \"a\": 2}").unwrap()["a"], 2);
}

#[test]
fn what_is_no_object_is_told_from_what_is_no_json() {
    for text in ["[1]", "\"text\"", "7", " null"] {
        assert!(matches!(read(text), Err(JsonError::NoObject)), "{text}");
    }
    for text in ["{\"a\": }", "{\"a\": 1} x", "{\"a\": \"\u{1}\"}", "", "{", "{\"a\": 1e999}", "{\"x\":[1}"] {
        assert!(matches!(read(text), Err(JsonError::Syntax(_))), "{text}");
    }
    let deep = format!("{{\"prompt\": {}", "[".repeat(100_000));
    assert!(matches!(read(&deep), Err(JsonError::Syntax(_))));
}

#[test]
fn large_fields_are_refused_by_name_and_unknown_ones_read_over() {
    for value in ["[[[[[]]]]]", "{\"a\":{\"b\":1}}", "0", "\"\"", "[\"x\"]"] {
        let list = vec![value; 100_000].join(",");
        let large = format!("{{\"prompt\": \"x\", \"messages\": [{list}]}}");
        let Err(JsonError::Memory { field }) = read(&large) else { panic!("{value} was read") };
        assert_eq!(field, "messages");
        let ignored = format!("{{\"prompt\": \"x\", \"ignored\": [{list}], \"top_k\": 40}}");
        let fields = read(&ignored).unwrap();
        assert!(fields["prompt"] == "x" && fields["top_k"] == 40 && fields["ignored"].is_string(), "{value}");
    }
}

#[test]
fn the_number_of_fields_is_bounded() {
    let object = |n: usize| {
        let fields: Vec<String> = (0..n).map(|i| format!("\"x{i}\": 0")).collect();
        format!("{{{}}}", fields.join(","))
    };
    assert!(read(&object(MOST_FIELDS)).is_ok());
    assert!(matches!(read(&object(MOST_FIELDS + 1)), Err(JsonError::Fields)));
    let again = vec!["\"x\": 0"; MOST_FIELDS + 1].join(",");
    assert!(matches!(read(&format!("{{{again}}}")), Err(JsonError::Fields)), "one name again and again");
}

#[test]
fn values_that_are_read_over_end_with_their_client_too() {
    let looks = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    for value in ["0", "[0]", "{\"a\":0}", "\"\""] {
        let list = vec![value; 200_000].join(",");
        let counted = looks.clone();
        let cancel =
            Cancel::from_fn(move || counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed) == 20);
        let text = format!("{{\"unknown\": [{list}]}}");
        looks.store(0, std::sync::atomic::Ordering::Relaxed);
        let read = read_object(text.as_bytes(), 1 << 30, &cancel);
        assert!(matches!(read, Err(JsonError::Cancelled)), "{value}");
    }
}

#[test]
fn texts_cost_what_they_take() {
    let text = json!({"prompt": "x".repeat(100_000)}).to_string();
    let (_, bytes) = read_object(text.as_bytes(), 1 << 20, &Cancel::new()).unwrap();
    assert!((100_000..101_000).contains(&bytes), "{bytes}");
    let numbers = format!("{{\"prompt\": [{}0]}}", "0,".repeat(1000));
    assert!(read_object(numbers.as_bytes(), 1 << 20, &Cancel::new()).unwrap().1 > 1000 * PER_VALUE);
}

/// Write a random value: deep, wide, of many small or few large parts.
fn write(random: &mut Random, depth: usize, width: usize, text: &mut String) {
    if text.len() > 1 << 15 {
        return text.push('0');
    }
    let n = random.below(width + 1);
    match if depth == 0 { random.below(5) } else { random.below(9) } {
        0 => text.push('0'),
        1 => text.push_str("-1.5e3"),
        2 => text.push_str("null"),
        3 => text.push_str(&format!("\"{}\"", "x".repeat(n * 3))),
        4 => text.push_str("\"\\u00e9\\n\""),
        5 | 6 => {
            text.push('[');
            for i in 0..n {
                text.push_str(if i > 0 { "," } else { "" });
                write(random, depth - 1, width, text);
            }
            text.push(']');
        }
        _ => {
            text.push('{');
            for i in 0..n {
                text.push_str(if i > 0 { "," } else { "" });
                text.push_str(&format!("\"{}\":", random.below(1000)));
                write(random, depth - 1, width, text);
            }
            text.push('}');
        }
    }
}

/// Whatever a body is made of, reading it takes no more memory than it may.
#[test]
fn no_body_takes_more_memory_than_it_may() {
    let mut random = Random::new(24);
    for round in 0..300 {
        let (depth, width) = (1 + random.below(12), 1 + random.below([3, 30, 300][round % 3]));
        let fields = ["prompt", "messages", "ignored", "tools"].map(|name| {
            let mut list = String::new();
            for _ in 0..100 {
                write(&mut random, depth, width, &mut list);
                list.push(',');
            }
            format!("\"{name}\":[{list}0]")
        });
        let text = format!("{{{}}}", fields.join(","));
        let expected: Value = serde_json::from_str(&text).unwrap();
        for times in [1, 4, 1000] {
            let most = times * text.len();
            let (read, peak) = ALLOCATOR.peak_here(|| read_object(text.as_bytes(), most, &Cancel::new()));
            // Beside the values: the scratch of the parser, the table of fields.
            assert!(peak <= (most + text.len() + (1 << 14)) as u64, "{peak} for {most}, {round}");
            let Ok((fields, bytes)) = read else { continue };
            assert!(bytes <= most);
            for (name, value) in fields.iter().filter(|(name, _)| *name != "ignored") {
                assert_eq!(*value, expected[name], "{name}");
            }
        }
        assert!(read_object(text.as_bytes(), 1000 * text.len(), &Cancel::new()).is_ok(), "{round}");
    }
}

#[test]
fn an_ignored_field_takes_no_memory() {
    let text = format!("{{\"prompt\":\"x\",\"x\":[{}0]}}", "[[[[[]]]]],".repeat(100_000));
    let (read, peak) = ALLOCATOR.peak_here(|| read_object(text.as_bytes(), 4 * text.len(), &Cancel::new()));
    assert!(read.is_ok() && peak < 3 * MOST_OF_FIELD as u64, "{peak}");
}

#[test]
fn long_bodies_are_given_up_when_that_is_asked_for() {
    let text = format!("{{\"messages\": [{}0]}}", "0,".repeat(2 * LOOK_EVERY as usize));
    let most = 1000 * text.len();
    let cancel = Cancel::new();
    assert!(read_object(text.as_bytes(), most, &cancel).is_ok());
    cancel.cancel();
    assert!(matches!(read_object(text.as_bytes(), most, &cancel), Err(JsonError::Cancelled)));
    assert!(read_object(b"{\"messages\": [0]}", most, &cancel).is_ok(), "it ends before the first look");
}
