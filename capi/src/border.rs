//! The border: what C hands over, checked, and calls that cannot unwind.
//!
//! Exported functions take the types of this module in the place of raw pointers. A value of them
//! is a claim of the C program: that the address is null, or that as many bytes as the function
//! documents may be read or written there during the call. Everything else is checked: null,
//! alignment, lengths. All reading and writing of foreign memory happens here.

use crate::error::Error;
use crate::log;
use std::cell::Cell;
use std::ffi::{CStr, c_char, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A boolean of C: any byte but zero is true.
pub type Flag = u8;

thread_local! {
    static IN_CALLBACK: Cell<bool> = const { Cell::new(false) };
}

/// Run the body of an exported function. If it fails or panics, log why and return `failure`.
pub fn call<T>(function: &'static str, failure: T, body: impl FnOnce() -> Result<T, Error>) -> T {
    // A panic leaves no lock that others rely on: every lock is taken in spite of poison, and what
    // it guards is either replaced as a whole or undone by the engine.
    let result = catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().copied().map(str::to_owned);
        let message = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
        Err(Error::Panicked { message })
    });
    match result {
        Ok(value) => value,
        Err(error) => {
            // The log is the program's code, which might panic if it is Rust itself.
            let _ = catch_unwind(AssertUnwindSafe(|| log::failed(function, &error)));
            failure
        }
    }
}

/// Run a callback of the program's. Calls that it makes fail with [`Error::Busy`] instead of
/// waiting for a context that this thread, or one that waits for it, has locked.
pub fn in_callback<T>(callback: impl FnOnce() -> T) -> T {
    let before = IN_CALLBACK.replace(true);
    let result = callback();
    IN_CALLBACK.set(before);
    result
}

/// Return true if this thread runs a callback.
pub fn is_in_callback() -> bool {
    IN_CALLBACK.get()
}

