//! Files as bytes: mapped, or read into memory.
//!
//! [`Mapping`] is the one place of the project that maps files, and therefore the one of this crate
//! that needs `unsafe`. A mapping costs no memory of its own and opens at once, but it trusts the
//! other processes of the machine: whoever truncates the file meanwhile kills this process.
//! [`Buffer`] is the alternative that trusts nobody.

#![allow(unsafe_code)]

use crate::arena::Arena;
use crate::error::Size;
use core::fmt;
use core::ops::Range;
use std::boxed::Box;
use std::format;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::Path;

/// Why a file could not be opened as bytes.
#[derive(Debug)]
#[non_exhaustive]
pub struct FileError {
    /// The path as it was given.
    pub path: Box<Path>,
    /// The problem.
    pub problem: Problem,
}

/// Faults of a file.
#[derive(Debug)]
#[non_exhaustive]
pub enum Problem {
    /// There is nothing at the path.
    Missing,
    /// It is a directory.
    Directory,
    /// It is a pipe, a device or a socket: it has no length, and reading it could wait for ever.
    NotAFile,
    /// It is a link that leads nowhere.
    Dangling,
    /// It has no bytes.
    Empty,
    /// It does not fit the address space of this machine.
    TooLarge {
        /// Its length in bytes.
        bytes: u64,
    },
    /// It was cut shorter while it was read.
    Shrunk {
        /// Bytes read.
        found: u64,
        /// Its length when it was opened.
        wanted: u64,
    },
    /// The system refused.
    Io(io::Error),
}

impl FileError {
    /// Return that there is `problem` with the file at `path`.
    pub fn new(path: impl AsRef<Path>, problem: Problem) -> Self {
        FileError { path: path.as_ref().into(), problem }
    }
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        match &self.problem {
            Problem::Missing => write!(f, "{path}: no such file; check the path"),
            Problem::Directory => write!(f, "{path} is a directory; name a file in it"),
            Problem::NotAFile => {
                write!(f, "{path} is a pipe or a device, not a file; copy its content to a file first")
            }
            Problem::Dangling => write!(f, "{path} is a link to nothing; remove it or name a file"),
            Problem::Empty => write!(f, "{path} is empty; get the file again"),
            Problem::TooLarge { bytes } => {
                write!(f, "{path} has {}, more than this machine can address", Size(*bytes))
            }
            Problem::Shrunk { found, wanted } => write!(
                f,
                "{path} ended after {} of {}; it was changed while being read, try again",
                Size(*found),
                Size(*wanted)
            ),
            Problem::Io(error) => write!(f, "{path}: {error}"),
        }
    }
}

impl core::error::Error for FileError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match &self.problem {
            // The text has what the system says.
            Problem::Io(error) => error.source(),
            _ => None,
        }
    }
}

impl From<io::Error> for Problem {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound => Self::Missing,
            io::ErrorKind::IsADirectory => Self::Directory,
            _ => Self::Io(error),
        }
    }
}

/// A file mapped into memory, read-only.
///
/// The bytes are read from disk when they are first touched and shared with every other process
/// that maps the file.
///
/// **The file must stay as it is.** If another process truncates it while it is mapped, touching
/// the bytes that are gone kills this process (`SIGBUS`), and no program can prevent that; if
/// another process writes to it, the bytes change here. Replace model files by renaming a new file
/// over the old name, or use [`Buffer`].
///
/// In WebAssembly, which cannot map files, this is a [`Buffer`].
#[derive(Debug)]
pub struct Mapping {
    map: Map,
}

#[cfg(not(target_family = "wasm"))]
type Map = memmap2::Mmap;
#[cfg(target_family = "wasm")]
type Map = Buffer;

impl Mapping {
    /// Map the file at `path`; takes the same time whatever its size.
    ///
    /// # Errors
    /// [`FileError`] with the path: nothing there, a directory, a pipe or device, an empty file, or
    /// what the system says.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, FileError> {
        let path = path.as_ref();
        Self::map(path).map_err(|problem| FileError::new(path, problem))
    }

    fn map(path: &Path) -> Result<Self, Problem> {
        #[cfg(target_family = "wasm")]
        let map = Buffer::fill(path)?;
        #[cfg(not(target_family = "wasm"))]
        // SAFETY: the map is private to this value and read-only. That nobody changes the file
        // meanwhile cannot be checked; it is the documented condition of this type, and readers
        // check what they take from the bytes.
        let map = unsafe { memmap2::Mmap::map(&open_regular(path)?.0) }?;
        Ok(Self { map })
    }

    /// Return the bytes of the file.
    pub fn bytes(&self) -> &[u8] {
        self.map.as_ref()
    }

    /// Tell the system that these bytes are not needed for now, so that they stop counting as this
    /// process's memory. They stay readable: touching them reads them again from the file. Bounds
    /// beyond the end are cut; where the system cannot do this, nothing happens.
    #[cfg_attr(not(unix), expect(unused_variables, reason = "other systems take no such advice"))]
    pub fn release(&self, range: Range<usize>) {
        let end = range.end.min(self.bytes().len());
        #[cfg(unix)]
        if range.start < end {
            let (offset, len) = (range.start, end - range.start);
            let unneeded = memmap2::UncheckedAdvice::DontNeed;
            // SAFETY: the pages of a read-only map of a file are never dirty, so dropping them
            // loses nothing: the next touch finds the same bytes in the file. The range is inside
            // the map.
            let advised = unsafe { self.map.unchecked_advise_range(unneeded, offset, len) };
            // Advice that is not taken costs memory, not correctness.
            drop(advised);
        }
    }
}

