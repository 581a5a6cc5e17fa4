//! An editor with undo: a text grows, words are taken back and put there again, and the model always knows what it would
//! write next.
//!
//! ```text
//! cargo run --release --example undo_editor [model.gguf]
//! ```

use backstitch_models::sampler::Settings;
use backstitch_models::session::{GenerateOptions, Session};
use backstitch_models::vocab::ParseSpecial;
use backstitch_models::{Context, Model, Params, Pos};
use std::error::Error;

/// A text in the hands of a writer.
struct Editor {
    session: Session,
    /// Where each piece of the text begins, oldest first, and the piece.
    done: Vec<(Pos, String)>,
    /// Pieces taken back, last one first.
    undone: Vec<String>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let model = match std::env::args_os().nth(1) {
        Some(path) => Model::open(path)?,
        None => Model::from_bytes(backstitch_demo::GGUF)?,
    };
    let ctx = Context::new(&model, Params::default().n_ctx(256).n_seq_max(2))?;
    let mut session = Session::new(ctx, &Settings::default().temp(0.0))?;
    session.feed(&session.tokenize("Once upon a time, there was a", ParseSpecial::No))?;

    let mut editor = Editor { session, done: Vec::new(), undone: Vec::new() };
    editor.write(" little dog")?;
    let dog = editor.suggestion()?;
    editor.write(" who liked to swim.")?;
    editor.write(" One day he")?;
    println!("{} ->{}", editor.text(), editor.suggestion()?);
    for _ in 0..2 {
        println!("undo: {}", editor.undo()?);
    }
    println!("{} ->{}", editor.text(), editor.suggestion()?);
    assert_eq!(editor.suggestion()?, dog, "going back leaves no trace");
    editor.redo()?;
    println!("{} ->{}", editor.text(), editor.suggestion()?);
    Ok(())
}

impl Editor {
    /// Writes a piece behind the text.
    fn write(&mut self, piece: &str) -> Result<(), Box<dyn Error>> {
        self.undone.clear();
        self.put(piece.into())
    }

    fn put(&mut self, piece: String) -> Result<(), Box<dyn Error>> {
        let start = self.session.pos();
        self.session.feed(&self.session.tokenize_behind(&piece, ParseSpecial::No))?;
        self.done.push((start, piece));
        Ok(())
    }

    /// Takes the last piece back. Return what that took: most often, nothing was evaluated.
    fn undo(&mut self) -> Result<String, Box<dyn Error>> {
        let (start, piece) = self.done.pop().ok_or("there is nothing to undo")?;
        let cost = self.session.rollback(start)?;
        self.undone.push(piece);
        Ok(format!("{} tokens replayed, {} evaluated again", cost.replayed, cost.reevaluated))
    }

    /// Writes the piece that was taken back last.
    fn redo(&mut self) -> Result<(), Box<dyn Error>> {
        let piece = self.undone.pop().ok_or("there is nothing to redo")?;
        self.put(piece)
    }

    /// What the model would write next, in a branch that is dropped again.
    fn suggestion(&mut self) -> Result<String, Box<dyn Error>> {
        let (text, aside) = (self.session.current(), self.session.branch()?);
        self.session.switch(aside)?;
        let pieces = self.session.generate(GenerateOptions::default().limit(6));
        let suggestion =
            pieces.map(|piece| Ok(piece?.text)).collect::<Result<String, backstitch_models::Error>>()?;
        self.session.switch(text)?;
        self.session.remove(aside)?;
        Ok(suggestion)
    }

    fn text(&self) -> String {
        let pieces = self.done.iter().map(|(_, piece)| piece.as_str());
        ["Once upon a time, there was a"].into_iter().chain(pieces).collect()
    }
}
