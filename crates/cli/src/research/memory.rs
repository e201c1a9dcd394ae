//! Whether a run fits into the memory of this machine.

use std::fs;

use anabranch_lab::onion;
use anabranch_lab::overlay::memory::least_bytes;
use anabranch_scenario::onion_run::OnionRunScenario;
use anabranch_scenario::overlay::Scenario;

use crate::failure::Failure;

const GIB: f64 = (1u64 << 30) as f64;

/// Refuses a run of `scenario` that needs more memory than there is, of this many side by side.
pub fn check_overlay(scenario: &Scenario, runs: usize) -> Result<(), Failure> {
    let Some(available) = available() else { return Ok(()) };
    let needed = least_bytes(scenario)?.saturating_mul(runs as u64);
    if needed <= available {
        return Ok(());
    }
    let overlay = &scenario.overlay;
    let compact = if overlay.rtt.compact { "" } else { ", or overlay.rtt.compact = true" };
    Err(Failure::new(format!(
        "an overlay of {} peers, of whom each knows {}, needs about {:.1} GiB at least, and this machine has {:.1} GiB \
         available; take fewer peers or a smaller overlay.known_peers{compact}",
        overlay.peers,
        overlay.known_peers,
        needed as f64 / GIB,
        available as f64 / GIB,
    )))
}

/// The same for a run of an onion overlay.
pub fn check_onion(scenario: &OnionRunScenario) -> Result<(), Failure> {
    let Some(available) = available() else { return Ok(()) };
    let needed = onion::memory::least_bytes(scenario);
    if needed <= available {
        return Ok(());
    }
    Err(Failure::new(format!(
        "an onion overlay of {} relays with {} users needs about {:.1} GiB at least, and this machine has {:.1} GiB \
         available; take fewer users or relays (users.count, onion.relays)",
        scenario.onion.relays,
        scenario.users.count,
        needed as f64 / GIB,
        available as f64 / GIB,
    )))
}

/// Memory in bytes that a program can have without others losing theirs, where the system tells:
/// what is free or soon can be, within what this group of processes may have.
fn available() -> Option<u64> {
    let free = field(&fs::read_to_string("/proc/meminfo").ok()?, "MemAvailable:")?;
    // "max" where there is no limit. What is cached counts as used, but gives way.
    let most = fs::read_to_string("/sys/fs/cgroup/memory.max").ok().and_then(|most| most.trim().parse::<u64>().ok());
    Some(most.map_or(free, |most| free.min(most)))
}

/// What this process has of memory now, in bytes.
pub fn resident() -> u64 {
    own("VmRSS:")
}

/// The most that this process has had since it began, or since `forget_peak`.
pub fn peak() -> u64 {
    own("VmHWM:")
}

/// The peak is what is there now. Linux alone can forget one; elsewhere it stays.
pub fn forget_peak() {
    // proc_pid_clear_refs(5): 5 resets the peak.
    let _ = fs::write("/proc/self/clear_refs", "5");
}

fn own(key: &str) -> u64 {
    fs::read_to_string("/proc/self/status").ok().and_then(|status| field(&status, key)).unwrap_or(0)
}

/// The value of `key` in a file of /proc that has lines such as `MemFree:  1024 kB`, in bytes.
fn field(text: &str, key: &str) -> Option<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix(key))?;
    value.trim().trim_end_matches(" kB").parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_of_proc_is_read_in_bytes() {
        let text = "MemTotal:       24 kB\nMemAvailable:    7 kB\n";
        assert_eq!((field(text, "MemAvailable:"), field(text, "MemFree:")), (Some(7 << 10), None));
        assert_eq!(field("MemFree: many kB", "MemFree:"), None);
    }

    #[test]
    fn a_run_that_fits_is_allowed_and_a_million_of_it_is_not() {
        let scenario = Scenario::standard();
        assert!(check_overlay(&scenario, 1).is_ok());
        assert!(check_overlay(&scenario, 10_000_000).is_err());
        let mut onion = OnionRunScenario::standard();
        assert!(check_onion(&onion).is_ok());
        (onion.users.count, onion.onion.relays) = (1_000_000, 10_000);
        let said = check_onion(&onion).unwrap_err().words().to_owned();
        assert!(said.contains("10000 relays with 1000000 users needs about") && said.contains("users.count"), "{said}");
    }
}
