//! What the disciplines' tests share.

use anabranch_control::rng::Rng;
use anabranch_control::time::{Duration, Time};
use proptest::prelude::{Strategy, any, prop};
use proptest::test_runner::TestCaseError;
use proptest::{prop_assert, prop_assert_eq};

use super::{Discipline, Limit, Waiting};

pub fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub fn at(millis: u64) -> Time {
    Time::ZERO + ms(millis)
}

/// A packet of `flow` that comes at `since`; marks may not take the place of drops.
pub fn packet(number: u32, flow: u64, size: u32, since: Time) -> Waiting {
    Waiting { packet: number, size, flow, since, ecn_capable: false, marked: false }
}

/// What happens to a queue: time passes, then a packet comes, or one is asked for.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    Enqueue { after_us: u64, flow: u64, size: u32, ecn_capable: bool },
    Dequeue { after_us: u64 },
}

/// Any course of events; packets come somewhat more often than they go.
pub fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = (0u8..5, 0u64..9_000, 0u64..6, 40u32..1515, any::<bool>());
    let step = step.prop_map(|(kind, after_us, flow, size, ecn_capable)| match kind {
        0..=2 => Step::Enqueue { after_us, flow, size, ecn_capable },
        _ => Step::Dequeue { after_us },
    });
    prop::collection::vec(step, 1..400)
}

/// Takes out what was dropped, which must have waited.
fn forget(waiting: &mut Vec<Waiting>, dropped: &mut Vec<Waiting>) -> Result<(), TestCaseError> {
    for gone in dropped.drain(..) {
        let place = waiting.iter().position(|packet| packet.packet == gone.packet);
        prop_assert!(place.is_some(), "{gone:?} was dropped but did not wait");
        waiting.remove(place.unwrap_or(0));
    }
    Ok(())
}

/// Whatever happens, every packet comes out once or is dropped once, those of a flow in
/// their order, `bytes` is what waits and stays within `limit`, and none is marked that may
/// not be.
pub fn conserves(discipline: &mut dyn Discipline, steps: &[Step], limit: Limit) -> Result<(), TestCaseError> {
    let mut rng = Rng::stream(1, "queue");
    let mut now = Time::ZERO;
    let mut dropped = Vec::new();
    let mut waiting: Vec<Waiting> = Vec::new();
    let ask = |now: Time, waiting: &mut Vec<Waiting>, discipline: &mut dyn Discipline| {
        let mut dropped = Vec::new();
        let next = discipline.dequeue(now, &mut dropped);
        forget(waiting, &mut dropped)?;
        prop_assert_eq!(next.is_none(), waiting.is_empty(), "a queue must give what it has");
        if let Some(next) = next {
            let place = waiting.iter().position(|packet| packet.flow == next.flow);
            let first = waiting.remove(place.unwrap_or(0));
            prop_assert_eq!(Waiting { marked: next.marked, ..first }, next);
            prop_assert!(next.ecn_capable || !next.marked);
        }
        Ok(next.is_some())
    };
    for (number, step) in (0..).zip(steps) {
        match *step {
            Step::Enqueue { after_us, flow, size, ecn_capable } => {
                now += Duration::from_nanos(after_us * 1000);
                let packet = Waiting { ecn_capable, ..packet(number, flow, size, now) };
                waiting.push(packet);
                discipline.enqueue(now, packet, &mut dropped, &mut rng);
                forget(&mut waiting, &mut dropped)?;
            }
            Step::Dequeue { after_us } => {
                now += Duration::from_nanos(after_us * 1000);
                ask(now, &mut waiting, discipline)?;
            }
        }
        let bytes: u64 = waiting.iter().map(|packet| u64::from(packet.size)).sum();
        prop_assert_eq!(discipline.bytes(), bytes);
        let (held, most) = match limit {
            Limit::Bytes(limit) => (bytes, limit),
            Limit::Packets(limit) => (waiting.len() as u64, limit),
        };
        prop_assert!(held <= most, "{held} of {most}");
    }
    while ask(now, &mut waiting, discipline)? {
        now += ms(1);
    }
    prop_assert_eq!(discipline.bytes(), 0);
    Ok(())
}