/// Memory of its own, for a file that is read into it; an [`Arena`].
///
/// Nothing that happens to the file after [`Buffer::read`] matters.
#[derive(Debug)]
pub struct Buffer(Arena);

impl Buffer {
    /// Read the file at `path`.
    ///
    /// # Errors
    /// As [`Mapping::open`], and if the file is cut shorter meanwhile.
    pub fn read(path: impl AsRef<Path>) -> Result<Self, FileError> {
        let path = path.as_ref();
        Self::fill(path).map_err(|problem| FileError::new(path, problem))
    }

    fn fill(path: &Path) -> Result<Self, Problem> {
        let (file, len) = open_regular(path)?;
        let mut arena = Arena::new(len).map_err(|_| Problem::Io(io::ErrorKind::OutOfMemory.into()))?;
        let found = read_at(&file, 0, arena.bytes_mut())?;
        if found < len {
            return Err(Problem::Shrunk { found: found as u64, wanted: len as u64 });
        }
        Ok(Self(arena))
    }

    /// Return all bytes.
    pub fn bytes(&self) -> &[u8] {
        self.0.bytes()
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        self.bytes()
    }
}

/// Refuse to make a file longer than this process may make one. Asked before writing, because the
/// system answers a write beyond its limit with a signal that ends the process, where a full disk
/// is an error.
pub(crate) fn expect_size(bytes: u64) -> io::Result<()> {
    match size_limit() {
        Some(limit) if bytes > limit => {
            let text = format!(
                "{bytes} bytes are more than the {limit} that a file may have here; raise the limit (ulimit -f)"
            );
            Err(io::Error::new(io::ErrorKind::FileTooLarge, text))
        }
        _ => Ok(()),
    }
}

/// Return the most bytes of a file that this process may write, if there is such a limit.
#[cfg(unix)]
fn size_limit() -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the call writes to the place it is given and nowhere else, and that is a `rlimit` of
    // this function's.
    let told = unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit) };
    #[allow(clippy::unnecessary_cast, reason = "signed on some systems")]
    (told == 0 && limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur as u64)
}

#[cfg(not(unix))]
fn size_limit() -> Option<u64> {
    None
}

/// Open a file that has a length, and return both. The kind is asked before opening, because
/// opening a device may do something, and again after, because the path may lead elsewhere by then.
pub(crate) fn open_regular(path: &Path) -> Result<(File, usize), Problem> {
    check_kind(&fs::metadata(path)?)?;
    let file = without_waiting(OpenOptions::new().read(true), true).open(path)?;
    let metadata = file.metadata()?;
    check_kind(&metadata)?;
    let bytes = metadata.len();
    match isize::try_from(bytes) {
        Ok(0) => Err(Problem::Empty),
        Ok(len) => Ok((file, len.unsigned_abs())),
        Err(_) => Err(Problem::TooLarge { bytes }),
    }
}

/// Open a file that is there, without following a link at its name and without waiting for the
/// other end of a pipe.
///
/// # Errors
/// The error of the system; [`io::ErrorKind::InvalidInput`] if it is no regular file.
pub(crate) fn open_plain(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    let refused = |why| io::Error::new(io::ErrorKind::InvalidInput, why);
    let file = without_waiting(options, false).open(path).map_err(|error| {
        // The system speaks of too many links, where one is too many.
        let is_link = fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_symlink());
        if is_link { refused("a symbolic link, which is not followed here; remove it") } else { error }
    })?;
    let is_file = file.metadata()?.is_file();
    if is_file { Ok(file) } else { Err(refused("not a regular file")) }
}

#[cfg(unix)]
fn without_waiting(options: &mut OpenOptions, follows: bool) -> &mut OpenOptions {
    let links = if follows { 0 } else { libc::O_NOFOLLOW };
    std::os::unix::fs::OpenOptionsExt::custom_flags(options, libc::O_NONBLOCK | links)
}

/// Elsewhere pipes have no names in folders.
#[cfg(not(unix))]
fn without_waiting(options: &mut OpenOptions, _follows: bool) -> &mut OpenOptions {
    options
}

