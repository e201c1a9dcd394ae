//! Flows over real sockets of the loopback interface, both ends in threads of this process.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use anabranch_control::flow::registry::{Setup, find};
use anabranch_control::flow::{Bounds, Feedback, FlowController, Limits, PeerId};
use anabranch_control::rng::Rng;
use anabranch_control::time::{Duration, Time};
use anabranch_control::units::Bytes;
use anabranch_net::clock::Clock;
use anabranch_net::flow::{
    Accept, EndReason, FlowId, FlowKey, FlowSpec, OpenError, Pattern, ReceiverConfig, ReceiverEvent, Receivers,
    SenderEvent, Senders,
};
use anabranch_proto::flow::wire::{self, AckBytes, Handshake, Label};
use anabranch_proto::flow::{Ack, AckRanges, Data, Fault, FlowSender, LossRecovery, SenderConfig, TcpOptions};

const ME: PeerId = PeerId(0);
const PACKET: Bytes = Bytes::new(1448);

fn socket() -> UdpSocket {
    UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap()
}

fn configured(controller: Box<dyn FlowController>, ecn: bool) -> FlowSender {
    let config = SenderConfig {
        packet: PACKET,
        max_ack_delay: Duration::from_millis(25),
        paced: false,
        ecn,
        recovery: LossRecovery::Rack,
        tcp: TcpOptions::default(),
    };
    FlowSender::new(config, controller, 1, Rng::stream(1, "controller"))
}

fn sender_of(controller: Box<dyn FlowController>) -> FlowSender {
    configured(controller, false)
}

fn build(controller: &str) -> Box<dyn FlowController> {
    find(controller).unwrap().make(&Setup::new(PACKET, Time::ZERO), &toml::Table::new()).unwrap()
}

fn sender(controller: &str) -> FlowSender {
    sender_of(build(controller))
}

fn senders(clock: Clock) -> Senders {
    let mut senders = Senders::new(clock).unwrap();
    senders.add_socket(socket(), true).unwrap();
    senders
}

/// Receivers of anybody's flows, in a thread of their own until this is dropped.
struct Station {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    waker: anabranch_net::wait::Waker,
    thread: Option<std::thread::JoinHandle<(Receivers, Vec<ReceiverEvent>)>>,
    /// Whether all that came was the pattern.
    correct: Arc<Mutex<bool>>,
}

impl Station {
    fn new(clock: Clock, config: ReceiverConfig, prepare: impl FnOnce(&mut Receivers)) -> Station {
        let mut receivers = Receivers::new(clock, config).unwrap();
        receivers.add_socket(socket()).unwrap();
        let correct = Arc::new(Mutex::new(true));
        let shared = Arc::clone(&correct);
        receivers.set_sinks(move |_| {
            let shared = Arc::clone(&shared);
            Some(Box::new(move |offset: u64, bytes: &[u8]| *shared.lock().unwrap() &= Pattern::matches(offset, bytes)))
        });
        prepare(&mut receivers);
        let (address, waker) = (receivers.local_addr(0).unwrap(), receivers.waker());
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut events = Vec::new();
            while !stopped.load(Ordering::Relaxed) {
                receivers.turn(Time::MAX).unwrap();
                events.extend(std::iter::from_fn(|| receivers.poll_event()));
            }
            (receivers, events)
        });
        Station { address, stop, waker, thread: Some(thread), correct }
    }

    fn anybody(clock: Clock) -> Station {
        Station::new(clock, ReceiverConfig { accept: Accept::Handshakes, ..ReceiverConfig::default() }, |_| ())
    }

    fn end(mut self) -> (Receivers, Vec<ReceiverEvent>) {
        self.stop.store(true, Ordering::Relaxed);
        self.waker.wake();
        self.thread.take().unwrap().join().unwrap()
    }
}

/// Turns until `done` is told of an event that it wants.
fn turn_until(senders: &mut Senders, mut done: impl FnMut(&SenderEvent) -> bool) -> SenderEvent {
    loop {
        while let Some(event) = senders.poll_event() {
            if done(&event) {
                return event;
            }
            assert!(!matches!(event, SenderEvent::Ended { .. }), "{event:?}, {:?}", senders.counters());
        }
        senders.turn(Time::MAX).unwrap();
    }
}

