//! The loop of a receiver, and what it says.

use std::path::Path;

use anabranch_control::time::{Duration, Time};
use anabranch_net::runtime::Runtime;
use anabranch_proto::peer::Peer;
use anabranch_proto::printable::printable;
use anabranch_proto::seal::SessionId;
use anabranch_proto::transfer::Event;
use indicatif::{ProgressBar, ProgressStyle};

use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::network::{self, Amount};
use crate::progress::BYTES;

/// With `--once`: after so long without the sender's leave, the end comes all the same.
const LINGER: Duration = Duration::from_millis(3_000);

/// So long the disk has to let go of unfinished files.
const LEAVE: Duration = Duration::from_millis(3_000);

/// How a receiver's loop runs.
#[derive(Clone, Copy, Debug)]
pub struct Manner<'a> {
    /// It ends with the first file.
    pub once: bool,
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
    /// The files by their names in the folder, and their bytes.
    pub files: Vec<(String, u64)>,
    /// When the first offer came, and when the last file was complete.
    pub span: Option<(Time, Time)>,
    only: Only,
}

impl Taken {
    /// Why the one file that was waited for has not come, if it has not.
    pub fn failure(&self) -> Option<Failure> {
        match &self.only {
            Only { failed: Some(reason), .. } => Some(Failure::new(format!("the file did not arrive: {reason}"))),
            Only { complete: None, .. } => Some(Failure::interrupted("no file has arrived")),
            _ => None,
        }
    }

    /// Seconds from the first offer to the last file.
    pub fn seconds(&self) -> f64 {
        self.span.map_or(0.0, |(first, last)| last.since(first).as_secs_f64())
    }
}

