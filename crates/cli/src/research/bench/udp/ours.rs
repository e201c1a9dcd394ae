//! Our flows and our relay, moving the same datagrams.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anabranch_control::flow::PeerId;
use anabranch_control::flow::registry::{Setup, find};
use anabranch_control::rng::Rng;
use anabranch_control::time::{Duration as Span, Time};
use anabranch_control::units::{Bytes, Rate};
use anabranch_net::clock::Clock;
use anabranch_net::flow::{Accept, FlowSpec, ReceiverConfig, Receivers, SenderEvent, Senders};
use anabranch_net::loopback::NoFiles;
use anabranch_net::runtime::Runtime;
use anabranch_net::udp::Socket;
use anabranch_proto::flow::{AckPolicy, FlowSender, LossRecovery, SenderConfig, TcpOptions};
use anabranch_proto::limiter::LimitModel;
use anabranch_proto::overlay::fair_share::{FairShare, MAX_SOURCES};
use anabranch_proto::overlay::forward_policy::ForwardPolicy;
use anabranch_proto::overlay::packet::{Kind, Packet, PacketId, Route};
use anabranch_proto::overlay::peer::Peer;
use anabranch_proto::overlay::relay_node::RelayNode;
use anabranch_proto::overlay::wire::{self, Datagram, Type};

use super::super::processor_time;
use super::plain::{self, socket};
use super::{DATA, DATAGRAM, Moved};
use crate::failure::Failure;
use crate::relay::GATHER;

/// The window of `fixed` in packets: two batches of a receiving socket's, and they fit the
/// smallest usual socket buffer.
const WINDOW: f64 = 64.0;

/// How often a thread looks whether it shall stop.
const TICK: Span = Span::from_millis(20);

/// One flow from one thread to another.
pub fn flow(time: Duration, controller: &str, offload: bool) -> Result<Moved, Failure> {
    let clock = Clock::start();
    let config = ReceiverConfig { accept: Accept::Handshakes, ..ReceiverConfig::default() };
    let mut receivers = Receivers::new(clock, config)?;
    receivers.add_socket(socket()?)?;
    let to = receivers.local_addr(0)?;
    let mut senders = Senders::new(clock)?;
    senders.add_socket(socket()?, offload)?;
    let packet = Bytes::new(DATA as u64);
    let mut parameters = toml::Table::new();
    if controller == "fixed" {
        parameters.insert("window".into(), WINDOW.into());
    }
    let controller = find(controller)?
        .make(&Setup::new(packet, Time::ZERO), &parameters)
        .map_err(|error| Failure::new(error.to_string()))?;
    let sender = SenderConfig {
        packet,
        max_ack_delay: AckPolicy::default().max_delay,
        paced: false,
        ecn: false,
        recovery: LossRecovery::Rack,
        tcp: TcpOptions::default(),
    };
    let machine = FlowSender::new(sender, controller, 1, Rng::stream(1, "controller"));
    let flow = senders.open(FlowSpec::new(1, to, machine)).map_err(|error| Failure::new(error.to_string()))?;
    senders.write(flow, PeerId(0), u64::MAX, false);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let receiver = scope.spawn(|| -> Result<(u64, Duration), Failure> {
            let before = processor_time::now();
            while !stop.load(Ordering::Relaxed) {
                receivers.turn(receivers.now() + TICK)?;
            }
            let bytes: u64 = receivers.flows().filter_map(|flow| receivers.report(flow)).map(|got| got.delivered).sum();
            Ok((bytes / DATA as u64, processor_time::now() - before))
        });
        let (started, before) = (Instant::now(), processor_time::now());
        let sent = (|| -> Result<(), Failure> {
            while started.elapsed() < time {
                senders.turn(senders.now() + TICK)?;
                if let Some(SenderEvent::Ended { reason, .. }) = senders.poll_event() {
                    return Err(Failure::new(reason.to_string()));
                }
            }
            Ok(())
        })();
        let (wall, spent) = (started.elapsed(), processor_time::now() - before);
        stop.store(true, Ordering::Relaxed);
        let (arrived, receiver) = receiver.join().expect("the receiver does not panic")?;
        sent?;
        Ok(Moved { arrived, wall, sender: spent, receiver })
    })
}