/// Whether so many bytes have come. What is late on a busy machine is sent again, as lost or by a probe, and counts twice.
fn is_of(sender: &FlowSender, bytes: u64) -> bool {
    let again = sender.delivered().get().checked_sub(bytes);
    again.is_some_and(|again| again <= (sender.packets_lost() + sender.packets_copied()) * 1500)
}

fn transfer(controller: &str, segmentation: bool, bytes: u64, change: impl FnOnce(&mut FlowSpec)) {
    let clock = Clock::start();
    let station = Station::anybody(clock);
    let mut senders = Senders::new(clock).unwrap();
    senders.add_socket(socket(), segmentation).unwrap();
    let mut spec = FlowSpec::new(7, station.address, sender(controller));
    change(&mut spec);
    let flow = senders.open(spec).unwrap();
    senders.write(flow, ME, bytes, true);
    turn_until(&mut senders, |event| matches!(event, SenderEvent::Delivered { .. }));
    let left = senders.close(flow).unwrap();
    assert!(is_of(&left, bytes), "{controller}: {} bytes of {bytes}", left.delivered());
    assert!(*station.correct.lock().unwrap(), "{controller}: other bytes arrived");
    let (receivers, events) = station.end();
    let completed = events.iter().find_map(|event| match event {
        ReceiverEvent::Completed { bytes, .. } => Some(*bytes),
        _ => None,
    });
    assert_eq!(completed, Some(bytes), "{controller}: {:?}", receivers.counters());
}

#[test]
fn ten_megabytes_arrive_whole_whatever_the_controller() {
    for controller in ["reno", "cubic", "bbr", "copa", "vivace"] {
        transfer(controller, true, 10_000_000, |_| ());
    }
}

#[test]
fn without_segmentation_and_with_ecn_all_arrives_too() {
    transfer("reno", false, 2_000_000, |_| ());
    transfer("reno", true, 2_000_000, |spec| spec.sender = configured(build("reno"), true));
    transfer("reno", false, 2_000_000, |spec| spec.sender = configured(build("reno"), true));
    transfer("reno", true, 1, |_| ());
    transfer("reno", true, 0, |_| ());
}

#[test]
fn an_application_gives_the_data_and_takes_it() {
    let clock = Clock::start();
    let text: Vec<u8> = (0..200_000u32).flat_map(u32::to_le_bytes).collect();
    let arrived = Arc::new(Mutex::new(vec![0u8; text.len()]));
    let shared = Arc::clone(&arrived);
    let station =
        Station::new(clock, ReceiverConfig { accept: Accept::All, ..ReceiverConfig::default() }, |receivers| {
            receivers.set_sinks(move |_| {
                let shared = Arc::clone(&shared);
                Some(Box::new(move |offset: u64, bytes: &[u8]| {
                    shared.lock().unwrap()[offset as usize..][..bytes.len()].copy_from_slice(bytes);
                }))
            });
        });
    let mut senders = senders(clock);
    let source = text.clone();
    let fill = move |_: PeerId, offset: u64, bytes: &mut [u8]| {
        bytes.copy_from_slice(&source[offset as usize..][..bytes.len()]);
    };
    let spec =
        FlowSpec { source: Box::new(fill), handshake: false, ..FlowSpec::new(1, station.address, sender("cubic")) };
    let flow = senders.open(spec).unwrap();
    senders.write(flow, ME, text.len() as u64, true);
    turn_until(&mut senders, |event| matches!(event, SenderEvent::Delivered { .. }));
    station.end();
    assert!(*arrived.lock().unwrap() == text, "other bytes arrived");
}

#[test]
fn a_receiver_that_is_not_there_ends_a_flow_with_an_error() {
    let nobody = socket();
    for handshake in [true, false] {
        let mut senders = senders(Clock::start());
        let patience = Duration::from_millis(150);
        let spec = FlowSpec::new(1, nobody.local_addr().unwrap(), sender("reno"));
        let flow = senders.open(FlowSpec { patience, handshake, ..spec }).unwrap();
        senders.write(flow, ME, u64::MAX, false);
        let reason = EndReason::NoAnswer { patience };
        turn_until(&mut senders, |event| matches!(event, SenderEvent::Ended { reason: why, .. } if *why == reason));
        assert_eq!(senders.ended(flow), Some(reason));
        assert!(!senders.write(flow, ME, 1, true), "an ended flow takes nothing more");
        let sent = senders.close(flow).unwrap().packets_sent();
        assert_eq!(sent > 0, !handshake, "data leaves once the first packet is answered");
    }
}

