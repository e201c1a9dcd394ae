//! What becomes of files that come, whatever carries them: what is said of it, and of the one that `--once` waits for.

use std::path::Path;

use anabranch_control::time::{Duration, Time};
use anabranch_proto::printable::printable;
use anabranch_proto::seal::SessionId;
use anabranch_proto::transfer::Event;
use serde_json::{Map, Value, json};

use crate::failure::Failure;
use crate::network::{self, Amount};
use crate::stderr::eprint_line;

/// So long the leave of a sender is waited for. It asks whether its file has come twice a second: where one relay in three
/// reaches the receiver, as behind a symmetric NAT, one sender in 15 000 would not be heard in all of that time though it
/// has learned nothing of its relays, and one in 60 in three seconds.
pub const LINGER: Duration = Duration::from_millis(10_000);

/// What became of the file that `--once` waits for: the first of which something is kept. Who only
/// greets, whose offer is refused, or who offers and sends nothing, is a stranger to it; and so is
/// everybody else from the first block on.
#[derive(Debug)]
pub struct Only {
    /// After so long without its sender's leave, the end comes all the same.
    linger: Duration,
    session: Option<SessionId>,
    /// Since when it is in its place.
    pub complete: Option<Time>,
    /// Why it will not come.
    pub failed: Option<String>,
    closed: bool,
    /// Since when, and why, an offer was refused of which nothing was kept.
    refused: Option<(Time, String)>,
}

impl Only {
    /// Nothing has come yet; its sender has `linger` to take leave once it has.
    pub fn lingering(linger: Duration) -> Only {
        Only { linger, session: None, complete: None, failed: None, closed: false, refused: None }
    }

    /// Why it has not come, if it has not.
    pub fn failure(&self) -> Option<Failure> {
        match self {
            Only { failed: Some(reason), .. } => Some(Failure::new(format!("the file did not arrive: {reason}"))),
            Only { complete: None, .. } => Some(Failure::interrupted("no file has arrived")),
            _ => None,
        }
    }

    /// `event` has happened.
    pub fn note(&mut self, now: Time, event: &Event) {
        if let Event::Begun { session } | Event::Complete { session, .. } = *event {
            self.session.get_or_insert(session);
        }
        if self.session != Some(event.session()) {
            if let (Event::Failed { reason, .. }, None) = (event, self.session) {
                self.refused.get_or_insert_with(|| (now, printable(reason)));
            }
            return;
        }
        match event {
            Event::Offered { .. } | Event::Begun { .. } | Event::Suspended { .. } => {}
            Event::Continued { by, .. } => self.session = Some(*by),
            Event::Complete { .. } => self.complete = Some(now),
            Event::Closed { .. } if self.complete.is_some() => self.closed = true,
            Event::Failed { reason, .. } => self.failed = Some(printable(reason)),
            Event::Closed { .. } => {
                self.failed = Some("the sender has given up, or was not heard of any more".into());
            }
        }
    }

    /// Why nothing was taken, if all that was offered was refused: of a stranger that says nothing, but where
    /// nobody else can come it is the end.
    pub fn refusal(&self) -> Option<Failure> {
        let (_, reason) = self.refused.as_ref().filter(|_| self.session.is_none())?;
        Some(Failure::new(format!("the file did not arrive: {reason}")))
    }

    /// All that was offered was refused, and its sender had time to learn it.
    pub fn is_refused(&self, now: Time) -> bool {
        let (since, _) = match &self.refused {
            Some(refused) if self.session.is_none() => refused,
            _ => return false,
        };
        now.since(*since) >= self.linger
    }

    /// It has come and the sender knows it, or time enough was given to learn it.
    pub fn is_over(&self, now: Time) -> bool {
        let lingered = |since| now.since(since) >= self.linger;
        self.complete.is_some_and(|since| self.closed || lingered(since)) || self.failed.is_some()
    }
}

/// The files that have come.
#[derive(Debug, Default)]
pub struct Arrived {
    /// Their names in the folder, and their bytes.
    pub files: Vec<(String, u64)>,
    /// When the first offer came, and when the last file was complete.
    span: Option<(Time, Time)>,
}

