//! What must hold for every registered controller, whatever feedback it gets: ACKs for what was
//! never sent, times that go backwards, round trips of nothing or of a day.

use proptest::prelude::*;

use super::registry::{CONTROLLERS, Entry, Setup, find};
use super::{Bounded, Bounds, Feedback, FlowController, Limits, LossCause, Lost, PeerId, RoundTrip, Sent};
use crate::delivery_rate::RateSample;
use crate::rng::Rng;
use crate::time::{Duration, Time};
use crate::units::{Bytes, Rate};

const DAY: u64 = 86_400_000_000_000;

/// One call of a driver that may lie.
#[derive(Clone, Debug)]
enum Call {
    Sent(Clock, Sent),
    Feedback(Clock, Box<OwnedFeedback>),
    Timer(Clock),
}

impl Call {
    /// When it is made, after one at `now`.
    fn time(&self, now: Time, controller: &Bounded) -> Time {
        let (Call::Sent(clock, _) | Call::Feedback(clock, _) | Call::Timer(clock)) = self;
        let at = match *clock {
            Clock::Forwards(span) => now + Duration::from_nanos(span),
            Clock::Backwards(span) => Time::from_nanos(now.as_nanos().saturating_sub(span)),
            Clock::Due(late) => controller.timer().unwrap_or(now) + Duration::from_nanos(late),
        };
        // Later than any run: there a timer has nowhere to go.
        at.min(Time::from_nanos(u64::MAX / 4))
    }

    /// Makes it; whether it may have changed the limits.
    fn make(&self, now: Time, controller: &mut Bounded, rng: &mut Rng) -> bool {
        match self {
            Call::Sent(_, sent) => return controller.on_sent(now, PeerId(0), sent, rng),
            Call::Feedback(_, owned) => {
                let feedback = Feedback { acked: &owned.acked, lost: &owned.lost, ..owned.rest };
                controller.on_feedback(now, &feedback, rng);
            }
            Call::Timer(_) => controller.on_timer(now, rng),
        }
        true
    }
}

/// How the driver's time moves before a call.
#[derive(Clone, Copy, Debug)]
enum Clock {
    Forwards(u64),
    Backwards(u64),
    /// To what the controller's timer names, or as far beyond.
    Due(u64),
}

/// A feedback that owns its packets.
#[derive(Clone, Debug)]
struct OwnedFeedback {
    acked: Vec<Sent>,
    lost: Vec<Lost>,
    rest: Feedback<'static>,
}

fn nanos() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), Just(1), 1u64..1_000_000_000, Just(DAY), Just(u64::MAX / 2), Just(u64::MAX)]
}

fn duration() -> impl Strategy<Value = Duration> {
    nanos().prop_map(Duration::from_nanos)
}

fn time() -> impl Strategy<Value = Time> {
    nanos().prop_map(Time::from_nanos)
}

fn bytes() -> impl Strategy<Value = Bytes> {
    prop_oneof![Just(0), Just(1), Just(1000), 0u64..1_000_000, Just(1 << 40), Just(u64::MAX / 2), Just(u64::MAX)]
        .prop_map(Bytes::new)
}

fn sent() -> impl Strategy<Value = Sent> {
    let times = (time(), time(), time());
    (times, (bytes(), bytes(), bytes(), bytes()), any::<bool>()).prop_map(
        |((at, delivered_at, first_sent_at), (size, in_flight, delivered, lost), app_limited)| Sent {
            at,
            size,
            in_flight,
            delivered,
            delivered_at,
            first_sent_at,
            lost,
            app_limited,
        },
    )
}

fn owned_feedback() -> impl Strategy<Value = OwnedFeedback> {
    let lost = (sent(), any::<bool>()).prop_map(|(sent, threshold)| {
        let cause = if threshold { LossCause::PacketThreshold } else { LossCause::TimeThreshold };
        Lost { sent, cause }
    });
    let packets = (prop::collection::vec(sent(), 0..4), prop::collection::vec(lost, 0..4));
    let rtt = (prop::option::of(duration()), duration(), duration(), duration());
    let rtt = rtt.prop_map(|(latest, smoothed, variation, min)| RoundTrip { latest, smoothed, variation, min });
    let sample = (bytes(), duration(), bytes(), bytes(), any::<bool>());
    let sample = sample.prop_map(|(delivered, interval, lost, prior_delivered, app_limited)| RateSample {
        delivered,
        interval,
        lost,
        prior_delivered,
        app_limited,
    });
    let counts = (bytes(), bytes(), bytes(), prop_oneof![Just(0u64), Just(1), Just(u64::MAX)]);
    let flags = (prop_oneof![Just(0u32), Just(1), Just(u32::MAX)], prop::bool::weighted(0.1), any::<bool>());
    (packets, rtt, prop::option::of(sample), counts, flags).prop_map(
        |(
            (acked, lost),
            rtt,
            rate,
            (acked_bytes, in_flight, delivered, ecn_marked_packets),
            (receiver, persistent_congestion, app_limited),
        )| OwnedFeedback {
            acked,
            lost,
            rest: Feedback {
                receiver: PeerId(receiver),
                rtt,
                acked: &[],
                lost: &[],
                acked_bytes,
                in_flight,
                delivered,
                rate,
                ecn_marked_packets,
                persistent_congestion,
                tcp: None,
                app_limited,
            },
        },
    )
}

