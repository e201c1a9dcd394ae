//! What must hold for a sender whatever a receiver says: ACKs for what was never sent, in
//! no order, a clock that jumps. Each controller is told what the sender makes of it.

use anabranch_control::flow::PeerId;
use anabranch_control::flow::registry::{CONTROLLERS, Entry, Setup};
use anabranch_control::rng::Rng;
use anabranch_control::time::{Duration, Time};
use anabranch_control::units::{Bytes, Rate};
use proptest::prelude::*;

use super::{Ack, AckRanges, FlowSender, LossRecovery, PartialAck, Reduction, SenderConfig, TcpOptions};

const PACKET: u64 = 1000;
const ME: PeerId = PeerId(0);
const DAY: u64 = 86_400_000_000_000;

/// One call of a driver.
#[derive(Clone, Debug)]
enum Call {
    Write(u64),
    /// Sends what may leave, up to this number of packets.
    Poll(usize),
    Ack(u32, Ack),
    Timer,
}

fn ack() -> impl Strategy<Value = Ack> {
    let number = || prop_oneof![8 => 0u64..60, 1 => Just(u64::MAX), 1 => any::<u64>()];
    let sorted = |mut ranges: Vec<(u64, u64)>| {
        ranges.iter_mut().for_each(|(low, high)| *high = (*low).max(*high));
        ranges.sort_unstable_by(|a, b| b.cmp(a));
        ranges
    };
    let ranges = prop::collection::vec((number(), number()), 0..5);
    // Receivers that mean it well are part of the crowd.
    let honest = prop::collection::vec((0u64..40, 0u64..40), 1..4).prop_map(sorted);
    let delay = prop_oneof![Just(0), 1u64..100_000_000, Just(DAY), Just(u64::MAX)];
    let ce_count = prop_oneof![Just(0), 0u64..50, Just(u64::MAX)];
    (prop_oneof![ranges, honest], delay, ce_count).prop_map(|(ranges, delay, ce_count)| Ack {
        ranges: AckRanges::new(ranges),
        delay: Duration::from_nanos(delay),
        ce_count,
    })
}

fn call() -> impl Strategy<Value = (Clock, Call)> {
    let span = || prop_oneof![3 => Just(0), 1 => Just(1), 6 => 1u64..1_000_000_000, 1 => Just(DAY)];
    let clock = prop_oneof![
        6 => span().prop_map(Clock::Forwards),
        1 => span().prop_map(Clock::Backwards),
        3 => Just(Clock::Due),
    ];
    let call = prop_oneof![
        1 => (0u64..20_000).prop_map(Call::Write),
        3 => (0usize..20).prop_map(Call::Poll),
        6 => (prop_oneof![9 => Just(0), 1 => any::<u32>()], ack()).prop_map(|(from, ack)| Call::Ack(from, ack)),
        2 => Just(Call::Timer),
    ];
    (clock, call)
}

/// How time moves before a call.
#[derive(Clone, Copy, Debug)]
enum Clock {
    Forwards(u64),
    Backwards(u64),
    /// To the sender's timer.
    Due,
}

fn sender(entry: &Entry, (paced, recovery): (bool, LossRecovery), seed: u64) -> FlowSender {
    let packet = Bytes::new(PACKET);
    let controller = entry.make(&Setup::new(packet, Time::ZERO), &entry.example()).expect("its table is complete");
    let tcp = TcpOptions {
        least_timeout: Duration::from_millis(200),
        restart_after_idle: seed.is_multiple_of(2),
        reduction: Reduction::ALL[seed as usize % Reduction::ALL.len()].1,
        partial_ack: PartialAck::ALL[seed as usize % PartialAck::ALL.len()].1,
    };
    let config = SenderConfig { packet, max_ack_delay: Duration::from_millis(25), paced, ecn: true, recovery, tcp };
    FlowSender::new(config, controller, 1, Rng::stream(seed, "controller"))
}

