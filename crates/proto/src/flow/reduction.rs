//! Proportional rate reduction: during a fast recovery of TCP's data leaves in proportion to the data that arrives, so
//! that the flight is reduced by its end and not at once. Where it falls below the reduced window, by many losses, it is
//! led back there, by a segment more than what arrives.
//!
//! ```text
//! on entering      prr_delivered = prr_out = 0, RecoverFS = snd.nxt - snd.una       RFC 6937, 3
//! on each ACK      prr_delivered += DeliveredData
//! pipe > ssthresh  sndcnt = ceil(prr_delivered ssthresh / RecoverFS) - prr_out
//! else             limit  = max(prr_delivered - prr_out, DeliveredData) + MSS       PRR-SSRB
//!                  sndcnt = min(ssthresh - pipe, limit)
//! the window       pipe + sndcnt
//! on sending       prr_out += data
//! at the end       the window is ssthresh                                           RFC 9937, 6
//! ```
//!
//! ns-3.44 differs in three things, found by its own log: 4496 ACKs in recoveries of one flow all have the window of
//! these rules.
//!
//! ```text
//! RecoverFS        is pipe when the recovery begins
//! DeliveredData    is a segment more for a duplicate ACK, while prr_delivered < RecoverFS: about a window leaves in
//!                  the first round trip, not its reduced part
//! limit            has the segment more only by an ACK of data that was sent again
//! ```

use anabranch_control::units::Bytes;

use super::config::Reduction;

/// What an ACK in a recovery reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// Data that arrived, first reported by this ACK.
    pub delivered: Bytes,
    /// Some of it lies behind a gap, so that this is a duplicate ACK (RFC 6675, 2).
    pub is_duplicate: bool,
    /// It acknowledges data that was sent again.
    pub is_of_retransmission: bool,
}

/// The reduction of one recovery; amounts in bytes.
#[derive(Clone, Copy, Debug)]
pub struct ProportionalReduction {
    is_ns_3: bool,
    /// A full segment (MSS).
    full: u64,
    recover_flight: u64,
    delivered: u64,
    out: u64,
    window: Bytes,
}

impl ProportionalReduction {
    /// Begins with `outstanding` sent and not acknowledged cumulatively, of which `pipe` is in flight, in segments of
    /// `full`; none where the window is reduced at once.
    pub fn new(reduction: Reduction, full: u64, outstanding: Bytes, pipe: Bytes) -> Option<ProportionalReduction> {
        let (is_ns_3, flight) = match reduction {
            Reduction::Rfc6675 => return None,
            Reduction::Rfc6937 => (false, outstanding),
            Reduction::Ns3 => (true, pipe),
        };
        let recover_flight = flight.get().max(full);
        Some(ProportionalReduction { is_ns_3, full, recover_flight, delivered: 0, out: 0, window: pipe })
    }

    /// Data leaves.
    pub fn on_sent(&mut self, data: u64) {
        self.out += data;
    }

