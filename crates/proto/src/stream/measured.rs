//! What a peer sends and can send, by what its sessions' controller has delivered.
//!
//! What is delivered while packets wait for room in the window is what the uplink bears; while none
//! waits, it is only what there was to send ([Efthymiopoulos 2015], 5: a rate tells of the bottleneck only
//! while there is a queue). The greatest of the last spans that were all waiting counts: what bears so
//! much has borne it.

use std::collections::VecDeque;

use anabranch_control::time::{Duration, Time};
use anabranch_control::units::{Bytes, Rate};

/// So long must packets have waited for their span to tell of the uplink: some round trips, so that ACKs
/// in bunches do not matter.
const SPAN: Duration = Duration::from_millis(500);

/// Spans older than this are forgotten: lines change.
const MEMORY: Duration = Duration::from_millis(60_000);

/// Spans that are remembered at most.
const MOST_SPANS: usize = (MEMORY.as_nanos() / SPAN.as_nanos()) as usize;

/// One peer's.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// When it was last looked, and what had been delivered.
    last: Option<(Time, Bytes)>,
    /// Since when packets have waited at each look, and what had been delivered then.
    waiting_since: Option<(Time, Bytes)>,
    /// Rates of spans in which packets waited, and when each ended.
    spans: VecDeque<(Time, Rate)>,
    /// The beginning of the time of the next report.
    reported: Option<(Time, Bytes)>,
}

impl Measured {
    /// So much has been delivered in all, and packets wait or do not.
    pub fn on_tick(&mut self, now: Time, delivered: Bytes, is_waiting: bool) {
        self.last = Some((now, delivered));
        self.reported.get_or_insert((now, delivered));
        while self.spans.front().is_some_and(|&(at, _)| now.since(at) > MEMORY) {
            self.spans.pop_front();
        }
        if !is_waiting {
            self.waiting_since = None;
            return;
        }
        let (since, before) = *self.waiting_since.get_or_insert((now, delivered));
        if now.since(since) >= SPAN {
            if self.spans.len() == MOST_SPANS {
                self.spans.pop_front();
            }
            self.spans.push_back((now, rate((since, before), (now, delivered))));
            self.waiting_since = Some((now, delivered));
        }
    }

    /// What it can send; none where nothing has had to wait in the last minute.
    pub fn capacity(&self) -> Option<Rate> {
        self.spans.iter().map(|&(_, rate)| rate).max()
    }

    /// What it can send, none or not, and what it has sent since the last report.
    pub fn report(&mut self) -> (Option<Rate>, Rate) {
        let (Some(reported), Some(last)) = (self.reported, self.last) else { return Default::default() };
        self.reported = Some(last);
        let sent = rate(reported, last);
        // For a while it may send more than it could before.
        (self.capacity().map(|capacity| capacity.max(sent)), sent)
    }
}

fn rate((since, before): (Time, Bytes), (now, after): (Time, Bytes)) -> Rate {
    let span = now.since(since).as_secs_f64();
    if span <= 0.0 {
        return Rate::ZERO;
    }
    Rate::from_bytes_per_sec_f64((after - before).get() as f64 / span)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks each 50 ms from `from` to `until`, with this many bytes delivered in each of these spans.
    fn look(measured: &mut Measured, delivered: &mut u64, (from, until): (u64, u64), bytes: u64, is_waiting: bool) {
        for twentieth in from * 20..until * 20 {
            *delivered += bytes;
            let now = Time::ZERO + Duration::from_millis(50 * twentieth);
            measured.on_tick(now, Bytes::new(*delivered), is_waiting);
        }
    }

    #[test]
    fn what_is_delivered_while_packets_wait_is_what_can_be_sent() {
        let (mut measured, mut delivered) = (Measured::default(), 0);
        look(&mut measured, &mut delivered, (0, 2), 5000, false);
        assert_eq!(measured.report(), (None, Rate::from_bits_per_sec(800_000)), "nothing has waited");
        look(&mut measured, &mut delivered, (2, 5), 10_000, true);
        look(&mut measured, &mut delivered, (5, 20), 5000, false);
        let (capacity, sent) = measured.report();
        assert_eq!(capacity, Some(Rate::from_bits_per_sec(1_600_000)), "what was borne once is not forgotten at once");
        assert!(sent < Rate::from_bits_per_sec(1_000_000), "{sent}");
        look(&mut measured, &mut delivered, (20, 100), 2500, false);
        assert_eq!(measured.report().0, None, "but after a minute");
    }
}