fn call() -> impl Strategy<Value = Call> {
    // What time may pass in a run that never ends: some centuries.
    let span = || prop_oneof![Just(0), Just(1), 1u64..1_000_000_000, Just(DAY), Just(u64::MAX / 64)];
    let clock = prop_oneof![
        4 => span().prop_map(Clock::Forwards),
        1 => span().prop_map(Clock::Backwards),
        2 => span().prop_map(Clock::Due),
    ];
    (clock, prop_oneof![3 => sent().prop_map(Some), 4 => Just(None)], owned_feedback(), 0..8).prop_map(
        |(clock, sent, owned, kind)| match (sent, kind) {
            (Some(sent), _) => Call::Sent(clock, sent),
            (None, 0) => Call::Timer(clock),
            (None, _) => Call::Feedback(clock, Box::new(owned)),
        },
    )
}

/// A flow's honest beginning, so that what follows meets a controller that knows its path.
fn begin(controller: &mut dyn FlowController, packet: Bytes, rng: &mut Rng) -> Time {
    let rtt = Duration::from_millis(50);
    let (mut delivered, mut now) = (Bytes::ZERO, Time::ZERO);
    for _ in 0..30 {
        let packets: Vec<Sent> = (1..=4)
            .map(|i| Sent { at: now, size: packet, in_flight: packet * i, delivered, ..Sent::default() })
            .collect();
        for sent in &packets {
            controller.on_sent(now, PeerId(0), sent, rng);
        }
        now += rtt;
        delivered += packet * 4;
        let sample = RateSample {
            delivered: packet * 4,
            interval: rtt,
            lost: Bytes::ZERO,
            prior_delivered: packets[0].delivered,
            app_limited: false,
        };
        let feedback = super::testing::feedback(&packets, rtt);
        controller.on_feedback(now, &Feedback { delivered, rate: Some(sample), ..feedback }, rng);
    }
    now
}

/// Parameters that choose other rules.
const READINGS: &[(&str, &str)] = &[
    ("cubic", "linux = [\"all\"]"),
    ("cubic", "linux = [\"w-est\", \"whole-growth\"]\nbeta = 0.1"),
    ("bbr", "linux = [\"all\"]"),
];

/// The controller that `entry` makes of a table that it cannot do without, or of none.
fn make(entry: &Entry, parameters: &str, packet: Bytes) -> Bounded {
    let parameters = if parameters.is_empty() { entry.example() } else { parameters.parse().expect("a table") };
    Bounded::new(entry.make(&Setup::new(packet, Time::ZERO), &parameters).expect("its table is complete"))
}

/// What every driver relies on.
fn check(name: &str, controller: &Bounded, bounds: Bounds) -> Result<(), TestCaseError> {
    let Limits { window, rate, .. } = controller.limits();
    prop_assert!(window > Bytes::ZERO, "{name}: no window");
    prop_assert_eq!(bounds.apply(window), window, "{}: a window beyond its bounds", name);
    prop_assert!(rate.is_none_or(|rate| rate > Rate::ZERO), "{name}: no rate");
    let most = bounds.rate.map(|most| most.max(Rate::LOWEST));
    prop_assert!(most.is_none_or(|most| rate.is_some_and(|rate| rate <= most)), "{name}: a rate beyond its bounds");
    let mut wrong = None;
    controller.trace(&mut |key, value| {
        if !value.is_finite() {
            wrong = Some((key, value));
        }
    });
    prop_assert_eq!(wrong, None, "{}: a trace without a number", name);
    Ok(())
}

