//! The memory that a context needs, compared with the memory that the process can have.
//!
//! A context allocates all its memory when it is made, so a `-c` that is too large can be refused
//! in one line before the work, and does not end in the operating system killing the program.

use crate::error::Error;
use crate::output::{bytes, note};
use backstitch_models::{Budget, Context, Model, Params};
use std::fs::read_to_string;
use std::path::Path;

/// Refuse a context that this machine can never hold, and warn about one that does not fit the
/// memory that is free now.
///
/// # Errors
/// [`Error::Refused`] if a hard limit is too low: the text has the needed and the available size.
pub fn check(model: &Model, params: &Params) -> Result<(), Error> {
    // The weights are loaded by now; everything else is still to be allocated.
    let budget = Budget::new(model.hparams(), model.graph(), params);
    let needed = budget.total().saturating_sub(budget.weights);
    let limits = limits(Path::new("/"));
    let needs = |limit: &Limit| {
        let (needed, most, n_ctx) = (bytes(needed), bytes(limit.bytes), params.n_ctx);
        format!(
            "a context of {n_ctx} tokens needs {needed} beside the weights, and {} {most}; \
             lower -c, or take a smaller data type with -ctk q8_0 -ctv q8_0",
            limit.what
        )
    };
    let beyond = |limit: &&Limit| needed > limit.bytes;
    if let Some(limit) = limits.iter().filter(|limit| limit.is_hard).find(beyond) {
        return Err(Error::Refused(needs(limit)));
    }
    if let Some(limit) = limits.iter().find(beyond) {
        note("warning", needs(limit));
    }
    Ok(())
}

/// Return the line of `-v` about the memory of a context, its model and its adapters.
pub fn line(ctx: &Context) -> String {
    let budget = ctx.budget();
    let parts = [
        ("weights", budget.weights),
        ("caches", budget.caches),
        ("states", budget.states),
        ("journal", budget.journal),
        ("arena", budget.arena),
        ("outputs and tokens", budget.outputs + budget.tokens),
        ("adapters", budget.adapters),
    ];
    let parts = parts.iter().filter(|(_, n)| *n > 0).map(|(what, n)| format!("{what} {}", bytes(*n)));
    format!("memory {}: {}", bytes(budget.total()), parts.collect::<Vec<_>>().join(", "))
}

/// Return the limits of this process's memory, in words and bytes.
pub fn available() -> Vec<(&'static str, u64)> {
    limits(Path::new("/")).iter().map(|limit| (limit.what, limit.bytes)).collect()
}

/// A limit of the memory that the process can have.
struct Limit {
    /// The limit in words, to be followed by its size: "this machine has".
    what: &'static str,
    bytes: u64,
    /// True if the limit stays when other programs end.
    is_hard: bool,
}

/// Return the limits of this process's memory, the hard ones first; none on systems that do not
/// report them. `root` is `/`, and another folder in tests.
fn limits(root: &Path) -> Vec<Limit> {
    // A file that does not exist has no line to find, like one without the line.
    let read = |path: &str| read_to_string(root.join(path)).unwrap_or_default();
    let (info, status, limits) = (read("proc/meminfo"), read("proc/self/status"), read("proc/self/limits"));
    let swap = |name| kib(&info, name).unwrap_or(0);
    let mut all = Vec::new();
    let mut add = |what, bytes: Option<u64>, is_hard| {
        all.extend(bytes.map(|bytes| Limit { what, bytes, is_hard }));
    };
    let address_space = limits.lines().find_map(|line| line.strip_prefix("Max address space"));
    let address_space = address_space.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    let used = kib(&status, "VmSize:").unwrap_or(0);
    add("`ulimit -v` leaves", address_space.map(|most| most.saturating_sub(used)), true);
    add("the memory of its control group is", group(root), true);
    add("this machine has", kib(&info, "MemTotal:").map(|n| n + swap("SwapTotal:")), true);
    add("there are now free", kib(&info, "MemAvailable:").map(|n| n + swap("SwapFree:")), false);
    all
}

/// Return the number of KiB after a name, in bytes.
fn kib(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}

/// Return the lowest memory limit of the control group of this process and the groups around it.
fn group(root: &Path) -> Option<u64> {
    let groups = read_to_string(root.join("proc/self/cgroup")).ok()?;
    let limit = |line: &str| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, group) = (parts.next()?, Path::new(parts.next()?.trim_start_matches('/')));
        let (mount, file) = match controllers {
            "" => ("sys/fs/cgroup", "memory.max"),
            _ if controllers.split(',').any(|name| name == "memory") => {
                ("sys/fs/cgroup/memory", "memory.limit_in_bytes")
            }
            _ => return None,
        };
        let read = |group: &Path| read_to_string(root.join(mount).join(group).join(file)).ok();
        group.ancestors().filter_map(read).filter_map(|text| text.trim().parse::<u64>().ok()).min()
    };
    // Without a limit, a group has the word "max", or nearly the largest number.
    groups.lines().filter_map(limit).filter(|bytes| *bytes < 1 << 60).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limits_of_a_system_are_read() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        assert!(limits(root.path()).is_empty());
        write("proc/meminfo", "MemTotal: 1000 kB\nMemAvailable: 400 kB\nSwapTotal: 24 kB\nSwapFree: 4 kB\n");
        write("proc/self/status", "VmSize:\t 100 kB\n");
        write(
            "proc/self/limits",
            "Limit  Soft Limit  Hard Limit\nMax address space         204800  unlimited  bytes\n",
        );
        write("proc/self/cgroup", "0::/a/b\n");
        write("sys/fs/cgroup/a/memory.max", "5000\n");
        write("sys/fs/cgroup/a/b/memory.max", "max\n");
        let found: Vec<_> = limits(root.path()).iter().map(|limit| (limit.bytes, limit.is_hard)).collect();
        assert_eq!(found, [(100 << 10, true), (5000, true), (1024 << 10, true), (404 << 10, false)]);
        write("proc/self/cgroup", "5:cpu:/x\n4:memory:/a\n");
        write("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "9223372036854771712\n");
        write("sys/fs/cgroup/memory/memory.limit_in_bytes", "7000\n");
        assert_eq!(group(root.path()), Some(7000));
    }
}
