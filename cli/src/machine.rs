//! The share of the machine that a command may use, for the report of `-v`.
//!
//! These lines answer the question why a run is slow: another kernel set than expected, more
//! threads than cores, a quota of processor time, no huge pages. Everything is read from files that
//! Linux provides; other systems have fewer lines.

use crate::output::bytes;
use backstitch_core::isa::{near_third_cache, second_cache};
use std::fs::read_to_string;
use std::path::Path;

/// Return the lines of `-v` about kernels, threads, processor time and huge pages. `wanted` is the
/// number of threads that was asked for, `n_threads` the number that there is.
pub fn lines(kernels: &str, wanted: Option<u32>, n_threads: u32) -> Vec<String> {
    let others = backstitch_core::KernelSet::available().map(|set| set.name()).collect::<Vec<_>>().join(", ");
    let mut lines = vec![
        format!("kernels {kernels} (available: {others})"),
        threads(wanted, n_threads, crate::model::n_cores()),
    ];
    lines.extend(backstitch_core::KernelSet::refused().map(refused));
    // Kernels with fewer registers do not use the third cache.
    lines.push(caches(second_cache(), near_third_cache().filter(|_| kernels == "avx512")));
    lines.extend(quota(Path::new("/")).map(|cores| format!("processor time is limited to {cores:.2} cores")));
    lines.extend(huge_pages(Path::new("/")));
    lines
}

/// Return the line about a kernel set that the processor has and the operating system blocks.
fn refused(set: &str) -> String {
    format!("kernels {set}: this processor has them, but the system keeps them from this process: slower")
}

/// Return the line about the caches by whose sizes the work on prompts is split.
fn caches(second: Option<usize>, near_third: Option<usize>) -> String {
    let second = match second {
        Some(size) => format!("L2 cache {} per core: prompts are split to fit it", bytes(size as u64)),
        None => "L2 cache unknown: prompts are split as for 1 MiB per core".into(),
    };
    let third = near_third.map(|size| format!(", or a near L3 cache of {}", bytes(size as u64)));
    second + &third.unwrap_or_default()
}

/// Return the line about threads, with the reason if there are others than asked for.
fn threads(wanted: Option<u32>, n_threads: u32, n_cores: u32) -> String {
    let why = match wanted {
        Some(wanted) if wanted != 0 && wanted != n_threads => format!(", not {wanted}: that is the limit"),
        Some(wanted) if wanted > n_cores => ", more than cores: that is slower".into(),
        _ => String::new(),
    };
    format!("threads {n_threads}{why}; this process may use {n_cores} at once")
}

/// Return the processor time, in cores, that the control group of this process and the groups
/// around it allow, or none without a quota. `root` is `/`, and another folder in tests.
fn quota(root: &Path) -> Option<f64> {
    let groups = read_to_string(root.join("proc/self/cgroup")).ok()?;
    let limits = groups.lines().flat_map(|line| {
        // A line is `number:controllers:group`; the number and the controllers of version 2 are
        // fixed.
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(group)) = (parts.next(), parts.next()) else { return Vec::new() };
        let (mount, limit): (_, fn(&Path) -> Option<f64>) = match controllers {
            "" => ("sys/fs/cgroup", limit_v2),
            _ if controllers.split(',').any(|name| name == "cpu") => ("sys/fs/cgroup/cpu", limit_v1),
            _ => return Vec::new(),
        };
        let group = Path::new(group.trim_start_matches('/'));
        group.ancestors().filter_map(|group| limit(&root.join(mount).join(group))).collect()
    });
    limits.min_by(f64::total_cmp)
}

/// Return the quota of a group of cgroup v2, whose `cpu.max` holds a quota, or "max", and a period.
fn limit_v2(group: &Path) -> Option<f64> {
    let text = read_to_string(group.join("cpu.max")).ok()?;
    let (quota, period) = text.trim().split_once(' ')?;
    share(quota, period)
}

