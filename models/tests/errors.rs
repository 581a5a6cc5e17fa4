//! Chains of errors say everything once; vectors of a model are numbers.

use backstitch_models::backstitch_kv::file::{FileError, Problem};
use backstitch_models::backstitch_kv::{self, ImportError, io, storage};
use backstitch_models::error::StreamError;
use backstitch_models::{Error, Model};
use std::error::Error as _;
use std::path::Path;

/// Return the messages of all levels in one line, as a program prints them.
fn levels(error: &(dyn std::error::Error + 'static)) -> Vec<String> {
    let mut levels = vec![error.to_string()];
    let mut error = error;
    while let Some(source) = error.source() {
        levels.push(source.to_string());
        error = source;
    }
    levels
}

fn refused() -> std::io::Error {
    std::io::Error::other("the disk is gone")
}

fn file() -> FileError {
    FileError::new("a.gguf", Problem::Io(refused()))
}

#[test]
fn no_level_of_a_chain_repeats_what_a_level_above_it_says() {
    let state = || storage::Error::File { operation: storage::Operation::Open, error: file() };
    let part = Error::Shard { shard: 1, source: Box::new(Error::Io(file())) };
    let chains: Vec<Box<dyn std::error::Error>> = vec![
        Box::new(file()),
        Box::new(io::Error::System(refused())),
        Box::new(storage::Error::Io(io::Error::System(refused()))),
        Box::new(state()),
        Box::new(ImportError::Source(state())),
        Box::new(Error::State(state())),
        Box::new(Error::Memory(backstitch_kv::Error::NoStorage)),
        Box::new(Error::File { path: Path::new("a.gguf").into(), source: Box::new(part) }),
    ];
    for chain in chains {
        let levels = levels(&*chain);
        for (i, above) in levels.iter().enumerate() {
            let repeated = levels[i + 1..].iter().find(|below| above.contains(below.as_str()));
            assert_eq!(repeated, None, "{levels:?}");
        }
        let joined = levels.join(": ");
        let cause = if joined.contains("bytes") { "where the engine keeps them" } else { "the disk is gone" };
        assert_eq!(joined.matches(cause).count(), 1, "{joined}");
    }
    assert!(Error::EncoderOnly.source().is_none());
}

/// An error of somebody's stream, with a cause.
#[derive(Debug)]
struct Lost;

impl std::fmt::Display for Lost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the connection is lost")
    }
}

impl std::error::Error for Lost {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&std::fmt::Error)
    }
}

#[test]
fn the_cause_of_a_streams_error_stays_in_the_chain() {
    let lost = || io::Error::System(std::io::Error::other(Lost));
    let cause = std::fmt::Error.to_string();
    let text = "the model cannot be read from the stream: the connection is lost";
    assert_eq!(levels(&Error::Stream(StreamError(lost()))), [text, &cause]);
    assert_eq!(levels(&Error::State(lost().into())), ["the connection is lost", &cause]);
}

#[test]
fn scales_of_norms_are_numbers() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../goldens/models/llama.gguf");
    let mut bytes = std::fs::read(path).unwrap();
    let name = "blk.0.ffn_norm.weight";
    let place = {
        let gguf = backstitch_models::gguf::Gguf::parse(&bytes).unwrap();
        gguf.tensor(name).unwrap().range().start + 4 * 3
    };
    bytes[place..place + 4].copy_from_slice(&f32::NAN.to_le_bytes());
    let error = Model::from_bytes(&bytes).unwrap_err();
    assert!(matches!(&error, Error::NotANumber { tensor, index: 3 } if &**tensor == name), "{error}");
    assert!(error.to_string().starts_with("element 3 of tensor \"blk.0.ffn_norm.weight\" is NaN"), "{error}");
}
