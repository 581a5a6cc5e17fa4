//! The processor: its name, and the share of it that other programs used during the measurements.

use std::fs::read_to_string;

/// Return the name that the processor gives itself, or else the one that the operating system gives
/// it; "unknown" if neither does.
pub fn name() -> String {
    let name = own_name().or_else(|| named(&read_to_string("/proc/cpuinfo").ok()?));
    name.unwrap_or_else(|| format!("unknown ({})", std::env::consts::ARCH))
}

/// Return the brand string of an x86 processor.
#[cfg(target_arch = "x86_64")]
fn own_name() -> Option<String> {
    use std::arch::x86_64::__cpuid;
    // The three parts of the name that processors state of themselves.
    const FIRST: u32 = 0x8000_0002;
    const LAST: u32 = 0x8000_0004;
    if __cpuid(0x8000_0000).eax < LAST {
        return None;
    }
    let words = (FIRST..=LAST).map(__cpuid).flat_map(|leaf| [leaf.eax, leaf.ebx, leaf.ecx, leaf.edx]);
    let bytes: Vec<u8> = words.flat_map(u32::to_le_bytes).take_while(|&byte| byte != 0).collect();
    tidy(&String::from_utf8_lossy(&bytes))
}

/// Return none: other processors have no name of their own.
#[cfg(not(target_arch = "x86_64"))]
fn own_name() -> Option<String> {
    None
}

/// Return the name in `/proc/cpuinfo`: the processor's on most architectures, the board's on small
/// ARM machines.
fn named(info: &str) -> Option<String> {
    let value = |key: &str| {
        let mut lines = info.lines().filter_map(|line| line.split_once(':'));
        lines.find(|(name, _)| name.trim() == key).and_then(|(_, value)| tidy(value))
    };
    let part = || Some(format!("implementer {} part {}", value("CPU implementer")?, value("CPU part")?));
    ["model name", "Model", "Hardware", "cpu"].into_iter().find_map(value).or_else(part)
}

/// Collapse runs of spaces; none if nothing is left.
fn tidy(text: &str) -> Option<String> {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    (!text.is_empty()).then_some(text)
}

/// Shortest span for which a share is computed, in ticks of all processors together. A shorter one
/// would be mostly rounding.
const LEAST_TICKS: u64 = 40;

/// Processor time since the machine started, in the ticks of Linux (1/100 s).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticks {
    /// Ticks of all processors.
    all: u64,
    /// Ticks in which a processor was busy, also for other virtual machines.
    busy: u64,
    /// Ticks of this process.
    own: u64,
}

impl Ticks {
    /// Return the ticks so far, or none on systems that do not report them.
    pub fn now() -> Option<Self> {
        Self::parse(&read_to_string("/proc/stat").ok()?, &read_to_string("/proc/self/stat").ok()?)
    }

    /// Read the ticks from the content of `/proc/stat` and `/proc/self/stat`.
    fn parse(machine: &str, process: &str) -> Option<Self> {
        let line = machine.lines().find_map(|line| line.strip_prefix("cpu "))?;
        // User, nice, system, idle, waiting, interrupts (two kinds), stolen; guests count as users.
        let ticks: Vec<u64> = line.split_whitespace().take(8).map_while(|n| n.parse().ok()).collect();
        let all = ticks.iter().sum();
        let idle: u64 = ticks.get(3..5)?.iter().sum();
        // The name in brackets may hold anything; the times are the 14th and 15th field.
        let mut fields = process.rsplit_once(')')?.1.split_whitespace().skip(11);
        let mut time = || fields.next()?.parse::<u64>().ok();
        Some(Self { all, busy: all - idle, own: time()? + time()? })
    }

    /// Return the share of the machine that other programs used since `before`, from 0 to 1; none
    /// if that was less than [`LEAST_TICKS`] ago.
    pub fn foreign_since(self, before: Self) -> Option<f64> {
        let all = self.all.checked_sub(before.all).filter(|&all| all >= LEAST_TICKS)?;
        let busy = self.busy.checked_sub(before.busy)?;
        Some(busy.saturating_sub(self.own.checked_sub(before.own)?) as f64 / all as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_linux_names_its_processor() {
        assert_eq!(named("processor : 0\nmodel name\t: Intel(R)  Xeon\n").as_deref(), Some("Intel(R) Xeon"));
        let arm = "CPU implementer\t: 0x41\nCPU part\t: 0xd0c\n";
        assert_eq!(named(arm).as_deref(), Some("implementer 0x41 part 0xd0c"));
        assert_eq!(named(&format!("{arm}Model\t: Raspberry Pi 5\n")).as_deref(), Some("Raspberry Pi 5"));
        assert_eq!(named("model name\t: \n"), None);
        assert!(!name().is_empty());
    }

    #[test]
    fn what_others_use_is_what_this_process_does_not() {
        let process = |own| format!("7 (a ) b) R 1 1 1 0 -1 0 0 0 0 0 {own} 10 0 0 20 0 1");
        let before = Ticks::parse("cpu  100 0 50 800 50 0 0 0 0 0\n", &process(40)).unwrap();
        assert_eq!(before, Ticks { all: 1000, busy: 150, own: 50 });
        let after = Ticks::parse("cpu  180 0 60 850 60 0 0 50 9 9\n", &process(90)).unwrap();
        assert_eq!(after.foreign_since(before), Some(90.0 / 200.0));
        assert_eq!(before.foreign_since(before), None);
        assert_eq!(before.foreign_since(after), None);
    }

    #[test]
    fn what_the_system_does_not_tell_is_unknown() {
        for (machine, process) in [("", "1 (a) R"), ("cpu  1 2 3", "1 (a) R"), ("cpu  1 2 3 4 5 6 7 8", "1")]
        {
            assert_eq!(Ticks::parse(machine, process), None);
        }
    }
}
