//! What a relay says on standard error while it runs.
//!
//! Nothing is logged for a datagram or a scrape: what strangers do is counted, and the counts are
//! said at most once in an interval. So nobody can fill a disk.

use std::io::{self, Write};

use anabranch_control::time::{Duration, Time};
use anabranch_proto::overlay::relay_node::RelayCounters;
use anabranch_proto::overlay::wire::Unreadable;
use clap::ValueEnum;
use indicatif::ProgressBar;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::network::{self, Amount};

/// How much is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Level {
    /// Nothing
    Off,
    /// What ends the relay
    Error,
    /// Also what was discarded, every ten seconds
    Warn,
    /// Also what was forwarded, every ten seconds
    Info,
    /// Both every second
    Debug,
}

impl Level {
    fn filter(self) -> LevelFilter {
        match self {
            Level::Off => LevelFilter::OFF,
            Level::Error => LevelFilter::ERROR,
            Level::Warn => LevelFilter::WARN,
            Level::Info => LevelFilter::INFO,
            Level::Debug => LevelFilter::DEBUG,
        }
    }

    /// Between two reports.
    fn interval(self) -> Duration {
        if self == Level::Debug { Duration::SECOND } else { Duration::SECOND * 10 }
    }
}

/// Begins to log, above `display`; once in a process.
pub fn start(level: Level, display: &ProgressBar) {
    let display = display.clone();
    let layer = tracing_subscriber::fmt::layer()
        .with_ansi(false)
        .with_target(false)
        // It would panic where nobody reads standard error.
        .log_internal_errors(false)
        .with_writer(move || Above(display.clone()))
        // What libraries have to say may be caused by strangers, without bound.
        .with_filter(Targets::new().with_target("anabranch", level.filter()));
    // A second call would find the first one's.
    let _ = tracing_subscriber::registry().with(layer).try_init();
}

/// Standard error, above a progress bar.
struct Above(ProgressBar);

impl Write for Above {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.suspend(|| io::stderr().write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// Says in intervals what has changed.
#[derive(Debug)]
pub struct Reports {
    interval: Duration,
    next: Time,
    forwarded: u64,
    forwarded_bytes: u64,
    discarded: u64,
}

impl Reports {
    /// The first is due an interval after `now`.
    pub fn new(level: Level, now: Time) -> Reports {
        let interval = level.interval();
        Reports { interval, next: now + interval, forwarded: 0, forwarded_bytes: 0, discarded: 0 }
    }

    /// Says at most two lines, if it is time.
    pub fn report(&mut self, now: Time, counters: &RelayCounters, unreadable: &Unreadable) {
        if now < self.next {
            return;
        }
        self.next = now + self.interval;
        let forwarded = counters.forwarded - self.forwarded;
        if forwarded > 0 {
            let bytes = counters.forwarded_bytes - self.forwarded_bytes;
            let rate = Amount(bytes as f64 / self.interval.as_secs_f64());
            tracing::info!("forwarded {forwarded} datagrams, {rate}/s");
            (self.forwarded, self.forwarded_bytes) = (counters.forwarded, counters.forwarded_bytes);
        }
        let discarded = network::discards(counters, unreadable).iter().map(|discard| discard.count).sum();
        if discarded > self.discarded {
            let all = network::discarded(counters, unreadable);
            tracing::warn!("discarded {} datagrams; since the start {all}", discarded - self.discarded);
            self.discarded = discarded;
        }
    }
}
