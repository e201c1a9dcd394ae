//! The loop of a receiver, whatever carries the files, and what it says.

use std::path::Path;

use anabranch_control::time::{Duration, Time};
use anabranch_proto::transfer::Event;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Map, Value};

use super::arrivals::{Arrived, Only, say};
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::printer::print_line;
use crate::transfer_bar::BYTES;

/// What carries files to a receiver.
pub trait Carrier {
    /// Now, on its clock.
    fn now(&self) -> Time;
    /// Goes on for a moment, so that Ctrl-C is heard. What there is to say besides files is said while `display` is
    /// out of the way.
    ///
    /// # Errors
    ///
    /// When nothing can come any more.
    fn turn(&mut self, display: &ProgressBar) -> Result<(), Failure>;
    /// The next thing that has happened to a file.
    fn next_event(&mut self) -> Option<Event>;
    /// Bytes that are there, and bytes in all, of the files that are coming.
    fn progress(&self) -> (u64, u64);
    /// Takes leave of the senders, and of what is unfinished.
    ///
    /// # Errors
    ///
    /// When the system does not let it.
    fn leave(&mut self) -> Result<(), Failure>;
}

/// How a receiver's loop runs.
#[derive(Clone, Copy, Debug)]
pub struct Manner<'a> {
    /// It ends with the first file.
    pub once: bool,
    /// Nobody but the one sender can come: what is refused to it is the end.
    pub alone: bool,
    /// Where it ends with a file: after so long without the sender's leave, the end comes all the same.
    pub linger: Duration,
    /// Where files appear, for what is said.
    pub folder: &'a Path,
    /// Nothing is said of single files.
    pub quiet: bool,
    /// Standard output is for one JSON object.
    pub json: bool,
}

impl<'a> Manner<'a> {
    /// That of a receiver at an address, to which anybody may come.
    pub fn at_address(once: bool, linger: Duration, folder: &'a Path, json: bool) -> Manner<'a> {
        Manner { once, alone: false, linger, folder, quiet: false, json }
    }
}

/// What has come.
#[derive(Debug)]
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

    /// The end of a receiver at an address: why the file that it waited for has not come, or what has come, with `more`
    /// of whatever carried it, where that is wanted as JSON.
    pub fn end(&self, manner: Manner<'_>, more: Map<String, Value>) -> Result<(), Failure> {
        if manner.once
            && let Some(failure) = self.failure()
        {
            return Err(failure);
        }
        if manner.json {
            let mut summary = self.arrived.summary(manner.folder);
            summary.extend(more);
            print_line!("{}", Value::Object(summary))?;
        }
        Ok(())
    }
}

/// Receives until it is interrupted or, with `once`, the first file has come or failed; or until `go_on`, which is
/// asked again and again with whether anybody has come yet, says no; what it has to say it says while the display is out of
/// the way.
pub fn take(
    carrier: &mut impl Carrier,
    manner: Manner<'_>,
    interrupt: &Interrupt,
    mut go_on: impl FnMut(Time, bool, &ProgressBar) -> bool,
) -> Result<Taken, Failure> {
    let style = ProgressStyle::with_template(BYTES).expect("the template is valid");
    let display = ProgressBar::no_length().with_style(style);
    let mut taken = Taken { arrived: Arrived::default(), only: Only::lingering(manner.linger) };
    while !interrupt.is_raised() {
        if manner.once && taken.only.is_over(carrier.now()) {
            break;
        }
        if manner.alone && taken.only.is_refused(carrier.now()) {
            break;
        }
        carrier.turn(&display)?;
        let now = carrier.now();
        if !go_on(now, taken.arrived.has_begun(), &display) {
            break;
        }
        while let Some(event) = carrier.next_event() {
            taken.only.note(now, &event);
            taken.arrived.note(now, &event);
            // Where only one comes, why it did not arrive is said at the end.
            if !(manner.once && taken.only.failed.is_some() || manner.alone && taken.only.refusal().is_some()) {
                display.suspend(|| say(&event, manner.folder, manner.quiet, manner.json));
            }
        }
        let (arrived, all) = carrier.progress();
        display.set_length(all);
        display.set_position(arrived);
    }
    display.finish_and_clear();
    carrier.leave()?;
    Ok(taken)
}
