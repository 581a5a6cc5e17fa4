//! Names of numbers, and of the files of a split model.

use crate::border::{Out, Text, exports, write_text};
use crate::error::Error;
use crate::log;
use backstitch_models::gguf::SplitName;
use backstitch_quantize::FileType;
use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char};
use std::sync::LazyLock;

/// Names of the ways to read a file, by their numbers from -1 on.
const LOAD_MODES: [&CStr; 6] = [c"auto", c"none", c"mmap", c"mlock", c"mmap+mlock", c"dio"];

static FILE_TYPES: LazyLock<HashMap<u32, CString>> =
    LazyLock::new(|| FileType::ALL.iter().map(|ty| (ty.number(), log::c_string(ty.name()))).collect());

fn load_mode(number: i32) -> Option<&'static CStr> {
    LOAD_MODES.get(usize::try_from(number.checked_add(1)?).ok()?).copied()
}

exports! {
    /// Return the name of a choice of flash attention.
    fn llama_flash_attn_type_name(number: i32) -> *const c_char = [c"unknown".as_ptr()] {
        Ok(match number {
            -1 => c"auto".as_ptr(),
            0 => c"disabled".as_ptr(),
            1 => c"enabled".as_ptr(),
            _ => c"unknown".as_ptr(),
        })
    }

    /// Return the name of a way to read a file.
    fn llama_load_mode_name(number: i32) -> *const c_char = [c"unknown".as_ptr()] {
        Ok(load_mode(number).unwrap_or(c"unknown").as_ptr())
    }

    /// Return the number of a way to read a file; that of `auto` for names that are none.
    fn llama_load_mode_from_str(name: Text) -> i32 = [-1] {
        let name = name.bytes("str")?;
        Ok(LOAD_MODES.iter().position(|mode| mode.to_bytes() == name).map_or(-1, |index| index as i32 - 1))
    }

    /// Return the name of a file type.
    fn llama_ftype_name(number: i32) -> *const c_char = [c"unknown".as_ptr()] {
        let name = u32::try_from(number).ok().and_then(|number| FILE_TYPES.get(&number));
        Ok(name.map_or(c"unknown".as_ptr(), |name| name.as_ptr()))
    }

    /// Write the path of a part of a split model, and return its length; 0 if it does not fit.
    fn llama_split_path(buf: Out<c_char>, size: usize, prefix: Text, split_no: i32, split_count: i32)
        -> i32 = [0]
    {
        let prefix = prefix.str("path_prefix")?;
        let path = format!("{prefix}-{:05}-of-{:05}.gguf", i64::from(split_no) + 1, split_count);
        let n = write_text(path.as_bytes(), buf, size)?;
        Ok(if (n as usize) < size { n } else { 0 })
    }

    /// Write what all parts of a split model's paths begin with, and return its length; 0 if the
    /// path is not that of this part.
    fn llama_split_prefix(buf: Out<c_char>, size: usize, path: Text, split_no: i32, split_count: i32)
        -> i32 = [0]
    {
        let path = path.str("split_path")?;
        let name = path.rsplit('/').next().unwrap_or(path);
        let end = format!("-{:05}-of-{:05}.gguf", i64::from(split_no) + 1, split_count);
        let is_part = SplitName::parse(name).is_some();
        let prefix = path.strip_suffix(&end).filter(|_| is_part);
        let not_part = Error::Absent { what: "the prefix of a path that names another part" };
        let n = write_text(prefix.ok_or(not_part)?.as_bytes(), buf, size)?;
        Ok(n)
    }
}
