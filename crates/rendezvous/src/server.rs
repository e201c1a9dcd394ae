//! A rendezvous at a relay's socket, on a thread of its own.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anabranch_control::rng::Rng;
use anabranch_control::time::{Duration as Span, Time};
use anabranch_net::clock::Clock;
use anabranch_net::quic::identity::{self, Identity};
use anabranch_net::setup::random_seed;
use anabranch_proto::transfer::origin_of;
use quinn::crypto::rustls::QuicServerConfig;
use quinn::{Connection, Endpoint, EndpointConfig, Incoming, RecvStream, SendStream, TransportConfig, VarInt};
use tokio::sync::mpsc;

use crate::PROTOCOL;
use crate::connection_id::Marked;
use crate::frame::{Frame, MOST};
use crate::limits::{IDLE_MS, Limits, PATIENCE_MS};
use crate::mailboxes::{Client, Letter, Mailboxes};
use crate::shared_socket::{Inlet, SharedSocket, share};

/// Frames that wait to be written to one connection; who takes none loses it.
const LETTERS_WAITING: usize = 8;

/// Bytes that one connection may have on its way to us.
const WINDOW: u32 = 16 << 10;

/// What a rendezvous has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Connections that were begun.
    pub connections: u64,
    /// Handshakes that were refused or not looked at: too many, or of one address.
    pub refused: u64,
}

/// A rendezvous that runs until it is dropped.
#[derive(Debug)]
pub struct Server {
    shared: Arc<Shared>,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    limits: Limits,
    clock: Clock,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    mailboxes: Mailboxes,
    outlets: BTreeMap<Client, mpsc::Sender<Frame>>,
    next: Client,
    /// Handshakes in the second that ends at `until`, in all and of each address.
    handshakes: u32,
    handshakes_of: BTreeMap<IpAddr, u32>,
    until: Time,
    counters: Counters,
}

impl Server {
    /// Begins at the relay's socket, of which `io` is a clone, and gives the place where the relay's loop
    /// hands QUIC's datagrams over.
    ///
    /// # Errors
    ///
    /// When there is no thread, or TLS can't be set up.
    pub fn start(io: UdpSocket, limits: Limits) -> io::Result<(Server, Inlet)> {
        let (inlet, socket) = share(io)?;
        let config = config()?;
        let state = State {
            mailboxes: Mailboxes::new(limits, Rng::stream(random_seed(), "mailbox numbers")),
            outlets: BTreeMap::new(),
            next: 0,
            handshakes: 0,
            handshakes_of: BTreeMap::new(),
            until: Time::ZERO,
            counters: Counters::default(),
        };
        let shared = Arc::new(Shared { limits, clock: Clock::start(), state: Mutex::new(state) });
        let (stop, stopped) = tokio::sync::oneshot::channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let serving = shared.clone();
        let thread = std::thread::Builder::new().name("rendezvous".into()).spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    () = serve(serving, socket, config) => {}
                    _ = stopped => {}
                }
            });
        })?;
        Ok((Server { shared, stop: Some(stop), thread: Some(thread) }, inlet))
    }

    /// What it has done so far.
    pub fn counters(&self) -> Counters {
        self.shared.lock().counters
    }

    /// Mailboxes that are open.
    pub fn mailboxes(&self) -> usize {
        self.shared.lock().mailboxes.len()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
        if let Some(thread) = self.thread.take() {
            // If it panicked, there is nothing more to stop.
            let _ = thread.join();
        }
    }
}

fn config() -> io::Result<quinn::ServerConfig> {
    // Nobody trusts this certificate: who meets here proves itself to the other side, not to us.
    let identity = Identity::generate();
    let tls = identity::server_tls(&identity, PROTOCOL).map_err(io::Error::other)?;
    let mut config =
        quinn::ServerConfig::with_crypto(Arc::new(QuicServerConfig::try_from(tls).map_err(io::Error::other)?));
    let mut transport = TransportConfig::default();
    transport.max_concurrent_bidi_streams(VarInt::from_u32(1)).max_concurrent_uni_streams(VarInt::from_u32(0));
    transport.stream_receive_window(VarInt::from_u32(WINDOW)).receive_window(VarInt::from_u32(WINDOW));
    transport.send_window(u64::from(WINDOW)).datagram_receive_buffer_size(None);
    let idle = VarInt::from_u32(IDLE_MS as u32);
    transport.max_idle_timeout(Some(idle.into()));
    config.transport_config(Arc::new(transport));
    config.max_incoming(64).incoming_buffer_size(4 << 10).incoming_buffer_size_total(256 << 10);
    Ok(config)
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Whoever panicked has left whole mailboxes.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a handshake from `from`, whose address is proved, is one too many.
    fn admits(&self, from: SocketAddr) -> bool {
        let Limits { handshakes_per_second, handshakes_per_second_of_one, .. } = self.limits;
        let now = self.clock.now();
        let mut state = self.lock();
        if now >= state.until {
            (state.handshakes, state.until) = (0, now + Span::SECOND);
            state.handshakes_of.clear();
        }
        let (all, origin) = (state.handshakes, origin_of(from.ip()));
        if all >= handshakes_per_second {
            return false;
        }
        let of_one = state.handshakes_of.entry(origin).or_default();
        if *of_one >= handshakes_per_second_of_one {
            return false;
        }
        *of_one += 1;
        state.handshakes += 1;
        true
    }

    fn deliver(&self, state: &mut State, letters: Vec<Letter>) {
        let mut letters = std::collections::VecDeque::from(letters);
        while let Some(Letter { to, frame }) = letters.pop_front() {
            let is_last = matches!(frame, Frame::Refused(_));
            let Some(outlet) = state.outlets.get(&to) else { continue };
            if outlet.try_send(frame).is_err() || is_last {
                state.outlets.remove(&to);
                let mut more = Vec::new();
                state.mailboxes.leave(to, &mut more);
                letters.extend(more);
            }
        }
    }
}