/// Define exported functions: `fn name(arguments) -> type = [failure] { body }`.
///
/// The body returns a [`Result`]; C gets the failure value in the place of an error. A function
/// without a type returns nothing either way.
macro_rules! exports {
    ($($(#[$meta:meta])* fn $name:ident($($arg:ident: $ty:ty),* $(,)?)
        $(-> $out:ty = [$failure:expr])? $body:block)*) => {$(
        $(#[$meta])*
        #[unsafe(no_mangle)]
        pub extern "C" fn $name($($arg: $ty),*) $(-> $out)? {
            let failure = $crate::border::first!($($failure,)? ());
            $crate::border::call(stringify!($name), failure, || $body)
        }
    )*};
}

/// Expand to the first of one or two expressions.
macro_rules! first {
    ($first:expr $(, $rest:expr)?) => {
        $first
    };
}
pub(crate) use {exports, first};

/// Return an error if `address` is null or not aligned for a `T`.
fn check<T>(address: *const T, what: &'static str) -> Result<(), Error> {
    match () {
        () if address.is_null() => Err(Error::Null { what }),
        () if !address.is_aligned() => Err(Error::Unaligned { what }),
        () => Ok(()),
    }
}

/// Return an error if no slice of `T` can have `n` elements.
fn check_len<T>(n: usize, what: &'static str) -> Result<(), Error> {
    match n.checked_mul(size_of::<T>()).filter(|&bytes| bytes <= isize::MAX as usize) {
        Some(_) => Ok(()),
        None => Err(Error::Range { what, found: n as i64, wanted: "a length that fits in memory" }),
    }
}

/// Text that C hands over: null, or bytes up to a zero.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct Text(*const c_char);

impl Text {
    /// Return the argument for `address`.
    ///
    /// # Safety
    /// `address` is null, or a text that ends with a zero byte and stays unchanged as long as the
    /// value is used.
    pub const unsafe fn new(address: *const c_char) -> Self {
        Text(address)
    }

    /// Return true if there is no text.
    pub fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// Return the bytes before the zero.
    ///
    /// # Errors
    /// [`Error::Null`].
    pub fn bytes(&self, what: &'static str) -> Result<&[u8], Error> {
        check(self.0, what)?;
        // SAFETY: the C program claims that a text which is not null ends with a zero byte and does
        // not change during the call, which outlives the borrow of the argument.
        Ok(unsafe { CStr::from_ptr(self.0) }.to_bytes())
    }

    /// Return the text.
    ///
    /// # Errors
    /// [`Error::Null`], [`Error::Text`].
    pub fn str(&self, what: &'static str) -> Result<&str, Error> {
        std::str::from_utf8(self.bytes(what)?).map_err(|_| Error::Text { what })
    }

    /// Return the text as a path.
    ///
    /// # Errors
    /// Those of [`Text::str`], on systems where paths are text.
    pub fn path(&self, what: &'static str) -> Result<std::path::PathBuf, Error> {
        #[cfg(unix)]
        {
            use std::os::unix::ffi::OsStrExt;
            Ok(std::ffi::OsStr::from_bytes(self.bytes(what)?).into())
        }
        #[cfg(not(unix))]
        Ok(self.str(what)?.into())
    }
}

/// Memory that the call reads.
#[derive(Debug)]
#[repr(transparent)]
pub struct In<T>(*const T);

impl<T> Clone for In<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for In<T> {}

impl<T: Copy> In<T> {
    /// Return the argument for `address`.
    ///
    /// # Safety
    /// `address` is null, or as many initialised `T` lie there as the function documents, unchanged
    /// as long as the value is used.
    pub const unsafe fn new(address: *const T) -> Self {
        In(address)
    }

    /// Return true if there is nothing.
    pub fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// Return the `n` values; none if `n` is zero, wherever the address points.
    ///
    /// # Errors
    /// [`Error::Null`], [`Error::Unaligned`], [`Error::Range`].
    pub fn slice(&self, n: usize, what: &'static str) -> Result<&[T], Error> {
        if n == 0 {
            return Ok(&[]);
        }
        check(self.0, what)?;
        check_len::<T>(n, what)?;
        // SAFETY: the C program claims that `n` values lie there during the call; null, alignment
        // and the size in bytes were checked.
        Ok(unsafe { std::slice::from_raw_parts(self.0, n) })
    }

    /// Return the value.
    ///
    /// # Errors
    /// [`Error::Null`], [`Error::Unaligned`].
    pub fn get(self, what: &'static str) -> Result<T, Error> {
        check(self.0, what)?;
        // SAFETY: the C program claims that a value lies there; null and alignment were checked.
        Ok(unsafe { self.0.read() })
    }

    /// Return the value at `index` of a list that ends where the program says.
    ///
    /// # Errors
    /// [`Error::Null`], [`Error::Unaligned`].
    pub fn at(self, index: usize, what: &'static str) -> Result<T, Error> {
        check(self.0, what)?;
        In(self.0.wrapping_add(index)).get(what)
    }
}

/// Memory that the call writes.
#[derive(Debug)]
#[repr(transparent)]
pub struct Out<T>(*mut T);

impl<T> Clone for Out<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Out<T> {}

impl<T: Copy> Out<T> {
    /// Return the argument for `address`.
    ///
    /// # Safety
    /// `address` is null, or as many `T` as the function documents may be written there, and
    /// nobody else uses that memory as long as the value is used.
    pub const unsafe fn new(address: *mut T) -> Self {
        Out(address)
    }

    /// Return true if there is nowhere to write.
    pub fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// Check that a value can be written, before something is done that cannot be undone.
    ///
    /// # Errors
    /// [`Error::Null`], [`Error::Unaligned`].
    pub fn check(self, what: &'static str) -> Result<(), Error> {
        check(self.0, what)
    }

    /// Write a value.
    ///
    /// # Errors
    /// [`Error::Null`], [`Error::Unaligned`].
    pub fn write(self, value: T, what: &'static str) -> Result<(), Error> {
        check(self.0, what)?;
        // SAFETY: the C program claims that a value may be written there; null and alignment were
        // checked.
        unsafe { self.0.write(value) };
        Ok(())
    }

    /// Read the value that the program put there before.
    ///
    /// # Errors
    /// [`Error::Null`], [`Error::Unaligned`].
    pub fn read(self, what: &'static str) -> Result<T, Error> {
        In(self.0.cast_const()).get(what)
    }

    /// Write `values`, which the program made room for.
    ///
    /// # Errors
    /// [`Error::Null`], [`Error::Unaligned`] unless there is nothing to write.
    pub fn fill(self, values: &[T], what: &'static str) -> Result<(), Error> {
        if values.is_empty() {
            return Ok(());
        }
        check(self.0, what)?;
        // SAFETY: the C program claims room for as many values, which the caller of this function
        // compared with the length that it states; a fresh borrow of ours does not overlap it.
        unsafe { std::ptr::copy_nonoverlapping(values.as_ptr(), self.0, values.len()) };
        Ok(())
    }

    /// Return the `n` values that lie there, to change them.
    ///
    /// # Errors
    /// [`Error::Null`], [`Error::Unaligned`], [`Error::Range`].
    pub fn slice(&mut self, n: usize, what: &'static str) -> Result<&mut [T], Error> {
        if n == 0 {
            return Ok(&mut []);
        }
        check(self.0, what)?;
        check_len::<T>(n, what)?;
        // SAFETY: the C program claims that `n` initialised values lie there which nobody else uses
        // during the call; null, alignment and the size in bytes were checked.
        Ok(unsafe { std::slice::from_raw_parts_mut(self.0, n) })
    }
}

/// Write `text` and a zero to a buffer of `size` bytes, cut if it is too long, and return its
/// length, as `snprintf` does.
///
/// # Errors
/// [`Error::Unaligned`] never, [`Error::Null`] if `size` is positive and there is no buffer.
pub fn write_text(text: &[u8], buffer: Out<c_char>, size: usize) -> Result<i32, Error> {
    let n = i32::try_from(text.len()).unwrap_or(i32::MAX);
    let Some(most) = size.checked_sub(1) else { return Ok(n) };
    let mut cut: Vec<c_char> = text.iter().take(most).map(|&byte| byte as c_char).collect();
    cut.push(0);
    buffer.fill(&cut, "the buffer")?;
    Ok(n)
}

/// An address that belongs to the program and is only handed back to it.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct Opaque(pub usize);

impl Opaque {
    /// Return the address.
    pub fn pointer(self) -> *mut c_void {
        self.0 as *mut c_void
    }
}