#[test]
fn a_receiver_that_disappears_ends_a_flow_with_an_error() {
    let clock = Clock::start();
    let station = Station::anybody(clock);
    let mut senders = senders(clock);
    let patience = Duration::from_millis(300);
    let spec = FlowSpec { patience, ..FlowSpec::new(1, station.address, sender("cubic")) };
    let flow = senders.open(spec).unwrap();
    senders.write(flow, ME, u64::MAX, false);
    while senders.sender(flow).unwrap().delivered() < Bytes::new(1_000_000) {
        senders.turn(Time::MAX).unwrap();
    }
    drop(station.end());
    let event = turn_until(&mut senders, |event| matches!(event, SenderEvent::Ended { .. }));
    assert!(matches!(event, SenderEvent::Ended { reason: EndReason::NoAnswer { .. }, .. }));
}

#[test]
fn strangers_change_nothing_and_are_counted() {
    let clock = Clock::start();
    let station = Station::anybody(clock);
    let mut senders = senders(clock);
    let spec = FlowSpec::new(9, station.address, sender("reno"));
    let flow = senders.open(spec).unwrap();
    senders.write(flow, ME, 10_000_000, true);
    let label = Label { connection: 9, receiver: 0 };
    let all = Ack { ranges: AckRanges::new([(0, 5000)]), delay: Duration::ZERO, ce_count: 77 };
    let data = Data { number: 1, offset: 3, length: 5, fin: true, push: false };
    let datagrams = [
        AckBytes::new(label, &all).unwrap().as_slice().to_vec(),
        [&wire::data_header(label, &data)[..], &[0xee; 5]].concat(),
        wire::syn_ack(label, Handshake { attempt: 0, nonce: [3; 16] }).to_vec(),
        wire::close(label, [0; 16]).to_vec(),
        vec![0xff; 1200],
        vec![],
    ];
    let stranger = socket();
    let targets = [station.address, senders.local_addr(0).unwrap()];
    let mut sent = 0;
    let mut done = false;
    while !done {
        if sent < 600 {
            for (bytes, target) in
                datagrams.iter().zip(targets.iter().cycle()).chain(datagrams.iter().zip(targets.iter().rev().cycle()))
            {
                stranger.send_to(bytes, target).unwrap();
                sent += 1;
            }
        }
        senders.turn(Time::MAX).unwrap();
        while let Some(event) = senders.poll_event() {
            assert!(!matches!(event, SenderEvent::Ended { .. }), "{event:?}");
            done |= matches!(event, SenderEvent::Delivered { .. });
        }
    }
    // What waits at the sockets still is read before they are asked.
    stranger.send_to(&datagrams[0], senders.local_addr(0).unwrap()).unwrap();
    while senders.counters().strangers == 0 {
        senders.turn(Time::MAX).unwrap();
    }
    let left = senders.close(flow).unwrap();
    assert!(is_of(&left, 10_000_000), "{} bytes", left.delivered());
    assert!(*station.correct.lock().unwrap(), "a stranger's bytes were taken");
    let (receivers, events) = station.end();
    assert!(senders.counters().unreadable > 0 || receivers.counters().unreadable > 0);
    let completed = |event: &&ReceiverEvent| matches!(event, ReceiverEvent::Completed { bytes: 10_000_000, .. });
    assert_eq!(events.iter().filter(completed).count(), 1);
}

