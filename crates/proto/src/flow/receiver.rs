//! The receiving side of a flow: what of its stream has arrived.

use anabranch_control::time::Time;

use super::acknowledger::{AckPolicy, Acknowledger, Arrived};
use super::ranges::Assembly;
use super::{Ack, Data};

/// What an arrival brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// Bytes of the stream that had not arrived before.
    pub new_bytes: u64,
    /// Whether the stream is complete with this arrival.
    pub completed: bool,
}

/// Receives a flow's data.
#[derive(Clone, Debug)]
pub struct FlowReceiver {
    acks: Acknowledger,
    /// Whether what fills the last gap is answered at once.
    filled_gap: bool,
    stream: Assembly,
    /// Where the stream ends, once known.
    end: Option<u64>,
}

impl FlowReceiver {
    /// Has received nothing yet.
    pub fn new(policy: AckPolicy) -> FlowReceiver {
        FlowReceiver {
            acks: Acknowledger::new(policy),
            filled_gap: policy.filled_gap,
            stream: Assembly::default(),
            end: None,
        }
    }

    /// `data` arrives; `ce` if its packet bears a congestion-experienced mark.
    #[inline(always)]
    pub fn on_data(&mut self, now: Time, data: &Data, ce: bool) -> Received {
        let had_gap = self.stream.has_gap();
        let room = self.stream.insert(data.offset, u64::from(data.length));
        // What there is no room for is not acknowledged: it must come again.
        let Some(new_bytes) = room else { return Received { new_bytes: 0, completed: false } };
        let arrived = self.acks.on_packet(now, data.number, ce);
        if arrived == Arrived::Again {
            return Received { new_bytes: 0, completed: false };
        }
        if data.fin {
            self.end = Some(data.offset.saturating_add(u64::from(data.length)));
        }
        let completed = new_bytes > 0 && self.end == Some(self.stream.contiguous());
        // RFC 9000 13.2.1 and RFC 5681 4.2: at once when packets are missing, out of order,
        // marked, or when a gap is being filled; the end has nothing to wait for, nor has what is pushed.
        let gap = self.stream.has_gap() || (self.filled_gap && had_gap);
        self.acks.wait(now, arrived == Arrived::OutOfOrder || ce || gap || completed || data.push);
        Received { new_bytes, completed }
    }

    /// The ACK that is due, if one is.
    #[inline(always)]
    pub fn poll_ack(&mut self, now: Time) -> Option<Ack> {
        self.acks.poll_ack(now)
    }

    /// When an ACK will be due.
    #[inline]
    pub fn timer(&self) -> Option<Time> {
        self.acks.timer()
    }

    /// Bytes of the stream that have arrived without a gap.
    pub fn contiguous(&self) -> u64 {
        self.stream.contiguous()
    }

    /// What has arrived beyond the first gap: ranges of the stream, ascending, ends excluded.
    pub fn pieces(&self) -> &[(u64, u64)] {
        self.stream.pieces()
    }

    /// ACKs that have left.
    #[inline]
    pub fn acks_sent(&self) -> u64 {
        self.acks.acks_sent()
    }

    /// Whether all of the stream has arrived.
    pub fn is_complete(&self) -> bool {
        self.end == Some(self.stream.contiguous())
    }
}

#[cfg(test)]
mod tests {
    use anabranch_control::time::Duration;

    use super::*;

    fn data(number: u64) -> Data {
        Data { number, offset: number * 1000, length: 1000, ..Data::default() }
    }

    fn at(millis: u64) -> Time {
        Time::ZERO + Duration::from_millis(millis)
    }

    #[test]
    fn each_second_packet_is_answered_at_once_and_a_single_one_after_the_delay() {
        let mut receiver = FlowReceiver::new(AckPolicy::default());
        receiver.on_data(at(0), &data(0), false);
        assert_eq!(receiver.poll_ack(at(0)), None);
        assert_eq!(receiver.timer(), Some(at(25)));
        receiver.on_data(at(1), &data(1), false);
        let ack = receiver.poll_ack(at(1)).unwrap();
        assert!(ack.ranges.iter().eq([(0, 1)]));
        assert_eq!(ack.delay, Duration::ZERO);
        receiver.on_data(at(2), &data(2), false);
        assert_eq!(receiver.poll_ack(at(27)).unwrap().delay, Duration::from_millis(25));
        assert_eq!(receiver.timer(), None);
    }

