//! A test of saved states on a disk that fails, to copy.
//!
//! A state is saved over an older one while the disk fails, tears a write or kills the process at
//! each of its operations in turn. Whatever happens, and whatever a loss of power then leaves, the
//! file holds the old state or the new one, whole.
//!
//! ```text
//! cargo run -p backstitch-kv --example failing_disk --features testing
//! ```

use backstitch_kv::storage::{Container, Error, Fingerprint, Header, Saved, Scope, Sync, Tag, save};
use backstitch_kv::testing::{FakeDisk, Fault};
use std::path::Path;

const PATH: &str = "/states/chat.bst";
const TEXT: Tag = Tag(*b"TEXT");

/// Save a text as the only section of a state file.
fn save_text(disk: &FakeDisk, text: &str) -> Result<Saved, Error> {
    let header = Header { fingerprint: Fingerprint([7; 32]), scope: Scope::Context };
    save(disk, Path::new(PATH), header, Sync::Yes, &mut |writer| {
        writer.section(TEXT, 1, true, 0, &[text.as_bytes()])
    })
}

/// Read the text in the file, and check every byte of the file.
fn read_text(disk: &FakeDisk) -> Result<Option<String>, Error> {
    let Some(bytes) = disk.bytes(Path::new(PATH)) else { return Ok(None) };
    let container = Container::parse(&bytes)?;
    container.check()?;
    let Some(section) = container.sections().last() else { return Ok(None) };
    Ok(Some(String::from_utf8_lossy(&container.read(section)?).into_owned()))
}

fn main() -> Result<(), Error> {
    let mut n_faults = 0;
    for fault in [Fault::Error, Fault::Tear, Fault::Kill, Fault::KillAfter] {
        for n in 0.. {
            let disk = FakeDisk::new();
            save_text(&disk, "what was said before")?;
            disk.fail_at(n, fault);
            let result = save_text(&disk, "what is said now");
            if disk.operations() <= n {
                break; // The save takes fewer operations.
            }
            n_faults += 1;
            for seed in 0..20 {
                let left = read_text(&disk.after_power_loss(seed))?;
                let is_new = left.as_deref() == Some("what is said now");
                let is_old = left.as_deref() == Some("what was said before");
                assert!(is_new || is_old && result.is_err(), "{fault:?} at operation {n}: {left:?}");
            }
        }
    }
    println!("after each of {n_faults} faults the file held the old state or the new one");
    Ok(())
}