#[test]
fn acks_of_what_was_never_sent_are_counted_and_change_nothing() {
    let peer = socket();
    let mut senders = senders(Clock::start());
    let spec = FlowSpec { handshake: false, ..FlowSpec::new(9, peer.local_addr().unwrap(), sender("reno")) };
    let flow = senders.open(spec).unwrap();
    senders.write(flow, ME, 1_000_000, false);
    senders.turn(Time::ZERO).unwrap();
    let before = senders.sender(flow).unwrap().packets_sent();
    assert!(before > 0);
    let label = Label { connection: 9, receiver: 0 };
    let never = Ack { ranges: AckRanges::new([(0, 5000)]), delay: Duration::ZERO, ce_count: 0 };
    let to = senders.local_addr(0).unwrap();
    peer.send_to(AckBytes::new(label, &never).unwrap().as_slice(), to).unwrap();
    while senders.counters().untrue == 0 {
        senders.turn(Time::MAX).unwrap();
    }
    assert_eq!(senders.sender(flow).unwrap().delivered(), Bytes::ZERO);
}

#[test]
fn bounds_that_are_set_while_a_flow_runs_hold_and_are_lifted() {
    let clock = Clock::start();
    let station = Station::anybody(clock);
    let mut senders = senders(clock);
    let flow = senders.open(FlowSpec::new(1, station.address, sender("cubic"))).unwrap();
    senders.write(flow, ME, u64::MAX, false);
    let delivered = |senders: &Senders| senders.sender(flow).unwrap().delivered().get();
    let mut aim = 0;
    for maximum in [None, Some(PACKET * 3), Some(PACKET * 20), None] {
        senders.set_bounds(flow, Bounds { maximum, ..Bounds::default() });
        aim += 1_000_000;
        let mut settled = false;
        while delivered(&senders) < aim {
            senders.turn(Time::MAX).unwrap();
            let in_flight = senders.sender(flow).unwrap().in_flight();
            // What was in flight before the bound was set leaves first.
            settled |= maximum.is_some_and(|maximum| in_flight <= maximum);
            assert!(!settled || in_flight <= maximum.unwrap(), "{in_flight:?} in flight under {maximum:?}");
        }
        assert!(maximum.is_none() || settled);
    }
    senders.pause(flow);
    turn_until(&mut senders, |event| matches!(event, SenderEvent::Delivered { .. }));
    assert_eq!(senders.sender(flow).unwrap().in_flight(), Bytes::ZERO);
    // It goes on where it was.
    senders.write(flow, ME, 5_000, true);
    turn_until(&mut senders, |event| matches!(event, SenderEvent::Delivered { .. }));
    assert!(*station.correct.lock().unwrap());
}

#[derive(Clone, Debug)]
struct Closed;

