//! The list of tokens at the start of a file.
//!
//! It is plain, or what llama.cpp's server makes of it: -1, a version, the number of tokens and the
//! tokens, the number of pictures and sounds and what they are. Lists with those are refused, for
//! their cells are of no token.

use super::read::Reader;
use super::{Error, Section, Wanted};
use alloc::vec::Vec;
use backstitch_kv::Token;

/// Stands for no token.
pub(super) const NONE: i32 = -1;
const SERVER_VERSION: u32 = 1;

pub(super) fn read(r: &mut Reader<'_>) -> Result<Vec<Token>, Error> {
    r.section = Section::Tokens;
    let n = r.u32("number of tokens")?;
    r.ensure(n.into(), 4, "tokens")?;
    let is_server = n > 0 && r.clone().i32("token")? == NONE;
    let n = if is_server { read_server(r, n)? } else { n };
    let mut tokens = Vec::with_capacity(n as usize);
    for _ in 0..n {
        let found = r.i32("token")?;
        let wrong = |_| r.wrong("token", found, Wanted::Text("a token of text"));
        tokens.push(Token(u32::try_from(found).map_err(wrong)?));
    }
    if is_server {
        r.exactly("number of pictures and sounds", 0)?;
    }
    Ok(tokens)
}

/// Read what stands before the tokens in a server's list of `n_words`, and return their number.
fn read_server(r: &mut Reader<'_>, n_words: u32) -> Result<u32, Error> {
    /// Marker, version and the two numbers.
    const FIXED: u32 = 4;
    let few = r.wrong("number of tokens", n_words, Wanted::Text("4 or more, as the list is a server's"));
    let n = n_words.checked_sub(FIXED).ok_or(few)?;
    r.i32("token")?;
    r.exactly("version of the list", SERVER_VERSION)?;
    // More words can only be pictures or sounds.
    r.exactly("number of tokens", n)?;
    Ok(n)
}
