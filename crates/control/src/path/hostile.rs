//! What must hold for every registered path controller, whatever becomes of its packets:
//! round trips of nothing or of a day, times that go backwards, outcomes in any order.

use proptest::prelude::*;

use super::registry::{CONTROLLERS, Entry, Pacing, Setup, flow_controllers};
use super::{Hop, MAX_RELAYS, Outcome, PathController, Report, Slot, Stamp};
use crate::rng::Rng;
use crate::rtt::{PairRtts, RttConfig};
use crate::time::{Duration, Time};
use crate::units::{Bytes, Rate};
use crate::wake::Wake;

const PEERS: u16 = 6;
const DESTINATION: Slot = Slot(PEERS - 1);
const RELAYS: usize = 2;
const PACKET: Bytes = Bytes::new(1500);
const DAY: u64 = 86_400_000_000_000;

/// One call of a driver, and how its time moves before.
#[derive(Clone, Copy, Debug)]
enum Call {
    /// Packets while there is room, up to this number.
    Select(Clock, usize),
    /// What becomes of the packet at a place among those under way.
    Outcome(Clock, usize, Outcome, u64, Claims),
}

/// What an ACK claims of its way, and whether one comes for a packet that was given up before.
#[derive(Clone, Copy, Debug)]
struct Claims {
    stamps: [u32; RELAYS],
    one_way_nanos: Option<i64>,
    comes_late: bool,
}

#[derive(Clone, Copy, Debug)]
enum Clock {
    Forwards(u64),
    Backwards(u64),
    /// To what the controller's timer names, or as far beyond.
    Due(u64),
}

fn span() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), Just(1), 1u64..1_000_000_000, Just(DAY), Just(u64::MAX / 64)]
}

fn call() -> impl Strategy<Value = Call> {
    let clock = prop_oneof![
        4 => span().prop_map(Clock::Forwards),
        1 => span().prop_map(Clock::Backwards),
        2 => span().prop_map(Clock::Due),
    ];
    let word = prop_oneof![Just(0), Just(u32::MAX), any::<u32>(), (1f32..1e9).prop_map(f32::to_bits)];
    let claims = (prop::array::uniform2(word), any::<Option<i64>>(), any::<bool>())
        .prop_map(|(stamps, one_way_nanos, comes_late)| Claims { stamps, one_way_nanos, comes_late });
    let outcome = prop_oneof![2 => Just(Outcome::Acked), 1 => Just(Outcome::TimedOut)];
    (clock, any::<bool>(), 0usize..20, outcome, span(), claims).prop_map(
        |(clock, selects, number, outcome, rtt, claims)| {
            if selects { Call::Select(clock, number) } else { Call::Outcome(clock, number, outcome, rtt, claims) }
        },
    )
}

fn check(name: &str, controller: &dyn PathController) -> Result<(), TestCaseError> {
    for slot in (0..PEERS).map(Slot) {
        prop_assert!(controller.rate(slot).is_none_or(|rate| rate > Rate::ZERO), "{name}: no rate");
        let mut wrong = None;
        controller.trace(slot, &mut |key, value| {
            if !value.is_finite() {
                wrong = Some((key, value));
            }
        });
        prop_assert_eq!(wrong, None, "{}: a trace without a number", name);
    }
    Ok(())
}

fn make(entry: &Entry, pacing: Pacing) -> Option<Box<dyn PathController>> {
    let of_flow =
        entry.name.strip_prefix("flow:").map(|name| crate::flow::registry::find(name).expect("it is registered"));
    let parameters = of_flow.map_or_else(toml::Table::new, |entry| entry.example());
    let setup = Setup { peers: usize::from(PEERS), packet: PACKET, start: Time::ZERO, pacing };
    Some(entry.build.make(&setup, &parameters)?.expect("its parameters are complete"))
}

/// A controller and its driver.
#[derive(Clone)]
struct Driver {
    controller: Box<dyn PathController>,
    rng: Rng,
    rtts: PairRtts,
    now: Time,
    under_way: Vec<[Hop; RELAYS]>,
}