impl Arrived {
    /// `event` has happened.
    pub fn note(&mut self, now: Time, event: &Event) {
        match event {
            Event::Offered { .. } => _ = self.span.get_or_insert((now, now)),
            Event::Complete { name, length, .. } => {
                self.files.push((name.clone(), *length));
                self.span = self.span.map(|(first, _)| (first, now));
            }
            _ => {}
        }
    }

    /// Whether anything was offered and taken.
    pub fn has_begun(&self) -> bool {
        self.span.is_some()
    }

    /// Seconds from the first offer to the last file.
    pub fn seconds(&self) -> f64 {
        self.span.map_or(0.0, |(first, last)| last.since(first).as_secs_f64())
    }

    /// What a receiver at an address says of them with `--json`, whatever carries them into `folder`.
    pub fn summary(&self, folder: &Path) -> Map<String, Value> {
        let path = |name: &str| folder.join(name).display().to_string();
        let received: Vec<_> =
            self.files.iter().map(|(name, bytes)| json!({ "path": path(name), "bytes": bytes })).collect();
        let parts = [
            ("outcome", json!("received")),
            ("received", json!(received)),
            ("files", json!(self.files.len())),
            ("bytes", json!(self.files.iter().map(|(_, bytes)| bytes).sum::<u64>())),
            ("seconds", json!(self.seconds())),
        ];
        parts.map(|(key, value)| (key.to_owned(), value)).into_iter().collect()
    }
}

/// Says what has happened to a file that comes into `folder`: its coming on standard output, or on standard error
/// where that is for JSON, or not at all if `quiet`.
pub fn say(event: &Event, folder: &Path, quiet: bool, json: bool) {
    match event {
        Event::Offered { .. } | Event::Complete { .. } if quiet => {}
        Event::Offered { offer, .. } => {
            network::say(json, &format!("receiving {}, {}", offer.name, Amount(offer.length as f64)));
        }
        Event::Complete { name, length, .. } => {
            network::say(json, &format!("received {}, {length} bytes, hash right", folder.join(name).display()));
        }
        Event::Failed { reason, .. } => eprint_line!("anabranch: a file did not arrive: {}", printable(reason)),
        Event::Suspended { .. } => {
            eprint_line!("anabranch: a session was lost in a file: what has come is kept for its sender to go on")
        }
        Event::Closed { complete: false, .. } => {
            eprint_line!("anabranch: a sender has given up its file, or was not heard of any more")
        }
        Event::Closed { .. } | Event::Begun { .. } | Event::Continued { .. } => {}
    }
}

#[cfg(test)]
mod tests {
    use anabranch_proto::overlay::message::{FileName, Offer};

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
        let mut only = Only::lingering(LINGER);
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
    fn what_is_refused_before_anything_is_kept_is_a_refusal_only_while_nothing_else_comes() {
        let refused = after(&[failed(FRIEND)]);
        assert!(!refused.is_refused(Time::ZERO), "its sender must learn it");
        assert!(refused.is_refused(Time::ZERO + LINGER) && refused.refusal().is_some());
        let taken = after(&[failed(STRANGER), offered(FRIEND), begun(FRIEND)]);
        assert!(!taken.is_refused(Time::MAX) && taken.refusal().is_none());
        assert!(after(&[offered(FRIEND)]).refusal().is_none());
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
    fn a_file_whose_session_was_lost_is_still_waited_for() {
        let again = SessionId(3);
        let suspended = [offered(FRIEND), begun(FRIEND), Event::Suspended { session: FRIEND }];
        assert!(!after(&suspended).is_over(Time::MAX));
        let goes_on = [Event::Continued { session: FRIEND, by: again }, offered(again), begun(again), complete(again)];
        let whole = after(&[&suspended[..], &goes_on].concat());
        assert!(!whole.is_over(Time::ZERO) && whole.is_over(Time::ZERO + LINGER));
        assert!(after(&[&suspended[..], &goes_on, &[closed(again, true)]].concat()).is_over(Time::ZERO));
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
