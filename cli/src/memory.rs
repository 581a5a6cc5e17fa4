//! The memory that a context needs, compared with the memory that the process can have.
//!
//! A context allocates all its memory when it is made, so a `-c` that is too large can be refused
//! in one line before the work, and does not end in the operating system killing the program.

use crate::error::Error;
use crate::output::{bytes, note};
use backstitch_models::{Budget, Context, Model, Params, RollbackParams};
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

/// Context size that is chosen where the system does not tell its memory, and the smallest that is
/// chosen for want of memory, in tokens.
const LEAST_N_CTX: u32 = 4096;
/// Bytes of checkpoints that are chosen for want of memory, and the most that are chosen.
const CHECKPOINT_BYTES: std::ops::RangeInclusive<u64> = 256 << 20..=8 << 30;

/// Context size of a command without `-c`: the model's own, or what half of the memory holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UsualContext {
    /// Tokens of a sequence.
    pub n_ctx: u32,
    /// Bytes that this process can have beside the weights, if they are the reason that `n_ctx` is
    /// less than the model's own.
    pub bounded_by: Option<u64>,
}

/// Sequences that are evaluated together, and what else takes memory with them.
#[derive(Clone, Copy, Debug)]
pub struct Together<'a> {
    /// The model of the sequences.
    pub model: &'a Model,
    /// The parameters of their context.
    pub params: &'a Params,
    /// The number of sequences.
    pub n_seqs: u32,
    /// A draft model, the parameters of its contexts, and their number.
    pub draft: Option<(&'a Model, &'a Params, u32)>,
}

impl Together<'_> {
    /// Return the bytes that this process can have beside the weights of all models.
    fn beside_weights(&self) -> Option<u64> {
        let beside = beside_weights(self.model, self.params, Path::new("/"))?;
        let draft = self
            .draft
            .map_or(0, |(model, params, _)| Budget::new(model.hparams(), model.graph(), params).weights);
        Some(beside.saturating_sub(draft))
    }

    /// Return the bytes of all caches, if each sequence has `n_ctx` tokens. Checkpoints have a
    /// budget of their own.
    fn caches(&self, n_ctx: u32) -> u64 {
        let caches = |model: &Model, params: &Params, n_seqs: u32| {
            let params = params.rollback(RollbackParams::OFF);
            let params = params.n_ctx(n_ctx.saturating_mul(n_seqs)).n_ctx_seq(n_ctx).n_seq_max(n_seqs);
            Budget::new(model.hparams(), model.graph(), &params).caches
        };
        let draft = self.draft.map_or(0, |(model, params, n_contexts)| {
            caches(model, params, 1).saturating_mul(n_contexts.into())
        });
        caches(self.model, self.params, self.n_seqs).saturating_add(draft)
    }

    /// Return the bytes of all checkpoints.
    fn checkpoints(&self) -> u64 {
        let draft = self.draft.map_or(0, |(_, params, n_contexts)| {
            params.rollback.checkpoint_bytes.saturating_mul(n_contexts.into())
        });
        self.params.rollback.checkpoint_bytes.saturating_add(draft)
    }
}

/// Return the context size for a command without `-c` that keeps `n_held` bytes beside its
/// sequences and checkpoints.
pub fn usual_context(together: Together<'_>, n_held: u64) -> UsualContext {
    let n_held = n_held.saturating_add(together.checkpoints());
    let n_ctx_train = together.model.hparams().n_ctx_train;
    usual(n_ctx_train, together.beside_weights(), n_held, |n_ctx| together.caches(n_ctx))
}

/// Return the bytes that the caches of conversations may take beside sequences of `params.n_ctx`
/// tokens and all checkpoints; `None` on systems that do not report their memory. An eighth of the
/// memory is left for requests, batches and other programs.
pub fn left_for_conversations(together: Together<'_>) -> Option<u64> {
    let used = together.caches(together.params.n_ctx).saturating_add(together.checkpoints());
    Some(left(together.beside_weights()?, used))
}

