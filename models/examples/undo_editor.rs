//! An editor with undo: words are appended, undone and redone, and the model always suggests the
//! next ones.
//!
//! ```text
//! cargo run --release --example undo_editor [model.gguf]
//! ```

use backstitch_models::sampler::Settings;
use backstitch_models::session::{GenerateOptions, Session};
use backstitch_models::vocab::ParseSpecial;
use backstitch_models::{Context, Model, Params, Pos};
use std::error::Error;

/// A text that a writer edits.
struct Editor {
    session: Session,
    /// The pieces of the text, oldest first, each with its first position.
    done: Vec<(Pos, String)>,
    /// Undone pieces; the next to redo is the last.
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
    /// Append a piece to the text.
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

    /// Undo the last piece. Return the cost, which is most often no re-evaluation at all.
    fn undo(&mut self) -> Result<String, Box<dyn Error>> {
        let (start, piece) = self.done.pop().ok_or("there is nothing to undo")?;
        let cost = self.session.rollback(start)?;
        self.undone.push(piece);
        Ok(format!("replayed {}, re-evaluated {}", cost.replayed, cost.reevaluated))
    }

    /// Redo the piece that was undone last.
    fn redo(&mut self) -> Result<(), Box<dyn Error>> {
        let piece = self.undone.pop().ok_or("there is nothing to redo")?;
        self.put(piece)
    }

    /// Return the model's continuation, generated in a branch that is removed again.
    fn suggestion(&mut self) -> Result<String, Box<dyn Error>> {
        let (text, aside) = (self.session.current(), self.session.branch()?);
        self.session.switch(aside)?;
        let chunks = self.session.generate(GenerateOptions::default().limit(6));
        let suggestion =
            chunks.map(|chunk| Ok(chunk?.text)).collect::<Result<String, backstitch_models::Error>>()?;
        self.session.switch(text)?;
        self.session.remove(aside)?;
        Ok(suggestion)
    }

    fn text(&self) -> String {
        let pieces = self.done.iter().map(|(_, piece)| piece.as_str());
        ["Once upon a time, there was a"].into_iter().chain(pieces).collect()
    }
}
