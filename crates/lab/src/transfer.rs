//! One file over relays in simulated time: the machines that `anabranch send`, `relay` and `receive`
//! run, on their wire format, and where the time of a transfer goes.
//!
//! Nothing depends on the machine that simulates, except that keys are drawn anew in each run; no delay
//! follows from them.

mod network;
pub mod stepped;

use std::fmt;
use std::net::SocketAddr;

use anabranch_control::path::registry::{Entry, Pacing};
use anabranch_control::time::{Duration, Time};
use anabranch_control::units::Rate;
use anabranch_proto::limiter::LimitModel;
use anabranch_proto::overlay::courier::SendCounters;
use anabranch_proto::overlay::wire;
use anabranch_proto::transfer::{Phase, block_size};
use anabranch_sim::delay::DelayModel;

pub use self::network::Downlink;
use self::stepped::{SteppedFile, addresses, refused};
use crate::physical::{self, Sizes};

/// So often it is looked at.
const LOOK: Duration = Duration::from_millis(1);

/// No transfer takes longer.
const LONGEST: Time = Time::from_nanos(3_600_000_000_000);

/// A file, the relays that it goes over, and what lies between them.
#[derive(Clone)]
pub struct OneFile {
    /// The limits of the relays, and how they are held.
    pub relays: Vec<(LimitModel, Rate)>,
    /// From when on relays are gone, by their place in the list.
    pub dying: Vec<(usize, Time)>,
    /// The receiver's link, if it limits what arrives.
    pub downlink: Option<Downlink>,
    /// Relays for each packet.
    pub hops: usize,
    /// Delays between nodes.
    pub delay: DelayModel,
    /// Standard deviation of a datagram's delay, as a share of the mean.
    pub jitter: f64,
    /// The sender's controller.
    pub controller: &'static Entry,
    /// Its parameters, where they are not the defaults.
    pub parameters: toml::Table,
    /// How its rates become sending times.
    pub pacing: Pacing,
    /// Bytes of a packet as UDP payload.
    pub packet: usize,
    /// Bytes of the file.
    pub length: usize,
    /// Decides positions and random choices.
    pub seed: u64,
}

impl fmt::Debug for OneFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OneFile({} bytes over {} relays, {})", self.length, self.relays.len(), self.controller.name)
    }
}

/// Where the time of a transfer went.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    /// Until the offer was accepted.
    pub accepted: Duration,
    /// Until a hundredth, a tenth, half, 90 and 99 % of the file had arrived, as its sender knew.
    pub arrived: [Duration; 5],
    /// Until the receiver had checked it, and its sender knew.
    pub took: Duration,
    /// What no controller exceeds over relays that do not die, in bytes of the file a second.
    pub possible: f64,
    /// The smoothed round-trip time at the end.
    pub round_trip: Duration,
    /// The sender's packets.
    pub packets: SendCounters,
    /// Datagrams that relays refused.
    pub refused: u64,
    /// Datagrams that they passed on.
    pub forwarded: u64,
    /// Blocks that the receiver had already.
    pub duplicates: u64,
}

/// Why a file did not arrive.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct GivenUp(pub String);

/// Of the file, those of [`Measured::arrived`].
const PARTS: [f64; 5] = [0.01, 0.1, 0.5, 0.9, 0.99];

impl Measured {
    /// Goodput over the whole file, start and end included, as a share of what is possible.
    pub fn share(&self, length: usize) -> f64 {
        length as f64 / self.took.as_secs_f64() / self.possible
    }

    /// The same from a tenth of the file to 90 %.
    pub fn steady_share(&self, length: usize) -> f64 {
        0.8 * length as f64 / (self.arrived[3].as_secs_f64() - self.arrived[1].as_secs_f64()) / self.possible
    }
}

impl OneFile {
    /// The longest way of a packet.
    fn route(&self) -> Vec<SocketAddr> {
        let addresses = addresses(self.relays.len());
        let source = wire::unknown_source(addresses[0]);
        let relays = addresses[..self.hops].iter().copied();
        [source].into_iter().chain(relays).chain([addresses[self.relays.len()]]).collect()
    }

    /// Bytes of a block.
    fn block(&self) -> u16 {
        block_size(&self.route(), self.packet).expect("a packet has room for data")
    }