/// Receives until it is interrupted or, with `once`, the first file has come or failed; asks `go_on`, with
/// whether anybody has come yet, again and again.
pub fn take(
    runtime: &mut Runtime<Peer>,
    number: usize,
    manner: Manner<'_>,
    interrupt: &Interrupt,
    mut go_on: impl FnMut(Time, bool) -> Result<(), Failure>,
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
        let until = runtime.now() + network::TICK;
        runtime.run_until(until)?;
        let now = runtime.now();
        go_on(now, taken.span.is_some())?;
        let Some(receiver) = runtime.machine_mut(number).receiver_mut() else { break };
        while let Some(event) = receiver.next_event() {
            taken.only.note(now, &event);
            match &event {
                Event::Offered { offer, .. } => {
                    block = u64::from(offer.block);
                    taken.span.get_or_insert((now, now));
                }
                Event::Complete { name, length, .. } => {
                    taken.files.push((name.clone(), *length));
                    taken.span = taken.span.map(|(first, _)| (first, now));
                }
                _ => {}
            }
            // With `--once`, why it did not arrive is said at the end.
            if !(manner.once && taken.only.failed.is_some()) {
                display.suspend(|| say(&event, manner));
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

/// What became of the file that `--once` waits for: the first of which something is kept. Who only
/// greets, whose offer is refused, or who offers and sends nothing, is a stranger to it; and so is
/// everybody else from the first block on.
#[derive(Debug, Default)]
struct Only {
    session: Option<SessionId>,
    complete: Option<Time>,
    failed: Option<String>,
    closed: bool,
}

impl Only {
    fn note(&mut self, now: Time, event: &Event) {
        if let Event::Begun { session } | Event::Complete { session, .. } = *event {
            self.session.get_or_insert(session);
        }
        if self.session != Some(event.session()) {
            return;
        }
        match event {
            Event::Offered { .. } | Event::Begun { .. } => {}
            Event::Continued { by, .. } => self.session = Some(*by),
            Event::Complete { .. } => self.complete = Some(now),
            Event::Closed { .. } if self.complete.is_some() => self.closed = true,
            Event::Failed { reason, .. } => self.failed = Some(printable(reason)),
            Event::Closed { .. } => {
                self.failed = Some("the sender has given up, or was not heard of any more".into());
            }
        }
    }

    /// It has come and the sender knows it, or time enough was given to learn it.
    fn is_over(&self, now: Time) -> bool {
        let lingered = |since| now.since(since) >= LINGER;
        self.complete.is_some_and(|since| self.closed || lingered(since)) || self.failed.is_some()
    }
}

fn say(event: &Event, manner: Manner<'_>) {
    match event {
        Event::Offered { .. } | Event::Complete { .. } if manner.quiet => {}
        Event::Offered { offer, .. } => {
            network::say(manner.json, &format!("receiving {}, {}", offer.name, Amount(offer.length as f64)));
        }
        Event::Complete { name, length, .. } => {
            let path = manner.folder.join(name);
            network::say(manner.json, &format!("received {}, {length} bytes, hash right", path.display()));
        }
        Event::Failed { reason, .. } => eprintln!("anabranch: a file did not arrive: {}", printable(reason)),
        Event::Closed { complete: false, .. } => {
            eprintln!("anabranch: a sender has given up its file, or was not heard of any more")
        }
        Event::Closed { .. } | Event::Begun { .. } | Event::Continued { .. } => {}
    }
}

#[cfg(test)]
mod tests {
    use anabranch_proto::message::{FileName, Offer};

    use super::*;

    const FRIEND: SessionId = SessionId(1);
    const STRANGER: SessionId = SessionId(2);

    fn offered(session: SessionId) -> Event {
        let offer = Offer { name: FileName::sanitised("a"), length: 10, block: 5, hash: [0; 32] };
        Event::Offered { session, offer }
    }

    fn complete(session: SessionId) -> Event {
        Event::Complete { session, name: "a".into(), length: 10 }
    }

    fn failed(session: SessionId) -> Event {
        Event::Failed { session, reason: "refused\u{1b}[2J".into() }
    }

    fn begun(session: SessionId) -> Event {
        Event::Begun { session }
    }

    fn closed(session: SessionId, complete: bool) -> Event {
        Event::Closed { session, complete }
    }

    fn after(events: &[Event]) -> Only {
        let mut only = Only::default();
        events.iter().for_each(|event| only.note(Time::ZERO, event));
        only
    }

    #[test]
    fn strangers_who_offer_and_send_nothing_do_not_end_it() {
        for harmless in [
            vec![failed(STRANGER)],
            vec![offered(STRANGER), closed(STRANGER, false)],
            vec![offered(STRANGER), failed(STRANGER)],
            vec![offered(FRIEND), begun(FRIEND), offered(STRANGER), failed(STRANGER)],
            vec![offered(FRIEND), begun(FRIEND), offered(STRANGER), begun(STRANGER), failed(STRANGER)],
            // Even a file that is done: the one that it follows would be deleted half-way.
            vec![offered(FRIEND), begun(FRIEND), complete(STRANGER), closed(STRANGER, true)],
        ] {
            let only = after(&harmless);
            assert!(!only.is_over(Time::MAX), "{harmless:?}");
        }
    }

    #[test]
    fn a_file_whose_sender_was_started_again_is_still_the_one_that_is_waited_for() {
        let again = SessionId(3);
        let continued = Event::Continued { session: FRIEND, by: again };
        let events = [offered(FRIEND), begun(FRIEND), continued, offered(again), begun(again)];
        assert!(!after(&events).is_over(Time::MAX));
        let whole = after(&[&events[..], &[complete(again), closed(again, true)]].concat());
        assert!(whole.is_over(Time::ZERO) && whole.failed.is_none());
        assert!(after(&[&events[..], &[failed(again)]].concat()).failed.is_some());
    }

    #[test]
    fn it_ends_when_the_file_that_came_first_has_come_or_failed() {
        let events = [offered(STRANGER), failed(STRANGER), offered(FRIEND), begun(FRIEND)];
        let with = |last: &[Event]| after(&[&events[..], last].concat());
        assert!(!with(&[complete(FRIEND)]).is_over(Time::ZERO), "its sender must learn it");
        assert!(with(&[complete(FRIEND)]).is_over(Time::ZERO + LINGER));
        assert!(with(&[complete(FRIEND), closed(FRIEND, true)]).is_over(Time::ZERO));
        for last in [failed(FRIEND), closed(FRIEND, false)] {
            let only = with(&[last]);
            assert!(only.is_over(Time::ZERO) && !only.failed.unwrap().contains('\u{1b}'));
        }
        let empty = after(&[offered(FRIEND), complete(FRIEND), closed(FRIEND, true)]);
        assert!(empty.is_over(Time::ZERO) && empty.failed.is_none(), "an empty file has no first block");
    }
}