fn drive(
    (entry, parameters): (&Entry, &str),
    packet: u64,
    bounds: Bounds,
    calls: &[Call],
    seed: u64,
) -> Result<(), TestCaseError> {
    let packet = Bytes::new(packet);
    let mut rng = Rng::stream(seed, "controller");
    let mut controller = make(entry, parameters, packet);
    let mut now = if seed.is_multiple_of(2) { begin(&mut controller, packet, &mut rng) } else { Time::ZERO };
    controller.set(bounds);
    check(entry.name, &controller, bounds)?;
    for call in calls {
        now = call.time(now, &controller);
        let before = controller.limits();
        let may_have_changed = call.make(now, &mut controller, &mut rng);
        prop_assert!(may_have_changed || controller.limits() == before, "{}: limits changed unsaid", entry.name);
        check(entry.name, &controller, bounds)?;
        for _ in 0..2 {
            if controller.timer().is_some_and(|due| due <= now) {
                controller.on_timer(now, &mut rng);
                check(entry.name, &controller, bounds)?;
            }
        }
        prop_assert!(controller.timer().is_none_or(|due| due > now), "{}: its timer stays in the past", entry.name);
    }
    Ok(())
}

/// All that a driver can see of a controller.
fn seen(controller: &Bounded) -> (Limits, Option<Time>, Vec<(&'static str, u64)>) {
    let mut trace = Vec::new();
    controller.trace(&mut |key, value| trace.push((key, value.to_bits())));
    (controller.limits(), controller.timer(), trace)
}

/// A controller that has been through `before`, its driver's clock and its random numbers.
fn after_calls(entry: &Entry, parameters: &str, before: &[Call], seed: u64) -> (Bounded, Time, Rng) {
    let packet = Bytes::new(1000);
    let mut rng = Rng::stream(seed, "controller");
    let mut controller = make(entry, parameters, packet);
    let mut now = begin(&mut controller, packet, &mut rng);
    for call in before {
        now = call.time(now, &controller);
        call.make(now, &mut controller, &mut rng);
    }
    (controller, now, rng)
}

/// A clone goes on as the original would have, whatever the original is called with meanwhile.
fn check_clone(
    (entry, parameters): (&Entry, &str),
    before: &[Call],
    to_original: &[Call],
    after: &[Call],
    seed: u64,
) -> Result<(), TestCaseError> {
    let (mut original, at, rng) = after_calls(entry, parameters, before, seed);
    let mut clone = original.clone();
    let seen_at_first = seen(&clone);
    prop_assert_eq!(&seen_at_first, &seen(&original), "{}", entry.name);
    let (mut now, mut its_rng) = (at, rng.clone());
    for call in to_original {
        now = call.time(now, &original);
        call.make(now, &mut original, &mut its_rng);
    }
    prop_assert_eq!(seen_at_first, seen(&clone), "{}: the original's calls reach its clone", entry.name);
    let (mut alone, mut now, mut rng_alone) = after_calls(entry, parameters, before, seed);
    let mut rng = rng;
    for call in after {
        now = call.time(now, &alone);
        call.make(now, &mut alone, &mut rng_alone);
        call.make(now, &mut clone, &mut rng);
        prop_assert_eq!(seen(&alone), seen(&clone), "{}: its clone goes another way", entry.name);
    }
    prop_assert_eq!(format!("{alone:?}"), format!("{clone:?}"));
    Ok(())
}

fn bounds() -> impl Strategy<Value = Bounds> {
    let bound = || prop::option::weighted(0.3, bytes().prop_map(|bytes| bytes.max(Bytes::new(1))));
    let rate = prop::option::weighted(0.3, bytes().prop_map(|bits| Rate::from_bits_per_sec(bits.get())));
    (bound(), bound(), bound(), bound(), rate).prop_map(|(initial, minimum, maximum, fixed, rate)| Bounds {
        initial,
        minimum,
        maximum,
        fixed,
        rate,
        expires: None,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn every_controller_keeps_its_bounds_whatever_feedback_it_gets(
        packet in prop_oneof![Just(1u64), Just(1000), Just(65_507)],
        bounds in bounds(),
        calls in prop::collection::vec(call(), 1..40),
        seed: u64,
    ) {
        for entry in CONTROLLERS {
            drive((entry, ""), packet, bounds, &calls, seed)?;
        }
        for (name, parameters) in READINGS {
            let entry = find(name).expect("a registered controller");
            drive((entry, parameters), packet, bounds, &calls, seed)?;
        }
    }

    #[test]
    fn a_clone_goes_on_as_the_original_would_have(
        before in prop::collection::vec(call(), 0..20),
        to_original in prop::collection::vec(call(), 1..20),
        after in prop::collection::vec(call(), 1..20),
        seed: u64,
    ) {
        for entry in CONTROLLERS {
            check_clone((entry, ""), &before, &to_original, &after, seed)?;
        }
        for (name, parameters) in READINGS {
            let entry = find(name).expect("a registered controller");
            check_clone((entry, parameters), &before, &to_original, &after, seed)?;
        }
    }
}