impl Driver {
    fn new(controller: Box<dyn PathController>, seed: u64) -> Driver {
        let rtts = PairRtts::new(&RttConfig::default(), usize::from(PEERS));
        Driver { controller, rng: Rng::stream(seed, "hostile"), rtts, now: Time::ZERO, under_way: Vec::new() }
    }

    fn make(&mut self, name: &str, call: &Call) -> Result<(), TestCaseError> {
        let Driver { controller, rng, rtts, now, under_way } = self;
        let (Call::Select(clock, _) | Call::Outcome(clock, ..)) = call;
        *now = match *clock {
            Clock::Forwards(span) => *now + Duration::from_nanos(span),
            Clock::Backwards(span) => Time::from_nanos(now.as_nanos().saturating_sub(span)),
            Clock::Due(late) => controller.wake(*now).time(*now) + Duration::from_nanos(late),
        };
        // Later than any run: there a timer has nowhere to go.
        *now = (*now).min(Time::from_nanos(u64::MAX / 4));
        match *call {
            Call::Select(_, number) => {
                for _ in 0..number {
                    let mut path = [Hop::default(); RELAYS];
                    if !controller.select(*now, DESTINATION, PACKET, &mut path, rng) {
                        let asks_again = controller.wake(*now) == Wake::DepartNow(());
                        prop_assert!(!asks_again, "{name}: it says to ask again, and refuses");
                        break;
                    }
                    let [first, second] = path.map(|hop| hop.slot);
                    prop_assert!(first != second && first != DESTINATION && second != DESTINATION, "{name}");
                    under_way.push(path);
                }
            }
            Call::Outcome(_, place, outcome, rtt, claims) if !under_way.is_empty() => {
                let path = under_way.swap_remove(place % under_way.len());
                if outcome == Outcome::Acked {
                    rtts.sample(&[path[0].slot, path[1].slot, DESTINATION], Duration::from_nanos(rtt));
                }
                let mut stamps = [Stamp::NONE; MAX_RELAYS];
                for (stamp, word) in stamps.iter_mut().zip(claims.stamps) {
                    *stamp = Stamp::from_bits(word);
                }
                let sent_at = Time::from_nanos(now.as_nanos().saturating_sub(rtt));
                let acked = Report {
                    now: *now,
                    sent_at,
                    destination: DESTINATION,
                    one_way_nanos: claims.one_way_nanos,
                    stamps: &stamps[..RELAYS],
                    ..Report::of(Outcome::Acked, &path, rtts)
                };
                match outcome {
                    Outcome::Acked => controller.on_outcome(&acked, rng),
                    Outcome::TimedOut => {
                        let lost = Report { outcome, one_way_nanos: None, stamps: &[], ..acked };
                        controller.on_outcome(&lost, rng);
                        if claims.comes_late {
                            controller.on_late(&acked, rng);
                        }
                    }
                }
            }
            Call::Outcome(..) => {}
        }
        Ok(())
    }

    /// All that a driver can see: rates and traces by peer, what it waits for, the paths given.
    fn seen(&self) -> Seen {
        let traces = (0..PEERS).map(Slot).map(|slot| {
            let mut trace = Vec::new();
            self.controller.trace(slot, &mut |key, value| trace.push((key, value.to_bits())));
            (self.controller.rate(slot), trace)
        });
        (traces.collect(), self.controller.wake(self.now), self.under_way.clone())
    }
}

