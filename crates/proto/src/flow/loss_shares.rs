//! What a loss on the way to one receiver says of a window that many share.
//!
//! Connections of their own would each answer a loss by a part of their own window. One controller for all that
//! answered each by the same part of the common window would let less leave the more receivers there are, though
//! every way is as good as before: with random loss `p`, the window of Reno's rule is `sqrt(3 / (2 p))` packets,
//! however many share it. So two cases are told apart:
//!
//! - Packets to the receiver wait in some queue: its round trips are longer than the least one. The loss may be
//!   the uplink's, and weighs what the receiver has of the common window, `share_j = in flight to j / in flight to
//!   all`. Where that queue overflows, all lose packets within some round trips, and the weights add up.
//! - Packets wait nowhere: the loss is one way's own. It weighs `share_j^2`. For `n` equal receivers that is one in
//!   `n^2`: the common window grows by a packet a round trip where `n` connections grow by `n`, so that both are
//!   in balance with `p` at the same sum, `n sqrt(3 / (2 p))` (MulTCP: Crowcroft and Oechslin 1998).
//!
//! The controller learns of a loss once weights add up to 1.
//!
//! For one receiver, every loss is reported.

use anabranch_control::flow::RoundTrip;
use anabranch_control::time::{Duration, Time};

/// Losses of one receiver that are answered together.
#[derive(Clone, Copy, Debug, Default)]
struct Episode {
    /// Packets that left before belong to it.
    until: Option<Time>,
    /// Whether the controller learned of it.
    is_reported: bool,
}

/// The weights of losses, by receiver.
#[derive(Clone, Debug, Default)]
pub struct LossShares {
    weight: f64,
    episodes: Vec<Episode>,
}

impl LossShares {
    /// A receiver comes under a number that another one may have had.
    pub fn join(&mut self, receiver: usize) {
        if self.episodes.len() <= receiver {
            self.episodes.resize(receiver + 1, Episode::default());
        }
        self.episodes[receiver] = Episode::default();
    }

    /// Packets to `receiver` are lost at `now`, of which the last left at `left`; it has `share` of what is in
    /// flight, from 0 to 1, and `waits` says whether packets to it wait in a queue. Whether the controller is to
    /// learn of them as losses.
    pub fn weigh(&mut self, now: Time, receiver: usize, share: f64, left: Time, waits: bool) -> bool {
        if self.episodes.len() <= receiver {
            self.join(receiver);
        }
        let episode = &mut self.episodes[receiver];
        if episode.until.is_some_and(|until| left <= until) {
            return episode.is_reported;
        }
        self.weight += if waits { share } else { share * share };
        let is_reported = self.weight >= 1.0 - ROUNDING;
        if is_reported {
            self.weight = 0.0;
        }
        *episode = Episode { until: Some(now), is_reported };
        is_reported
    }
}

/// Whether round trips tell of a queue: the mean is longer than the least by more than an eighth of it and ten
/// milliseconds, as jitter and what receivers wait make it anyway.
pub fn packets_wait(rtt: &RoundTrip) -> bool {
    rtt.smoothed > rtt.min + rtt.min / 8 + JITTER
}

/// See [`packets_wait`].
const JITTER: Duration = Duration::from_millis(10);

/// Shares that add up to 1 may add up to a little less.
const ROUNDING: f64 = 1e-9;

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Time {
        Time::ZERO + Duration::from_millis(millis)
    }

    #[test]
    fn one_receivers_losses_are_all_reported() {
        let mut shares = LossShares::default();
        for round in 0..5 {
            assert!(shares.weigh(at(100 * round + 50), 0, 1.0, at(100 * round), round % 2 == 0));
        }
    }

    #[test]
    fn of_ten_receivers_one_loss_in_a_hundred_is_reported_where_nothing_waits_and_one_in_ten_where_packets_do() {
        for (waits, expected) in [(false, 3), (true, 30)] {
            let mut shares = LossShares::default();
            let mut is_reported = |i: u64| shares.weigh(at(200 * i + 50), (i % 10) as usize, 0.1, at(200 * i), waits);
            assert_eq!((0..300).filter(|&i| is_reported(i)).count(), expected);
        }
    }

    #[test]
    fn losses_of_packets_that_left_before_the_last_one_was_found_are_of_the_same_episode() {
        let mut shares = LossShares::default();
        assert!(!shares.weigh(at(50), 3, 0.4, at(10), true));
        assert!(!shares.weigh(at(70), 3, 0.9, at(20), true), "the episode was not told");
        assert!(shares.weigh(at(150), 3, 0.9, at(60), true));
    }

    #[test]
    fn who_takes_anothers_number_begins_anew() {
        let mut shares = LossShares::default();
        assert!(!shares.weigh(at(50), 3, 0.4, at(10), true));
        shares.join(3);
        assert!(shares.weigh(at(70), 3, 0.9, at(20), true));
    }
}
