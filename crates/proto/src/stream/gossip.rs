//! What all peers together can send, and what of it lies idle, as every peer can know it without asking all:
//! the scalable bandwidth monitoring of [Efthymiopoulos 2015, 2], by push-sum gossip (Kempe, Dobra, Gehrke,
//! "Gossip-based computation of aggregate information", FOCS 2003).
//!
//! ```text
//! epoch begins:   m_i = (U_i, idle_i U_i, R_i, 1)
//! each round:     half of m_i to somebody at random, half stays
//! epoch ends:     m_i / (weight of m_i)  ->  the mean over all peers
//! ```
//!
//! The paper names the parts and prints no law: epochs, rounds and the third component are ours. U is what a
//! peer can send, and R what has come to it. Sums are means times the number of peers, which the server knows.
//!
//! **What is claimed is clipped to what was received.** By the paper's property 1, bandwidth is idle only if
//! all have the stream: where the mean of R says that they do not, nobody's idle bandwidth is worth anything,
//! and the surplus is what is missing. What was sent, the mean of U − idle U, is no more than what was received.
//! A peer that invents bandwidth can so make others believe in a surplus only while nobody misses anything.

use anabranch_control::time::Duration;
use anabranch_control::units::Rate;

use super::packet::Stamp;

/// How long an epoch is.
pub const EPOCH: Duration = Duration::from_millis(5000);

/// How often half of the mass moves: thirty times an epoch, and a thousand peers agree to a percent after
/// half of them.
pub const ROUND: Duration = Duration::from_millis(160);

/// Of an epoch's beginning and end, so that nothing is given to who is not yet, or no longer, in it.
const SETTLING: Duration = Duration::from_millis(500);

/// No weight is greater: it would be that of all peers of a very large audience.
const MOST_WEIGHT: f64 = 1e5;

/// No peer can send more, in bytes a second: ten gigabits.
const MOST_CAPACITY: f64 = 1.25e9;

/// Receivers that miss no more than this share have the stream.
const WHOLE: f64 = 0.99;

/// A part of what all peers know together, in bytes a second each but the weight.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Mass {
    /// What can be sent.
    pub capacity: f64,
    /// What of it is not.
    pub idle: f64,
    /// What was received of the stream.
    pub received: f64,
    /// Of how many peers that is.
    pub weight: f64,
}

impl Mass {
    /// That of one peer.
    pub fn of(capacity: Rate, sent: Rate, received: Rate) -> Mass {
        let (capacity, sent) = (capacity.bytes_per_sec(), sent.bytes_per_sec());
        Mass {
            capacity: capacity.max(sent),
            idle: (capacity - sent).max(0.0),
            received: received.bytes_per_sec(),
            weight: 1.0,
        }
    }

    fn scaled(self, share: f64) -> Mass {
        let Mass { capacity, idle, received, weight } = self;
        Mass { capacity: share * capacity, idle: share * idle, received: share * received, weight: share * weight }
    }

    fn plus(self, other: Mass) -> Mass {
        Mass {
            capacity: self.capacity + other.capacity,
            idle: self.idle + other.idle,
            received: self.received + other.received,
            weight: self.weight + other.weight,
        }
    }

    /// Whether honest peers could have sent it.
    pub fn is_possible(&self) -> bool {
        let most = MOST_CAPACITY * self.weight;
        self.weight > 0.0
            && self.weight <= MOST_WEIGHT
            && (0.0..=most).contains(&self.capacity)
            && (0.0..=self.capacity).contains(&self.idle)
            && (0.0..=most).contains(&self.received)
    }
}

/// What a peer has on average.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Mean {
    /// What can be sent.
    pub capacity: Rate,
    /// What of it is idle.
    pub idle: Rate,
    /// What was received of the stream.
    pub received: Rate,
}

impl Mean {
    /// What `peers` peers, of whom `viewers` take `bitrate`, could send beyond what is taken, in bytes a second;
    /// negative where it is not enough. Idle bandwidth counts only while all have the stream.
    pub fn surplus(&self, peers: usize, viewers: usize, bitrate: Rate) -> f64 {
        let received = peers as f64 * self.received.bytes_per_sec();
        let taken = viewers as f64 * bitrate.bytes_per_sec();
        if received < WHOLE * taken { received - taken } else { peers as f64 * self.idle.bytes_per_sec() }
    }
}

/// One peer's part.
#[derive(Clone, Debug, Default)]
pub struct Gossip {
    /// The epoch, by the stream's time; none before the first.
    epoch: Option<u32>,
    mass: Mass,
    mean: Option<Mean>,
    next_round: Duration,
}

impl Gossip {
    /// The epoch of a time of the stream.
    pub fn epoch_of(stamp: Stamp) -> u32 {
        (stamp.elapsed().as_nanos() / EPOCH.as_nanos()) as u32
    }

    /// The epoch that goes on; none before the first.
    pub fn epoch(&self) -> Option<u32> {
        self.epoch
    }

    /// What the last epoch has shown; none before the end of the first.
    pub fn mean(&self) -> Option<Mean> {
        self.mean
    }

    /// The time of the stream is `stamp`. At the beginning of an epoch, `own` says what this peer has, and the
    /// last one's result is known; true then.
    pub fn on_time(&mut self, stamp: Stamp, own: impl FnOnce() -> Mass) -> bool {
        let epoch = Gossip::epoch_of(stamp);
        if self.epoch == Some(epoch) {
            return false;
        }
        // Who has come within an epoch has no mass of it, and no result.
        self.mean = self.mass.mean().or(self.mean);
        self.epoch = Some(epoch);
        self.mass = own();
        // Others see it begin a little later, and would throw away what is of an epoch to come.
        self.next_round = EPOCH * u64::from(epoch) + SETTLING;
        true
    }

