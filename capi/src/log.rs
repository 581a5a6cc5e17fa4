//! The log: a callback of the program's, or standard error.

use crate::border::{self, Out, exports};
use crate::error::Error;
use std::cell::{Cell, RefCell};
use std::ffi::{CString, c_char, c_void};
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
    callback: Callback,
    /// An address that only the program's callback looks at.
    data: usize,
}

static RECEIVER: Mutex<Receiver> = Mutex::new(Receiver { callback: None, data: 0 });

thread_local! {
    /// True while this thread runs the callback that receives messages.
    static IN_LOG: Cell<bool> = const { Cell::new(false) };
    static LAST_ERROR: RefCell<CString> = RefCell::new(CString::default());
}

/// Hand a message to the program's callback, or write it to standard error if it is a warning or an
/// error. Messages of calls that the callback makes itself are dropped.
pub fn write(level: Level, message: &str) {
    let receiver = *RECEIVER.lock().unwrap_or_else(PoisonError::into_inner);
    match receiver.callback {
        Some(_) if IN_LOG.get() => {}
        Some(callback) => {
            let line = c_string(&format!("backstitch: {message}\n"));
            IN_LOG.set(true);
            border::in_callback(|| callback(level as i32, line.as_ptr(), receiver.data as *mut c_void));
            IN_LOG.set(false);
        }
        None if level != Level::Info => eprintln!("backstitch: {message}"),
        None => {}
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
        *RECEIVER.lock().unwrap_or_else(PoisonError::into_inner) = Receiver { callback, data: data as usize };
        Ok(())
    }

    /// Write the callback that receives messages, and its data.
    fn llama_log_get(callback: Out<Callback>, data: Out<*mut c_void>) {
        let receiver = *RECEIVER.lock().unwrap_or_else(PoisonError::into_inner);
        callback.write(receiver.callback, "log_callback")?;
        data.write(receiver.data as *mut c_void, "user_data")
    }

    /// Set the callback of ggml's messages, which are this library's.
    fn ggml_log_set(callback: Callback, data: *mut c_void) {
        llama_log_set(callback, data);
        Ok(())
    }
}
