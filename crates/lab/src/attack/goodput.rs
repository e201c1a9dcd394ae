//! What one download gets in the simulated overlay: the machines that run on sockets, with their ACKs, reply blocks,
//! set-ups and total rate, over relays of which others use their part.
//!
//! One user downloads by one stream, without end, over relays that each take what others leave. With guards at both
//! ends it is a file to a hidden receiver, over mailboxes. A circuit is an overlay that has no other relays: a guard, a
//! middle and the service's relay; two legs, two guards and two middles before it. The user's line is not simulated: what
//! it carries bounds what is said.

use anabranch_control::rng::Rng;
use anabranch_control::time::{Duration, Time};
use anabranch_control::units::Rate;
use anabranch_onion::crypto::Transparent;
use anabranch_onion::node::{Cover as Hides, UserSettings};
use anabranch_onion::packet::PacketsPerKey;
use anabranch_onion::session::total_rate::{Constant, FIRST_RATE, Stepped};
use anabranch_onion::session::{Rates, Secrecy};
use anabranch_onion::size::DATAGRAM;
use anabranch_proto::limiter::LimitModel;
use anabranch_scenario::onion::{Cover, Mode, OnionScenario};
use anabranch_scenario::overlay::LimitKind;
use anabranch_sim::delay::{DelayModel, JitterTail};
use anabranch_sim::pairs::PairsConfig;

use crate::monitor::Monitor;
use crate::onion::hidden::{HiddenRun, HiddenWorld};
use crate::onion::{Cells, OnionRun, OnionRunError, OnionWorld, UserRates, Wish};

/// The rate has found its place by then: a total rate doubles each step at first, and mailboxes are found in seconds.
const WARM_UP: Duration = Duration::from_millis(20_000);

/// So long is counted.
const COUNTED: Duration = Duration::from_millis(40_000);

/// No packet waits longer at a relay, as on sockets.
const LONGEST_QUEUE: Duration = Duration::from_millis(100);

/// More than any file that comes in that time.
const WITHOUT_END: u64 = 1 << 40;

/// Keys as networks have them, unless said otherwise.
const PACKETS_PER_KEY: u16 = 64;

/// Seconds that a measurement simulates.
pub const SECONDS: u64 = (WARM_UP.as_nanos() + COUNTED.as_nanos()) / Duration::SECOND.as_nanos();

/// The goodput of a download in `scenario`'s overlay, the mean of its repetitions; none if it was interrupted.
///
/// # Errors
///
/// When what places packets does not work.
pub fn measure(scenario: &OnionScenario, monitor: &dyn Monitor) -> Result<Option<Rate>, OnionRunError> {
    let mut sum = 0.0;
    for repetition in 0..scenario.repetitions {
        let seed = Rng::indexed(scenario.seed, "goodput", repetition).bits();
        let Some(bytes) = once(scenario, seed, monitor)? else { return Ok(None) };
        sum += bytes as f64 / COUNTED.as_secs_f64();
    }
    // A line carries whole packets.
    let line = scenario.overlay.line_rate.bytes_per_sec() * Cells::of_format().data / DATAGRAM as f64;
    Ok(Some(Rate::from_bytes_per_sec_f64((sum / scenario.repetitions as f64).min(line))))
}

/// Bytes that came in what is counted.
fn once(scenario: &OnionScenario, seed: u64, monitor: &dyn Monitor) -> Result<Option<u64>, OnionRunError> {
    let run = run_of(scenario, seed);
    if scenario.overlay.far_guards > 0 {
        let hidden = HiddenRun {
            relays: run.relays,
            limit: run.limit.map(|(_, rate)| (LimitModel::Queue { longest: LONGEST_QUEUE }, rate)),
            senders: 1,
            bytes: WITHOUT_END,
            strangers: 0,
            packets_per_s: 1.0,
            settings: run.settings,
            rates: rates_of(scenario),
            begins: Time::ZERO + Duration::SECOND * 3,
            pairs: run.pairs,
            seed,
        };
        let mut world = HiddenWorld::<Transparent>::new(&hidden, ())?;
        return Ok(counted(monitor, |until| {
            world.step(until);
            (true, world.got().0.iter().map(|got| got.bytes).sum())
        }));
    }
    let mut world = OnionWorld::<Transparent>::new(&run, ())?;
    Ok(counted(monitor, |until| (world.step_monitored(until, monitor), world.totals().downloaded)))
}

/// What `step`, which says whether it came so far and what has been read then, adds in what is counted.
fn counted(monitor: &dyn Monitor, mut step: impl FnMut(Time) -> (bool, u64)) -> Option<u64> {
    let mut before = 0;
    for second in 1..=SECONDS {
        let until = Time::ZERO + Duration::SECOND * second;
        let (goes_on, read) = step(until);
        if !goes_on || monitor.is_interrupted() {
            return None;
        }
        monitor.on_second();
        if until == Time::ZERO + WARM_UP {
            before = read;
        }
        if second == SECONDS {
            return Some(read - before);
        }
    }
    None
}

