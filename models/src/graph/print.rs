//! A graph for people: as text and for Graphviz.

use super::{Graph, Op, Plan, Value, WeightId};
use alloc::{format, string::String, vec, vec::Vec};
use core::fmt::Write;

impl Graph {
    /// One line a step: layer, operation, inputs, weights, and outputs with their widths and arena offsets.
    pub fn to_text(&self) -> String {
        let plan = Plan::new(self);
        let mut text = String::new();
        for (i, step) in self.steps.iter().enumerate() {
            let layer = step.layer.map_or("-".into(), |il| format!("{il}"));
            let (reads, writes) = self.operands(&step.op);
            let reads: Vec<String> = reads.iter().map(|&v| self.label(v)).collect();
            let writes: Vec<String> =
                writes.iter().map(|&v| format!("{} @{}", self.label(v), plan.offset(v))).collect();
            let weights = self.weights_of(&step.op);
            let weights =
                if weights.is_empty() { String::new() } else { format!(" [{}]", weights.join(" ")) };
            let arrow = if writes.is_empty() { String::new() } else { format!(" -> {}", writes.join(", ")) };
            let name = step.op.name();
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{i:5} {layer:>3} {name:9} {}{weights}{arrow}", reads.join(", "));
        }
        let _ = writeln!(
            text,
            "arena: {} bytes a token ({} without sharing), {} steps, {} weights",
            4 * plan.width(),
            4 * plan.unshared_width(),
            self.steps.len(),
            self.weights.len()
        );
        text
    }

    /// The graph in Graphviz's language: a box a step, a cluster a layer, an edge a value.
    pub fn to_dot(&self) -> String {
        let mut text = String::from("digraph model {\n  node [shape=box, fontname=\"monospace\"];\n");
        let mut layer = None;
        for (i, step) in self.steps.iter().enumerate() {
            if step.layer != layer {
                text.push_str(if layer.is_some() { "  }\n" } else { "" });
                if let Some(il) = step.layer {
                    let _ = writeln!(text, "  subgraph cluster_{il} {{ label=\"layer {il}\";");
                }
                layer = step.layer;
            }
            let weights = self.weights_of(&step.op).join("\\n");
            let _ = writeln!(text, "  s{i} [label=\"{}\\n{weights}\"];", step.op.name());
        }
        text.push_str(if layer.is_some() { "  }\n" } else { "" });
        self.edges(&mut text);
        text.push_str("}\n");
        text
    }

    fn edges(&self, text: &mut String) {
        let mut written_by: Vec<Option<usize>> = vec![None; self.values.len()];
        for (i, step) in self.steps.iter().enumerate() {
            let (reads, writes) = self.operands(&step.op);
            for v in reads {
                if let Some(from) = written_by[v.0 as usize] {
                    let _ = writeln!(text, "  s{from} -> s{i} [label=\"{}\"];", self.label(v));
                }
            }
            writes.iter().for_each(|v| written_by[v.0 as usize] = Some(i));
        }
    }

    fn operands(&self, op: &Op) -> (Vec<Value>, Vec<Value>) {
        let (mut reads, mut writes) = (vec![], vec![]);
        op.each_value(|v, written| if written { writes.push(v) } else { reads.push(v) });
        (reads, writes)
    }

    fn weights_of(&self, op: &Op) -> Vec<String> {
        let mut names = vec![];
        op.each_weight(|WeightId(id)| names.push(self.weights[id as usize].tensor.clone()));
        names
    }

    fn label(&self, value: Value) -> String {
        let info = &self.values[value.0 as usize];
        format!("%{}:{}[{}]", value.0, info.name, info.width)
    }
}
