//! Vocabularies: tokens, their texts and their roles, and text to tokens and back.

use crate::border::{Flag, In, Out, exports};
use crate::error::Error;
use crate::handles::Handle;
use crate::model::attr;
use crate::model::{line_end, of_vocab};
use backstitch_models::Token;
use backstitch_models::vocab::{AddSpecial, ParseSpecial, Roles, Vocab, WriteSpecial};
use std::ffi::c_char;

/// Return a token as C has it; -1 for none.
fn number(token: Option<u32>) -> i32 {
    token.and_then(|token| i32::try_from(token).ok()).unwrap_or(-1)
}

fn role(handle: Handle, role: impl FnOnce(&Roles) -> Option<u32>) -> Result<i32, Error> {
    Ok(number(role(of_vocab(handle)?.vocab.roles())))
}

/// Return a token that C named.
fn token(vocab: &Vocab, token: i32) -> Result<Token, Error> {
    let in_vocab = u32::try_from(token).ok().filter(|&token| (token as usize) < vocab.n_vocab());
    let wanted = "a token of the vocabulary";
    in_vocab.map(Token).ok_or(Error::Range { what: "token", found: token.into(), wanted })
}

/// Write bytes to a buffer of `length`; return their number, or its negative if they do not fit.
fn deliver<T: Copy>(values: &[T], out: Out<T>, length: i32) -> Result<i32, Error> {
    let n = i32::try_from(values.len()).unwrap_or(i32::MAX);
    if n > length.max(0) {
        return Ok(-n);
    }
    out.fill(values, "the buffer")?;
    Ok(n)
}