/// What a relay minds besides routes and its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guard {
    /// Nothing.
    None,
    /// Where it sends, and what each neighbour's share is.
    Strangers,
    /// The same, and what goes one way leaves as one, as `anabranch relay` runs.
    StrangersGathering,
    /// Strangers, at all addresses of the host.
    StrangersAtAllAddresses,
}

/// A relay behind a socket; its limit is beyond anything that this machine sends.
pub fn relay_runtime(guard: Guard) -> Result<(Runtime<Peer>, SocketAddr), Failure> {
    let mut runtime = Runtime::new(NoFiles)?;
    let all = guard == Guard::StrangersAtAllAddresses;
    let ip = if all { Ipv4Addr::UNSPECIFIED } else { Ipv4Addr::LOCALHOST };
    let socket = Socket::bind(SocketAddr::from((ip, 0)))?.serving()?;
    let entry = SocketAddr::from((Ipv4Addr::LOCALHOST, socket.local_addr()?.port()));
    let (model, limit) = (LimitModel::Window { phase: Span::ZERO }, Rate::from_bits_per_sec(u64::MAX));
    let relay = RelayNode::new(model, limit);
    let relay = match guard {
        Guard::None => relay,
        Guard::Strangers | Guard::StrangersGathering | Guard::StrangersAtAllAddresses => relay
            .with_policy(ForwardPolicy::new(ip.into(), [], Vec::new()))
            .with_fair_share(FairShare::new(model, limit, MAX_SOURCES, [1, 2, 3, 4])),
    };
    let peer = Peer::new(relay, None, None);
    match guard {
        Guard::StrangersGathering => {
            runtime.gather(GATHER);
            runtime.add_gathering(socket, peer)?
        }
        _ => runtime.add(socket, peer, None)?,
    };
    Ok((runtime, entry))
}

/// One thread relays what another one sends through it.
pub fn relay(time: Duration) -> Result<Moved, Failure> {
    let (end, (mut runtime, entry)) = (socket()?, relay_runtime(Guard::None)?);
    let datagram = datagram(entry, end.local_addr()?)?;
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let relay = scope.spawn(|| -> Result<(u64, Duration), Failure> {
            let before = processor_time::now();
            while !stop.load(Ordering::Relaxed) {
                let until = runtime.now() + TICK;
                runtime.turn(until)?;
            }
            Ok((runtime.machine(0).relay().counters().forwarded, processor_time::now() - before))
        });
        let through = plain::send_through(time, entry, &end, &datagram);
        stop.store(true, Ordering::Relaxed);
        let (forwarded, receiver) = relay.join().expect("the relay does not panic")?;
        let through = through?;
        assert!(forwarded >= through.arrived, "something else than the relay has forwarded");
        Ok(Moved { receiver, ..through })
    })
}

/// Fills the relay's socket, then lets it pass on all of it, in turn in one thread.
pub fn relay_full(time: Duration, guard: Guard) -> Result<Moved, Failure> {
    let (end, (mut runtime, entry)) = (socket()?, relay_runtime(guard)?);
    let datagram = datagram(entry, end.local_addr()?)?;
    let mut before = 0;
    plain::fill_and_empty(time, entry, &end, &datagram, None, || {
        runtime.turn(Time::ZERO)?;
        let forwarded = runtime.machine(0).relay().counters().forwarded;
        Ok(forwarded - std::mem::replace(&mut before, forwarded))
    })
}

/// Data on its way to its only relay, as long as a flow's full packet.
fn datagram(relay: SocketAddr, end: SocketAddr) -> Result<Vec<u8>, Failure> {
    let nodes = [wire::unknown_source(relay), relay, end];
    let route = Route::from_nodes(&nodes, 1).ok_or_else(|| Failure::new("a relay is an impossible route"))?;
    let packet = Packet::new(PacketId::default(), 0, Kind::Data, route);
    let mut bytes = Vec::new();
    let body = vec![7; DATAGRAM - wire::header_len(Kind::Data, &nodes)];
    Datagram { what: Type::Data, packet, body: &body }.encode(&mut bytes);
    Ok(bytes)
}
