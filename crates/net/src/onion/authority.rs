//! An authority that runs: its machine behind a TCP port.
//!
//! Whoever connects says one message and hears the answer. Strangers' messages are short; those of the other
//! authorities, which are known by where they connect from, may be as long as a vote. All limits are of
//! connections at a time, so that who says nothing holds a place for [`LONGEST`] at most, and one network only its
//! share of them.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anabranch_control::time::Time;
use anabranch_onion::directory::message::{MOST_FROM_STRANGERS, MOST_MESSAGE};
use anabranch_onion::directory::{Authority, AuthorityEvent, Message, Network};
use anabranch_proto::machine::{Arrival, Departure, Machine, Out, Wire};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::exchange::{LONGEST, exchange, read_all};
use crate::clock::{Clock, std_duration};

/// Connections at a time.
pub const MOST_CONNECTIONS: usize = 512;

/// Connections of one network at a time.
pub const MOST_CONNECTIONS_OF_NETWORK: usize = 32;

/// Where no connection could be taken, one is after so long. Meanwhile all else goes on.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// Messages that wait for the machine.
const MOST_WAITING: usize = 64;

/// A message to be handled, from where, and where its answer goes; none to an authority that was asked by us.
struct Asked {
    from: SocketAddr,
    message: Message,
    answer: Option<oneshot::Sender<Message>>,
}

/// How many connections each network has.
#[derive(Clone, Default)]
struct Places(Arc<Mutex<BTreeMap<Network, usize>>>);

/// One connection's place; free again when it is dropped.
struct Place {
    places: Places,
    network: Network,
}

impl Places {
    fn counts(&self) -> MutexGuard<'_, BTreeMap<Network, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, address: SocketAddr) -> Option<Place> {
        let network = Network::of(address.ip());
        let mut counts = self.counts();
        let all: usize = counts.values().sum();
        let count = counts.entry(network).or_default();
        if all >= MOST_CONNECTIONS || *count >= MOST_CONNECTIONS_OF_NETWORK {
            return None;
        }
        *count += 1;
        Some(Place { places: self.clone(), network })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut counts = self.places.counts();
        if let Some(count) = counts.get_mut(&self.network) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.network);
            }
        }
    }
}

/// What the machine sends and tells.
#[derive(Default)]
struct Collected {
    sent: VecDeque<(SocketAddr, Message)>,
    events: VecDeque<AuthorityEvent>,
}

impl Out<Authority> for Collected {
    fn send(&mut self, departure: Departure<SocketAddr>, message: &Message) {
        self.sent.push_back((departure.to, message.clone()));
    }

    fn event(&mut self, event: AuthorityEvent) {
        self.events.push_back(event);
    }

    fn job(&mut self, job: std::convert::Infallible) {
        match job {}
    }
}

/// An authority behind its port.
pub struct AuthorityNode {
    authority: Authority,
    others: Vec<SocketAddr>,
    clock: Clock,
    listener: TcpListener,
}

impl AuthorityNode {
    /// `authority`, whose time is `clock`'s, at `listener`; `others` are where the other authorities are.
    pub fn new(authority: Authority, others: Vec<SocketAddr>, clock: Clock, listener: TcpListener) -> AuthorityNode {
        AuthorityNode { authority, others, clock, listener }
    }