    /// What no controller exceeds, in bytes of the file a second, over relays that do not die and the receiver's link.
    fn possible(&self) -> f64 {
        let ack = wire::ack_len(&self.route()) as f64;
        let sizes = Sizes { packet: self.packet as f64, ack, payload: f64::from(self.block()) };
        let dies = |place: usize| self.dying.iter().any(|&(dying, _)| dying == place);
        let relays = self.relays.iter().enumerate().filter(|&(place, _)| !dies(place));
        let limits: Vec<Rate> = relays.map(|(_, &(_, limit))| limit).collect();
        let relays = physical::one_sender(&limits, self.hops, &sizes);
        let arrives = |link: Downlink| link.rate.bytes_per_sec() / sizes.packet * sizes.payload;
        self.downlink.map_or(relays, |link| relays.min(arrives(link)))
    }

    /// Sends the file.
    ///
    /// # Errors
    ///
    /// When its sender gives it up, or it has not arrived within an hour.
    ///
    /// # Panics
    ///
    /// For paths that can't be.
    pub fn run(&self) -> Result<Measured, GivenUp> {
        let mut world = SteppedFile::new(self);
        let mut dying = self.dying.clone();
        let (mut accepted, mut arrived) = (None, [None; PARTS.len()]);
        let done = loop {
            let now = world.now();
            if now >= LONGEST {
                return Err(GivenUp("it has not arrived within an hour".to_owned()));
            }
            dying.retain(|&(relay, at)| {
                let lives = now < at;
                if !lives {
                    world.kill(relay);
                }
                lives
            });
            world.step(now + LOOK);
            let now = world.now();
            let sender = world.sender();
            if sender.phase() >= Phase::Sending {
                accepted.get_or_insert(now);
            }
            for (part, arrived) in PARTS.iter().zip(&mut arrived) {
                if sender.arrived_bytes() as f64 >= part * self.length as f64 {
                    arrived.get_or_insert(now);
                }
            }
            match sender.outcome() {
                Some(Ok(done)) => break done.clone(),
                Some(Err(error)) => return Err(GivenUp(error.to_string())),
                None => {}
            }
        };
        let courier = world.sender().courier();
        let since = |time: Option<Time>| time.unwrap_or(world.now()).since(Time::ZERO);
        Ok(Measured {
            accepted: since(accepted),
            arrived: arrived.map(since),
            took: done.took,
            possible: self.possible(),
            round_trip: courier.smoothed_rtt().unwrap_or(Duration::ZERO),
            packets: *courier.counters(),
            refused: world.relays().map(refused).sum(),
            forwarded: world.relays().map(|relay| relay.counters().forwarded).sum(),
            duplicates: world.receiver().counters().duplicates,
        })
    }
}

#[cfg(test)]
mod tests {
    use anabranch_control::path::registry;
    use anabranch_control::rng::Rng;
    use anabranch_control::units::Bytes;

    use super::*;

    /// 20 MB over eight relays of 4 MB/s on one machine, by each model.
    fn fast() -> impl Iterator<Item = (LimitModel, OneFile)> {
        let limit = Rate::from_bytes_per_sec(4_000_000);
        let tenth = Duration::from_millis(100);
        let models = [
            LimitModel::Window { phase: tenth },
            LimitModel::Bucket { depth: limit * tenth },
            LimitModel::Queue { longest: tenth },
        ];
        models.into_iter().map(move |model| {
            let case = OneFile {
                relays: vec![(model, limit); 8],
                dying: Vec::new(),
                downlink: None,
                hops: 3,
                delay: DelayModel::Constant(Duration::from_nanos(50_000)),
                jitter: 0.1,
                controller: registry::find("explicit-rate").unwrap(),
                parameters: toml::Table::new(),
                pacing: Pacing::Burst,
                packet: 1400,
                length: 20_000_000,
                seed: 1,
            };
            (model, case)
        })
    }

    /// As `anabranch demo`: 6 MB over twenty relays of 30 to 90 kB/s, some hundred milliseconds from each other.
    fn slow(model: impl Fn(Rate, f64) -> LimitModel, seed: u64) -> OneFile {
        let mut phases = Rng::stream(seed, "phases");
        let limits = (0..20).map(|relay| Rate::from_bytes_per_sec_f64(60e3 * (0.5 + f64::from(relay) / 19.0)));
        OneFile {
            relays: limits.map(|limit| (model(limit, phases.uniform()), limit)).collect(),
            delay: DelayModel::Plane {
                span: Duration::from_millis(100),
                access: Duration::from_millis(5),
                stretch: 1.0,
            },
            length: 6_000_000,
            seed,
            ..fast().next().expect("there is one").1
        }
    }