/// Fill the front of `bytes` from `offset` on, and return how far the file goes. Moves nothing that
/// threads share.
///
/// # Errors
/// The error of the system.
pub(crate) fn read_at(file: &File, offset: u64, bytes: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match read_some_at(file, offset.saturating_add(filled as u64), rest) {
            Ok(0) => break,
            Ok(n) => filled += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

#[cfg(unix)]
fn read_some_at(file: &File, offset: u64, bytes: &mut [u8]) -> io::Result<usize> {
    std::os::unix::fs::FileExt::read_at(file, bytes, offset)
}

#[cfg(windows)]
fn read_some_at(file: &File, offset: u64, bytes: &mut [u8]) -> io::Result<usize> {
    std::os::windows::fs::FileExt::seek_read(file, bytes, offset)
}

/// Elsewhere one reader at a time moves the position that all readers share.
#[cfg(not(any(unix, windows)))]
fn read_some_at(mut file: &File, offset: u64, bytes: &mut [u8]) -> io::Result<usize> {
    use std::io::{Read, Seek, SeekFrom};
    static POSITION: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let _turn = POSITION.lock();
    file.seek(SeekFrom::Start(offset))?;
    file.read(bytes)
}

/// Refuse what is no regular file.
pub(crate) fn check_kind(metadata: &fs::Metadata) -> Result<(), Problem> {
    if metadata.is_dir() {
        Err(Problem::Directory)
    } else if metadata.is_file() {
        Ok(())
    } else {
        Err(Problem::NotAFile)
    }
}

#[cfg(test)]
mod tests {
    use std::format;
    use std::path::PathBuf;
    use std::string::ToString;
    use std::vec::Vec;

    use super::*;

    /// Return a folder with a file of these bytes in it.
    fn file_of(bytes: &[u8]) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, bytes).unwrap();
        (folder, path)
    }

    /// Return the error of both ways of opening; they must agree.
    fn refusal(path: &Path) -> FileError {
        let mapped = Mapping::open(path).unwrap_err();
        let read = Buffer::read(path).unwrap_err();
        assert_eq!(mapped.to_string(), read.to_string());
        assert_eq!(&*mapped.path, path);
        mapped
    }

    #[test]
    fn both_ways_give_the_bytes_of_the_file() {
        for len in [1, 63, 64, 65, 4096, 100_000] {
            let bytes: Vec<u8> = (0..len).map(|i| (i % 251) as u8).collect();
            let (_folder, path) = file_of(&bytes);
            assert_eq!(Mapping::open(&path).unwrap().bytes(), bytes);
            let buffer = Buffer::read(&path).unwrap();
            assert_eq!(buffer.bytes(), bytes);
            assert_eq!(buffer.bytes().as_ptr().addr() % 64, 0);
        }
    }

    #[test]
    fn a_missing_path_a_directory_and_an_empty_file_are_told_apart() {
        let (folder, path) = file_of(b"");
        assert!(matches!(refusal(&path).problem, Problem::Empty));
        assert!(matches!(refusal(folder.path()).problem, Problem::Directory));
        let missing = refusal(&folder.path().join("nothing"));
        assert!(matches!(missing.problem, Problem::Missing));
        let shown = folder.path().join("nothing").display().to_string();
        assert_eq!(missing.to_string(), format!("{shown}: no such file; check the path"));
    }

    #[cfg(unix)]
    #[test]
    fn a_pipe_is_refused_without_waiting_for_its_other_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        assert!(matches!(refusal(&path).problem, Problem::NotAFile));
        assert!(matches!(refusal(Path::new("/dev/null")).problem, Problem::NotAFile));
    }

    #[test]
    fn what_is_in_memory_survives_the_file() {
        let (_folder, path) = file_of(&[7; 1000]);
        let buffer = Buffer::read(&path).unwrap();
        fs::write(&path, [8; 10]).unwrap();
        assert_eq!(buffer.bytes(), [7; 1000]);
    }

    #[test]
    fn released_bytes_stay_readable_and_odd_ranges_do_nothing() {
        let (_folder, path) = file_of(&[5; 10_000]);
        let mapping = Mapping::open(&path).unwrap();
        for range in
            [0..10_000, 1..2, 4095..4097, 9_999..1_000_000, 20_000..30_000, 0..0, usize::MAX - 1..usize::MAX]
        {
            mapping.release(range);
            assert_eq!(mapping.bytes(), [5; 10_000]);
        }
        #[expect(clippy::reversed_empty_ranges, reason = "callers may compute one")]
        mapping.release(10..5);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn releasing_lowers_resident_memory() {
        /// Resident pages that belong to files.
        fn resident_of_files() -> usize {
            let statm = fs::read_to_string("/proc/self/statm").unwrap();
            statm.split(' ').nth(2).unwrap().parse().unwrap()
        }
        const PAGES: usize = 4096;
        let (_folder, path) = file_of(&vec![1; PAGES * 4096]);
        let mapping = Mapping::open(&path).unwrap();
        assert_eq!(mapping.bytes().iter().map(|&byte| u64::from(byte)).sum::<u64>(), PAGES as u64 * 4096);
        let before = resident_of_files();
        mapping.release(0..PAGES * 4096);
        let after = resident_of_files();
        assert!(after + PAGES / 2 < before, "{before} pages resident before, {after} after");
    }
}
