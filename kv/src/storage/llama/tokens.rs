//! The list of tokens at the start of a file.
//!
//! It is plain, or what llama.cpp's server makes of it: -1, a version, the number of tokens and the
//! tokens, the number of pictures and sounds and what they are. Lists with those are refused, for
//! their cells are of no token.

use super::read::Reader;
use super::{Error, Section, Wanted};
use crate::ids::Token;
use alloc::vec::Vec;

/// Stands for no token.
pub(super) const NONE: i32 = -1;
const SERVER_VERSION: u32 = 1;

pub(super) fn read(r: &mut Reader<'_>) -> Result<Vec<Token>, Error> {
    r.section = Section::Tokens;
    let n = r.u32("number of tokens")?;
    r.ensure(n.into(), 4, "tokens")?;
    if n == 0 {
        return Ok(Vec::new());
    }
    let first = r.i32("token")?;
    if first == NONE {
        return server(r, n);
    }
    let mut tokens = Vec::with_capacity(n as usize);
    tokens.push(token(r, first)?);
    plain(r, n - 1, &mut tokens)?;
    Ok(tokens)
}

fn plain(r: &mut Reader<'_>, n: u32, tokens: &mut Vec<Token>) -> Result<(), Error> {
    for _ in 0..n {
        let found = r.i32("token")?;
        tokens.push(token(r, found)?);
    }
    Ok(())
}

fn token(r: &Reader<'_>, found: i32) -> Result<Token, Error> {
    let wanted = Wanted::Text("a token of text");
    u32::try_from(found).map(Token).map_err(|_| r.wrong("token", 4, found, wanted))
}

/// Return the rest of a list of `n_words`, the first of which was read.
fn server(r: &mut Reader<'_>, n_words: u32) -> Result<Vec<Token>, Error> {
    /// Marker, version and the two numbers.
    const FIXED: u32 = 4;
    if n_words < FIXED {
        return Err(r.wrong(
            "number of tokens",
            8,
            n_words,
            Wanted::Text("4 or more, as the list is a server's"),
        ));
    }
    r.exactly("version of the list", SERVER_VERSION)?;
    let n = r.u32("number of tokens")?;
    if n != n_words - FIXED {
        // More words can only be pictures or sounds.
        return Err(r.wrong("number of tokens", 4, n, Wanted::Exactly((n_words - FIXED).into())));
    }
    let mut tokens = Vec::with_capacity(n as usize);
    plain(r, n, &mut tokens)?;
    r.exactly("number of pictures and sounds", 0)?;
    Ok(tokens)
}
