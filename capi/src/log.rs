//! The log: a callback of the program's, or standard error.

use crate::border::{self, Out, Text, exports};
use crate::error::Error;
use std::cell::{Cell, RefCell};
use std::ffi::{CString, c_char, c_void};
use std::io::Write;
use std::sync::{Mutex, PoisonError};

/// Levels of messages, by ggml's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Level {
    /// News that a user may want.
    Info = 2,
    /// Something that was left out.
    Warning = 3,
    /// A call that failed.
    Error = 4,
}

/// A callback of the program's that receives messages: level, text with a line end, user data.
pub type Callback = Option<extern "C" fn(i32, *const c_char, *mut c_void)>;

#[derive(Clone, Copy)]
struct Receiver {
    callback: extern "C" fn(i32, *const c_char, *mut c_void),
    /// An address that only the program's callback looks at.
    data: usize,
}

static RECEIVER: Mutex<Receiver> = Mutex::new(Receiver { callback: to_stderr, data: 0 });

/// Write a message to standard error if it is a warning or an error: what receives messages unless
/// the program sets something.
extern "C" fn to_stderr(level: i32, text: *const c_char, _data: *mut c_void) {
    // SAFETY: whoever calls it, the library or the program, claims that this is null or a text.
    let text = unsafe { Text::new(text) };
    if level > Level::Info as i32
        && let Ok(text) = text.bytes("text")
    {
        // Nobody is left to tell if this fails, and a panic could not leave this function.
        let _ = std::io::stderr().write_all(text);
    }
}

thread_local! {
    /// True while this thread runs the callback that receives messages.
    static IN_LOG: Cell<bool> = const { Cell::new(false) };
    static LAST_ERROR: RefCell<CString> = RefCell::new(CString::default());
}

/// Hand a message to the callback. Messages of calls that the callback makes itself are dropped.
pub fn write(level: Level, message: &str) {
    let receiver = *RECEIVER.lock().unwrap_or_else(PoisonError::into_inner);
    if !IN_LOG.replace(true) {
        let line = c_string(&format!("backstitch: {message}\n"));
        border::in_callback(|| {
            (receiver.callback)(level as i32, line.as_ptr(), receiver.data as *mut c_void)
        });
        IN_LOG.set(false);
    }
}

/// Record and log the error of a call of `function`.
pub fn failed(function: &str, error: &Error) {
    let message = format!("{function}: {error}");
    LAST_ERROR.with(|last| *last.borrow_mut() = c_string(&message));
    write(Level::Error, &message);
}

/// Return the address of the text of this thread's last error, which stays until the next one.
pub fn last_error() -> *const c_char {
    LAST_ERROR.with(|last| last.borrow().as_ptr())
}

/// Return a text without the zero bytes that C would take for its end.
pub fn c_string(text: &str) -> CString {
    CString::new(text.replace('\0', "")).unwrap_or_default()
}

exports! {
    /// Send messages to `callback` from now on, or to standard error if it is null.
    fn llama_log_set(callback: Callback, data: *mut c_void) {
        let receiver = Receiver { callback: callback.unwrap_or(to_stderr), data: data as usize };
        *RECEIVER.lock().unwrap_or_else(PoisonError::into_inner) = receiver;
        Ok(())
    }

    /// Write the callback that receives messages, and its data.
    fn llama_log_get(callback: Out<Callback>, data: Out<*mut c_void>) {
        let receiver = *RECEIVER.lock().unwrap_or_else(PoisonError::into_inner);
        callback.write(Some(receiver.callback), "log_callback")?;
        data.write(receiver.data as *mut c_void, "user_data")
    }

    /// Set the callback of ggml's messages, which are this library's.
    fn ggml_log_set(callback: Callback, data: *mut c_void) {
        llama_log_set(callback, data);
        Ok(())
    }
}
