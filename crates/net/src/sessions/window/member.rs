//! What is known of the packets of one connection.

use std::collections::VecDeque;

use anabranch_control::flow::{Lost, Sent};
use anabranch_control::round_trip::RoundTripEstimator;
use anabranch_control::time::{Duration, Time};
use anabranch_control::units::Bytes;
use anabranch_proto::flow::acknowledger::asked_ack_delay;

/// A packet is settled without an answer when one that left this many percent of a round trip later is
/// acknowledged: the library has declared it lost long before if it counted (RFC 9002, 6.1.2).
const SETTLED_AFTER_PERCENT: u64 = 125;

/// Round trips that are not in the estimate yet.
#[derive(Clone, Copy, Debug, Default)]
enum Samples {
    #[default]
    None,
    One(Duration),
    /// Several, of which this is the last.
    More(Duration),
}

/// A packet whose fate is not known.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outstanding {
    pub number: u64,
    pub sent: Sent,
}

/// What is known of one connection's packets.
#[derive(Debug, Default)]
pub(super) struct Member {
    /// In the order in which they left.
    pub packets: VecDeque<Outstanding>,
    pub rtt: RoundTripEstimator,
    /// No longer packet leaves but as a probe for the path's MTU, of whose loss nobody tells.
    pub mtu: Bytes,
    /// What the library counts as in flight, as far as it tells.
    pub in_flight: Bytes,
    /// Of that, what counts in the common window: nothing while it is given up.
    pub counted: Bytes,
    pub newest_acked: Option<Time>,
    /// Both ends have proved who they are.
    pub is_established: bool,
    /// Since when an ACK is awaited: since the last one, or since the first packet after it.
    pub waiting_since: Option<Time>,
    /// When its silence was due: ACKs that have come meanwhile are read first.
    pub missed_at: Option<Time>,
    pub is_silent: bool,
    pub is_given_up: bool,
    /// The library wanted to send and the window did not let it.
    pub is_blocked: bool,
    pub acked: Vec<Sent>,
    pub acked_bytes: Bytes,
    pub lost: Vec<Lost>,
    pub marked: u64,
    pub is_persistent: bool,
    /// Round trips since the controller's last feedback; more than one are rare.
    samples: Samples,
    /// The mean of the library's own round trips at that time.
    mean: Option<Duration>,
    pub is_unreported: bool,
}

impl Member {
    /// Of a connection on whose path packets with `mtu` bytes are no probes.
    pub fn new(mtu: Bytes) -> Member {
        Member { mtu, ..Member::default() }
    }

    pub fn take(&mut self, number: u64, size: Bytes) -> Option<Sent> {
        let place = self.packets.iter().position(|packet| packet.number == number && packet.sent.size == size)?;
        self.packets.remove(place).map(|packet| packet.sent)
    }

    /// What is in flight of probes for the path's MTU.
    pub fn probes(&self) -> Bytes {
        self.packets.iter().map(|packet| packet.sent.size).filter(|&size| size > self.mtu).sum()
    }

    /// The library's own mean of round trips, as it reported it last.
    pub fn mean(&self) -> Option<Duration> {
        self.mean
    }

    /// The newest packet of all was acknowledged after `rtt`.
    pub fn on_round_trip(&mut self, rtt: Duration) {
        self.samples = match self.samples {
            Samples::None => Samples::One(rtt),
            Samples::One(_) | Samples::More(_) => Samples::More(rtt),
        };
    }

    /// The round trip since the last call, if there was one, goes into the estimate: whether it did, and what
    /// of it the receiver waited before it answered, `most` at most. `mean` is the library's own now.
    pub fn take_round_trip(&mut self, mean: Option<Duration>, most: Duration) -> (bool, Duration) {
        let before = std::mem::replace(&mut self.mean, mean);
        let (rtt, delay) = match std::mem::take(&mut self.samples) {
            Samples::None => return (false, Duration::ZERO),
            Samples::One(rtt) if self.rtt.is_sampled() => (rtt, ack_delay(rtt, before, mean)),
            Samples::One(rtt) | Samples::More(rtt) => (rtt, Duration::ZERO),
        };
        let delay = delay.min(most);
        self.rtt.sample(rtt, delay);
        (true, delay)
    }

    /// The probe timeout, of a receiver that is asked to put off its ACKs for `most` at most.
    pub fn probe_timeout(&self, most: Duration) -> Duration {
        // The library asks anew once that differs by a fifth from what it has asked for.
        let rtt = self.rtt.report(false).smoothed;
        self.rtt.probe_timeout(asked_ack_delay(most, rtt * 6 / 5))
    }

    /// Puts what will never be answered (lost probes for the path's MTU, what was left of the handshake) among
    /// the acknowledged packets, where it counts in no sum: some controllers wait for each packet's fate.
    pub fn settle(&mut self, now: Time) {
        let Some(newest) = self.newest_acked else { return };
        let round_trip = self.rtt.report(false).smoothed * SETTLED_AFTER_PERCENT / 100;
        let long_ago = Time::from_nanos(now.as_nanos().saturating_sub(round_trip.as_nanos())).min(newest);
        while self.packets.front().is_some_and(|oldest| oldest.sent.at < long_ago) {
            self.acked.extend(self.packets.pop_front().map(|packet| packet.sent));
        }
    }
}

/// What of the round trip `rtt` the receiver waited before it answered. The library does not say so, but its
/// mean of round trips is without it (RFC 9002, 5.3: 7/8 of the mean `before` and 1/8 of the sample are the mean
/// `after`), and so tells.
fn ack_delay(rtt: Duration, before: Option<Duration>, after: Option<Duration>) -> Duration {
    let (Some(before), Some(after)) = (before, after) else { return Duration::ZERO };
    // The mean is rounded down, by less than a nanosecond each time.
    let adjusted = after * 8 - before * 7;
    rtt - adjusted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_receiver_waited_is_what_the_librarys_mean_lacks() {
        let (ms, mut member) = (Duration::from_millis, Member::default());
        let most = ms(100);
        member.on_round_trip(ms(40));
        assert_eq!(member.take_round_trip(Some(ms(40)), most), (true, Duration::ZERO));
        // 65 ms, of which the receiver waited for 25.
        member.on_round_trip(ms(65));
        assert_eq!(member.take_round_trip(Some(ms(40)), most), (true, ms(25)));
        member.on_round_trip(ms(48));
        assert_eq!(member.take_round_trip(Some(ms(41)), most), (true, Duration::ZERO));
        assert_eq!(member.take_round_trip(Some(ms(41)), most), (false, Duration::ZERO));
        (0..2).for_each(|_| member.on_round_trip(ms(65)));
        assert_eq!(member.take_round_trip(Some(ms(43)), most), (true, Duration::ZERO), "of which of both is unknown");
        assert_eq!(member.rtt.report(false).min, ms(40));
    }
}