type Seen = (Vec<(Option<Rate>, Vec<(&'static str, u64)>)>, Wake, Vec<[Hop; RELAYS]>);

fn drive(entry: &Entry, pacing: Pacing, calls: &[Call], seed: u64) -> Result<(), TestCaseError> {
    let Some(controller) = make(entry, pacing) else { return Ok(()) };
    let mut driver = Driver::new(controller, seed);
    for call in calls {
        driver.make(entry.name, call)?;
        check(entry.name, &*driver.controller)?;
    }
    Ok(())
}

/// A clone goes on as the original would have, whatever the original is called with meanwhile.
fn check_clone(
    entry: &Entry,
    pacing: Pacing,
    [before, to_original, after]: [&[Call]; 3],
    seed: u64,
) -> Result<(), TestCaseError> {
    let Some(controller) = make(entry, pacing) else { return Ok(()) };
    let mut original = Driver::new(controller, seed);
    let mut alone = Driver::new(make(entry, pacing).expect("it was made before"), seed);
    for call in before {
        original.make(entry.name, call)?;
        alone.make(entry.name, call)?;
    }
    let mut clone = original.clone();
    for call in to_original {
        original.make(entry.name, call)?;
    }
    prop_assert_eq!(alone.seen(), clone.seen(), "{}: the original's calls reach its clone", entry.name);
    for call in after {
        alone.make(entry.name, call)?;
        clone.make(entry.name, call)?;
        prop_assert_eq!(alone.seen(), clone.seen(), "{}: its clone goes another way", entry.name);
    }
    prop_assert_eq!(format!("{:?}", alone.controller), format!("{:?}", clone.controller));
    Ok(())
}

/// The same calls, with ACKs that report only their arrival.
fn without_telemetry(calls: &[Call]) -> Vec<Call> {
    let strip = |call: &Call| match *call {
        Call::Outcome(clock, place, outcome, rtt, claims) => {
            let claims = Claims { stamps: [0; RELAYS], one_way_nanos: None, ..claims };
            Call::Outcome(clock, place, outcome, rtt, claims)
        }
        select => select,
    };
    calls.iter().map(strip).collect()
}

/// What a driver sees after `calls`, and after the same calls without the telemetry of ACKs.
fn seen_with_and_without_telemetry(
    entry: &Entry,
    calls: &[Call],
    seed: u64,
) -> Result<Option<[Seen; 2]>, TestCaseError> {
    let mut seen = Vec::new();
    for calls in [calls, &without_telemetry(calls)] {
        let Some(controller) = make(entry, Pacing::Burst) else { return Ok(None) };
        let mut driver = Driver::new(controller, seed);
        for call in calls {
            driver.make(entry.name, call)?;
        }
        seen.push(driver.seen());
    }
    Ok(seen.try_into().ok())
}

#[test]
fn who_reads_telemetry_changes_with_it() {
    let claims = Claims { stamps: [1e5f32.to_bits(); RELAYS], one_way_nanos: Some(1), comes_late: false };
    let ack = Call::Outcome(Clock::Forwards(50_000_000), 0, Outcome::Acked, 50_000_000, claims);
    let calls = [Call::Select(Clock::Forwards(1), 1), ack, Call::Select(Clock::Forwards(DAY), 1), ack];
    for entry in CONTROLLERS.iter().filter(|entry| entry.reads_telemetry) {
        let [with, without] =
            seen_with_and_without_telemetry(entry, &calls, 1).expect("honest calls").expect("made anywhere");
        assert!(with != without, "{}", entry.name);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Simulations do not carry what a controller says that it does not read.
    #[test]
    fn who_reads_no_telemetry_does_not_change_with_it(calls in prop::collection::vec(call(), 1..60), seed: u64) {
        for entry in CONTROLLERS.iter().chain(flow_controllers()).filter(|entry| !entry.reads_telemetry) {
            if let Some([with, without]) = seen_with_and_without_telemetry(entry, &calls, seed)? {
                prop_assert!(with == without, "{}", entry.name);
            }
        }
    }

    #[test]
    fn every_controller_keeps_its_bounds_whatever_becomes_of_its_packets(
        paced: bool, calls in prop::collection::vec(call(), 1..60), seed: u64,
    ) {
        let pacing = if paced { Pacing::Paced } else { Pacing::Burst };
        for entry in CONTROLLERS.iter().chain(flow_controllers()) {
            drive(entry, pacing, &calls, seed)?;
        }
    }

    #[test]
    fn a_clone_goes_on_as_the_original_would_have(
        paced: bool,
        before in prop::collection::vec(call(), 0..30),
        to_original in prop::collection::vec(call(), 1..20),
        after in prop::collection::vec(call(), 1..20),
        seed: u64,
    ) {
        let pacing = if paced { Pacing::Paced } else { Pacing::Burst };
        for entry in CONTROLLERS.iter().chain(flow_controllers()) {
            check_clone(entry, pacing, [&before, &to_original, &after], seed)?;
        }
    }
}
