//! What a sender knows of each receiver: what is on its way to it, and its round trips.

use crate::flow::PeerId;
use crate::time::{Duration, Seconds, Time};
use crate::units::Bytes;

/// Receivers that are kept apart. Those beyond share the entries of the first ones: where
/// two share, the shorter minimum makes the window smaller than either would alone need.
pub const MAX_RECEIVERS: usize = 256;

/// Round trips that are remembered for each receiver. A loss shows after three packets
/// sent later have been acknowledged (RFC 9002, 6.1.1), each perhaps by an ACK of its own.
const REMEMBERED: usize = 8;

/// One receiver.
#[derive(Clone, Copy, Debug, Default)]
struct Receiver {
    outstanding: Bytes,
    /// `dmin_p`: the lowest round trip ever (section 5).
    min_rtt: Option<Duration>,
    /// When the packets acknowledged last left, and their round trips; a ring.
    recent: [Option<(Time, Duration)>; REMEMBERED],
    newest: usize,
}

/// All receivers.
#[derive(Clone, Debug, Default)]
pub struct Receivers {
    known: Vec<Receiver>,
}

impl Receivers {
    fn get(&self, receiver: PeerId) -> Option<&Receiver> {
        self.known.get(receiver.0 as usize % MAX_RECEIVERS)
    }

    /// The entry of `receiver`; made when the first packet to it leaves.
    #[inline]
    fn entry(&mut self, receiver: PeerId) -> &mut Receiver {
        let place = receiver.0 as usize % MAX_RECEIVERS;
        if place >= self.known.len() {
            self.known.resize(place + 1, Receiver::default());
        }
        &mut self.known[place]
    }

    /// `size` leaves for `to`.
    #[inline]
    pub fn on_sent(&mut self, to: PeerId, size: Bytes) {
        self.entry(to).outstanding += size;
    }

    /// `size` was acknowledged by `from`, or is lost on its way to it.
    #[inline]
    pub fn on_answer(&mut self, from: PeerId, size: Bytes) {
        self.entry(from).outstanding -= size;
    }

    /// The packet to `from` that left at `sent_at` took `rtt`; none took less than `min`.
    #[inline]
    pub fn on_round_trip(&mut self, from: PeerId, sent_at: Time, rtt: Duration, min: Duration) {
        let receiver = self.entry(from);
        receiver.min_rtt = Some(receiver.min_rtt.map_or(min, |known| known.min(min)));
        receiver.newest = (receiver.newest + 1) % REMEMBERED;
        receiver.recent[receiver.newest] = Some((sent_at, rtt));
    }

    /// `receiver` is gone: its number may be that of another one next, with other round trips.
    pub fn forget(&mut self, receiver: PeerId) {
        let entry = self.entry(receiver);
        // One that shares the entry may have something on its way still.
        *entry = Receiver { outstanding: entry.outstanding, ..Receiver::default() };
    }

    /// Of all packets that came through the one that left last before `at`, as far back as is
    /// remembered: to whom, and its round trip. All of them share the queue, and where each receiver
    /// gets few the one before the lost one went to another. Of packets that left at one instant the
    /// last waited longest.
    pub fn last_before(&self, at: Time) -> Option<(PeerId, Duration)> {
        let of = |(receiver, known): (u32, &Receiver)| {
            let before = known.recent.iter().flatten().filter(|(sent_at, _)| *sent_at <= at);
            let beyond = |rtt: Duration| rtt - known.min_rtt.unwrap_or(rtt);
            before.map(|&(sent_at, rtt)| (sent_at, beyond(rtt), receiver, rtt)).max()
        };
        let (_, _, receiver, rtt) = (0..).zip(&self.known).filter_map(of).max()?;
        Some((PeerId(receiver), rtt))
    }

    /// `dmin_p`.
    pub fn min_rtt(&self, receiver: PeerId) -> Option<Duration> {
        self.get(receiver)?.min_rtt
    }

    /// The last round trip to `receiver`.
    pub fn latest_rtt(&self, receiver: PeerId) -> Option<Duration> {
        let receiver = self.get(receiver)?;
        receiver.recent[receiver.newest].map(|(_, rtt)| rtt)
    }

    /// `sum_p lambda_p dmin_p` over those with a known `dmin_p`; none while
    /// nothing is on its way to any of them.
    pub fn base_delay(&self) -> Option<Seconds> {
        let known =
            self.known.iter().filter_map(|receiver| Some((receiver.outstanding.get() as f64, receiver.min_rtt?)));
        let (sum, outstanding) =
            known.fold((Seconds::ZERO, 0.0), |(sum, total), (data, min)| (sum + min.seconds() * data, total + data));
        (outstanding > 0.0).then(|| sum / outstanding)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: Bytes = Bytes::new(1000);

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn the_base_delay_weighs_each_minimum_by_what_is_on_its_way_there() {
        let mut receivers = Receivers::default();
        assert_eq!(receivers.base_delay(), None);
        for (receiver, packets, rtt) in [(0, 3, 40), (1, 1, 80)] {
            (0..packets).for_each(|_| receivers.on_sent(PeerId(receiver), SIZE));
            receivers.on_round_trip(PeerId(receiver), Time::ZERO, ms(rtt + 5), ms(rtt));
        }
        // A receiver that has not answered yet has no delay to weigh.
        receivers.on_sent(PeerId(2), SIZE);
        assert!((receivers.base_delay().unwrap().0 - 0.050).abs() < 1e-12);
        receivers.on_answer(PeerId(0), SIZE * 3);
        assert!((receivers.base_delay().unwrap().0 - 0.080).abs() < 1e-12);
        receivers.on_answer(PeerId(1), SIZE);
        assert_eq!(receivers.base_delay(), None);
    }

    #[test]
    fn the_round_trip_before_a_loss_is_of_the_packet_that_left_last_before_it() {
        let mut receivers = Receivers::default();
        let at = |i: u64| Time::ZERO + ms(i);
        for i in 0..20 {
            receivers.on_round_trip(PeerId(0), at(i), ms(100 + i), ms(100));
        }
        let before = |receivers: &Receivers, i: u64| receivers.last_before(at(i)).map(|(to, rtt)| (to.0, rtt));
        assert_eq!(before(&receivers, 15), Some((0, ms(115))));
        receivers.on_round_trip(PeerId(0), at(18), ms(117), ms(100));
        assert_eq!(before(&receivers, 18), Some((0, ms(118))), "of two at one instant");
        assert_eq!(before(&receivers, 3), None, "long forgotten");
        receivers.on_round_trip(PeerId(2), at(15), ms(70), ms(30));
        assert_eq!(before(&receivers, 15), Some((2, ms(70))), "of two receivers the one whose packet waited longer");
        assert_eq!(before(&receivers, 14), Some((0, ms(114))));
    }

    #[test]
    fn receivers_beyond_the_limit_take_no_more_room() {
        let mut receivers = Receivers::default();
        for receiver in 0..10 * MAX_RECEIVERS as u32 {
            receivers.on_sent(PeerId(receiver), SIZE);
        }
        receivers.on_sent(PeerId(u32::MAX), SIZE);
        assert_eq!(receivers.known.len(), MAX_RECEIVERS);
    }
}
