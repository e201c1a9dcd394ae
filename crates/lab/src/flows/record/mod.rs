//! Runs written down packet by packet: as qlog, and as a capture that Wireshark opens.

mod address;
mod pcap;
mod qlog;

use std::path::Path;

pub use pcap::Pcap;
pub use qlog::Qlog;

use super::events::{CrossEvent, FlowEvent, Recorder};
use super::{FlowRunError, FlowScenario, FlowsMeasured, run_recorded};
use crate::monitor::Monitor;
use anabranch_report::output::{OutputError, Staged};

/// What to write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Formats {
    /// `N-FLOW-client.sqlog` and `N-FLOW-server.sqlog` for each flow.
    pub qlog: bool,
    /// `client.pcap` and `server.pcap`.
    pub pcap: bool,
}

/// Why a run was not written down.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The run went wrong.
    #[error(transparent)]
    Run(#[from] FlowRunError),
    /// A file could not be written.
    #[error(transparent)]
    Output(#[from] OutputError),
    /// The scenario's packets are no IPv4 packets.
    #[error("a capture holds IPv4 packets, of 65535 bytes at most: {bytes} bytes of data and headers do not fit")]
    TooLarge {
        /// What a full packet would have.
        bytes: u64,
    },
}

/// Runs `scenario` and writes it down in the directory `dir`, which must exist. The files
/// have their names once the caller commits them.
///
/// # Errors
///
/// When the run goes wrong or a file cannot be written; nothing is left behind then.
pub fn record(
    dir: &Path,
    scenario: &FlowScenario,
    formats: Formats,
    monitor: &dyn Monitor,
) -> Result<(FlowsMeasured, Vec<Staged>), RecordError> {
    let qlog = if formats.qlog { Some(Qlog::create(dir, scenario)?) } else { None };
    let pcap = if formats.pcap { Some(Pcap::create(dir, scenario)?) } else { None };
    let mut both = Both { qlog, pcap };
    let measured = run_recorded(scenario, &mut both, monitor)?;
    let mut files = Vec::new();
    if let Some(qlog) = both.qlog {
        files.extend(qlog.finish()?);
    }
    if let Some(pcap) = both.pcap {
        files.extend(pcap.finish()?);
    }
    Ok((measured, files))
}

/// Runs `scenario` and leaves its qlog files in `dir`.
///
/// # Errors
///
/// As [`record`].
pub fn write_qlog(dir: &Path, scenario: &FlowScenario) -> Result<FlowsMeasured, RecordError> {
    write(dir, scenario, Formats { qlog: true, pcap: false })
}

/// Runs `scenario` and leaves its captures in `dir`.
///
/// # Errors
///
/// As [`record`].
pub fn write_pcap(dir: &Path, scenario: &FlowScenario) -> Result<FlowsMeasured, RecordError> {
    write(dir, scenario, Formats { qlog: false, pcap: true })
}

fn write(dir: &Path, scenario: &FlowScenario, formats: Formats) -> Result<FlowsMeasured, RecordError> {
    let (measured, files) = record(dir, scenario, formats, &())?;
    for file in files {
        file.commit()?;
    }
    Ok(measured)
}

/// Both formats of one run.
#[derive(Debug)]
struct Both {
    qlog: Option<Qlog>,
    pcap: Option<Pcap>,
}

impl Recorder for Both {
    fn on_flow(&mut self, event: &FlowEvent<'_>) {
        if let Some(qlog) = &mut self.qlog {
            qlog.on_flow(event);
        }
        if let Some(pcap) = &mut self.pcap {
            pcap.on_flow(event);
        }
    }

    fn on_cross(&mut self, event: &CrossEvent) {
        if let Some(pcap) = &mut self.pcap {
            pcap.on_cross(event);
        }
    }

    fn has_failed(&self) -> bool {
        self.qlog.as_ref().is_some_and(Recorder::has_failed) || self.pcap.as_ref().is_some_and(Recorder::has_failed)
    }
}
