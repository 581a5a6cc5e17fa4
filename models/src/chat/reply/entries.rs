//! The entries of an object that is read in another notation than JSON.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use super::scanner::write_text;

/// Names with JSON texts, in the order in which the names came first. Of several values of a name
/// the last counts.
#[derive(Debug, Default)]
pub(super) struct Entries {
    list: Vec<(String, String)>,
    places: BTreeMap<String, usize>,
}

impl Entries {
    /// Set the value of a name.
    pub(super) fn set(&mut self, name: &str, json: String) {
        let known = self.places.get(name).and_then(|at| self.list.get_mut(*at));
        if let Some((_, value)) = known {
            *value = json;
            return;
        }
        self.places.insert(name.into(), self.list.len());
        self.list.push((name.into(), json));
    }

    /// Append the object as JSON text.
    pub(super) fn write(&self, out: &mut String) {
        out.push('{');
        for (i, (name, value)) in self.list.iter().enumerate() {
            out.push_str(if i > 0 { "," } else { "" });
            write_text(name, out);
            out.push(':');
            out.push_str(value);
        }
        out.push('}');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_value_of_a_name_counts() {
        let mut entries = Entries::default();
        for (name, json) in [("a", "1"), ("b\"", "2"), ("a", "3")] {
            entries.set(name, json.into());
        }
        let mut out = String::new();
        entries.write(&mut out);
        assert_eq!(out, r#"{"a":3,"b\"":2}"#);
    }
}