exports! {
    /// Return the number of tokens.
    fn llama_vocab_n_tokens(handle: Handle) -> i32 = [0] {
        Ok(of_vocab(handle)?.vocab.n_vocab() as i32)
    }

    /// Return the kind: 0 none, 1 SentencePiece, 2 byte-pair, 3 WordPiece, 4 Unigram, 5 RWKV,
    /// 6 PLaMo-2.
    fn llama_vocab_type(handle: Handle) -> i32 = [0] {
        Ok(of_vocab(handle)?.texts.kind)
    }

    /// Return the text of a token as the file writes it; null for numbers that are no tokens. The
    /// address is valid as long as the model.
    fn llama_vocab_get_text(handle: Handle, id: i32) -> *const c_char = [std::ptr::null()] {
        let model = of_vocab(handle)?;
        let token = token(&model.vocab, id)?;
        Ok(model.texts.text(token.0 as usize).map_or(c"".as_ptr(), |text| text.as_ptr()))
    }

    /// Return the score of a token.
    fn llama_vocab_get_score(handle: Handle, id: i32) -> f32 = [0.0] {
        let model = of_vocab(handle)?;
        Ok(model.texts.score(token(&model.vocab, id)?.0 as usize))
    }

    /// Return the attributes of a token; 0 for numbers that are no tokens.
    fn llama_vocab_get_attr(handle: Handle, id: i32) -> i32 = [0] {
        let model = of_vocab(handle)?;
        let token = token(&model.vocab, id)?;
        Ok(model.texts.attributes(token.0 as usize, model.vocab.is_hidden(token)))
    }

    /// Return true if a token ends a generation.
    fn llama_vocab_is_eog(handle: Handle, id: i32) -> bool = [false] {
        Ok(id >= 0 && of_vocab(handle)?.vocab.is_eog(Token(id as u32)))
    }

    /// Return true if a token is a control token.
    fn llama_vocab_is_control(handle: Handle, id: i32) -> bool = [false] {
        let model = of_vocab(handle)?;
        let token = token(&model.vocab, id)?;
        Ok(model.texts.attributes(token.0 as usize, model.vocab.is_hidden(token)) & attr::CONTROL != 0)
    }

    /// Return the beginning-of-sequence token; -1 if there is none.
    fn llama_vocab_bos(handle: Handle) -> i32 = [-1] {
        role(handle, |roles| roles.bos)
    }

    /// Return the end-of-sequence token; -1 if there is none.
    fn llama_vocab_eos(handle: Handle) -> i32 = [-1] {
        role(handle, |roles| roles.eos)
    }

    /// Return the end-of-turn token; -1 if there is none.
    fn llama_vocab_eot(handle: Handle) -> i32 = [-1] {
        role(handle, |roles| roles.eot)
    }

    /// Return the separator; -1 if there is none.
    fn llama_vocab_sep(handle: Handle) -> i32 = [-1] {
        role(handle, |roles| roles.sep)
    }

    /// Return the token of a line end; -1 if there is none.
    fn llama_vocab_nl(handle: Handle) -> i32 = [-1] {
        Ok(line_end(&of_vocab(handle)?.vocab))
    }

    /// Return the padding; -1 if there is none.
    fn llama_vocab_pad(handle: Handle) -> i32 = [-1] {
        role(handle, |roles| roles.pad)
    }

    /// Return the mask; -1 if there is none.
    fn llama_vocab_mask(handle: Handle) -> i32 = [-1] {
        role(handle, |roles| roles.mask)
    }

    /// Return the classification token, which is the first of a sequence; -1 if there is none.
    fn llama_vocab_cls(handle: Handle) -> i32 = [-1] {
        role(handle, |roles| roles.bos)
    }

    /// Return true if tokenising adds the beginning of a sequence.
    fn llama_vocab_get_add_bos(handle: Handle) -> bool = [false] {
        Ok(of_vocab(handle)?.vocab.adds_bos())
    }

    /// Return true if tokenising adds the end of a sequence.
    fn llama_vocab_get_add_eos(handle: Handle) -> bool = [false] {
        Ok(of_vocab(handle)?.vocab.adds_eos())
    }

    /// Return true if the file asks for a separator between texts.
    fn llama_vocab_get_add_sep(handle: Handle) -> bool = [false] {
        let model = of_vocab(handle)?;
        Ok(model.metadata.value("tokenizer.ggml.add_sep_token") == Some("true"))
    }

    /// Return the tokens that are never to be drawn, and their number. They live as long as the
    /// model. Null without any.
    fn llama_vocab_get_suppress_tokens(handle: Handle, n: Out<i32>) -> *const i32 = [std::ptr::null()] {
        let model = of_vocab(handle)?;
        let tokens = model.vocab.suppressed();
        if !n.is_null() {
            n.write(i32::try_from(tokens.len()).unwrap_or(i32::MAX), "n_suppress_tokens")?;
        }
        Ok(if tokens.is_empty() { std::ptr::null() } else { tokens.as_ptr().cast() })
    }

    /// Return the token before the prefix of a fill-in-the-middle prompt; -1 if there is none.
    fn llama_vocab_fim_pre(handle: Handle) -> i32 = [-1] {
        role(handle, |roles| roles.fim_pre)
    }

    /// Return the token before the suffix of a fill-in-the-middle prompt; -1 if there is none.
    fn llama_vocab_fim_suf(handle: Handle) -> i32 = [-1] {
        role(handle, |roles| roles.fim_suf)
    }

    /// Return the token before the middle of a fill-in-the-middle prompt; -1 if there is none.
    fn llama_vocab_fim_mid(handle: Handle) -> i32 = [-1] {
        role(handle, |roles| roles.fim_mid)
    }

    /// Return the padding of fill-in-the-middle prompts; -1 if there is none.
    fn llama_vocab_fim_pad(handle: Handle) -> i32 = [-1] {
        role(handle, |roles| roles.fim_pad)
    }

    /// Return the repository name of fill-in-the-middle prompts; -1 if there is none.
    fn llama_vocab_fim_rep(handle: Handle) -> i32 = [-1] {
        role(handle, |roles| roles.fim_rep)
    }

    /// Return the file separator of fill-in-the-middle prompts; -1 if there is none.
    fn llama_vocab_fim_sep(handle: Handle) -> i32 = [-1] {
        role(handle, |roles| roles.fim_sep)
    }

    /// Write the tokens of a text, and return their number, or its negative if there are more than
    /// `n_max`. A text that is not UTF-8 is read with marks in the place of wrong bytes.
    fn llama_tokenize(
        handle: Handle, text: In<u8>, len: i32, tokens: Out<i32>, n_max: i32, add: Flag, parse: Flag,
    ) -> i32 = [0] {
        let model = of_vocab(handle)?;
        let len = usize::try_from(len)
            .map_err(|_| Error::Range { what: "text_len", found: len.into(), wanted: "a length" })?;
        let text = String::from_utf8_lossy(text.slice(len, "text")?);
        let add = if add != 0 { AddSpecial::Yes } else { AddSpecial::No };
        let parse = if parse != 0 { ParseSpecial::Yes } else { ParseSpecial::No };
        let mut found = Vec::new();
        model.vocab.tokenize(&text, add, parse, &mut found);
        let found: Vec<i32> = found.iter().map(|token| token.0 as i32).collect();
        deliver(&found, tokens, n_max)
    }

    /// Write the bytes of a token without a zero, and return their number, or its negative if they
    /// do not fit. `lstrip` spaces at the beginning are left out; control tokens have no bytes
    /// unless `special` is true.
    fn llama_token_to_piece(
        handle: Handle, id: i32, buf: Out<u8>, length: i32, lstrip: i32, special: Flag,
    ) -> i32 = [0] {
        let model = of_vocab(handle)?;
        let token = token(&model.vocab, id)?;
        if special == 0 && model.vocab.is_hidden(token) {
            return Ok(0);
        }
        let mut piece = model.vocab.piece(token);
        for _ in 0..lstrip.max(0) {
            piece = piece.strip_prefix(b" ").unwrap_or(piece);
        }
        deliver(piece, buf, length)
    }

    /// Write the text of tokens without a zero, and return its length, or its negative if it does
    /// not fit.
    fn llama_detokenize(
        handle: Handle, tokens: In<i32>, n_tokens: i32, text: Out<u8>, length: i32,
        remove_special: Flag, unparse_special: Flag,
    ) -> i32 = [0] {
        let model = of_vocab(handle)?;
        let n = usize::try_from(n_tokens).unwrap_or(0);
        let ids = tokens.slice(n, "tokens")?;
        let ids = ids.iter().map(|&id| token(&model.vocab, id)).collect::<Result<Vec<_>, _>>()?;
        let write = if unparse_special != 0 { WriteSpecial::Yes } else { WriteSpecial::No };
        let inner = if remove_special != 0 { without_ends(&model.vocab, &ids) } else { &ids };
        // A token that was removed in front leaves the space behind it, as it does if it is there.
        let written = match inner.first() == ids.first() {
            true => model.vocab.detokenize(inner, write),
            false => model.vocab.detokenize_behind(inner, write),
        };
        deliver(&written, text, length)
    }
}

/// Return tokens without those that tokenising adds around a text.
fn without_ends<'a>(vocab: &Vocab, tokens: &'a [Token]) -> &'a [Token] {
    let tokens = match (vocab.adds_bos(), tokens.split_first()) {
        (true, Some((first, rest))) if Some(*first) == vocab.bos() => rest,
        _ => tokens,
    };
    match (vocab.adds_eos(), tokens.split_last()) {
        (true, Some((last, rest))) if Some(*last) == vocab.eos() => rest,
        _ => tokens,
    }
}