fn drive(entry: &Entry, how: (bool, LossRecovery), calls: &[(Clock, Call)], seed: u64) -> Result<(), TestCaseError> {
    let name = entry.name;
    let mut sender = sender(entry, how, seed);
    let (mut now, mut sent, mut highest) = (Time::ZERO, Bytes::ZERO, 0);
    sender.write(ME, 20 * PACKET, false);
    for (clock, call) in calls {
        now = match *clock {
            Clock::Forwards(span) => now + Duration::from_nanos(span),
            Clock::Backwards(span) => Time::from_nanos(now.as_nanos().saturating_sub(span)),
            Clock::Due => sender.timer().unwrap_or(now).max(now),
        };
        now = now.min(Time::from_nanos(u64::MAX / 4));
        match call {
            Call::Write(bytes) => sender.write(ME, *bytes, false),
            Call::Poll(packets) => {
                for transmit in (0..*packets).map_while(|_| sender.poll(now)) {
                    sent += Bytes::new(u64::from(transmit.data.length));
                    highest = transmit.data.number.max(highest);
                }
            }
            Call::Ack(from, ack) => {
                let before = (sender.in_flight(), sender.delivered(), sender.packets_lost(), sender.limits());
                if sender.on_ack(now, PeerId(*from), ack).is_err() {
                    let after = (sender.in_flight(), sender.delivered(), sender.packets_lost(), sender.limits());
                    prop_assert_eq!(before, after, "{}: a refused ACK changed something", name);
                }
            }
            Call::Timer => sender.on_timer(now),
        }
        let limits = sender.limits();
        prop_assert!(limits.window > Bytes::ZERO, "{name}: no window");
        prop_assert!(limits.rate.is_none_or(|rate| rate > Rate::ZERO), "{name}: no rate");
        prop_assert_eq!(sender.fault(), None, "{}", name);
        prop_assert!(sender.in_flight() + sender.delivered() <= sent, "{name}: more than was sent");
        let mut wrong = None;
        sender.trace(&mut |key, value| {
            if !value.is_finite() {
                wrong = Some((key, value));
            }
        });
        prop_assert_eq!(wrong, None, "{}: a trace without a number", name);
    }
    finish(name, &mut sender, now, (how.1 == LossRecovery::Rfc6582).then_some(highest))
}

/// An honest receiver at last: all that is left is delivered. Where its ACKs are cumulative, all up to `highest` was
/// before.
fn finish(name: &str, sender: &mut FlowSender, mut now: Time, highest: Option<u64>) -> Result<(), TestCaseError> {
    sender.write(ME, 3 * PACKET, true);
    // A timer may name each period of a controller while a loss is a day away.
    let rtt = Duration::from_millis(50);
    let mut wait = rtt;
    let mut cumulative = highest;
    for _ in 0..3000 {
        if sender.is_done() {
            return Ok(());
        }
        let sent: Vec<u64> = core::iter::from_fn(|| sender.poll(now)).map(|transmit| transmit.data.number).collect();
        if sent.is_empty() {
            let due = sender.timer();
            prop_assert!(due.is_some(), "{name}: it waits for nothing");
            now = now.max(due.unwrap_or(now));
            sender.on_timer(now);
            wait = wait * 2;
        } else {
            wait = rtt;
        }
        now += wait;
        for number in sent {
            cumulative = cumulative.map(|highest| highest.max(number));
            let range = cumulative.map_or((number, number), |highest| (0, highest));
            let ack = Ack { ranges: AckRanges::new([range]), delay: Duration::ZERO, ce_count: 0 };
            prop_assert_eq!(sender.on_ack(now, ME, &ack), Ok(()));
        }
    }
    prop_assert!(false, "{name}: it does not finish: {:?}", sender.metrics(ME));
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn a_sender_keeps_its_books_whatever_a_receiver_says_and_finishes_with_an_honest_one(
        paced: bool, calls in prop::collection::vec(call(), 1..60), seed: u64,
    ) {
        for entry in CONTROLLERS {
            for (_, recovery) in LossRecovery::ALL {
                drive(entry, (paced, recovery), &calls, seed)?;
            }
        }
    }
}
