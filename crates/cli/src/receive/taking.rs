//! The loop of a receiver, and what it says.

use std::path::Path;

use anabranch_control::time::{Duration, Time};
use anabranch_net::runtime::Runtime;
use anabranch_proto::peer::Peer;
use anabranch_proto::transfer::Event;
use indicatif::{ProgressBar, ProgressStyle};

use super::arrivals::{Arrived, Only, say};
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::network;
use crate::progress::BYTES;

/// So long the disk has to let go of unfinished files.
const LEAVE: Duration = Duration::from_millis(3_000);

/// How a receiver's loop runs.
#[derive(Clone, Copy, Debug)]
pub struct Manner<'a> {
    /// It ends with the first file.
    pub once: bool,
    /// Nobody but the one sender can come: what is refused to it is the end.
    pub alone: bool,
    /// Where files appear, for what is said.
    pub folder: &'a Path,
    /// Nothing is said of single files.
    pub quiet: bool,
    /// When it ends, what has come of an unfinished file is kept if its sender was not heard of for so
    /// long, and discarded if it was.
    pub keeps_after: Duration,
    /// Standard output is for one JSON object.
    pub json: bool,
}

/// What has come.
#[derive(Debug, Default)]
pub struct Taken {
    /// The files.
    pub arrived: Arrived,
    only: Only,
}

impl Taken {
    /// Why the one file that was waited for has not come, if it has not.
    pub fn failure(&self) -> Option<Failure> {
        self.only.failure()
    }

    /// Why nothing of what was offered was taken, if all of it was refused.
    pub fn refusal(&self) -> Option<Failure> {
        self.only.refusal()
    }
}

/// Receives until it is interrupted or, with `once`, the first file has come or failed; or until `go_on`, which is
/// asked again and again with whether anybody has come yet, says no.
pub fn take(
    runtime: &mut Runtime<Peer>,
    number: usize,
    manner: Manner<'_>,
    interrupt: &Interrupt,
    mut go_on: impl FnMut(Time, bool) -> bool,
) -> Result<Taken, Failure> {
    let style = ProgressStyle::with_template(BYTES).expect("the template is valid");
    let display = ProgressBar::no_length().with_style(style);
    let mut taken = Taken::default();
    // Bytes of a block of whatever came last: those of one network have the same.
    let mut block = 0;
    while !interrupt.is_raised() {
        if manner.once && taken.only.is_over(runtime.now()) {
            break;
        }
        if manner.alone && taken.only.is_refused(runtime.now()) {
            break;
        }
        let until = runtime.now() + network::TICK;
        runtime.run_until(until)?;
        let now = runtime.now();
        if !go_on(now, taken.arrived.has_begun()) {
            break;
        }
        let Some(receiver) = runtime.machine_mut(number).receiver_mut() else { break };
        while let Some(event) = receiver.next_event() {
            taken.only.note(now, &event);
            taken.arrived.note(now, &event);
            if let Event::Offered { offer, .. } = &event {
                block = u64::from(offer.block);
            }
            // Where only one comes, why it did not arrive is said at the end.
            if !(manner.once && taken.only.failed.is_some() || manner.alone && taken.only.refusal().is_some()) {
                display.suspend(|| say(&event, manner.folder, manner.quiet, manner.json));
            }
        }
        let (arrived, blocks) = receiver.progress();
        display.set_length(blocks * block);
        display.set_position(arrived * block);
    }
    display.finish_and_clear();
    runtime.act(number, |peer, now, out| peer.close_all(now, manner.keeps_after, out));
    // What was being written is discarded once it is.
    let until = runtime.now() + LEAVE;
    while runtime.machine(number).receiver().is_some_and(|receiver| receiver.files() > 0) && runtime.now() < until {
        let soon = runtime.now() + network::TICK;
        runtime.turn(soon)?;
    }
    Ok(taken)
}