fn run_of(scenario: &OnionScenario, seed: u64) -> OnionRun {
    let overlay = &scenario.overlay;
    let relays = match overlay.mode {
        Mode::PerPacket => overlay.relays,
        // A guard and what is behind it, to the service's relay; another leg has all of that but the latter.
        Mode::Circuit => overlay.hops,
        Mode::TwoLegs => 2 * (overlay.hops - 1) + 1,
    };
    let spare = Rate::from_bytes_per_sec_f64(overlay.relay_rate.bytes_per_sec() * (1.0 - overlay.load));
    OnionRun {
        relays: relays as u16,
        limit: Some((LimitKind::Queue { longest: LONGEST_QUEUE }, spare)),
        per_family: 1,
        users: 1,
        settings: UserSettings {
            guards: overlay.guards as usize,
            hops: overlay.hops as usize,
            placement: overlay.placement.clone(),
            placement_back: overlay.placement.clone(),
            packets_per_key: PacketsPerKey::new(PACKETS_PER_KEY).unwrap_or(PacketsPerKey::ONE),
            secrecy: Secrecy::Transparent,
            mixing: (overlay.mix_delay > Duration::ZERO).then_some(overlay.mix_delay),
        },
        cover: match overlay.cover {
            Cover::Off => Hides::Off,
            Cover::ConstantRate => Hides::ConstantRate(scenario.senders.packets_per_s as u32),
        },
        rates: UserRates::Alike(rates_of(scenario)),
        wish: Wish::Endless,
        receive_only: 1.0,
        begin_within: Duration::ZERO,
        pairs: PairsConfig {
            delay: DelayModel::Plane { span: overlay.span, access: overlay.access, stretch: 1.0 },
            jitter: 0.0,
            jitter_tail: JitterTail::Normal,
            loss: 0.0,
        },
        droppers: 0,
        greedy: 0,
        dying: 0,
        counts_from: Time::ZERO + WARM_UP,
        seed,
    }
}

fn rates_of(scenario: &OnionScenario) -> Rates {
    let per_s = scenario.senders.packets_per_s as u32;
    match scenario.overlay.cover {
        Cover::Off => {
            Rates { forward: Box::new(Stepped::new(FIRST_RATE)), backward: Box::new(Stepped::new(FIRST_RATE)) }
        }
        Cover::ConstantRate => {
            Rates { forward: Box::new(Stepped::new(per_s)), backward: Box::new(Constant::new(per_s)) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attack::theory;
    use crate::monitor::tests::Until;

    fn small(change: fn(&mut OnionScenario)) -> OnionScenario {
        let mut scenario = OnionScenario::standard();
        scenario.repetitions = 1;
        scenario.overlay.relays = 40;
        change(&mut scenario);
        scenario
    }

    fn of(change: fn(&mut OnionScenario)) -> (f64, f64) {
        let scenario = small(change);
        let measured = measure(&scenario, &()).unwrap().unwrap().bytes_per_sec();
        (measured, theory::goodput(&scenario).bytes_per_sec())
    }

    #[test]
    fn a_download_over_guards_gets_most_of_what_they_have_and_never_more() {
        for (guards, change) in
            [(1.0, (|s| s.overlay.guards = 1) as fn(&mut OnionScenario)), (2.0, |s| s.overlay.guards = 2)]
        {
            let (measured, bound) = of(change);
            // A guard passes what comes down, and the blocks that go up for it.
            let cells = Cells::of_format();
            let packets_per_s = guards * 1e6 / DATAGRAM as f64;
            let most = packets_per_s / (1.0 + 1.0 / cells.blocks) * cells.data;
            assert!((0.6..1.0).contains(&(measured / most)) && most < bound, "{measured} of {most}, {bound}");
        }
    }

    #[test]
    fn a_constant_rate_is_what_is_read_and_delays_leave_a_window_each_round_trip() {
        let (measured, bound) = of(|s| (s.overlay.guards, s.overlay.cover) = (2, Cover::ConstantRate));
        assert!((0.85..1.03).contains(&(measured / bound)), "{measured} of {bound}");
        let (measured, bound) = of(|s| (s.overlay.guards, s.overlay.mix_delay) = (2, Duration::from_millis(500)));
        assert!((0.3..1.3).contains(&(measured / bound)), "{measured} of {bound}");
    }

    #[test]
    fn circuits_and_hidden_receivers_carry_a_download_and_whoever_interrupts_gets_nothing() {
        for change in [
            (|s| (s.overlay.guards, s.overlay.mode) = (1, Mode::Circuit)) as fn(&mut OnionScenario),
            |s| (s.overlay.guards, s.overlay.mode) = (2, Mode::TwoLegs),
            |s| (s.overlay.guards, s.overlay.far_hops, s.overlay.far_guards) = (2, 3, 2),
        ] {
            let scenario = small(change);
            let measured = measure(&scenario, &()).unwrap().unwrap().bytes_per_sec();
            let spare = scenario.overlay.relay_rate.bytes_per_sec() * (1.0 - scenario.overlay.load);
            let legs = if scenario.overlay.guards == 1 { 1.0 } else { 2.0 };
            assert!((0.3 * spare..legs * spare).contains(&measured), "{measured} of {spare} B/s a leg");
            assert_eq!(measure(&scenario, &Until::second(2)).unwrap(), None);
        }
    }
}
