//! States as llama.cpp has them.

use super::{RestoreOptions, Restored};
use crate::context::{Context, History};
use crate::error::Error;
use crate::llama_files::{self, File, Form, Layout, range};
use alloc::vec::Vec;
use backstitch_kv::{Pos, SeqId, Token};

impl Context {
    /// Return a session file of llama.cpp with all sequences. It lists the tokens of the first of
    /// them, if they are known. Checkpoints, logits and samplers have no place in such files.
    ///
    /// # Errors
    /// [`Error::LlamaState`] for models whose files are not known; [`Error::Llama`] for what such a
    /// file cannot hold: sequences without some of their positions, or more of them than `options`
    /// gives streams.
    pub fn llama_state_write(&self, options: &llama_files::Options) -> Result<Vec<u8>, Error> {
        let live = self.live();
        let seqs: Vec<SeqId> = (0..live.last().map_or(0, |last| last.0 + 1)).map(SeqId).collect();
        let tokens = live.first().map_or(Ok(&[][..]), |first| self.tokens(*first))?;
        self.export(&seqs, tokens, Form::Session, options)
    }

    /// Return a sequence file of llama.cpp, or a buffer, with what `seq` holds; its tokens are
    /// listed if they are known. `options` says which sequence it claims to be.
    ///
    /// # Errors
    /// As [`Context::llama_state_write`], and [`Error::Sequence`] if there is no such sequence.
    ///
    /// # Example
    /// ```
    /// use backstitch_models::llama_files::{Form, Options};
    /// use backstitch_models::{Context, Model, Params, RestoreOptions, Token};
    ///
    /// let model = Model::from_bytes(backstitch_demo::GGUF)?;
    /// let mut ctx = Context::new(&model, Params::default().n_seq_max(2))?;
    /// let a = ctx.sequence()?;
    /// ctx.append(a, &[Token(5), Token(6), Token(7)])?;
    /// let file = ctx.llama_seq_state_write(a, Form::Sequence, &Options::default())?;
    /// let b = ctx.sequence()?;
    /// ctx.llama_seq_state_read(b, &file, &RestoreOptions::default())?;
    /// assert_eq!(ctx.tokens(b)?, ctx.tokens(a)?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn llama_seq_state_write(
        &self,
        seq: SeqId,
        form: Form,
        options: &llama_files::Options,
    ) -> Result<Vec<u8>, Error> {
        self.export(&[seq], self.tokens(seq)?, form, options)
    }

    fn export(
        &self,
        seqs: &[SeqId],
        tokens: &[Token],
        form: Form,
        options: &llama_files::Options,
    ) -> Result<Vec<u8>, Error> {
        self.expect_no_adapters(seqs)?;
        let snapshot = self.memory.export(seqs)?;
        Ok(llama_files::export(&snapshot, tokens, &self.llama_layout()?, form, options)?)
    }

    /// Return where llama.cpp keeps what the sequences of this context hold.
    ///
    /// # Errors
    /// [`Error::LlamaState`] for models whose files are not known.
    pub fn llama_layout(&self) -> Result<Layout, Error> {
        llama_files::layout(&self.model, self.memory.shape())
    }

    /// Read a session file of llama.cpp, in place of all that the context holds; sequences have
    /// the ids that they had there. Nothing in such a file proves that this model made it.
    ///
    /// Tokens are known afterwards if the file has one sequence and lists them all from position 0
    /// on. There are no logits: whoever wants some evaluates a token more.
    ///
    /// # Errors
    /// [`Error::LlamaState`] for models whose files are not known; [`Error::Llama`] for files of
    /// other models and versions, and damage; [`Error::Sequence`] for sequences that this context
    /// cannot have; [`Error::Memory`] if it has no room, or cells of another type and `options`
    /// does not say to convert them. Nothing has changed then.
    pub fn llama_state_read(
        &mut self,
        bytes: &[u8],
        options: &RestoreOptions<'_>,
    ) -> Result<Restored, Error> {
        let file = self.llama_file(bytes, true)?;
        self.take_session(&file, options)
    }

    /// Read a sequence file or buffer of llama.cpp, in place of what `seq` holds; a `seq` below
    /// `n_seq_max` that does not exist is made.
    ///
    /// # Errors
    /// As [`Context::llama_state_read`].
    pub fn llama_seq_state_read(
        &mut self,
        seq: SeqId,
        bytes: &[u8],
        options: &RestoreOptions<'_>,
    ) -> Result<Restored, Error> {
        let file = self.llama_file(bytes, false)?;
        self.take_sequence(&file, seq, options)
    }

    /// Read what stands behind the tokens of a sequence file of llama.cpp, in place of what `seq`
    /// holds; for `None` of a session file, in place of all. The list of tokens is `tokens`.
    ///
    /// # Errors
    /// As [`Context::llama_state_read`].
    pub fn llama_read_behind(
        &mut self,
        seq: Option<SeqId>,
        tokens: Vec<Token>,
        rest: &[u8],
        options: &RestoreOptions<'_>,
    ) -> Result<Restored, Error> {
        let form = if seq.is_some() { Form::Sequence } else { Form::Session };
        let file = File::parse_behind(form, tokens, rest, &self.llama_layout()?)?;
        match seq {
            Some(seq) => self.take_sequence(&file, seq, options),
            None => self.take_session(&file, options),
        }
    }

    fn take_sequence(
        &mut self,
        file: &File<'_>,
        seq: SeqId,
        options: &RestoreOptions<'_>,
    ) -> Result<Restored, Error> {
        if seq.0 >= self.params.n_seq_max {
            return Err(Error::Sequence { seq: seq.0 });
        }
        self.take_file(file, &[seq], options)
    }

    fn take_session(&mut self, file: &File<'_>, options: &RestoreOptions<'_>) -> Result<Restored, Error> {
        let n = file.snapshot().sequences.len() as u32;
        if n > self.params.n_seq_max {
            return Err(Error::Sequence { seq: n - 1 });
        }
        let seqs: Vec<SeqId> = (0..n).map(SeqId).collect();
        let old = self.live();
        let mut restored = self.take_file(file, &seqs, options)?;
        // A number that the file has nothing for is free, as are those behind its last.
        let is_empty = |seq: &SeqId| seq.0 >= n || self.end(*seq) == Pos::ZERO;
        let empty: Vec<SeqId> =
            seqs.iter().chain(old.iter().filter(|seq| seq.0 >= n)).copied().filter(is_empty).collect();
        restored.sequences.retain(|sequence| !empty.contains(&sequence.seq));
        empty.into_iter().for_each(|seq| self.release_live(seq));
        Ok(restored)
    }

    /// Parse a file of this model that has to be a session, or that must not be one.
    fn llama_file<'b>(&self, bytes: &'b [u8], is_session: bool) -> Result<File<'b>, Error> {
        let file = File::parse(bytes, &self.llama_layout()?)?;
        if (file.form() == Form::Session) == is_session {
            return Ok(file);
        }
        let (one, all) = ("reading one sequence as a session", "reading a session as one sequence");
        Err(llama_files::Error::Unsupported { what: if is_session { one } else { all } }.into())
    }

    /// Stage what a file holds, then make it visible.
    fn take_file(
        &mut self,
        file: &File<'_>,
        seqs: &[SeqId],
        options: &RestoreOptions<'_>,
    ) -> Result<Restored, Error> {
        let contents = (0..seqs.len()).map(|index| Ok((self.history_of(file, index)?, None)));
        let contents = contents.collect::<Result<_, Error>>()?;
        let fit = self.adopt(file.snapshot(), file, seqs, contents, options)?;
        let sequences = seqs.iter().map(|seq| self.restored(*seq)).collect();
        Ok(Restored { sequences, metadata: Vec::new(), n_bytes: file.n_bytes(), fit })
    }

    /// Return the tokens of a sequence of a file, as far as they are known.
    fn history_of(&self, file: &File<'_>, index: usize) -> Result<History, Error> {
        let n_ctx = self.params.n_ctx;
        let ranges = file.snapshot().sequences.iter().map(|sequence| range(file.snapshot(), sequence));
        let Some((first, last)) = ranges.clone().nth(index).flatten() else { return History::new(n_ctx) };
        let n_held = ranges.flatten().count();
        let listed = usize::try_from(last.0).ok().and_then(|last| file.tokens().get(..=last));
        let n_vocab = self.model.hparams().n_vocab;
        let is_sane = |tokens: &&[Token]| tokens.iter().all(|token| (token.0 as usize) < n_vocab);
        let known = listed.filter(|_| n_held == 1 && first == Pos::ZERO).filter(is_sane);
        let mut history = History::of(known.unwrap_or_default(), n_ctx)?;
        history.make_foreign();
        if known.is_none() {
            history.edit();
        }
        Ok(history)
    }
}