/// Return the quota of a group of cgroup v1, which is -1 without a limit.
fn limit_v1(group: &Path) -> Option<f64> {
    let read = |name| read_to_string(group.join(name)).ok();
    share(read("cpu.cfs_quota_us")?.trim(), read("cpu.cfs_period_us")?.trim())
}

/// Divide a quota by its period, both in microseconds. None if one is not a positive number.
fn share(quota: &str, period: &str) -> Option<f64> {
    let (quota, period): (f64, f64) = (quota.parse().ok()?, period.parse().ok()?);
    (quota > 0.0 && period > 0.0).then(|| quota / period)
}

/// Return the line about huge pages: the mode of the system, and the bytes of this process that lie
/// in them. None on systems that do not report the mode.
fn huge_pages(root: &Path) -> Option<String> {
    let modes = read_to_string(root.join("sys/kernel/mm/transparent_hugepage/enabled")).ok()?;
    let mode = modes.split_once('[')?.1.split_once(']')?.0;
    if mode == "never" {
        return Some("huge pages: the system gives none, which is slower".into());
    }
    let kib = read_to_string(root.join("proc/self/smaps_rollup")).ok().and_then(|rollup| {
        let line = rollup.lines().find_map(|line| line.strip_prefix("AnonHugePages:"))?;
        line.split_whitespace().next()?.parse::<u64>().ok()
    });
    let used = kib.map_or("an unknown number".into(), |kib| bytes(kib << 10));
    Some(format!("huge pages: {mode}, {used} in use"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Make a root folder with these files.
    fn root(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        root
    }

    #[test]
    fn the_tightest_quota_around_the_process_counts() {
        let files = [
            ("proc/self/cgroup", "0::/a/b\n"),
            ("sys/fs/cgroup/a/b/cpu.max", "max 100000\n"),
            ("sys/fs/cgroup/a/cpu.max", "50000 100000\n"),
        ];
        assert_eq!(quota(root(&files).path()), Some(0.5));
        assert_eq!(quota(root(&files[..2]).path()), None);
    }

    #[test]
    fn quotas_of_the_first_version_are_read() {
        let files = [
            ("proc/self/cgroup", "4:memory:/x\n3:cpuacct,cpu:/x\n"),
            ("sys/fs/cgroup/cpu/x/cpu.cfs_quota_us", "150000\n"),
            ("sys/fs/cgroup/cpu/x/cpu.cfs_period_us", "100000\n"),
            ("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n"),
            ("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"),
        ];
        assert_eq!(quota(root(&files).path()), Some(1.5));
    }

    #[test]
    fn what_the_system_does_not_tell_is_left_out() {
        let root = root(&[("proc/self/cgroup", "nonsense\n0::\n:::\n"), ("sys/fs/cgroup/cpu.max", "0 0")]);
        assert_eq!(quota(root.path()), None);
        assert_eq!(huge_pages(root.path()), None);
    }

    #[test]
    fn a_system_without_huge_pages_is_told() {
        let file = "sys/kernel/mm/transparent_hugepage/enabled";
        assert!(huge_pages(root(&[(file, "always madvise [never]")]).path()).unwrap().contains("none"));
        assert!(huge_pages(root(&[(file, "always [madvise] never")]).path()).unwrap().contains("madvise"));
    }

    #[test]
    fn caches_that_are_not_known_are_told() {
        assert_eq!(caches(Some(2 << 20), None), "L2 cache 2.0 MiB per core: prompts are split to fit it");
        assert!(caches(None, None).contains("unknown"));
        assert!(caches(Some(1 << 20), Some(32 << 20)).ends_with("fit it, or a near L3 cache of 32.0 MiB"));
    }

    #[test]
    fn other_threads_than_asked_for_are_explained() {
        assert_eq!(threads(None, 2, 2), "threads 2; this process may use 2 at once");
        assert_eq!(threads(Some(0), 2, 2), threads(None, 2, 2));
        assert!(threads(Some(9999), 512, 2).contains("not 9999"));
        assert!(threads(Some(4), 4, 2).contains("slower"));
    }
}
