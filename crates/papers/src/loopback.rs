//! Files over relays on real sockets of this machine. Whoever sends them is given from outside,
//! since nothing here opens a socket; it takes real time, and no two runs are equal.

use std::fmt;

use anabranch_lab::monitor::Monitor;
use anabranch_lab::parallel::Job;

use super::error::ExperimentError;

/// A file that one sender brings to one receiver over relays.
#[derive(Clone, Debug, PartialEq)]
pub struct FileOverRelays {
    /// What it is sent over.
    pub course: Course,
    /// The registered name of the sender's controller.
    pub controller: &'static str,
    /// Decides positions, phases and random choices, where the course has some.
    pub seed: u64,
}

/// Relays, and what lies between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Course {
    /// `anabranch demo`: 6 MB over three of twenty relays for each packet, 30 to 90 kB/s each, all in one
    /// process, with delays of some tens of milliseconds between them.
    Demo {
        /// How the relays hold their limits, as `--limit-model` has it.
        limit_model: &'static str,
    },
    /// 20 MB over three of eight relays for each packet, 4 MB/s each; relays, receiver and sender are
    /// processes, and nothing is between them but the loopback interface.
    Processes {
        /// This many relays are killed (SIGKILL) after a second.
        killed: usize,
    },
}

/// What became of a file that arrived whole, with the right hash.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Arrived {
    /// From the first greeting until the receiver had checked it and its sender knew.
    pub seconds: f64,
    /// The file's length over that time, of what the relays' limits allow at most.
    pub share_of_possible: f64,
    /// Packets that were lost, in per cent of those that were sent.
    pub lost_percent: f64,
}

/// What sends files over sockets.
pub trait Loopback: fmt::Debug + Send + Sync {
    /// Sends `file`; none if it does not arrive in a time that is many times the usual one.
    ///
    /// # Errors
    ///
    /// Why it could not be sent, in words for whoever asked for it; also when `monitor` interrupted it.
    fn send(&self, file: &FileOverRelays, monitor: &dyn Monitor) -> Result<Option<Arrived>, String>;
}

/// A file as one of many jobs.
pub(super) struct OnSockets<'a>(pub &'a dyn Loopback, pub &'a FileOverRelays);

impl Job for OnSockets<'_> {
    type Measured = Option<Arrived>;
    type Error = ExperimentError;

    /// Nobody knows before; to whoever shows progress each is one.
    fn seconds(&self) -> u64 {
        1
    }

    fn run(&self, monitor: &dyn Monitor) -> Result<Option<Arrived>, ExperimentError> {
        let arrived = self.0.send(self.1, monitor).map_err(|message| {
            if monitor.is_interrupted() { ExperimentError::Interrupted } else { ExperimentError::Testbed(message) }
        })?;
        monitor.on_second();
        Ok(arrived)
    }

    fn is_whole(&self, _: &Option<Arrived>) -> bool {
        true
    }
}
