//! One run of an onion scenario: its world, second by second, and what is measured of it.

use anabranch_control::rng::Rng;
use anabranch_control::time::{Duration, Time};
use anabranch_onion::crypto::Transparent;
use anabranch_onion::node::{Cover, CoverError, UserSettings};
use anabranch_onion::packet::PacketsPerKey;
use anabranch_onion::routes::PlacementError;
use anabranch_onion::session::total_rate::{Constant, Stepped};
use anabranch_onion::session::{FlowRate, Rates, Secrecy};
use anabranch_onion::size::DATAGRAM;
use anabranch_scenario::onion_run::{CoverKind, OnionRunScenario, RateRule};
use anabranch_sim::delay::{DelayModel, JitterTail};
use anabranch_sim::pairs::PairsConfig;
use anabranch_stats::{jain_fairness, percentile};

use super::account::Account;
use super::limit::Cells;
use super::{BEGINS, OnionRun, OnionTotals, OnionWorld, UserOutcome, Wish};
use crate::monitor::Monitor;

/// Why there is no run.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum OnionRunError {
    /// What places packets does not work.
    #[error(transparent)]
    Placement(#[from] PlacementError),
    /// There can be no such cover.
    #[error(transparent)]
    Cover(#[from] CoverError),
    /// Neither users nor services have read anything.
    #[error(
        "in {length} nothing was delivered to users or services ({packets} packets came to relays, which refused \
         {refused}): no figure can come of this run; look at relays' limits, at delays and losses, and at who drops"
    )]
    NothingDelivered {
        /// Simulated time.
        length: Duration,
        /// Packets that came to relays.
        packets: u64,
        /// Packets that relays refused.
        refused: u64,
    },
}

/// A second of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OnionSecond {
    /// Bytes that users read.
    pub downloaded: u64,
    /// Bytes that services read.
    pub uploaded: u64,
    /// Packets that relays refused.
    pub refused: u64,
    /// Packets that came to relays.
    pub packets: u64,
}

/// What a run measured. Not a number is what there was nothing to measure of.
#[derive(Clone, Debug, PartialEq)]
pub struct OnionMetrics {
    /// How long it was.
    pub simulated: Duration,
    /// How long of it counts: all below does.
    pub counted: Duration,
    /// Users that there are.
    pub users: u64,
    /// Bytes a second that users read, all together.
    pub download_bytes_per_s: f64,
    /// Bytes a second that services read, all together.
    pub upload_bytes_per_s: f64,
    /// What users and services would read of the same kind if relays carried nothing that need not be: see
    /// [`Cells`](super::limit::Cells). Not a number without limits.
    pub limit_bytes_per_s: f64,
    /// The share of that limit that was reached.
    pub limit_share: f64,
    /// Where the rest of it went.
    pub account: Account,
    /// Jain's index of what users read and sent.
    pub jain_index: f64,
    /// Of the packets that came to relays, those that were beyond a limit.
    pub refused_percent: f64,
    /// Of the cells that users sent, those given up as lost.
    pub lost_percent: f64,
    /// The longest time from bytes to the next bytes, of each user: the greatest, and the 95th percentile.
    pub stall_max_s: f64,
    /// See `stall_max_s`.
    pub stall_p95_s: f64,
    /// Users that have all that they wanted, from the beginning on.
    pub finished: u64,
    /// How long that took them in the median, from the beginning on.
    pub finish_p50_s: f64,
    /// How often greedy relays were drawn where learners draw, over their share of the relays' weight.
    pub greedy_attraction: f64,
    /// The same of relays that drop all.
    pub dropper_attraction: f64,
    /// Entropy of which relay a learner draws, in bits: of each user's own draws, in the mean.
    pub draw_entropy_bits: f64,
    /// Loops that left.
    pub loops: u64,
    /// Of the loops whose fate is known, those that came back.
    pub loops_returned_percent: f64,
    /// Packets that came to relays, over those that what was read takes at least.
    pub overhead_percent: f64,
    /// Sessions that ended before their time.
    pub ended_sessions: u64,
    /// Users that read other bytes than were sent, and services; a fault of the machines.
    pub wrong: u64,
    /// Packets that came to a relay or to a user.
    pub packet_hops: u64,
}

/// A run that is over.
#[derive(Clone, Debug, PartialEq)]
pub struct OnionMeasured {
    /// Its numbers.
    pub metrics: OnionMetrics,
    /// Every second from the beginning on.
    pub seconds: Vec<OnionSecond>,
}

