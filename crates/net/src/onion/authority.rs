//! An authority that runs: its machine behind a TCP port.
//!
//! Whoever connects says one message and hears the answer. Strangers' messages are short; those of the other
//! authorities, which are known by where they connect from, may be as long as a vote. All limits are of
//! connections at a time, so that who says nothing holds a place for [`LONGEST`] at most, and one network only its
//! share of them. Authorities have places of their own: strangers who fill theirs do not stop the vote.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anabranch_control::time::Time;
use anabranch_onion::directory::message::{MOST_FROM_STRANGERS, MOST_MESSAGE};
use anabranch_onion::directory::{Authority, AuthorityEvent, Message, Network, SignedDocument, WallClock};
use anabranch_proto::machine::{Arrival, Departure, Machine, Out, Wire};
use bytes::Bytes;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout};

use super::exchange::{LONGEST, exchange, read_all};
use crate::clock::{Clock, std_duration};

/// Connections of strangers at a time.
pub const MOST_CONNECTIONS: usize = 512;

/// Connections of one network at a time.
pub const MOST_CONNECTIONS_OF_NETWORK: usize = 32;

/// Connections of one authority at a time: it passes on the votes of all at once.
const MOST_CONNECTIONS_OF_AUTHORITY: usize = 64;

/// What could not be delivered to an authority is sent again after so long, within a round.
const SEND_AGAIN: Duration = Duration::from_secs(1);

/// How often it is looked what the wall's clock says, at least.
const LOOK_AT_CLOCK: Duration = Duration::from_secs(5);

/// Where no connection could be taken, one is after so long. Meanwhile all else goes on.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// Messages that wait for the machine.
const MOST_WAITING: usize = 64;

/// A message to be handled, from where, and where its answer goes, encoded; none to an authority that was asked by us.
struct Asked {
    from: SocketAddr,
    message: Message,
    answer: Option<oneshot::Sender<Bytes>>,
}

/// Whose connections are counted together.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Peer {
    Authority(IpAddr),
    Strangers(Network),
}

/// How many connections each has, of those that have any.
#[derive(Clone, Default)]
struct Places(Arc<Mutex<BTreeMap<Peer, usize>>>);

/// One connection's place; free again when it is dropped.
struct Place {
    places: Places,
    peer: Peer,
}

impl Places {
    fn counts(&self) -> MutexGuard<'_, BTreeMap<Peer, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, address: IpAddr, is_authority: bool) -> Option<Place> {
        let mut counts = self.counts();
        let (peer, has_place, most) = if is_authority {
            (Peer::Authority(address.to_canonical()), true, MOST_CONNECTIONS_OF_AUTHORITY)
        } else {
            let strangers = counts.iter().filter(|(peer, _)| matches!(peer, Peer::Strangers(_)));
            let all: usize = strangers.map(|(_, count)| count).sum();
            (Peer::Strangers(Network::of(address)), all < MOST_CONNECTIONS, MOST_CONNECTIONS_OF_NETWORK)
        };
        let count = counts.get(&peer).copied().unwrap_or_default();
        if !has_place || count >= most {
            return None;
        }
        counts.insert(peer, count + 1);
        Some(Place { places: self.clone(), peer })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut counts = self.places.counts();
        if let Some(count) = counts.get_mut(&self.peer) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.peer);
            }
        }
    }
}

/// The newest list as it is sent: encoded once, and not for each who asks.
#[derive(Default)]
struct EncodedList(Option<(u64, Bytes)>);

impl EncodedList {
    /// What whoever has the list of `newer_than` is answered.
    fn answer(&mut self, newest: Option<&SignedDocument>, newer_than: u64) -> Bytes {
        let Some(newest) = newest.filter(|newest| newest.epoch() > newer_than) else {
            return encode(&Message::NoNewer);
        };
        // An authority takes one list of an epoch.
        let epoch = newest.epoch();
        match &self.0 {
            Some((encoded, bytes)) if *encoded == epoch => bytes.clone(),
            _ => self.0.insert((epoch, encode(&Message::Document(newest.clone())))).1.clone(),
        }
    }
}

