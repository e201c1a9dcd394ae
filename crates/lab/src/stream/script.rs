//! Who comes, who goes, who dies and who lies, and over which lines: what a scenario settles before its stream
//! begins, for simulations and for runs on real packets alike.

use std::collections::BTreeSet;

use anabranch_control::rng::Rng;
use anabranch_control::time::{Duration, Time};
use anabranch_control::units::Rate;
use anabranch_proto::stream::packet::MAX_PACKET;
use anabranch_scenario::stream::{Audience, OPENING, Rates, StreamScenario};
use anabranch_sim::access::AccessLinks;
use anabranch_sim::agenda::Agenda;
use anabranch_sim::delay::DelayModel;
use anabranch_sim::loss::LossModel;
use anabranch_sim::network::{Capacity, Jitter, LinkConfig};
use anabranch_sim::varying::{Change, Course};

use super::liar::Lie;

/// A keyframe comes so often.
pub const KEYFRAMES: Duration = Duration::from_millis(1000);

/// How long an uplink's or downlink's queue is: what homes have, and a tenth of what some had.
pub const QUEUE: Duration = Duration::from_millis(100);

/// What liars who drop drop.
const DROPPED: f64 = 0.5;

/// A viewer, as it comes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Arriving {
    /// Its number: the server is 0, and no number is used twice.
    pub node: u32,
    /// What its line can send.
    pub upload: Rate,
    /// What it says that it can send.
    pub claimed: Rate,
    /// What it does with others' packets.
    pub lie: Lie,
    /// Whether it neither lies nor claims too much.
    pub is_honest: bool,
}

/// Something that happens to the audience.
#[derive(Clone, Debug, PartialEq)]
pub enum Act {
    /// Somebody comes.
    Join(Arriving),
    /// Somebody goes without a word.
    Leave(u32),
    /// These die at once.
    Kill(Vec<u32>),
}

/// All that happens to the audience before the end, in its order.
#[derive(Clone, Debug, PartialEq)]
pub struct Script(pub Vec<(Time, Act)>);

#[derive(Clone, Copy, Debug)]
enum Cue {
    Join,
    Leave(u32),
    Kill,
}

impl Script {
    /// That of `scenario`.
    pub fn of(scenario: &StreamScenario) -> Script {
        let StreamScenario { audience, churn, .. } = scenario;
        let mut rng = Rng::stream(scenario.seed, "audience");
        let mut cues = Agenda::default();
        for client in 0..audience.clients as u64 {
            let share = Duration::from_nanos(audience.arrival.as_nanos() * client / (audience.clients as u64).max(1));
            cues.add(Time::ZERO + OPENING + share, Cue::Join);
        }
        if churn.kill_share > 0.0 {
            cues.add(Time::ZERO + churn.kill_at, Cue::Kill);
        }
        let (mut acts, mut alive, mut nodes) = (Vec::new(), BTreeSet::new(), 0);
        while let Some((at, cue)) = cues.take() {
            if at >= Time::ZERO + scenario.duration {
                break;
            }
            match cue {
                Cue::Join => {
                    nodes += 1;
                    alive.insert(nodes);
                    acts.push((at, Act::Join(arriving(scenario, nodes, &mut rng))));
                    if let Some(mean) = churn.mean_stay {
                        // Exponential: who stays long stays longer.
                        let stay = -mean.as_secs_f64() * libm::log(1.0 - rng.uniform());
                        cues.add(at + Duration::from_secs_f64(stay), Cue::Leave(nodes));
                    }
                }
                Cue::Leave(node) => {
                    if alive.remove(&node) {
                        acts.push((at, Act::Leave(node)));
                        cues.add(at, Cue::Join);
                    }
                }
                Cue::Kill => {
                    let mut there: Vec<u32> = alive.iter().copied().collect();
                    let count = (there.len() as f64 * churn.kill_share).round() as usize;
                    let dead: Vec<u32> = (0..count).map(|_| there.swap_remove(rng.below(there.len()))).collect();
                    alive.retain(|node| !dead.contains(node));
                    acts.push((at, Act::Kill(dead)));
                }
            }
        }
        Script(acts)
    }

    /// Those who come, in their order.
    pub fn arriving(&self) -> impl Iterator<Item = &Arriving> {
        self.0.iter().filter_map(|(_, act)| match act {
            Act::Join(arriving) => Some(arriving),
            Act::Leave(_) | Act::Kill(_) => None,
        })
    }
}