    /// The half that goes to somebody now, if a round is due.
    pub fn give(&mut self, stamp: Stamp) -> Option<(u32, Mass)> {
        let (epoch, elapsed) = (self.epoch?, stamp.elapsed());
        let end = EPOCH * (u64::from(epoch) + 1);
        if elapsed < self.next_round || elapsed + SETTLING > end || self.mass.weight <= 0.0 {
            return None;
        }
        self.next_round = elapsed + ROUND;
        self.mass = self.mass.scaled(0.5);
        Some((epoch, self.mass))
    }

    /// Somebody's half comes. What is of another epoch, or impossible, is thrown away.
    pub fn on_mass(&mut self, epoch: u32, mass: Mass) {
        if self.epoch == Some(epoch) && mass.is_possible() && self.mass.weight + mass.weight <= MOST_WEIGHT {
            self.mass = self.mass.plus(mass);
        }
    }
}

impl Mass {
    fn mean(&self) -> Option<Mean> {
        (self.weight > 0.0).then(|| {
            let capacity = self.capacity / self.weight;
            let received = self.received / self.weight;
            // Sent is no more than received: who says more has invented it.
            let sent = ((self.capacity - self.idle) / self.weight).min(received / WHOLE);
            let idle = (self.idle / self.weight).min(capacity);
            Mean {
                capacity: Rate::from_bytes_per_sec_f64(sent + idle),
                idle: Rate::from_bytes_per_sec_f64(idle),
                received: Rate::from_bytes_per_sec_f64(received),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use anabranch_control::rng::Rng;

    use super::*;

    fn stamp(millis: u64) -> Stamp {
        Stamp(millis as u32)
    }

    fn rate(bytes_per_s: f64) -> Rate {
        Rate::from_bytes_per_sec_f64(bytes_per_s)
    }

    /// An epoch of `peers` peers that send `sent(i)` of what they could, `capacity(i)`; a share `lost` of what
    /// is given does not arrive. The means that they find.
    fn epoch(peers: usize, lost: f64, own: impl Fn(usize) -> Mass) -> Vec<Mean> {
        let mut rng = Rng::stream(1, "gossip");
        let mut all = vec![Gossip::default(); peers];
        for millis in (0..=5000).step_by(20) {
            for peer in 0..peers {
                all[peer].on_time(stamp(millis), || own(peer));
                if let Some((epoch, mass)) = all[peer].give(stamp(millis)) {
                    let to = (peer + 1 + rng.below(peers - 1)) % peers;
                    if !rng.chance(lost) {
                        all[to].on_mass(epoch, mass);
                    }
                }
            }
        }
        all.iter().map(|gossip| gossip.mean().expect("an epoch is over")).collect()
    }

    fn own(peer: usize) -> Mass {
        let capacity = 1e5 * (1.0 + (peer % 5) as f64);
        Mass::of(rate(capacity), rate(0.75 * capacity), rate(225_000.0))
    }

    #[test]
    fn all_know_the_mean_within_an_epoch() {
        for peers in [2, 20, 1000] {
            let truth = (0..peers).map(|peer| own(peer).capacity).sum::<f64>() / peers as f64;
            for mean in epoch(peers, 0.0, own) {
                let share = mean.capacity.bytes_per_sec() / truth;
                assert!((0.99..1.01).contains(&share), "{peers}: {share}");
                assert!((mean.idle.bytes_per_sec() / truth - 0.25).abs() < 0.01);
            }
        }
    }

    #[test]
    fn what_is_lost_on_the_way_takes_its_weight_with_it() {
        let truth = (0..200).map(|peer| own(peer).capacity).sum::<f64>() / 200.0;
        let means = epoch(200, 0.05, own);
        let mean = means.iter().map(|mean| mean.capacity.bytes_per_sec()).sum::<f64>() / 200.0;
        assert!((0.95..1.05).contains(&(mean / truth)), "{}", mean / truth);
    }

    #[test]
    fn invented_bandwidth_is_no_surplus_while_somebody_misses_the_stream() {
        let viewers = 99;
        let liar = |peer: usize| {
            let received = rate(200_000.0);
            if peer == 7 { Mass::of(rate(1e9), rate(0.0), received) } else { Mass::of(rate(2e5), rate(2e5), received) }
        };
        let mean = epoch(100, 0.0, liar)[0];
        let missing = mean.surplus(100, viewers, rate(250_000.0));
        assert!((missing / (100.0 * 200_000.0 - 99.0 * 250_000.0) - 1.0).abs() < 0.02, "{missing}");
        // Who says that it has sent what nobody has received.
        let sender = |peer: usize| Mass::of(rate(if peer == 7 { 1e9 } else { 2e5 }), rate(1e9), rate(198_000.0));
        let mean = epoch(100, 0.0, sender)[0];
        assert!(mean.capacity.bytes_per_sec() <= 200_001.0, "{:?}", mean);
    }

    #[test]
    fn impossible_mass_is_thrown_away() {
        let mut gossip = Gossip::default();
        gossip.on_time(stamp(0), || own(0));
        let before = gossip.mass;
        for mass in [
            Mass { weight: f64::NAN, ..own(1) },
            Mass { weight: 0.0, ..own(1) },
            Mass { capacity: f64::INFINITY, ..own(1) },
            Mass { idle: 2.0 * own(1).capacity, ..own(1) },
            Mass { received: -1.0, ..own(1) },
        ] {
            gossip.on_mass(0, mass);
            assert_eq!(gossip.mass, before, "{mass:?}");
        }
        gossip.on_mass(1, own(1));
        assert_eq!(gossip.mass, before, "another epoch's");
        gossip.on_mass(0, own(1));
        assert_eq!(gossip.mass.weight, 2.0);
    }
}
