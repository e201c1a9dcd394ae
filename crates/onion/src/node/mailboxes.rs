//! What a relay offers: mailboxes for hidden receivers, and whatever else it offers beside them.

use anabranch_control::time::{Duration, Time};

use super::relay::Service;
use crate::crypto::Cryptography;
use crate::hidden::Mailboxes;
use crate::packet::{BODY, Datagram, Label};
use crate::reply::First;

/// Mailboxes beside another service.
#[derive(Debug)]
pub struct WithMailboxes<C, S> {
    mailboxes: Mailboxes<C>,
    inner: S,
}

impl<C: Cryptography, S> WithMailboxes<C, S> {
    /// `mailboxes` beside `inner`.
    pub fn new(mailboxes: Mailboxes<C>, inner: S) -> WithMailboxes<C, S> {
        WithMailboxes { mailboxes, inner }
    }

    /// The mailboxes.
    pub fn mailboxes(&self) -> &Mailboxes<C> {
        &self.mailboxes
    }

    /// The other service.
    pub fn inner(&self) -> &S {
        &self.inner
    }

    /// The other service, to act on.
    pub fn inner_mut(&mut self) -> &mut S {
        &mut self.inner
    }
}

impl<C: Cryptography, S: Service> Service for WithMailboxes<C, S> {
    type Event = S::Event;

    fn on_body(&mut self, now: Time, label: Label, body: &[u8; BODY], events: &mut Vec<S::Event>) {
        if !self.mailboxes.on_body(now, label, body) {
            self.inner.on_body(now, label, body, events);
        }
    }

    fn on_timer(&mut self, now: Time, events: &mut Vec<S::Event>) {
        self.mailboxes.on_timer(now);
        if self.inner.timer(now) <= now {
            self.inner.on_timer(now, events);
        }
    }

    fn poll(&mut self, now: Time, datagram: &mut Datagram) -> Option<First> {
        self.mailboxes.poll(datagram).or_else(|| self.inner.poll(now, datagram))
    }

    fn timer(&self, now: Time) -> Time {
        if self.mailboxes.has_work() { now } else { self.mailboxes.timer().min(self.inner.timer(now)) }
    }

    fn begin_epoch(&mut self, now: Time, epoch: u64, grace: Duration) {
        self.mailboxes.begin_epoch(now, epoch, grace);
        self.inner.begin_epoch(now, epoch, grace);
    }
}