fn arriving(scenario: &StreamScenario, node: u32, rng: &mut Rng) -> Arriving {
    let liars = &scenario.liars;
    let upload = scenario.audience.upload.of(u64::from(node) - 1, scenario.seed);
    // One draw decides what somebody is, so that shares add up.
    let draw = rng.uniform();
    let mut threshold = 0.0;
    let mut is = |share: f64| {
        let before = threshold;
        threshold += share;
        (before..threshold).contains(&draw)
    };
    let (free_rides, claims, drops, poisons) =
        (is(liars.free_riders), is(liars.claimers), is(liars.droppers), is(liars.poisoners));
    let lie = match (free_rides, drops, poisons) {
        (true, _, _) => Lie::FreeRider,
        (_, true, _) => Lie::Drops(DROPPED),
        (_, _, true) => Lie::Poisons,
        _ => Lie::None,
    };
    let factor = if claims { liars.claim_factor } else { 1.0 };
    let claimed = Rate::from_bytes_per_sec_f64(upload.bytes_per_sec() * factor);
    Arriving { node, upload, claimed, lie, is_honest: lie == Lie::None && !claims }
}

/// One of the two links of a home; the delay lies between the homes.
pub fn link(name: &str, rate: Rate, loss: f64) -> LinkConfig {
    LinkConfig {
        name: name.into(),
        rate: Some(Course::constant(rate)),
        delay: Course::constant(Duration::ZERO),
        capacity: Capacity::Time(QUEUE),
        discipline: None,
        loss: if loss > 0.0 { LossModel::Random(Course::constant(loss)) } else { LossModel::None },
        jitter: Jitter::NONE,
    }
}

/// Both links of a viewer's home whose line can send `upload` at first.
pub fn links(audience: &Audience, upload: Rate) -> AccessLinks {
    let mut links = AccessLinks { up: link("up", upload, 0.0), down: link("down", audience.download, audience.loss) };
    if let (Some(every), &Rates::Uniform(low, high)) = (audience.upload_every, &audience.upload) {
        links.up.rate = Some(Course { first: upload, change: Change::Uniform { every, low, high } });
    }
    links
}

/// How far homes are from each other.
pub fn delays(audience: &Audience) -> DelayModel {
    DelayModel::Plane { span: audience.span, access: audience.access, stretch: 1.0 }
}

/// From when on packets that go to players, and that do not, count: all have come.
pub fn counts_from(scenario: &StreamScenario) -> Time {
    Time::ZERO + OPENING + scenario.audience.arrival
}

/// Packets in a second of the stream.
pub fn packets_per_second(scenario: &StreamScenario) -> u64 {
    (scenario.stream.bitrate.bytes_per_sec() / MAX_PACKET as f64).ceil() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scenario() -> StreamScenario {
        let mut scenario = StreamScenario::standard();
        scenario.audience.clients = 20;
        scenario
    }

    #[test]
    fn a_quarter_dies_when_it_shall_and_each_of_them_once() {
        let mut scenario = scenario();
        (scenario.churn.kill_share, scenario.churn.kill_at) = (0.25, Duration::from_millis(35_000));
        let Script(acts) = Script::of(&scenario);
        let kills: Vec<_> = acts.iter().filter(|(_, act)| !matches!(act, Act::Join(_))).collect();
        let [(at, Act::Kill(dead))] = kills[..] else { panic!("{kills:?}") };
        let distinct: BTreeSet<u32> = dead.iter().copied().collect();
        assert_eq!((*at, dead.len(), distinct.len()), (Time::ZERO + scenario.churn.kill_at, 5, 5));
        assert!(distinct.iter().all(|node| (1..=20).contains(node)));
    }

    #[test]
    fn another_comes_in_the_place_of_whoever_goes_and_nobody_goes_twice() {
        let mut scenario = scenario();
        scenario.churn.mean_stay = Some(Duration::from_millis(10_000));
        let script = Script::of(&scenario);
        let mut there = BTreeSet::new();
        let mut gone = 0;
        for (at, act) in &script.0 {
            match act {
                Act::Join(arriving) => assert!(there.insert(arriving.node)),
                Act::Leave(node) => {
                    gone += 1;
                    assert!(there.remove(node), "{node} at {at}");
                }
                Act::Kill(_) => panic!("nobody is killed"),
            }
        }
        assert!(gone > 20, "{gone}");
        assert_eq!(there.len(), 20);
        assert_eq!(script.arriving().count(), 20 + gone);
        assert_eq!(script, Script::of(&scenario));
    }
}
