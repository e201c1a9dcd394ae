//! Keeping a receiver's descriptor where senders look for it.

use anabranch_control::time::{Duration, Time};

use crate::RelayIndex;
use crate::hidden::MailboxAt;
use crate::hidden::descriptor::{PARTS, Part};

/// Between two versions at least, so that mailboxes that open one after the other make one.
const GAP: Duration = Duration::from_millis(2_000);

/// A version is made anew after this: sooner than a flood of others could push it out.
const RENEWED_AFTER: Duration = Duration::from_millis(60_000);

/// A relay that has not confirmed a part is sent it again after this.
const RETRY: Duration = Duration::from_millis(1_500);

/// So often in all.
const TRIES: u32 = 5;

/// Parts of the same version at one relay.
#[derive(Debug)]
struct Place {
    relay: RelayIndex,
    confirmed: [bool; PARTS],
}

/// A descriptor on its way to the relays that keep it.
#[derive(Debug, Default)]
pub struct Publication {
    published: Vec<MailboxAt>,
    made: Option<Time>,
    parts: Option<[Part; PARTS]>,
    places: Vec<Place>,
    tries: u32,
    try_at: Option<Time>,
}

impl Publication {
    /// Another epoch: all begins anew.
    pub fn begin_epoch(&mut self) {
        *self = Publication::default();
    }

    /// Whether a version that names `mailboxes` is to be made now; `complete` if there will be no more of them soon.
    pub fn is_due(&self, now: Time, mailboxes: &[MailboxAt], complete: bool) -> bool {
        !mailboxes.is_empty() && self.due_at(mailboxes, complete).is_some_and(|at| at <= now)
    }

    fn due_at(&self, mailboxes: &[MailboxAt], complete: bool) -> Option<Time> {
        match self.made {
            None if complete => Some(Time::ZERO),
            // The driver asks again when another mailbox opens or is given up.
            None => None,
            Some(made) if self.published != mailboxes => Some(made + GAP),
            Some(made) => Some(made + RENEWED_AFTER),
        }
    }

    /// A version was made, for these relays.
    pub fn begin(&mut self, now: Time, mailboxes: Vec<MailboxAt>, parts: [Part; PARTS], relays: Vec<RelayIndex>) {
        self.published = mailboxes;
        self.made = Some(now);
        self.parts = Some(parts);
        self.places = relays.into_iter().map(|relay| Place { relay, confirmed: [false; PARTS] }).collect();
        self.tries = 0;
        self.try_at = Some(now);
    }

    /// What is to be sent now: each part and the relay that it goes to.
    pub fn poll(&mut self, now: Time) -> Vec<(RelayIndex, usize, Part)> {
        if self.try_at.is_none_or(|at| now < at) {
            return Vec::new();
        }
        let Some(parts) = &self.parts else { return Vec::new() };
        let open = self.places.iter().flat_map(|place| {
            let waiting = (0..PARTS).filter(|part| !place.confirmed[*part]);
            waiting.map(|part| (place.relay, part, parts[part].clone()))
        });
        let open: Vec<_> = open.collect();
        self.tries += 1;
        self.try_at = (!open.is_empty() && self.tries < TRIES).then(|| now + RETRY);
        open
    }

    /// A relay keeps a part.
    pub fn on_stored(&mut self, relay: RelayIndex, part: usize) {
        if let Some(place) = self.places.iter_mut().find(|place| place.relay == relay) {
            place.confirmed[part] = true;
        }
    }

    /// Relays that keep all of the newest version.
    pub fn confirmed(&self) -> usize {
        self.places.iter().filter(|place| place.confirmed == [true; PARTS]).count()
    }

    /// When there is something to do.
    pub fn timer(&self, mailboxes: &[MailboxAt], complete: bool) -> Time {
        let due = if mailboxes.is_empty() { None } else { self.due_at(mailboxes, complete) };
        due.into_iter().chain(self.try_at).min().unwrap_or(Time::MAX)
    }
}
