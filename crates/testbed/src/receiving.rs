//! What a run's receivers get, by whichever stack.

use anabranch_control::time::Time;

use super::Run;
use super::failure::TestbedFailure;
use super::ticks::{Tick, Ticks};

/// Receivers by one stack, known here by their place among those that it was made for.
pub trait ReceiverStack {
    /// Takes what comes, until `until` at most.
    fn turn(&mut self, until: Time) -> Result<(), TestbedFailure>;

    /// Data that a receiver has got, each byte once.
    fn delivered(&self, receiver: usize) -> u64;

    /// The next stream that has arrived whole: whose, and when.
    fn poll_completed(&mut self) -> Option<(usize, Time)>;
}

/// What a receiver got.
#[derive(Clone, Debug, Default)]
pub struct Arrived {
    /// Its number among all.
    pub number: usize,
    /// Data delivered for the first time.
    pub delivered: u64,
    /// The same when goodput began to count.
    pub before: u64,
    /// The same at each row.
    pub rows: Vec<u64>,
    /// When streams had arrived whole.
    pub completed: Vec<Time>,
}

/// Receives until the run is over, with the stack that `make` makes of `sockets`, each of
/// them a receiver's.
pub fn receive<T, S: ReceiverStack>(
    run: &Run<'_>,
    sockets: Vec<(usize, T)>,
    make: impl FnOnce(Vec<(usize, T)>) -> Result<S, TestbedFailure>,
) -> Result<Vec<Arrived>, TestbedFailure> {
    let nothing = |&(number, _): &(usize, T)| Arrived { number, ..Arrived::default() };
    let mut arrived: Vec<_> = sockets.iter().map(nothing).collect();
    if arrived.is_empty() {
        return Ok(arrived);
    }
    let mut stack = make(sockets)?;
    let mut ticks = Ticks::new(run.scenario);
    loop {
        let now = run.clock.now();
        while let Some(tick) = ticks.pop(now) {
            for (receiver, arrived) in arrived.iter_mut().enumerate() {
                match tick {
                    Tick::Row => arrived.rows.push(stack.delivered(receiver)),
                    Tick::Goodput => arrived.before = stack.delivered(receiver),
                    Tick::Steering => {}
                }
            }
        }
        if !run.goes_on(now) {
            break;
        }
        stack.turn(run.until(now, ticks.next()))?;
        while let Some((receiver, at)) = stack.poll_completed() {
            arrived[receiver].completed.push(at);
        }
    }
    for (receiver, arrived) in arrived.iter_mut().enumerate() {
        arrived.delivered = stack.delivered(receiver);
    }
    Ok(arrived)
}