async fn serve(shared: Arc<Shared>, socket: SharedSocket, config: quinn::ServerConfig) {
    let mut endpoint_config = EndpointConfig::default();
    endpoint_config.cid_generator(|| Box::new(Marked)).grease_quic_bit(false).supported_versions(vec![1]);
    let runtime = Arc::new(quinn::TokioRuntime);
    let made = Endpoint::new_with_abstract_socket(endpoint_config, Some(config), Arc::new(socket), runtime);
    let Ok(endpoint) = made else { return };
    let mut ticks = tokio::time::interval(Duration::from_secs(1));
    loop {
        tokio::select! {
            incoming = endpoint.accept() => match incoming {
                Some(incoming) => begin(&shared, incoming),
                None => return,
            },
            _ = ticks.tick() => {
                let mut letters = Vec::new();
                let mut state = shared.lock();
                state.mailboxes.expire(shared.clock.now(), &mut letters);
                shared.deliver(&mut state, letters);
            }
        }
    }
}

/// Nothing is remembered of who has not shown that it hears what goes to its address (RFC 9000, 8.1.2).
fn begin(shared: &Arc<Shared>, incoming: Incoming) {
    let from = incoming.remote_address();
    if !incoming.remote_address_validated() {
        if let Err(error) = incoming.retry() {
            error.into_incoming().ignore();
        }
        return;
    }
    if !shared.admits(from) {
        shared.lock().counters.refused += 1;
        incoming.refuse();
        return;
    }
    let shared = shared.clone();
    tokio::spawn(async move {
        let limit = Duration::from_millis(PATIENCE_MS);
        let Ok(connecting) = incoming.accept() else { return };
        if let Ok(Ok(connection)) = tokio::time::timeout(limit, connecting).await {
            attend(&shared, &connection).await;
            // What it was sent last may still be on its way.
            let _ = tokio::time::timeout(Duration::from_secs(2), connection.closed()).await;
            connection.close(VarInt::from_u32(0), b"");
        }
    });
}

/// One connection, from its first frame to its end.
async fn attend(shared: &Arc<Shared>, connection: &Connection) {
    let remote = connection.remote_address();
    let seen = SocketAddr::new(remote.ip().to_canonical(), remote.port());
    let limit = Duration::from_millis(PATIENCE_MS);
    let Ok(Ok((mut to, mut from))) = tokio::time::timeout(limit, connection.accept_bi()).await else { return };
    let (outlet, mut letters) = mpsc::channel(LETTERS_WAITING);
    let client = {
        let mut state = shared.lock();
        let client = state.next;
        state.next += 1;
        if let Err(reason) = state.mailboxes.join(client, seen) {
            state.counters.refused += 1;
            // To be written below, as the only frame.
            let _ = outlet.try_send(Frame::Refused(reason));
            None
        } else {
            state.counters.connections += 1;
            state.outlets.insert(client, outlet.clone());
            Some(client)
        }
    };
    drop(outlet);
    let writing = async {
        let mut bytes = Vec::new();
        while let Some(frame) = letters.recv().await {
            bytes.clear();
            frame.encode(&mut bytes);
            if to.write_all(&bytes).await.is_err() {
                return;
            }
        }
        let _ = finish(&mut to).await;
    };
    let reading = async {
        let Some(client) = client else { return std::future::pending().await };
        let mut limit = Some(limit);
        while let Some(frame) = read(&mut from, limit).await {
            limit = None;
            let mut letters = Vec::new();
            let mut state = shared.lock();
            state.mailboxes.on_frame(shared.clock.now(), client, seen, frame, &mut letters);
            shared.deliver(&mut state, letters);
        }
        let mut letters = Vec::new();
        let mut state = shared.lock();
        state.mailboxes.leave(client, &mut letters);
        state.outlets.remove(&client);
        shared.deliver(&mut state, letters);
    };
    // Who has stopped to speak gets what was meant for it; who was refused is not read any more.
    tokio::pin!(writing, reading);
    let has_written = tokio::select! {
        () = &mut writing => true,
        () = &mut reading => false,
    };
    if !has_written {
        let _ = tokio::time::timeout(limit, writing).await;
    }
    if let Some(client) = client {
        let mut letters = Vec::new();
        let mut state = shared.lock();
        state.outlets.remove(&client);
        state.mailboxes.leave(client, &mut letters);
        shared.deliver(&mut state, letters);
    }
}

async fn finish(to: &mut SendStream) -> io::Result<()> {
    to.finish()?;
    let _ = to.stopped().await;
    Ok(())
}

/// The next frame; none at the end, or when what comes is none. The first is to come within `limit`.
async fn read(from: &mut RecvStream, limit: Option<Duration>) -> Option<Frame> {
    match limit {
        Some(limit) => tokio::time::timeout(limit, read_frame(from)).await.ok().flatten(),
        None => read_frame(from).await,
    }
}

/// The next frame of a stream; none at its end, or when what comes is none.
pub(crate) async fn read_frame(from: &mut RecvStream) -> Option<Frame> {
    let mut length = [0; 2];
    from.read_exact(&mut length).await.ok()?;
    let length = usize::from(u16::from_be_bytes(length));
    if length > MOST {
        return None;
    }
    let mut bytes = vec![0; length];
    from.read_exact(&mut bytes).await.ok()?;
    Frame::decode(&bytes)
}
