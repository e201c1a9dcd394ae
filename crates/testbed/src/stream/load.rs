//! How long processes waited for a processor: what no emulator sees, and what a viewer on a machine of its own would
//! not wait.

use anabranch_control::time::Duration;

/// What a process had of the machine's processors, and waited for them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// How long it ran.
    pub ran: Duration,
    /// How long it was ready and did not run.
    pub waited: Duration,
    /// How often it got a processor.
    pub turns: u64,
}

impl Load {
    /// This and `other` together.
    pub fn and(self, other: Load) -> Load {
        Load { ran: self.ran + other.ran, waited: self.waited + other.waited, turns: self.turns + other.turns }
    }

    /// How long it waited each time, on average.
    pub fn mean_wait(&self) -> Duration {
        Duration::from_nanos(self.waited.as_nanos() / self.turns.max(1))
    }

    /// A line of `/proc/PID/task/TID/schedstat`: nanoseconds run, nanoseconds waited, turns.
    fn parse(text: &str) -> Option<Load> {
        let mut numbers = text.split_whitespace().map(|number| number.parse().ok());
        let mut next = || numbers.next()?;
        Some(Load { ran: Duration::from_nanos(next()?), waited: Duration::from_nanos(next()?), turns: next()? })
    }
}

/// All threads of a process; none where the kernel does not tell, or the process is gone.
pub fn of(process: u32) -> Option<Load> {
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).ok()?;
    threads
        .filter_map(|thread| Load::parse(&std::fs::read_to_string(thread.ok()?.path().join("schedstat")).ok()?))
        .reduce(Load::and)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mean_wait_is_over_all_turns() {
        let one = Load::parse("5000000 3000000 2\n").unwrap();
        assert_eq!(one.mean_wait(), Duration::from_nanos(1_500_000));
        let both = one.and(Load::parse("1 1000000 2").unwrap());
        assert_eq!((both.mean_wait(), both.turns), (Duration::from_millis(1), 4));
        assert_eq!(Load::parse("1 2"), None);
        assert_eq!(Load::default().mean_wait(), Duration::ZERO);
    }

    #[test]
    fn this_process_has_run() {
        // Where the kernel keeps no such statistics there is nothing to see.
        if let Some(load) = of(std::process::id()) {
            assert!(load.ran > Duration::ZERO && load.turns > 0, "{load:?}");
        }
    }
}