    #[test]
    fn a_gap_is_reported_at_once_until_it_is_filled() {
        let mut receiver =
            FlowReceiver::new(AckPolicy { every: 2, max_delay: Duration::SECOND, ..AckPolicy::default() });
        for number in [0, 1] {
            receiver.on_data(at(0), &data(number), false);
        }
        receiver.poll_ack(at(0)).unwrap();
        for number in [3, 4, 5] {
            receiver.on_data(at(1), &data(number), false);
            let ack = receiver.poll_ack(at(1)).unwrap();
            assert!(ack.ranges.iter().eq([(3, number), (0, 1)]));
        }
        // The lost data comes again under a number of its own.
        receiver.on_data(at(2), &Data { number: 6, offset: 2000, length: 1000, ..Data::default() }, false);
        assert_eq!(receiver.contiguous(), 6000);
        assert_eq!(receiver.poll_ack(at(2)), None);
    }

    #[test]
    fn what_fills_the_last_gap_is_answered_at_once_if_asked_for() {
        for filled_gap in [false, true] {
            let mut receiver = FlowReceiver::new(AckPolicy { filled_gap, ..AckPolicy::default() });
            for number in [0, 2] {
                receiver.on_data(at(0), &data(number), false);
            }
            receiver.poll_ack(at(0)).unwrap();
            receiver.on_data(at(1), &Data { number: 3, ..data(1) }, false);
            assert_eq!(receiver.poll_ack(at(1)).is_some(), filled_gap);
        }
    }

    #[test]
    fn what_is_pushed_is_answered_at_once() {
        let mut receiver = FlowReceiver::new(AckPolicy::default());
        receiver.on_data(at(0), &Data { push: true, ..data(0) }, false);
        assert!(receiver.poll_ack(at(0)).is_some());
        receiver.on_data(at(1), &data(1), false);
        assert_eq!(receiver.poll_ack(at(1)), None);
    }

    #[test]
    fn the_end_is_answered_at_once_and_a_copy_too() {
        let mut receiver =
            FlowReceiver::new(AckPolicy { every: 10, max_delay: Duration::SECOND, ..AckPolicy::default() });
        let end = Data { length: 10, fin: true, ..Data::default() };
        let received = receiver.on_data(at(0), &end, false);
        assert_eq!(received, Received { new_bytes: 10, completed: true });
        assert!(receiver.poll_ack(at(0)).is_some() && receiver.is_complete());
        let again = receiver.on_data(at(1), &end, false);
        assert_eq!(again, Received { new_bytes: 0, completed: false });
        assert!(receiver.poll_ack(at(1)).is_some());
    }

    proptest::proptest! {
        #[test]
        fn whatever_a_sender_sends_is_taken_without_a_panic(
            sent in proptest::collection::vec(
                (proptest::prelude::any::<(u64, u64, u32, bool, bool, bool)>(), proptest::prelude::any::<bool>()),
                1..40,
            ),
        ) {
            let mut receiver = FlowReceiver::new(AckPolicy::default());
            for ((number, offset, length, fin, push, ce), extreme) in sent {
                let high = if extreme { u64::MAX - 3 } else { 0 };
                let data = Data { number: number | high, offset: offset | high, length, fin, push };
                receiver.on_data(at(0), &data, ce);
                receiver.poll_ack(at(0));
            }
        }
    }

    #[test]
    fn marks_are_counted_and_reported_at_once() {
        let mut receiver =
            FlowReceiver::new(AckPolicy { every: 10, max_delay: Duration::SECOND, ..AckPolicy::default() });
        receiver.on_data(at(0), &data(0), true);
        assert_eq!(receiver.poll_ack(at(0)).unwrap().ce_count, 1);
    }
}
