//! A file as a whole.

use super::cells::Cache;
use super::read::Reader;
use super::states::States;
use super::{
    BUFFER_MAGIC, Error, Form, Layout, Options, SEQUENCE_MAGIC, SEQUENCE_VERSION, SESSION_MAGIC,
    SESSION_VERSION, Section, Wanted, assemble, tokens,
};
use alloc::string::String;
use alloc::vec::Vec;
use backstitch_kv::Token;
use backstitch_kv::snapshot::Snapshot;

/// A file that was read and checked: a snapshot, whose bytes it is the
/// [`Source`](backstitch_kv::snapshot::Source) of.
///
/// The snapshot of a session has a sequence for each number up to the last that the file has cells
/// or states of; that of one sequence has one. Cells are in blocks of 32 in the order of their
/// positions. Of a window only cells behind which none is missing are taken.
pub struct File<'a> {
    pub(super) form: Form,
    pub(super) tokens: Vec<Token>,
    pub(super) caches: Vec<Cache<'a>>,
    pub(super) states: States<'a>,
    pub(super) layout: Layout,
    n_bytes: u64,
    pub(super) snapshot: Snapshot,
    /// For each group of the snapshot, for each block, the cells of the group's cache.
    pub(super) blocks: Vec<Vec<assemble::Members>>,
}

impl<'a> File<'a> {
    /// Read a file for a model of this layout. Nothing is allocated that the length of `bytes`
    /// does not justify.
    ///
    /// # Errors
    /// Those that name what is wrong with the file, and [`Error::Layout`].
    pub fn parse(bytes: &'a [u8], layout: &Layout) -> Result<File<'a>, Error> {
        let mut r = Reader::new(bytes);
        let (form, tokens) = read_head(&mut r, layout)?;
        Self::read(r, form, tokens, layout)
    }

    /// Read a file of which `rest` is what stands behind the tokens, as the present version has it.
    ///
    /// # Errors
    /// As [`File::parse`]; places are those in `rest`.
    pub fn parse_behind(
        form: Form,
        tokens: Vec<Token>,
        rest: &'a [u8],
        layout: &Layout,
    ) -> Result<File<'a>, Error> {
        let mut r = Reader::new(rest);
        if form == Form::Session {
            read_architecture(&mut r, layout)?;
        }
        Self::read(r, form, tokens, layout)
    }

    /// Read the memory.
    fn read(mut r: Reader<'a>, form: Form, tokens: Vec<Token>, layout: &Layout) -> Result<File<'a>, Error> {
        layout.check()?;
        let mut caches: Vec<Cache<'a>> = Vec::new();
        for index in 0..layout.caches.len() {
            let n_stream = caches.first().map(|first| first.n_stream);
            caches.push(Cache::read(&mut r, layout, index as u8, form, n_stream)?);
        }
        let states = match &layout.recurrent {
            Some(recurrent) => States::read(&mut r, layout, recurrent.n_layer, form)?,
            None => States::default(),
        };
        r.finish()?;
        let (snapshot, blocks) = assemble::assemble(layout, form, &caches, &states)?;
        let (layout, n_bytes) = (layout.clone(), r.offset());
        Ok(File { form, tokens, caches, states, layout, n_bytes, snapshot, blocks })
    }

    /// Return the kind of file.
    pub fn form(&self) -> Form {
        self.form
    }

    /// Return the tokens it lists. Nothing says that they are those of its cells; a buffer has
    /// none.
    pub fn tokens(&self) -> &[Token] {
        &self.tokens
    }

    /// Return how long it is.
    pub fn n_bytes(&self) -> u64 {
        self.n_bytes
    }

    /// Return the sequences that it holds.
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// Properties of the context that wrote it. A file of no cells looks like one with flash
    /// attention.
    pub fn options(&self) -> Options {
        let v_trans = self.caches.iter().flat_map(|cache| &cache.streams).any(|stream| stream.v_trans);
        Options {
            n_stream: self.caches.first().map_or(1, |cache| cache.n_stream),
            v_trans,
            // llama.cpp's sessions have whatever its caches still hold.
            margin: self.form == Form::Session,
            sequence: self.caches.iter().find_map(|cache| cache.sequence).unwrap_or(0),
        }
    }
}

/// Read what stands before the memory.
fn read_head(r: &mut Reader<'_>, layout: &Layout) -> Result<(Form, Vec<Token>), Error> {
    match r.u32("magic number")? {
        SESSION_MAGIC => {
            r.version(SESSION_VERSION)?;
            let tokens = tokens::read(r)?;
            read_architecture(r, layout)?;
            Ok((Form::Session, tokens))
        }
        SEQUENCE_MAGIC => {
            r.version(SEQUENCE_VERSION)?;
            Ok((Form::Sequence, tokens::read(r)?))
        }
        BUFFER_MAGIC => {
            r.i32("sequence")?;
            Ok((Form::Buffer, Vec::new()))
        }
        other => {
            let wanted = Wanted::Text("that of a session, a sequence file or a sequence buffer of llama.cpp");
            Err(r.wrong("magic number", other, wanted))
        }
    }
}

fn read_architecture(r: &mut Reader<'_>, layout: &Layout) -> Result<(), Error> {
    /// Names are short; a long one is no name.
    const MOST: u32 = 256;
    r.section = Section::Header;
    let n = r.between("length of the architecture's name", 0, MOST)?;
    let offset = r.offset();
    let found = r.bytes(n.into(), "architecture's name")?;
    if found == layout.architecture.as_bytes() {
        return Ok(());
    }
    let found = String::from_utf8_lossy(found).into_owned().into();
    Err(Error::Architecture { offset, found, wanted: layout.architecture.as_str().into() })
}