impl FlowController for Closed {
    fn on_feedback(&mut self, _: Time, _: &Feedback<'_>, _: &mut Rng) {}
    fn limits(&self) -> Limits {
        Limits::window(Bytes::ZERO)
    }
    fn trace(&self, _: &mut dyn FnMut(&'static str, f64)) {}
}

#[test]
fn a_controller_that_lets_nothing_leave_is_reported() {
    let mut senders = senders(Clock::start());
    let spec =
        FlowSpec { handshake: false, ..FlowSpec::new(1, socket().local_addr().unwrap(), sender_of(Box::new(Closed))) };
    let flow = senders.open(spec).unwrap();
    senders.write(flow, ME, 1, true);
    turn_until(&mut senders, |event| {
        matches!(event, SenderEvent::Ended { reason: EndReason::Fault(Fault::NoWindow), .. })
    });
}

#[test]
fn many_flows_by_several_sockets_share_two_threads() {
    let clock = Clock::start();
    let station = Station::anybody(clock);
    let mut senders = senders(clock);
    senders.add_socket(socket(), false).unwrap();
    let mut left: Vec<FlowId> = Vec::new();
    for connection in 0..40 {
        let spec = FlowSpec::new(connection, station.address, sender("reno"));
        let flow = senders.open(FlowSpec { port: connection as usize % 2, ..spec }).unwrap();
        senders.write(flow, ME, 100_000 + u64::from(connection), true);
        left.push(flow);
    }
    while !left.is_empty() {
        let event = turn_until(&mut senders, |event| matches!(event, SenderEvent::Delivered { .. }));
        let SenderEvent::Delivered { flow, .. } = event else { unreachable!("it was asked for") };
        left.retain(|&other| other != flow);
        // What has left again, and come twice, counts twice; where nothing has, this is what was written.
        let (sender, written) = (senders.close(flow).unwrap(), 100_000 + u64::from(flow.0));
        let again = sender.packets_sent() - written.div_ceil(PACKET.get());
        let delivered = sender.delivered().get();
        let possible = written..=written + again * PACKET.get();
        assert!(possible.contains(&delivered), "{delivered} of {possible:?}, flow {}", flow.0);
    }
    assert!(*station.correct.lock().unwrap());
}

#[test]
fn one_flow_serves_several_receivers() {
    let clock = Clock::start();
    let stations = [Station::anybody(clock), Station::anybody(clock)];
    let config = SenderConfig {
        packet: PACKET,
        max_ack_delay: Duration::from_millis(25),
        paced: false,
        ecn: false,
        recovery: LossRecovery::Rack,
        tcp: TcpOptions::default(),
    };
    let controller = find("block-window").unwrap().make(&Setup::new(PACKET, Time::ZERO), &toml::Table::new()).unwrap();
    let machine = FlowSender::new(config, controller, 2, Rng::stream(1, "controller"));
    let mut senders = senders(clock);
    let spec = FlowSpec::new(3, stations[0].address, machine);
    let flow = senders
        .open(FlowSpec { receivers: stations.each_ref().map(|station| station.address).into(), ..spec })
        .unwrap();
    for block in 0..20 {
        senders.write(flow, PeerId(block % 2), 16_384, block >= 18);
    }
    turn_until(&mut senders, |event| matches!(event, SenderEvent::Delivered { .. }));
    for station in stations {
        assert!(*station.correct.lock().unwrap());
        let (_, events) = station.end();
        assert!(events.iter().any(|event| matches!(event, ReceiverEvent::Completed { bytes: 163_840, .. })));
    }
}

#[test]
fn offsets_that_were_asked_for_are_reported_in_order_and_an_end_when_it_is_closed() {
    let clock = Clock::start();
    let mut senders = senders(clock);
    let key = FlowKey { port: 0, from: senders.local_addr(0).unwrap(), label: Label { connection: 1, receiver: 0 } };
    let station = Station::new(clock, ReceiverConfig::default(), |receivers| {
        assert!(receivers.expect(key, None));
        assert!(!receivers.expect(key, None), "it is expected already");
        for offset in [0, 50_000, 100_000] {
            receivers.notify_at(key, offset);
        }
    });
    let flow = senders.open(FlowSpec::new(1, station.address, sender("reno"))).unwrap();
    for _ in 0..2 {
        senders.write(flow, ME, 50_000, false);
        turn_until(&mut senders, |event| matches!(event, SenderEvent::Delivered { .. }));
    }
    senders.close(flow).unwrap();
    // The end has left; a stranger's first packet behind it is read after it.
    let (mut receivers, mut events) = station.end();
    while !events.iter().any(|event| matches!(event, ReceiverEvent::Closed { .. })) {
        receivers.turn(Time::MAX).unwrap();
        events.extend(std::iter::from_fn(|| receivers.poll_event()));
    }
    let reached: Vec<u64> = events
        .iter()
        .filter_map(|event| match event {
            ReceiverEvent::Reached { offset, .. } => Some(*offset),
            _ => None,
        })
        .collect();
    assert_eq!(reached, [0, 50_000, 100_000]);
    let Some(ReceiverEvent::Closed { report, .. }) = events.last() else { panic!("{events:?}") };
    assert_eq!((report.delivered, report.contiguous, report.completed), (100_000, 100_000, None));
}

#[test]
fn flows_beyond_the_most_are_refused_and_one_that_falls_silent_makes_room() {
    let clock = Clock::start();
    let config = ReceiverConfig {
        accept: Accept::Handshakes,
        max_flows: 1,
        patience: Some(Duration::from_millis(200)),
        ..ReceiverConfig::default()
    };
    let station = Station::new(clock, config, |_| ());
    let mut senders = senders(clock);
    let first = senders.open(FlowSpec::new(1, station.address, sender("reno"))).unwrap();
    turn_until(&mut senders, |event| matches!(event, SenderEvent::Established { flow, .. } if *flow == first));
    // Its first packets are refused until the other flow is forgotten.
    let second = senders.open(FlowSpec::new(2, station.address, sender("reno"))).unwrap();
    turn_until(&mut senders, |event| matches!(event, SenderEvent::Established { flow, .. } if *flow == second));
    let (receivers, events) = station.end();
    assert!(receivers.counters().flows_refused > 0);
    let silent =
        |event: &ReceiverEvent| matches!(event, ReceiverEvent::Silent { flow, .. } if flow.label.connection == 1);
    assert!(events.iter().any(silent), "{events:?}");
}

#[test]
fn marks_are_counted_and_reported_and_data_leaves_as_ecn_capable_if_asked() {
    let clock = Clock::start();
    let mut receivers =
        Receivers::new(clock, ReceiverConfig { accept: Accept::All, ..ReceiverConfig::default() }).unwrap();
    receivers.add_socket(socket()).unwrap();
    let plain = socket();
    // Congestion experienced (RFC 3168, 5).
    rustix::net::sockopt::set_ip_tos(&plain, 0b11).unwrap();
    let label = Label { connection: 4, receiver: 0 };
    let data = Data { length: 1, fin: true, ..Data::default() };
    let packet = [&wire::data_header(label, &data)[..], &[0]].concat();
    plain.send_to(&packet, receivers.local_addr(0).unwrap()).unwrap();
    let mut events = Vec::new();
    while !events.iter().any(|event| matches!(event, ReceiverEvent::Completed { .. })) {
        receivers.turn(Time::MAX).unwrap();
        events.extend(std::iter::from_fn(|| receivers.poll_event()));
    }
    let mut bytes = [0; 100];
    let length = plain.recv(&mut bytes).unwrap();
    let Ok((_, wire::Body::Ack(ack))) = wire::decode(&bytes[..length]) else { panic!("no ACK") };
    assert_eq!(ack.complete(1, 0).unwrap().ce_count, 1);

    let state = quinn_udp::UdpSocketState::new((&plain).into()).unwrap();
    plain.set_nonblocking(false).unwrap();
    for (ecn, seen) in [(true, Some(quinn_udp::EcnCodepoint::Ect0)), (false, None)] {
        let mut senders = senders(clock);
        let spec = FlowSpec::new(1, plain.local_addr().unwrap(), configured(build("reno"), ecn));
        let flow = senders.open(FlowSpec { handshake: false, ..spec }).unwrap();
        senders.write(flow, ME, 10, true);
        senders.turn(Time::ZERO).unwrap();
        let mut meta = [quinn_udp::RecvMeta::default()];
        let mut slices = [std::io::IoSliceMut::new(&mut bytes)];
        assert_eq!(state.recv((&plain).into(), &mut slices, &mut meta).unwrap(), 1);
        assert_eq!((meta[0].len, meta[0].ecn), (34, seen));
    }
}

#[test]
fn what_can_not_be_opened_says_why() {
    let mut senders = senders(Clock::start());
    let to = socket().local_addr().unwrap();
    let spec = || FlowSpec::new(1, to, sender("reno"));
    senders.open(spec()).unwrap();
    let refused = |spec: FlowSpec, senders: &mut Senders| senders.open(spec).unwrap_err();
    assert_eq!(refused(spec(), &mut senders), OpenError::InUse { connection: 1 });
    let other = || FlowSpec { connection: 2, ..spec() };
    assert_eq!(refused(FlowSpec { port: 1, ..other() }, &mut senders), OpenError::NoPort { port: 1 });
    let none = FlowSpec { receivers: vec![], ..other() };
    assert_eq!(refused(none, &mut senders), OpenError::Receivers { addresses: 0, served: 1 });
    let long = SenderConfig {
        packet: Bytes::new(65_500),
        max_ack_delay: Duration::ZERO,
        paced: false,
        ecn: false,
        recovery: LossRecovery::Rack,
        tcp: TcpOptions::default(),
    };
    let sender = FlowSender::new(long, Box::new(Closed), 1, Rng::stream(1, "controller"));
    let packet = Bytes::new(65_500);
    assert_eq!(refused(FlowSpec { sender, ..other() }, &mut senders), OpenError::PacketTooLong { packet });
}
