//! What the demo measured, second by second.

use anabranch_control::path::Slot;
use anabranch_control::units::Rate;
use anabranch_proto::overlay::courier::Courier;

/// One second.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Its end, in seconds since the start.
    pub at_s: f64,
    /// Payload that arrived in it, in bytes a second (of all peers together).
    pub goodput_bytes_per_s: f64,
    /// Packets that left in it.
    pub sent: u64,
    /// Packets that were believed to be lost in it.
    pub lost: u64,
    /// Smoothed round-trip time at its end, in milliseconds, once there is one.
    pub rtt_ms: Option<f64>,
    /// The watched sender's learned rate of each relay at its end, in bytes a second;
    /// none where its controller has no rate.
    pub rates_bytes_per_s: Vec<Option<f64>>,
}

/// All seconds of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Series {
    /// The true limit of each relay.
    pub limits: Vec<Rate>,
    /// Second by second.
    pub samples: Vec<Sample>,
    arrived: u64,
    sent: u64,
    lost: u64,
}

impl Series {
    /// Nothing yet, for relays of these limits.
    pub fn new(limits: Vec<Rate>) -> Series {
        Series { limits, ..Series::default() }
    }

    /// `at_s` seconds after the start, `arrived` bytes of payload have arrived since then;
    /// `sent` and `lost` packets in all. `watched` is the sender whose rates are noted.
    pub fn note(&mut self, at_s: f64, arrived: u64, sent: u64, lost: u64, watched: &Courier) {
        let since = at_s - self.samples.last().map_or(0.0, |sample| sample.at_s);
        self.samples.push(Sample {
            at_s,
            goodput_bytes_per_s: (arrived - self.arrived) as f64 / since.max(1e-9),
            sent: sent - self.sent,
            lost: lost - self.lost,
            rtt_ms: watched.smoothed_rtt().map(|rtt| rtt.as_millis_f64()),
            rates_bytes_per_s: learned(watched, self.limits.len()),
        });
        (self.arrived, self.sent, self.lost) = (arrived, sent, lost);
    }

    /// Mean goodput of the last `seconds` samples, in bytes a second.
    pub fn latest(&self, seconds: usize) -> f64 {
        let from = self.samples.len().saturating_sub(seconds);
        mean(&self.samples[from..])
    }

    /// Mean goodput of the best `seconds` samples in a row, in bytes a second; none if
    /// there are fewer.
    pub fn best(&self, seconds: usize) -> Option<f64> {
        self.samples.windows(seconds).map(mean).max_by(f64::total_cmp)
    }
}

fn mean(samples: &[Sample]) -> f64 {
    samples.iter().map(|sample| sample.goodput_bytes_per_s).sum::<f64>() / samples.len().max(1) as f64
}

/// The learned rates of the first `relays` slots, in bytes a second.
pub fn learned(courier: &Courier, relays: usize) -> Vec<Option<f64>> {
    let controller = courier.sender().controller();
    (0..relays).map(|slot| controller.rate(Slot(slot as u16)).map(|rate| rate.bytes_per_sec())).collect()
}
