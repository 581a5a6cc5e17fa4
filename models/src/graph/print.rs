//! A graph for people: as text and for Graphviz. All that is printed stands in the steps.

use super::{
    computation::Graph,
    plan::Plan,
    step::{Carried, Step},
    value::Value,
};
use alloc::{format, string::String, vec, vec::Vec};
use core::fmt::Write;

impl Graph {
    /// Return one line a step: layer, operation, inputs, weights, outputs with their widths and
    /// arena offsets, and the memory that it carries.
    pub fn to_text(&self) -> String {
        let plan = Plan::new(self);
        let mut text = String::new();
        for (i, step) in self.steps.iter().enumerate() {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{i:5} {}", self.line(step, &plan));
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

    fn line(&self, step: &Step, plan: &Plan) -> String {
        let layer = step.layer.map_or("-".into(), |il| format!("{il}"));
        let reads: Vec<String> = step.reads.iter().map(|&v| self.label(v)).collect();
        let mut line = format!("{layer:>3} {:10} {}", step.name, reads.join(", "));
        let weights = self.weights_of(step);
        if !weights.is_empty() {
            let _ = write!(line, " [{}]", weights.join(" "));
        }
        if !step.writes.is_empty() {
            let place = |&v: &Value| format!("{} @{}", self.label(v), plan.offset(v));
            let writes: Vec<String> = step.writes.iter().map(place).collect();
            let _ = write!(line, " -> {}", writes.join(", "));
        }
        let _ = match &step.carries {
            None => Ok(()),
            Some(Carried::Cells { layer }) => write!(line, "; cells of layer {layer}"),
            Some(Carried::State(state)) => {
                let journaled: Vec<String> = state.journaled.iter().map(|&v| self.label(v)).collect();
                write!(line, "; state {} of layer {}", state.number, state.layer)
                    .and_then(|()| write!(line, ", journal {}", journaled.join(", ")))
            }
        };
        line
    }

    /// Return the graph in Graphviz's language: a box a step, a cluster a layer, an edge a value.
    /// The graph of an encoder is a cluster before it.
    pub fn to_dot(&self) -> String {
        let mut text = String::from("digraph model {\n  node [shape=box, fontname=\"monospace\"];\n");
        if let Some(encoder) = self.encoder() {
            text.push_str("  subgraph cluster_encoder { label=\"encoder\";\n");
            encoder.boxes(&mut text, 'e');
            text.push_str("  }\n");
        }
        self.boxes(&mut text, 's');
        text.push_str("}\n");
        text
    }

    /// Write the boxes and edges, whose names begin with `prefix`.
    fn boxes(&self, text: &mut String, prefix: char) {
        let mut layer = None;
        for (i, step) in self.steps.iter().enumerate() {
            if step.layer != layer {
                text.push_str(if layer.is_some() { "  }\n" } else { "" });
                if let Some(il) = step.layer {
                    let _ = writeln!(text, "  subgraph cluster_{prefix}{il} {{ label=\"layer {il}\";");
                }
                layer = step.layer;
            }
            let weights = self.weights_of(step).join("\\n");
            let _ = writeln!(text, "  {prefix}{i} [label=\"{}\\n{weights}\"];", step.name);
        }
        text.push_str(if layer.is_some() { "  }\n" } else { "" });
        self.edges(text, prefix);
    }

    fn edges(&self, text: &mut String, prefix: char) {
        let mut written_by: Vec<Option<usize>> = vec![None; self.values.len()];
        for (i, step) in self.steps.iter().enumerate() {
            for &v in &step.reads {
                if let Some(from) = written_by[v.0 as usize] {
                    let label = self.label(v);
                    let _ = writeln!(text, "  {prefix}{from} -> {prefix}{i} [label=\"{label}\"];");
                }
            }
            step.writes.iter().for_each(|v| written_by[v.0 as usize] = Some(i));
        }
    }

    fn weights_of(&self, step: &Step) -> Vec<&str> {
        step.weights.iter().filter_map(|&id| Some(self.weight(id)?.tensor.as_str())).collect()
    }

    fn label(&self, value: Value) -> String {
        let info = self.info(value);
        format!("%{}:{}[{}]", value.0, info.name, info.width)
    }
}
