//! An exit's edge: what happens in the sessions of its service goes to tasks that talk with hosts, and back.

use std::io;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use anabranch_control::time::Time;
use anabranch_onion::crypto::Real;
use anabranch_onion::node::{ServiceEvent, SessionService, WithMailboxes};
use anabranch_onion::session::ExitEvent;
use tokio::sync::mpsc;

use super::exit::{Connector, ExitStreams};
use super::pipe::{ConnectionId, FromTask};
use super::policy::Policy;
use super::relay::OnionRelay;
use crate::wait::Waker;

/// What tasks say that waits for the relay's thread; beyond it they wait.
const MOST_WAITING: usize = 1024;

/// What tasks say is handled so often at a time, so that packets are not kept waiting.
const PORTION: usize = 64;

/// What a relay offers: sessions with an exit, and mailboxes.
pub type ExitService = WithMailboxes<Real, SessionService<Real>>;

/// Hands what tasks say to another thread, which it wakes.
pub(super) fn hand_over<T: Send + 'static>(
    tasks: &tokio::runtime::Runtime,
    mut from: mpsc::Receiver<T>,
    to: SyncSender<T>,
    waker: Waker,
) {
    tasks.spawn(async move {
        while let Some(said) = from.recv().await {
            // The channel is bounded, and so are those that fill it: whoever is too fast waits here.
            let sent = tokio::task::block_in_place(|| to.send(said));
            waker.wake();
            if sent.is_err() {
                return;
            }
        }
    });
}

/// The connections of an exit.
#[derive(Debug)]
pub struct ExitEdge {
    tasks: tokio::runtime::Runtime,
    streams: ExitStreams,
    said: Receiver<(ConnectionId, FromTask)>,
}

impl ExitEdge {
    /// Connects to what `policy` allows, and wakes `waker` when there is something to do.
    ///
    /// # Errors
    ///
    /// When the system has no room for threads.
    pub fn start(policy: Policy, waker: Waker) -> io::Result<ExitEdge> {
        let tasks = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let (connector, from_tasks) = Connector::new(policy);
        let (sender, said) = sync_channel(MOST_WAITING);
        hand_over(&tasks, from_tasks, sender, waker);
        Ok(ExitEdge { tasks, streams: ExitStreams::new(connector), said })
    }

    /// How many connections there are.
    pub fn connections(&self) -> usize {
        self.streams.connections()
    }

    /// Passes on what tasks have said, does what is due at `relay`, and waits for something to happen there, at most
    /// until `until`. For a relay of this one type, so that what handles packets is compiled here, and optimised as this
    /// crate is, and not where a program calls it.
    ///
    /// # Errors
    ///
    /// When the system can't wait or read.
    pub fn turn(&mut self, relay: &mut OnionRelay<ExitService>, until: Time) -> io::Result<()> {
        let is_busy = self.poll(relay);
        let until = if is_busy { relay.now() } else { until };
        relay.turn(until)
    }

    /// Something has happened in a session of `relay`.
    pub fn on_event(&mut self, relay: &mut OnionRelay<ExitService>, happened: ServiceEvent) {
        let _tasks = self.tasks.enter();
        let ServiceEvent { session, event } = happened;
        if let ExitEvent::Ended(_) = event {
            return self.streams.on_end(session);
        }
        relay.act(|service, _| service.inner_mut().act(session, |exit| self.streams.on_event(session, exit, event)));
    }

    /// Passes on what tasks have said; whether there may be more.
    fn poll(&mut self, relay: &mut OnionRelay<ExitService>) -> bool {
        let _tasks = self.tasks.enter();
        for _ in 0..PORTION {
            let Ok((connection, said)) = self.said.try_recv() else { return false };
            let Some(session) = self.streams.session_of(connection) else { continue };
            let streams = &mut self.streams;
            relay.act(|service, _| {
                service.inner_mut().act(session, |exit| streams.on_said(session, exit, connection, said))
            });
        }
        true
    }
}