/// Whose rates are whose.
#[derive(Clone, Debug)]
pub enum UserRates {
    /// All users' are alike.
    Alike(Rates),
    /// A flow controller for each direction of each user, first at this many cells a second.
    Flow(&'static anabranch_control::flow::registry::Entry, u32),
}

impl UserRates {
    /// Those of one user; chance is its own.
    pub(super) fn of(&self, seed: u64, user: u32) -> Rates {
        match self {
            UserRates::Alike(rates) => rates.clone(),
            UserRates::Flow(entry, cells) => {
                let mut rng = Rng::indexed(seed, "onion/rates", u64::from(user));
                let mut rate = || {
                    let made = FlowRate::new(entry, &toml::Table::new(), *cells, rng.bits());
                    Box::new(made.expect("a controller's own parameters are good"))
                };
                Rates { forward: rate(), backward: rate() }
            }
        }
    }
}

impl From<&OnionRunScenario> for OnionRun {
    fn from(scenario: &OnionRunScenario) -> OnionRun {
        let OnionRunScenario { onion, users, relays, .. } = scenario;
        let cells = onion.cells_per_s as u32;
        let rates = match onion.total_rate {
            // Who hides that there is something to say must not be answered at a rate that tells it.
            _ if onion.cover == CoverKind::ConstantRate => UserRates::Alike(Rates {
                forward: Box::new(Stepped::new(onion.cover_per_s as u32)),
                backward: Box::new(Constant::new(cells)),
            }),
            RateRule::Stepped => UserRates::Alike(Rates {
                forward: Box::new(Stepped::new(cells)),
                backward: Box::new(Stepped::new(cells)),
            }),
            RateRule::Constant => UserRates::Alike(Rates {
                forward: Box::new(Constant::new(cells)),
                backward: Box::new(Constant::new(cells)),
            }),
            RateRule::Flow(entry) => UserRates::Flow(entry, cells),
        };
        let (droppers, greedy) = scenario.misbehaving();
        OnionRun {
            relays: onion.relays as u16,
            limit: relays.limit.map(|limit| (relays.limit_model, limit)),
            per_family: relays.per_family as u16,
            users: users.count as u32,
            settings: UserSettings {
                guards: onion.guards as usize,
                hops: onion.hops as usize,
                placement: onion.placement.clone(),
                placement_back: onion.placement_back.clone(),
                packets_per_key: PacketsPerKey::new(onion.packets_per_key as u16).unwrap_or(PacketsPerKey::ONE),
                secrecy: Secrecy::Transparent,
                mixing: (onion.mix_delay > Duration::ZERO).then_some(onion.mix_delay),
            },
            cover: match onion.cover {
                CoverKind::Off => Cover::Off,
                CoverKind::Loops => Cover::Loops(onion.loops_per_s),
                CoverKind::ConstantRate => Cover::ConstantRate(onion.cover_per_s as u32),
            },
            rates,
            wish: users.download_kilobytes.map_or(Wish::Endless, |kilobytes| Wish::Kilobytes(kilobytes as u16)),
            receive_only: users.receive_only,
            begin_within: users.begin_within,
            pairs: PairsConfig {
                delay: DelayModel::Plane { span: onion.span, access: onion.access, stretch: 1.0 },
                jitter: onion.jitter,
                jitter_tail: JitterTail::Normal,
                loss: onion.loss,
            },
            droppers: droppers as u16,
            greedy: greedy as u16,
            dying: scenario.killed() as u16,
            counts_from: Time::ZERO + scenario.warmup,
            seed: scenario.seed,
        }
    }
}

/// Within this, the first user that can read anything has done so, unless relays mix: longer than a session's set-up
/// and a request over any path.
const TO_DELIVER: Duration = Duration::from_millis(30_000);

/// Times all mixing delays of a way there and back, which are added to that.
const ROUND_TRIPS: u64 = 4;

/// Runs `scenario` until its end, or until `monitor` interrupts it.
///
/// # Errors
///
/// What is wrong with how users choose, which whoever makes a scenario has to check; that a whole run delivers
/// nothing, though the first user had [`TO_DELIVER`].
pub fn run(scenario: &OnionRunScenario, monitor: &dyn Monitor) -> Result<OnionMeasured, OnionRunError> {
    let run = OnionRun::from(scenario);
    let mut world = OnionWorld::<Transparent>::new(&run, ())?;
    let (end, warmup) = (Time::ZERO + scenario.duration, Time::ZERO + scenario.warmup);
    let kill_at = (run.dying > 0).then(|| Time::ZERO + scenario.relays.kill_at);
    let whole_seconds = (1..=scenario.duration.as_nanos() / Duration::SECOND.as_nanos()).map(|s| Duration::SECOND * s);
    let mut stops: Vec<Time> = whole_seconds.map(|second| Time::ZERO + second).collect();
    stops.extend([end, warmup].into_iter().chain(kill_at));
    stops.retain(|stop| *stop <= end);
    stops.sort_unstable();
    stops.dedup();
    let (mut seconds, mut last) = (Vec::new(), OnionTotals::default());
    let mut before = (warmup == Time::ZERO).then(|| world.totals());
    let mut simulated = Time::ZERO;
    // What relays that are there could have passed since what is measured counts.
    let mut capacity = 0.0;
    let per_second = run.limit.map(|(_, limit)| limit.bytes_per_sec() / DATAGRAM as f64);
    for stop in stops {
        let carrying = f64::from(world.carrying());
        if !world.step_monitored(stop, monitor) {
            break;
        }
        capacity += carrying * per_second.unwrap_or(f64::NAN) * stop.since(simulated.max(warmup)).as_secs_f64();
        simulated = stop;
        if stop == warmup {
            before = Some(world.totals());
            capacity *= 0.0;
        }
        if kill_at == Some(stop) {
            world.kill_dying();
        }
        if stop.as_nanos() % Duration::SECOND.as_nanos() == 0 {
            let totals = world.totals();
            seconds.push(OnionSecond {
                downloaded: totals.downloaded - last.downloaded,
                uploaded: totals.uploaded - last.uploaded,
                refused: totals.refused - last.refused,
                packets: totals.packets - last.packets,
            });
            last = totals;
            monitor.on_second();
            if monitor.is_interrupted() {
                break;
            }
        }
    }
    let totals = world.totals();
    let mixing = scenario.onion.mix_delay * (2 * scenario.onion.hops * ROUND_TRIPS);
    let had_time = BEGINS + TO_DELIVER + mixing <= scenario.duration;
    if simulated == end && had_time && totals.downloaded + totals.uploaded == 0 {
        let (packets, refused) = (totals.packets, totals.refused);
        return Err(OnionRunError::NothingDelivered { length: scenario.duration, packets, refused });
    }
    let before = before.unwrap_or(totals);
    let metrics = metrics(scenario, &world, &before, simulated, capacity);
    Ok(OnionMeasured { metrics, seconds })
}

fn metrics(
    scenario: &OnionRunScenario,
    world: &OnionWorld<Transparent>,
    before: &OnionTotals,
    simulated: Time,
    capacity: f64,
) -> OnionMetrics {
    let counted = simulated.since(Time::ZERO + scenario.warmup);
    let seconds = counted.as_secs_f64();
    let totals = world.totals();
    let users: Vec<UserOutcome> = world.users().collect();
    let down = (totals.downloaded - before.downloaded) as f64;
    let up = (totals.uploaded - before.uploaded) as f64;
    let users_before = before.of_users.iter().copied().chain(core::iter::repeat([0; 2]));
    let of_users = totals.of_users.iter().zip(users_before);
    let of_users: Vec<[f64; 2]> = of_users.map(|(now, before)| [0, 1].map(|i| (now[i] - before[i]) as f64)).collect();
    // Of each user by itself: one's data fills no cells of another's blocks.
    let cells = Cells::of_format();
    let work: f64 = of_users.iter().map(|[down, up]| cells.work(*down, *up, scenario.onion.hops)).sum();
    let limit_share = work / capacity;
    let percent = |part: u64, of: u64| 100.0 * part as f64 / of as f64;
    let packets = totals.packets - before.packets;
    let (lost, delivered) = (totals.lost - before.lost, totals.delivered - before.delivered);
    let stalls: Vec<f64> = users
        .iter()
        .filter(|user| user.downloaded.whole.is_none())
        .map(|user| {
            let last = user.downloaded.last.unwrap_or(Time::ZERO).max(Time::ZERO + scenario.warmup);
            user.downloaded.longest_stall.max(simulated.since(last)).as_secs_f64()
        })
        .chain(users.iter().filter(|u| u.downloaded.whole.is_some()).map(|u| u.downloaded.longest_stall.as_secs_f64()))
        .collect();
    let finished: Vec<f64> = users.iter().filter_map(UserOutcome::took).map(Duration::as_secs_f64).collect();
    let drawn = world.draws();
    let returned = totals.loops_returned - before.loops_returned;
    // What greedy relays carry has no limit to be held against.
    let limited = if scenario.misbehaving().1 > 0 { f64::NAN } else { capacity };
    OnionMetrics {
        simulated: simulated.since(Time::ZERO),
        counted,
        users: users.len() as u64,
        download_bytes_per_s: down / seconds,
        upload_bytes_per_s: up / seconds,
        limit_bytes_per_s: (down + up) / seconds / limit_share,
        limit_share,
        account: Account::new(&totals, before, limited, work, scenario.onion.hops),
        jain_index: jain_fairness(&of_users.iter().map(|[down, up]| down + up).collect::<Vec<f64>>())
            .unwrap_or(f64::NAN),
        refused_percent: percent(totals.refused - before.refused, packets),
        lost_percent: percent(lost, lost + delivered),
        stall_max_s: stalls.iter().copied().fold(f64::NAN, f64::max),
        stall_p95_s: percentile(&stalls, 0.95).unwrap_or(f64::NAN),
        finished: finished.len() as u64,
        finish_p50_s: percentile(&finished, 0.5).unwrap_or(f64::NAN),
        greedy_attraction: drawn.greedy,
        dropper_attraction: drawn.droppers,
        draw_entropy_bits: drawn.entropy_bits,
        loops: totals.loops - before.loops,
        loops_returned_percent: percent(returned, returned + totals.loops_lost - before.loops_lost),
        overhead_percent: 100.0 * (packets as f64 / work - 1.0),
        ended_sessions: users.iter().map(|user| u64::from(user.downloaded.ended)).sum(),
        wrong: users.iter().filter(|user| user.downloaded.wrong).count() as u64 + totals.wrong_uploads,
        packet_hops: totals.packets + totals.received,
    }
}