    /// What a transfer takes besides the time in which its blocks leave: a round trip for the greeting, one for what
    /// the relays grant, one for the first block and its answer. The offer's answer is there after two, and at the
    /// end the last block and its answer take one more.
    #[test]
    fn a_file_over_slow_relays_costs_three_round_trips_at_its_start_and_one_at_its_end() {
        const SEEDS: u64 = 3;
        let tenth = Duration::from_millis(100);
        let room = Bytes::new(10 * 1400);
        let window = |_, phase| LimitModel::Window { phase: Duration::from_secs_f64(phase) };
        let bucket = |limit: Rate, _| LimitModel::Bucket { depth: (limit * tenth).max(room) };
        let queue = |limit: Rate, _| LimitModel::Queue { longest: tenth.max(room / limit) };
        let models: [&dyn Fn(Rate, f64) -> LimitModel; 3] = [&window, &bucket, &queue];
        for (model, name) in models.into_iter().zip(["window", "bucket", "queue"]) {
            let (mut accepted, mut start, mut end, mut lost) = (0.0, 0.0, 0.0, 0.0);
            for seed in 1..=SEEDS {
                let case = slow(model, seed);
                let measured = case.run().unwrap();
                let part = 0.1 * case.length as f64 / (measured.possible * measured.steady_share(case.length));
                let seconds = |time: Duration| time.as_secs_f64();
                let round_trips = |time: f64| time / seconds(measured.round_trip) / SEEDS as f64;
                accepted += round_trips(seconds(measured.accepted));
                start += round_trips(seconds(measured.arrived[1]) - part);
                end += round_trips(seconds(measured.took) - seconds(measured.arrived[3]) - part);
                lost += measured.packets.lost as f64 / measured.packets.sent as f64 / SEEDS as f64;
            }
            assert!(accepted < 2.0, "{name}: {accepted} round trips until the offer is accepted");
            assert!(start < 3.0, "{name}: {start} round trips at the start");
            assert!(end < 1.0, "{name}: {end} round trips at the end");
            assert!(lost < 0.02, "{name}: {lost} lost");
        }
    }

    /// All that is on the way to them counts as in flight until its deadline: there must be room for more.
    #[test]
    fn relays_that_die_on_the_way_do_not_hold_up_a_file() {
        for (model, case) in fast() {
            let dying = vec![(0, Time::from_secs_f64(1.2)), (1, Time::from_secs_f64(1.2))];
            let measured = OneFile { dying, ..case }.run().unwrap();
            assert!(measured.took < Duration::SECOND * 5, "{model:?}: {measured:?}");
            assert!(measured.packets.lost > 100, "{model:?}: {measured:?}");
        }
    }

    /// Who begins slowly sends little, and most of that never comes.
    #[test]
    fn relays_that_are_dead_from_the_start_or_soon_do_not_hold_up_a_file() {
        for (at, lost) in [(Time::ZERO, 0), (Time::from_secs_f64(0.001), 100)] {
            for (model, case) in fast() {
                let measured = OneFile { dying: vec![(0, at), (1, at)], ..case }.run().unwrap();
                assert!(measured.took < Duration::SECOND * 5, "{model:?}, {at:?}: {measured:?}");
                assert!(measured.packets.lost > lost, "{model:?}, {at:?}: {measured:?}");
            }
        }
    }

    /// 6 MB to a receiver whose link carries 1 MB/s, over four relays that grant 4 MB/s each, two for each packet: nodes are
    /// so far from each other, and what would wait for the link for longer is dropped.
    fn home(delay: Duration, queue: Duration) -> impl Iterator<Item = (LimitModel, OneFile)> {
        let downlink = Some(Downlink { rate: Rate::from_bytes_per_sec(1_000_000), queue });
        fast().map(move |(model, case)| {
            let (relays, delay) = (case.relays[..4].to_vec(), DelayModel::Constant(delay));
            (model, OneFile { relays, downlink, hops: 2, delay, length: 6_000_000, ..case.clone() })
        })
    }

    /// Set after the figures, of ten seeds: 1.0 to 1.1 % of the packets are lost, none, 5 to 7 % and 4 to 7 %; where queues
    /// do not count 22 to 23, 21 to 23, 14 to 17 and 26 to 28 %, in the same time.
    #[test]
    fn a_receiver_behind_a_slow_link_is_sent_about_what_that_carries_whatever_relays_grant() {
        const SEEDS: u64 = 3;
        let (near, far) = (Duration::from_nanos(50_000), Duration::from_millis(20));
        let (short, long) = (Duration::from_millis(40), Duration::from_millis(250));
        for (delay, queue, most) in [(near, short, 0.015), (near, long, 0.001), (far, short, 0.1), (far, long, 0.1)] {
            for (model, case) in home(delay, queue) {
                let lost = |parameters: &toml::Table| {
                    let of_seed = |seed| {
                        let case = OneFile { parameters: parameters.clone(), seed, ..case.clone() };
                        let measured = case.run().unwrap();
                        assert!((0.9..1.01).contains(&measured.share(case.length)), "{model:?}, {queue}: {measured:?}");
                        measured.packets.lost as f64 / measured.packets.sent as f64
                    };
                    (1..=SEEDS).map(of_seed).sum::<f64>() / SEEDS as f64
                };
                let with = lost(&toml::Table::new());
                let without = lost(&toml::Table::from_iter([("queues".to_owned(), false.into())]));
                assert!(with < most && without > 1.5 * most, "{model:?}, {delay}, {queue}: {with}, {without} without");
            }
        }
    }