/// Return the bytes that are left beside `used` ones, without an eighth of all.
fn left(all: u64, used: u64) -> u64 {
    all.saturating_sub(all / 8).saturating_sub(used)
}

/// Return the largest context up to `n_ctx_train` whose `bytes` are at most half of what is
/// `beside` the weights, and leave `n_held` bytes of it.
fn usual(n_ctx_train: u32, beside: Option<u64>, n_held: u64, bytes: impl Fn(u32) -> u64) -> UsualContext {
    let Some(beside) = beside else {
        return UsualContext { n_ctx: n_ctx_train.min(LEAST_N_CTX), bounded_by: None };
    };
    let most = (beside / 2).min(beside.saturating_sub(n_held));
    if n_ctx_train <= LEAST_N_CTX || bytes(n_ctx_train) <= most {
        return UsualContext { n_ctx: n_ctx_train, bounded_by: None };
    }
    // The size is a multiple of this unit.
    let unit = 256;
    let (mut low, mut high) = (LEAST_N_CTX / unit, n_ctx_train.div_ceil(unit));
    while low + 1 < high {
        let middle = low.midpoint(high);
        if bytes(middle * unit) <= most { low = middle } else { high = middle }
    }
    UsualContext { n_ctx: low * unit, bounded_by: Some(beside) }
}

/// Return the bytes of checkpoints without `--checkpoint-mib`: an eighth of what this process can
/// have beside the weights. They are touched when they are used.
pub fn usual_checkpoint_bytes(model: &Model, params: &Params) -> u64 {
    let eighth = beside_weights(model, params, Path::new("/")).unwrap_or(0) / 8;
    eighth.clamp(*CHECKPOINT_BYTES.start(), *CHECKPOINT_BYTES.end())
}

/// Return the bytes of memory that this process can have beside the weights of a model, swap space
/// not counted; `None` on systems that do not report them.
fn beside_weights(model: &Model, params: &Params, root: &Path) -> Option<u64> {
    let weights = Budget::new(model.hparams(), model.graph(), params).weights;
    let info = read_to_string(root.join("proc/meminfo")).ok()?;
    let machine = kib(&info, "MemTotal:");
    let hard = limits(root).into_iter().filter(|limit| limit.is_hard).map(|limit| limit.bytes);
    Some(hard.chain(machine).min()?.saturating_sub(weights))
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
    fn the_usual_context_is_the_models_own_or_half_of_the_memory() {
        let bytes = |n_ctx: u32| 1000 * u64::from(n_ctx);
        let n_ctx = |train, beside, held| usual(train, beside, held, bytes);
        let own = |n_ctx| UsualContext { n_ctx, bounded_by: None };
        assert_eq!(n_ctx(32_768, Some(1 << 30), 0), own(32_768));
        assert_eq!(n_ctx(512, Some(1), 0), own(512));
        assert_eq!(n_ctx(32_768, None, 0), own(4096));
        for (beside, held, wanted) in [(20_000_000, 0, 9984), (20_000_000, 15_000_000, 4864), (1, 5, 4096)] {
            let bounded = UsualContext { n_ctx: wanted, bounded_by: Some(beside) };
            assert_eq!(n_ctx(32_768, Some(beside), held), bounded);
        }
    }

    #[test]
    fn conversations_without_a_limit_leave_memory_for_the_rest() {
        assert_eq!((left(8000, 1000), left(8000, 7500)), (6000, 0));
        let model = Model::from_bytes(backstitch_demo::GGUF).unwrap();
        let params = Params::default().n_ctx(1024);
        let draft = Some((&model, &params, 4));
        let left = |n_seqs, draft| {
            left_for_conversations(Together { model: &model, params: &params, n_seqs, draft })
        };
        // A system that reports its memory gives less of it beside more requests and beside drafts.
        let is_less = |(one, many): (u64, u64)| one == 0 || many < one && one < u64::MAX;
        assert!(left(1, None).zip(left(64, None)).is_none_or(is_less));
        assert!(left(1, None).zip(left(1, draft)).is_none_or(is_less));
    }

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