fn encode(message: &Message) -> Bytes {
    let mut bytes = Vec::new();
    message.write(&mut bytes);
    bytes.into()
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
        let (places, mut list) = (Places::default(), EncodedList::default());
        let round = std_duration(self.authority.round());
        // The others know this one by where it connects from.
        let own = self.listener.local_addr().ok().map(|own| own.ip()).filter(|own| !own.is_unspecified());
        loop {
            let mut out = Collected::default();
            let mut answered = None;
            let now = self.clock.now();
            if let Ok(wall) = SystemTime::now().duration_since(UNIX_EPOCH) {
                self.authority.set_clock(now, WallClock::new(now, wall));
            }
            let timer = self.authority.timer(now);
            tokio::select! {
                () = &mut stop => return Ok(()),
                (stream, from) = accept(&self.listener) => {
                    let authority = self.others.iter().find(|other| is_same(other.ip(), from.ip())).copied();
                    if let Some(place) = places.take(from.ip(), authority.is_some()) {
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
                    if let (Message::Fetch { newer_than }, Some(_)) = (&message, &answer) {
                        let bytes = list.answer(self.authority.document(), *newer_than);
                        let _ = answer.map(|answer| answer.send(bytes));
                        continue;
                    }
                    self.authority.on_message(self.clock.now(), Arrival::new(from), &mut message, &mut out);
                    answered = answer.map(|answer| (from, answer));
                }
                () = tokio::time::sleep(LOOK_AT_CLOCK) => continue,
                () = sleep_until(&self.clock, timer) => self.authority.on_timer(self.clock.now(), &mut out),
            }
            // Written down before anybody hears of it: an authority signs one document an epoch, also after a restart.
            for event in out.events {
                on_event(&self.authority, event)?;
            }
            for (to, message) in out.sent {
                if answered.as_ref().is_some_and(|(from, _)| *from == to) {
                    let (_, answer) = answered.take().expect("it was looked at just now");
                    let _ = answer.send(encode(&message));
                } else if self.others.contains(&to) {
                    let asked = asked.clone();
                    tokio::spawn(async move {
                        if let Some(message) = deliver(own, to, &message, round).await {
                            let _ = asked.send(Asked { from: to, message, answer: None }).await;
                        }
                    });
                }
            }
        }
    }
}

/// Says `message` to the authority at `to`; where it can't be reached, again, as long as that counts, which is for a round.
/// What it answers, if it does.
async fn deliver(own: Option<IpAddr>, to: SocketAddr, message: &Message, round: Duration) -> Option<Message> {
    let until = Instant::now() + round;
    loop {
        match exchange(own, to, message, MOST_MESSAGE).await {
            Ok(answer) => return answer,
            Err(_) if Instant::now() + SEND_AGAIN < until => tokio::time::sleep(SEND_AGAIN).await,
            Err(_) => return None,
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
        stream.write_all(&answer).await?;
    }
    stream.shutdown().await
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use anabranch_onion::directory::{Document, DocumentHash, Terms, UnixTime};

    use super::*;

    #[test]
    fn a_list_is_encoded_once_for_all_who_ask() {
        let list = |epoch| {
            let (valid_from, valid_until) = (UnixTime(0), UnixTime(9));
            let (previous, terms, members) = (DocumentHash::default(), Terms::default(), vec![]);
            let document = Document { epoch, valid_from, valid_until, previous, terms, members };
            SignedDocument::new(document, 0, vec![])
        };
        let mut encoded = EncodedList::default();
        assert_eq!(encoded.answer(None, 0), encode(&Message::NoNewer));
        for epoch in [3, 4] {
            let newest = list(epoch);
            let first = encoded.answer(Some(&newest), 0);
            assert_eq!(first, encode(&Message::Document(newest.clone())));
            assert_eq!(encoded.answer(Some(&newest), epoch), encode(&Message::NoNewer));
            assert_eq!(encoded.answer(Some(&newest), epoch - 1).as_ptr(), first.as_ptr(), "the same bytes");
        }
    }

    #[test]
    fn strangers_who_fill_their_places_take_none_of_an_authoritys() {
        let (places, mut taken) = (Places::default(), Vec::new());
        let stranger = |network: u16| IpAddr::from([10 + (network >> 8) as u8, network as u8, 0, 1]);
        for network in 0..1000 {
            taken.extend((0..MOST_CONNECTIONS_OF_NETWORK + 1).filter_map(|_| places.take(stranger(network), false)));
        }
        assert_eq!(taken.len(), MOST_CONNECTIONS);
        assert_eq!(places.counts().len(), MOST_CONNECTIONS / MOST_CONNECTIONS_OF_NETWORK, "who has none is not listed");
        let authority = IpAddr::from(Ipv4Addr::new(192, 0, 2, 1));
        let of_authority: Vec<Place> = (0..100).filter_map(|_| places.take(authority, true)).collect();
        assert_eq!(of_authority.len(), MOST_CONNECTIONS_OF_AUTHORITY);
        assert!(places.take(stranger(0), false).is_none());
        taken.pop();
        assert!(places.take(stranger(999), false).is_some(), "authorities take none of theirs either");
        drop((taken, of_authority));
        assert!(places.counts().is_empty());
    }

    #[tokio::test]
    async fn what_an_authority_could_not_be_told_is_sent_again_within_the_round() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let to = listener.local_addr().unwrap();
        drop(listener);
        let message = Message::Fetch { newer_than: 3 };
        assert_eq!(deliver(None, to, &message, Duration::from_millis(100)).await, None, "nobody is there");
        let delivery = tokio::spawn(async move { deliver(None, to, &message, Duration::from_secs(30)).await });
        tokio::time::sleep(Duration::from_millis(200)).await;
        let listener = TcpListener::bind(to).await.unwrap();
        let (mut stream, _) = listener.accept().await.unwrap();
        read_all(&mut stream, MOST_MESSAGE).await.unwrap();
        stream.write_all(&encode(&Message::NoNewer)).await.unwrap();
        drop(stream);
        assert_eq!(delivery.await.unwrap(), Some(Message::NoNewer));
    }
}
