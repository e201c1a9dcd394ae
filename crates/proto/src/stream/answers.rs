//! How often the server sends a packet again where a mesh alone carries the stream.
//!
//! What the server's first copies of a packet lose, nobody has, and all miss it at the same time. If all
//! whom it is asked by got it from the server, one lost packet would cost as many as there are viewers, and
//! the next ones would be lost for that. So few get it, and others from them.

use std::collections::{BTreeMap, VecDeque};

use anabranch_control::time::{Duration, Time};

use super::packet::PacketId;

/// In this time, in which who got it tells its neighbours,
const SPAN: Duration = Duration::from_millis(400);

/// a packet is sent so often.
const MOST: u8 = 2;

/// Answers that are remembered at most: what a gigabit a second brings in that time would not fit, but it is
/// for what was lost.
const MOST_REMEMBERED: usize = 8192;

/// What the server has lately been asked for.
#[derive(Clone, Debug, Default)]
pub struct Answers {
    given: VecDeque<(Time, PacketId)>,
    counts: BTreeMap<PacketId, u8>,
}

impl Answers {
    /// Whether `id` is sent to one more.
    pub fn grant(&mut self, now: Time, id: PacketId) -> bool {
        while let Some(&(at, old)) = self.given.front()
            && (now.since(at) >= SPAN || self.given.len() >= MOST_REMEMBERED)
        {
            self.given.pop_front();
            if let Some(count) = self.counts.get_mut(&old) {
                *count -= 1;
                if *count == 0 {
                    self.counts.remove(&old);
                }
            }
        }
        let count = self.counts.entry(id).or_insert(0);
        let is_granted = *count < MOST;
        if is_granted {
            *count += 1;
            self.given.push_back((now, id));
        }
        is_granted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Time {
        Time::ZERO + Duration::from_millis(millis)
    }

    #[test]
    fn of_all_who_ask_at_once_two_get_it_and_two_more_later() {
        let mut answers = Answers::default();
        let granted = |answers: &mut Answers, now: u64| (0..50).filter(|_| answers.grant(at(now), PacketId(7))).count();
        assert_eq!(granted(&mut answers, 0), 2);
        assert_eq!(granted(&mut answers, 399), 0);
        assert_eq!(granted(&mut answers, 400), 2);
        assert!(answers.grant(at(400), PacketId(8)));
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut answers = Answers::default();
        for id in 0..100_000 {
            answers.grant(at(0), PacketId(id));
        }
        assert!(answers.given.len() <= MOST_REMEMBERED && answers.counts.len() <= MOST_REMEMBERED);
    }
}
