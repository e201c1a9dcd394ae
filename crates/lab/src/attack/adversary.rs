//! Logs of relays, and what can be read in them.
//!
//! A relay knows of each packet when it came and went, the neighbours on both sides, and the names that
//! it had there. Of those that came from no relay it knows the sender, of those that went to no relay
//! the destination. Two relays of one adversary that follow each other on a path know that it is the
//! same packet by its name; through an honest relay between them they don't, and count.

use std::collections::BTreeMap;

use anabranch_control::time::{Duration, Time};
use anabranch_onion::RelayIndex;

/// A neighbour on a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Party {
    /// By its address.
    Sender(u32),
    Relay(RelayIndex),
    /// By its address.
    Destination(u32),
    /// The packet ended here.
    Nobody,
}

/// One line of a relay's log.
#[derive(Clone, Copy, Debug)]
pub struct Record {
    pub came_at: Time,
    pub left_at: Time,
    pub relay: RelayIndex,
    pub previous: Party,
    pub next: Party,
    /// What the packet was called on the link that it came by and on the one that it left by.
    pub names: (u64, u64),
}

/// Counts of packets by bin.
pub type Series = BTreeMap<u32, Vec<u32>>;

/// Who runs some relays.
#[derive(Clone, Debug)]
pub struct Adversary {
    owned: Vec<bool>,
    bin: Duration,
    bins: usize,
    /// By this the counts of departures are early, so that they meet those of arrivals.
    lag: Duration,
    /// Of each sender.
    pub entered: Series,
    /// Of each destination.
    pub left: Series,
    /// Packets that were followed all the way, for each sender and destination, and when first.
    pub traced: BTreeMap<(u32, u32), (u64, Time)>,
    names: BTreeMap<u64, u32>,
    /// Lines of all logs.
    pub records: u64,
}

impl Adversary {
    pub fn new(owned: Vec<bool>, bin: Duration, bins: usize, lag: Duration) -> Adversary {
        Adversary {
            owned,
            bin,
            bins,
            lag,
            entered: BTreeMap::new(),
            left: BTreeMap::new(),
            traced: BTreeMap::new(),
            names: BTreeMap::new(),
            records: 0,
        }
    }

    pub fn owns(&self, relay: RelayIndex) -> bool {
        self.owned[usize::from(relay.0)]
    }

    /// How many relays it runs.
    pub fn relays(&self) -> usize {
        self.owned.iter().filter(|owned| **owned).count()
    }

    /// A packet passes a relay; only its own relays' logs are the adversary's.
    pub fn observe(&mut self, record: &Record) {
        if !self.owns(record.relay) {
            return;
        }
        self.records += 1;
        let sender = match record.previous {
            Party::Sender(sender) => {
                count(&mut self.entered, sender, record.came_at, self.bin, self.bins);
                Some(sender)
            }
            _ => self.names.remove(&record.names.0),
        };
        match (record.next, sender) {
            (Party::Destination(destination), _) => {
                let early = record.left_at.before(self.lag);
                count(&mut self.left, destination, early, self.bin, self.bins);
                if let Some(sender) = sender {
                    self.traced.entry((sender, destination)).or_insert((0, record.left_at)).0 += 1;
                }
            }
            (Party::Relay(next), Some(sender)) if self.owns(next) => {
                self.names.insert(record.names.1, sender);
            }
            _ => {}
        }
    }

    /// Reads the logs of another part of the same relays' traffic too.
    pub fn merge(&mut self, other: &Adversary) {
        for (whole, part) in [(&mut self.entered, &other.entered), (&mut self.left, &other.left)] {
            for (party, counts) in part {
                let sums = whole.entry(*party).or_insert_with(|| vec![0; self.bins]);
                sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
            }
        }
        for (pair, (packets, first)) in &other.traced {
            let entry = self.traced.entry(*pair).or_insert((0, *first));
            *entry = (entry.0 + packets, entry.1.min(*first));
        }
        self.records += other.records;
    }
}

fn count(series: &mut Series, party: u32, at: Time, bin: Duration, bins: usize) {
    let counts = series.entry(party).or_insert_with(|| vec![0; bins]);
    if let Some(count) = counts.get_mut((at.as_nanos() / bin.as_nanos()) as usize) {
        *count += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A packet over relays 0, 1 and 2, at seconds 1, 2 and 3, under the names 10 to 13.
    fn pass(adversary: &mut Adversary) {
        let parties = [Party::Sender(7), Party::Relay(RelayIndex(0)), Party::Relay(RelayIndex(1))];
        let nexts = [Party::Relay(RelayIndex(1)), Party::Relay(RelayIndex(2)), Party::Destination(9)];
        for place in 0..3u16 {
            let at = Time::from_secs_f64(f64::from(place) + 1.0);
            let names = (10 + u64::from(place), 11 + u64::from(place));
            let (previous, next) = (parties[usize::from(place)], nexts[usize::from(place)]);
            adversary.observe(&Record { came_at: at, left_at: at, relay: RelayIndex(place), previous, next, names });
        }
    }

    fn of(owned: [bool; 3]) -> Adversary {
        let mut adversary = Adversary::new(owned.into(), Duration::SECOND, 5, Duration::from_millis(2_000));
        pass(&mut adversary);
        adversary
    }

    #[test]
    fn a_log_says_what_its_relay_has_seen_and_nothing_else() {
        let first = of([true, false, false]);
        assert_eq!((first.entered[&7].clone(), first.left.len(), first.records), (vec![0, 1, 0, 0, 0], 0, 1));
        let last = of([false, false, true]);
        assert_eq!((last.left[&9].clone(), last.entered.len()), (vec![0, 1, 0, 0, 0], 0));
        let middle = of([false, true, false]);
        assert_eq!((middle.entered.len(), middle.left.len(), middle.records), (0, 0, 1));
    }

    #[test]
    fn a_packet_is_followed_by_its_names_and_not_through_an_honest_relay() {
        assert!(of([true, false, true]).traced.is_empty());
        let all = of([true, true, true]);
        assert_eq!(all.traced[&(7, 9)], (1, Time::from_secs_f64(3.0)));
        assert!(all.names.is_empty());
        let mut twice = all.clone();
        twice.merge(&all);
        assert_eq!((twice.traced[&(7, 9)].0, twice.entered[&7][1], twice.records), (2, 2, 6));
    }
}