    /// Where it listens.
    ///
    /// # Errors
    ///
    /// When the system does not say.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Runs until `stop` says so; `on_event` is called with what has happened, and is shown the authority.
    ///
    /// # Errors
    ///
    /// What `on_event` says: what cannot be written down must not be acted upon.
    pub async fn run<E>(
        mut self,
        mut on_event: impl FnMut(&Authority, AuthorityEvent) -> Result<(), E>,
        stop: impl Future<Output = ()>,
    ) -> Result<(), E> {
        tokio::pin!(stop);
        let (asked, mut asking) = mpsc::channel::<Asked>(MOST_WAITING);
        let places = Places::default();
        // The others know this one by where it connects from.
        let own = self.listener.local_addr().ok().map(|own| own.ip()).filter(|own| !own.is_unspecified());
        loop {
            let mut out = Collected::default();
            let mut answered = None;
            let now = self.clock.now();
            let timer = self.authority.timer(now);
            tokio::select! {
                () = &mut stop => return Ok(()),
                (stream, from) = accept(&self.listener) => {
                    if let Some(place) = places.take(from) {
                        let authority = self.others.iter().find(|other| is_same(other.ip(), from.ip())).copied();
                        let most = if authority.is_some() { MOST_MESSAGE } else { MOST_FROM_STRANGERS };
                        let asked = asked.clone();
                        tokio::spawn(async move {
                            let _place = place;
                            // Who is too slow, or breaks off, is nobody's loss but its own.
                            let _ = timeout(LONGEST, serve(stream, from, authority, most, asked)).await;
                        });
                    }
                    continue;
                }
                Some(Asked { from, mut message, answer }) = asking.recv() => {
                    self.authority.on_message(self.clock.now(), Arrival::new(from), &mut message, &mut out);
                    answered = answer.map(|answer| (from, answer));
                }
                () = sleep_until(&self.clock, timer) => self.authority.on_timer(self.clock.now(), &mut out),
            }
            // Written down before anybody hears of it: an authority signs one document an epoch, also after a restart.
            for event in out.events {
                on_event(&self.authority, event)?;
            }
            for (to, message) in out.sent {
                if answered.as_ref().is_some_and(|(from, _)| *from == to) {
                    let (_, answer) = answered.take().expect("it was looked at just now");
                    let _ = answer.send(message);
                } else if self.others.contains(&to) {
                    let asked = asked.clone();
                    tokio::spawn(async move {
                        if let Ok(Some(message)) = exchange(own, to, &message, MOST_MESSAGE).await {
                            let _ = asked.send(Asked { from: to, message, answer: None }).await;
                        }
                    });
                }
            }
        }
    }
}

/// The next connection.
async fn accept(listener: &TcpListener) -> (TcpStream, SocketAddr) {
    loop {
        match listener.accept().await {
            Ok(accepted) => return accepted,
            // Out of descriptors, or a connection that was gone: the next may do, in a moment.
            Err(_) => tokio::time::sleep(ACCEPT_AGAIN).await,
        }
    }
}

async fn sleep_until(clock: &Clock, at: Time) {
    match at {
        Time::MAX => std::future::pending().await,
        at => tokio::time::sleep(std_duration(at.since(clock.now()))).await,
    }
}

/// An IPv4 address inside IPv6 counts as what it is.
fn is_same(one: IpAddr, other: IpAddr) -> bool {
    one.to_canonical() == other.to_canonical()
}

/// One connection: a message, and its answer.
async fn serve(
    mut stream: TcpStream,
    from: SocketAddr,
    authority: Option<SocketAddr>,
    most: usize,
    asked: mpsc::Sender<Asked>,
) -> io::Result<()> {
    let Some(bytes) = read_all(&mut stream, most).await? else { return Ok(()) };
    let mut message = Message::default();
    if message.read(&bytes).is_err() {
        return Ok(());
    }
    // A connection's port is its own: that the host is the one where the relay or the authority listens is what it
    // proves.
    let from = match &message {
        Message::Upload(relay) if is_same(relay.descriptor.address.ip(), from.ip()) => relay.descriptor.address,
        Message::Vote(_) | Message::Prepared(_) | Message::Signed(_) | Message::Document(_) => {
            authority.unwrap_or(from)
        }
        _ => from,
    };
    let (answer, answered) = oneshot::channel();
    if asked.send(Asked { from, message, answer: Some(answer) }).await.is_ok()
        && let Ok(answer) = answered.await
    {
        let mut bytes = Vec::new();
        answer.write(&mut bytes);
        stream.write_all(&bytes).await?;
    }
    stream.shutdown().await
}