    /// How long each of twenty files took, in seconds, and until its offer was accepted, where half of eight relays are
    /// dead from `at` on: of the paths over three of them, one in fourteen meets none of those.
    fn over_the_other_half(case: &OneFile, at: Time, length: usize) -> (Vec<f64>, Vec<f64>) {
        let dying: Vec<(usize, Time)> = (0..4).map(|relay| (relay, at)).collect();
        let of_seed = |seed| {
            let measured = OneFile { dying: dying.clone(), length, seed, ..case.clone() }.run().unwrap();
            (measured.took.as_secs_f64(), measured.accepted.as_secs_f64())
        };
        (1..=12).map(of_seed).unzip()
    }

    /// The mean and the greatest.
    fn mean_and_most(values: &[f64]) -> (f64, f64) {
        (values.iter().sum::<f64>() / values.len() as f64, values.iter().copied().fold(0.0, f64::max))
    }

    #[test]
    fn an_offer_is_accepted_within_seconds_where_half_of_the_relays_are_dead() {
        for (model, case) in fast() {
            let (_, accepted) = over_the_other_half(&case, Time::ZERO, 1_000_000);
            let (mean, most) = mean_and_most(&accepted);
            assert!(mean < 2.0 && most < 8.0, "{model:?}: {mean}, {accepted:?}");
        }
    }

    /// Most of what leaves is lost then, and by whom is not yet known: not by the receiver, which has part in all of it.
    #[test]
    fn half_of_the_relays_may_die_at_once() {
        for (model, case) in fast() {
            for at in [0.001, 0.1, 0.3] {
                let (took, _) = over_the_other_half(&case, Time::from_secs_f64(at), 4_000_000);
                let (mean, most) = mean_and_most(&took);
                assert!(mean < 3.0 && most < 8.0, "{model:?}, {at} s: {mean}, {took:?}");
            }
        }
    }

    /// Files that stood still: with no packet but an offer under way, its sender took the receiver for one that takes
    /// nothing; or relays that were dead and tried again kept it under suspicion.
    #[test]
    fn half_of_the_relays_may_die_as_a_file_is_offered() {
        for (model, case) in fast() {
            for seed in [151, 158, 169, 214, 253, 287] {
                let dying = (0..4).map(|relay| (relay, Time::from_secs_f64(0.001))).collect();
                let measured = OneFile { dying, length: 4_000_000, seed, ..case.clone() }.run().unwrap();
                assert!(measured.took < Duration::SECOND * 12, "{model:?}, {seed}: {measured:?}");
            }
        }
    }

    /// Set after the figures: 0.21 to 0.44 and 0.11 to 0.52 of ten seeds, windows being the worst; 0.001 to 0.05 by the rule
    /// for several destinations.
    #[test]
    fn a_file_over_fast_relays_that_stamp_nothing_takes_a_tenth_of_what_is_possible_at_least() {
        for name in ["explicit-rate", "timeouts"] {
            for (model, case) in fast() {
                let controller = anabranch_control::path::registry::find(name).unwrap();
                let mut parameters = toml::Table::new();
                if name == "explicit-rate" {
                    parameters.insert("stamps".to_owned(), false.into());
                }
                let case = OneFile { controller, parameters, ..case };
                let measured = case.run().unwrap();
                assert!(measured.share(case.length) > 0.1, "{name}, {model:?}: {measured:?}");
            }
        }
    }

    #[test]
    fn a_file_over_fast_relays_takes_nine_tenths_of_what_is_possible_and_loses_next_to_nothing() {
        for (model, case) in fast() {
            let measured = case.run().unwrap();
            assert!((0.9..1.05).contains(&measured.share(case.length)), "{model:?}: {measured:?}");
            let SendCounters { sent, lost, .. } = measured.packets;
            assert!(lost * 1000 <= sent, "{model:?}: {measured:?}");
        }
    }
}