    /// The window after an ACK which leaves `pipe` in flight, where the reduced window is `ssthresh`.
    pub fn on_ack(&mut self, ack: Delivery, pipe: Bytes, ssthresh: Bytes) -> Bytes {
        let mut delivered = ack.delivered.get();
        if self.is_ns_3 && ack.is_duplicate && self.delivered < self.recover_flight {
            delivered += self.full;
        }
        if delivered == 0 {
            return self.window;
        }
        self.delivered += delivered;
        let send = if pipe > ssthresh {
            // sndcnt = ceil(prr_delivered ssthresh / RecoverFS) - prr_out; a window has no bound but 64 bits.
            let share = u128::from(self.delivered) * u128::from(ssthresh.get());
            let share = share.div_ceil(u128::from(self.recover_flight));
            u64::try_from(share).unwrap_or(u64::MAX).saturating_sub(self.out)
        } else {
            // limit = max(prr_delivered - prr_out, DeliveredData) + MSS; sndcnt = min(ssthresh - pipe, limit).
            let more = if self.is_ns_3 && !ack.is_of_retransmission { 0 } else { self.full };
            let limit = self.delivered.saturating_sub(self.out).max(delivered) + more;
            (ssthresh - pipe).get().min(limit)
        };
        self.window = Bytes::new(pipe.get().saturating_add(send));
        self.window
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FULL: u64 = 1000;

    fn segments(count: u64) -> Bytes {
        Bytes::new(count * FULL)
    }

    fn of_one(is_duplicate: bool) -> Delivery {
        Delivery { delivered: segments(1), is_duplicate, is_of_retransmission: false }
    }

    /// A recovery that begins with the third duplicate ACK: of `outstanding` segments three have arrived and `lost` are
    /// lost, the reduced window is `ssthresh`. How many segments leave upon each of `acks` duplicate ACKs, that one
    /// included; the lost one leaves upon it whatever the window says.
    fn left(reduction: Reduction, outstanding: u64, lost: u64, ssthresh: u64, acks: usize) -> Vec<u64> {
        let mut pipe = outstanding - 3 - lost;
        let mut prr = ProportionalReduction::new(reduction, FULL, segments(outstanding), segments(pipe)).unwrap();
        let mut left = Vec::new();
        for ack in 0..acks {
            pipe -= u64::from(ack > 0);
            let window = prr.on_ack(of_one(true), segments(pipe), segments(ssthresh));
            let mut count = 0;
            while segments(pipe + 1) <= window || (ack == 0 && count == 0) {
                prr.on_sent(FULL);
                pipe += 1;
                count += 1;
            }
            left.push(count);
        }
        left
    }

    #[test]
    fn a_segment_leaves_for_two_that_arrive_where_the_window_is_halved() {
        // 20 outstanding, ssthresh 10: after n ACKs ceil(n / 2) segments may have left. The lost one leaves with the
        // first; what that is ahead, half a segment, is waited for.
        assert_eq!(left(Reduction::Rfc6937, 20, 1, 10, 9), [1, 0, 0, 1, 0, 1, 0, 1, 0]);
    }

    #[test]
    fn below_the_reduced_window_two_leave_for_each_that_arrives() {
        // 20 outstanding, 15 lost: 2 in flight, ssthresh 10. The limit is max(delivered - out, 1) + 1 = 2: slow start,
        // by one from 4 with the first ACK to 10 with the seventh; then one for one.
        assert_eq!(left(Reduction::Rfc6937, 20, 15, 10, 10), [2, 2, 2, 2, 2, 2, 2, 1, 1, 1]);
    }

    #[test]
    fn a_window_that_was_never_above_the_reduced_one_is_not_exceeded() {
        let mut prr = ProportionalReduction::new(Reduction::Rfc6937, FULL, segments(6), segments(2)).unwrap();
        assert_eq!(prr.on_ack(of_one(true), segments(2), segments(3)), segments(3));
    }

    #[test]
    fn nothing_new_leaves_the_window_and_an_unlimited_one_does_not_overflow() {
        let mut prr = ProportionalReduction::new(Reduction::Rfc6937, FULL, segments(9), segments(5)).unwrap();
        let window = prr.on_ack(of_one(true), segments(5), segments(4));
        let nothing = Delivery { delivered: Bytes::ZERO, ..of_one(false) };
        assert_eq!(prr.on_ack(nothing, segments(5), segments(4)), window);
        let most = Bytes::new(u64::MAX);
        let mut prr = ProportionalReduction::new(Reduction::Rfc6937, FULL, segments(9), most).unwrap();
        assert_eq!(prr.on_ack(of_one(true), most, Bytes::new(u64::MAX - 1)), most);
    }

    /// A recovery of ns-3.44's own: 9 segments outstanding, the first lost, 3 SACKed, ssthresh 4. Its log has the pipe
    /// before and the window after each ACK; in segments.
    #[test]
    fn ns_3s_windows_are_those_of_its_log() {
        let mut prr = ProportionalReduction::new(Reduction::Ns3, FULL, segments(9), segments(5)).unwrap();
        for (pipe, window, sent) in [(5, 6.6, 1), (5, 7.2, 2), (6, 7.8, 1), (6, 7.6, 1), (6, 7.4, 1), (6, 7.2, 1)] {
            let ours = prr.on_ack(of_one(true), segments(pipe), segments(4)).get() as f64 / FULL as f64;
            assert!((ours - window).abs() < 0.002, "{ours} of {window}");
            (0..sent).for_each(|_| prr.on_sent(FULL));
        }
    }

    /// Of the same log: 3 in flight, ssthresh 4, as many sent as have arrived.
    #[test]
    fn ns_3_leads_back_by_a_segment_more_only_upon_data_that_was_sent_again() {
        let window = |is_of_retransmission, is_ns_3| {
            let reduction = if is_ns_3 { Reduction::Ns3 } else { Reduction::Rfc6937 };
            let mut prr = ProportionalReduction::new(reduction, FULL, segments(3), segments(2)).unwrap();
            prr.on_sent(9 * FULL);
            let ack = Delivery { is_of_retransmission, ..of_one(false) };
            prr.on_ack(ack, segments(2), segments(4)).get() / FULL
        };
        assert_eq!([window(false, true), window(true, true), window(false, false)], [3, 4, 4]);
    }
}
