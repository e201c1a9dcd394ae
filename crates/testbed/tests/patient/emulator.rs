//! Real packets between two namespaces. Where these can't be made, each test says so and
//! checks nothing.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::{Arc, Mutex};

use anabranch_control::rng::Rng;
use anabranch_control::time::{Duration, Time};
use anabranch_control::units::{Bytes, Rate};
use anabranch_net::clock::{Clock, std_duration};
use anabranch_sim::loss::LossModel;
use anabranch_sim::network::{
    Capacity, Discipline, Jitter, LinkConfig, LinkCount, LinkId, Network, NetworkBuilder, RouteId, Waiting,
};
use anabranch_sim::varying::Course;
use anabranch_testbed::emulator::{
    Delivery, Emulator, EmulatorConfig, ModelPacket, Observer, Payload, RouteConfig, Source, testbed_available,
};
use anabranch_testbed::namespace::Namespace;
use anabranch_testbed::tun::{Block, Tun, TunConfig};

const LEFT: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 7);
const RIGHT: Ipv4Addr = Ipv4Addr::new(10, 2, 3, 4);
/// Bytes of an IPv4 and a UDP header.
const HEADERS: usize = 28;

/// Whether tests can run; a plain message if not.
fn is_available() -> bool {
    match testbed_available() {
        Ok(()) => true,
        Err(reason) => {
            eprintln!("skipped: {reason}");
            false
        }
    }
}

fn link(name: &str) -> LinkConfig {
    LinkConfig {
        name: name.to_owned(),
        rate: None,
        delay: Course::constant(Duration::from_millis(20)),
        capacity: Capacity::Unlimited,
        discipline: None,
        loss: LossModel::None,
        jitter: Jitter::NONE,
    }
}

struct Pair {
    left: Namespace,
    right: Namespace,
}

impl Pair {
    /// Two namespaces with a link there and a link back.
    fn start(there: LinkConfig, change: impl FnOnce(&mut EmulatorConfig)) -> (Pair, Emulator, Clock) {
        let pair = Pair { left: Namespace::new().expect("a namespace"), right: Namespace::new().expect("a namespace") };
        let block = |a, b| Block::new(Ipv4Addr::new(a, b, 0, 0), 16).expect("a block");
        let devices = vec![
            Tun::open(&pair.left, TunConfig::new(block(10, 1))).expect("a device"),
            Tun::open(&pair.right, TunConfig::new(block(10, 2))).expect("a device"),
        ];
        let mut network = NetworkBuilder::new();
        let (there, back) = (network.link(there), network.link(link("back")));
        let (there, back) = (network.route(&[there]), network.route(&[back]));
        let routes = vec![
            RouteConfig { source: LEFT, destination: RIGHT, route: there, extra_bytes: 0, ecn: true },
            RouteConfig { source: RIGHT, destination: LEFT, route: back, extra_bytes: 0, ecn: true },
        ];
        let mut config = EmulatorConfig::new(network, 1, devices, routes);
        change(&mut config);
        let clock = Clock::start();
        let emulator = config.start(clock).expect("an emulator");
        (pair, emulator, clock)
    }

    fn sockets(&self) -> (UdpSocket, UdpSocket) {
        let bind = |namespace: &Namespace, address: Ipv4Addr| {
            let socket = namespace.run(|| UdpSocket::bind(SocketAddr::from((address, 5000)))).expect("it runs");
            let socket = socket.expect("every address of the block is local");
            socket.set_read_timeout(Some(std_duration(Duration::SECOND * 2))).expect("a timeout");
            socket
        };
        let (left, right) = (bind(&self.left, LEFT), bind(&self.right, RIGHT));
        left.connect((RIGHT, 5000)).expect("a route");
        right.connect((LEFT, 5000)).expect("a route");
        (left, right)
    }
}

#[test]
fn a_packet_and_its_answer_take_the_delay_of_the_model() {
    if !is_available() {
        return;
    }
    let (pair, emulator, clock) = Pair::start(link("there"), |_| {});
    let (left, right) = pair.sockets();
    let mut bytes = [0; 100];
    let sent = clock.now();
    left.send(b"question").expect("it leaves");
    let length = right.recv(&mut bytes).expect("it arrives");
    assert_eq!(&bytes[..length], b"question");
    let there = clock.now().since(sent);
    right.send(b"answer").expect("it leaves");
    assert_eq!(left.recv(&mut bytes).expect("it arrives"), 6);
    let there_and_back = clock.now().since(sent);
    assert!(there >= Duration::from_millis(20) && there < Duration::SECOND, "{there}");
    assert!(there_and_back >= Duration::from_millis(40) && there_and_back < Duration::SECOND, "{there_and_back}");
    let report = emulator.stop().expect("it worked");
    assert_eq!(report.routes.iter().map(|route| route.delivered).collect::<Vec<_>>(), [1, 1]);
    assert_eq!(report.routes[0].entered_bytes, 8 + HEADERS as u64);
    assert_eq!(report.lateness.len(), 2);
}

/// What arrives until nothing has for a while.
fn receive_all(socket: &UdpSocket) -> Vec<Vec<u8>> {
    let mut bytes = [0; 2000];
    std::iter::from_fn(|| socket.recv(&mut bytes).ok().map(|length| bytes[..length].to_vec())).collect()
}

#[test]
fn a_link_that_loses_all_lets_nothing_through() {
    if !is_available() {
        return;
    }
    let (pair, emulator, _) =
        Pair::start(LinkConfig { loss: LossModel::Random(Course::constant(1.0)), ..link("there") }, |_| {});
    let (left, right) = pair.sockets();
    for _ in 0..100 {
        left.send(&[0; 100]).expect("it leaves");
    }
    right.set_read_timeout(Some(std_duration(Duration::SECOND))).expect("a timeout");
    assert_eq!(receive_all(&right).len(), 0);
    let report = emulator.stop().expect("it worked");
    let there = report.routes[0];
    assert_eq!((there.entered, there.delivered, there.gone, there.in_flight), (100, 0, 100, 0));
    assert_eq!((report.links[0].lost, report.links[0].dropped), (100, 0));
    assert!(!report.warnings().iter().any(|warning| warning.contains("drop")), "losses of the model are none of ours");
}

#[test]
fn the_kernels_tcp_runs_over_it_and_is_no_faster_than_the_link() {
    if !is_available() {
        return;
    }
    let rate = Rate::from_bits_per_sec(20_000_000);
    let bottleneck =
        LinkConfig { rate: Some(Course::constant(rate)), capacity: Capacity::Packets(100), ..link("there") };
    let (pair, emulator, clock) = Pair::start(bottleneck, |_| {});
    let sent: Vec<u8> = (0..2_000_000u32).map(|number| (number % 251) as u8).collect();
    let listener = pair.right.run(|| TcpListener::bind((RIGHT, 80))).expect("it runs").expect("it is free");
    let accepting = std::thread::spawn(move || {
        let mut received = Vec::new();
        let (mut stream, from) = listener.accept().expect("somebody comes");
        stream.read_to_end(&mut received).expect("all comes");
        (received, from.ip())
    });
    let connect = || {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None)?;
        socket.bind(&SocketAddr::from((LEFT, 0)).into())?;
        socket.connect(&SocketAddr::from((RIGHT, 80)).into())?;
        Ok::<_, std::io::Error>(TcpStream::from(socket))
    };
    let began = clock.now();
    let mut stream = pair.left.run(connect).expect("it runs").expect("it is answered");
    stream.write_all(&sent).expect("it is taken");
    drop(stream);
    let (received, from) = accepting.join().expect("it received");
    let taken = clock.now().since(began);
    assert_eq!(from, LEFT);
    assert!(received == sent, "what was sent is what came");
    assert!(taken >= Bytes::new(sent.len() as u64) / rate, "{taken}");
    let report = emulator.stop().expect("it worked");
    assert!(report.routes[0].delivered_bytes > 2_000_000 && report.routes[1].delivered > 0);
    // A segment that is longer than the MTU would be cut off when it is read.
    assert_eq!((report.devices[0].malformed, report.devices[1].malformed), (0, 0));
}

/// What an emulator's thread has seen.
#[derive(Clone, Debug, Default)]
struct Seen(Arc<Mutex<Vec<(Time, Time, Time)>>>);

impl Observer for Seen {
    fn delivered(&mut self, delivery: &Delivery<'_>) {
        if delivery.route == 0 {
            let times = (delivery.entered_at, delivery.due, delivery.written_at);
            self.0.lock().expect("nobody panicked").push(times);
        }
    }
}

#[test]
fn packets_keep_their_order_and_none_is_early() {
    if !is_available() {
        return;
    }
    let seen = Seen::default();
    let rate = Some(Course::constant(Rate::from_bits_per_sec(10_000_000)));
    let (pair, emulator, _) =
        Pair::start(LinkConfig { rate, ..link("there") }, |config| config.observer = Some(Box::new(seen.clone())));
    let (left, right) = pair.sockets();
    let sent: Vec<Vec<u8>> = (0..200u32).map(|number| number.to_be_bytes().repeat(250)).collect();
    sent.iter().for_each(|bytes| assert_eq!(left.send(bytes).expect("it leaves"), 1000));
    assert_eq!(receive_all(&right), sent);
    let report = emulator.stop().expect("it worked");
    assert_eq!((report.routes[0].delivered, report.routes[0].gone), (200, 0));
    let seen = seen.0.lock().expect("nobody panicked");
    assert_eq!(seen.len(), 200);
    let transmission = Bytes::new(1000 + HEADERS as u64) / Rate::from_bits_per_sec(10_000_000);
    for &(entered, due, written) in seen.iter() {
        assert!(due >= entered + transmission + Duration::from_millis(20) && written >= due);
    }
    assert!(seen.windows(2).all(|pair| pair[1].1 >= pair[0].1 + transmission), "one after the other");
}

#[test]
fn a_link_carries_its_rate_and_drops_the_rest() {
    if !is_available() {
        return;
    }
    let rate = Rate::from_bits_per_sec(8_000_000);
    let bottleneck =
        || LinkConfig { rate: Some(Course::constant(rate)), capacity: Capacity::Packets(20), ..link("there") };
    let (pair, emulator, clock) = Pair::start(bottleneck(), |config| config.routes[0].extra_bytes = 100);
    let (left, right) = pair.sockets();
    // Twice the rate: a packet of 1000 B on the wire in every 0.5 ms, for 2 s.
    let began = clock.now();
    let sender = std::thread::spawn(move || {
        for number in 1..=4000u64 {
            left.send(&[0; 900 - HEADERS]).expect("it leaves");
            let due = began + Duration::from_nanos(500_000) * number;
            std::thread::sleep(std_duration(due.since(clock.now())));
        }
        clock.now().since(began)
    });
    right.set_read_timeout(Some(std_duration(Duration::SECOND))).expect("a timeout");
    let received = receive_all(&right).len() as u64;
    let sending = sender.join().expect("it sent");
    let report = emulator.stop().expect("it worked");
    let there = report.routes[0];
    // What the link can have carried while packets came, and then from its queue.
    let most = (rate * sending).get() / 1000 + 22;
    assert!(received <= most, "{received} of at most {most}");
    if there.entered == 4000 && sending < Duration::from_millis(2500) {
        assert!(received * 100 >= most * 80, "{received} of {most}");
        assert!(there.gone > 1000);
    }
    assert_eq!(there.delivered + there.gone, there.entered);
    assert_eq!((there.delivered, there.delivered_bytes), (received, received * 1000));
    let LinkCount { packets, dropped, .. } = report.links[0];
    assert_eq!((packets, dropped), (there.delivered, there.gone));
}

/// Marks what can be marked and lets one packet through at a time.
#[derive(Clone, Debug, Default)]
struct MarkAll(Vec<Waiting>);

impl Discipline for MarkAll {
    fn enqueue(&mut self, _: Time, packet: Waiting, _: &mut Vec<Waiting>, _: &mut Rng) {
        self.0.push(Waiting { marked: packet.marked || packet.ecn_capable, ..packet });
    }

    fn dequeue(&mut self, _: Time, _: &mut Vec<Waiting>) -> Option<Waiting> {
        (!self.0.is_empty()).then(|| self.0.remove(0))
    }

    fn bytes(&self) -> u64 {
        self.0.iter().map(|packet| u64::from(packet.size)).sum()
    }
}

/// The second byte of each delivered packet's header.
#[derive(Clone, Debug, Default)]
struct Marks(Arc<Mutex<Vec<(bool, u8)>>>);

impl Observer for Marks {
    fn delivered(&mut self, delivery: &Delivery<'_>) {
        self.0.lock().expect("nobody panicked").push((delivery.is_marked, delivery.packet[1]));
    }
}

#[test]
fn a_mark_of_the_model_is_put_into_the_header_of_packets_that_can_bear_it() {
    if !is_available() {
        return;
    }
    let marks = Marks::default();
    let (pair, emulator, _) =
        Pair::start(LinkConfig { discipline: Some(Box::new(MarkAll::default())), ..link("there") }, |config| {
            config.observer = Some(Box::new(marks.clone()))
        });
    let (left, right) = pair.sockets();
    for tos in [0, 0b01, 0b10, 0b11] {
        socket2::SockRef::from(&left).set_tos_v4(tos).expect("a type of service");
        left.send(&[0; 100]).expect("it leaves");
    }
    // The kernel checks the header's checksum, and would not hand on a packet with a wrong one.
    assert_eq!(receive_all(&right).len(), 4);
    let report = emulator.stop().expect("it worked");
    assert_eq!((report.routes[0].marked, report.links[0].marked), (3, 3));
    assert_eq!(*marks.0.lock().expect("nobody panicked"), [(false, 0), (true, 0b11), (true, 0b11), (true, 0b11)]);
}

/// A packet of 1000 B each millisecond.
struct Steady(Time, RouteId);

impl Source for Steady {
    fn next_at(&self) -> Time {
        self.0
    }

    fn take(&mut self) -> ModelPacket {
        self.0 += Duration::from_millis(1);
        ModelPacket { route: self.1, size: 1000, ecn_capable: false }
    }
}

/// When the model was looked at, and how much waited.
#[derive(Clone, Debug, Default)]
struct Samples(Arc<Mutex<Vec<(Time, Duration)>>>);

impl Observer for Samples {
    fn sampled(&mut self, now: Time, network: &mut Network<Payload>) {
        self.0.lock().expect("nobody panicked").push((now, network.backlog(LinkId(0))));
    }
}

#[test]
fn the_model_can_be_looked_at_at_even_times() {
    if !is_available() {
        return;
    }
    let samples = Samples::default();
    // A packet of 1000 B each millisecond over 4 Mbit/s: each one adds another to the queue.
    let rate = Some(Course::constant(Rate::from_bits_per_sec(4_000_000)));
    let (_pair, emulator, _) = Pair::start(LinkConfig { rate, ..link("there") }, |config| {
        config.sources.push(Box::new(Steady(Time::ZERO, RouteId(0))));
        config.observer = Some(Box::new(samples.clone()));
        config.sample_interval = Some(Duration::from_millis(10));
    });
    while samples.0.lock().expect("nobody panicked").len() < 5 {
        assert!(!emulator.has_ended());
        std::thread::sleep(std_duration(Duration::from_millis(10)));
    }
    emulator.stop().expect("it worked");
    for (&(at, backlog), number) in samples.0.lock().expect("nobody panicked").iter().zip(0..) {
        assert_eq!(at, Time::ZERO + Duration::from_millis(10) * number);
        // 10 packets came with 20 ms of work, 10 ms of which are done; the one of this very
        // instant came before.
        assert_eq!(backlog, Duration::from_millis(10 * number + 2));
    }
}

#[test]
fn packets_of_the_model_alone_use_links_and_no_device() {
    if !is_available() {
        return;
    }
    // The first route is the one there.
    let route = RouteId(0);
    let (pair, emulator, clock) = Pair::start(link("there"), |config| {
        config.sources.push(Box::new(Steady(Time::ZERO, route)));
    });
    let (left, right) = pair.sockets();
    left.send(b"real").expect("it leaves");
    assert_eq!(right.recv(&mut [0; 100]).expect("it arrives"), 4);
    let report = emulator.stop().expect("it worked");
    let now = clock.now().since(Time::ZERO);
    let cross = report.links[0].packets - 1;
    assert!(cross >= 20 && cross <= now.as_nanos() / 1_000_000 + 1, "{cross} in {now}");
    assert_eq!((report.routes[0].entered, report.routes[0].delivered), (1, 1));
    assert_eq!(report.devices[1].written, 1);
}

#[test]
fn packets_beyond_the_limit_are_dropped_and_the_emulator_says_so() {
    if !is_available() {
        return;
    }
    let slow = LinkConfig { delay: Course::constant(Duration::SECOND * 3600), ..link("there") };
    let (pair, emulator, _) = Pair::start(slow, |config| config.packets = 10);
    let (left, right) = pair.sockets();
    for _ in 0..30 {
        left.send(&[0; 100]).expect("it leaves");
    }
    right.set_read_timeout(Some(std_duration(Duration::SECOND))).expect("a timeout");
    assert_eq!(receive_all(&right).len(), 0);
    let report = emulator.stop().expect("it worked");
    assert_eq!((report.overflows, report.routes[0].entered, report.routes[0].in_flight), (20, 10, 10));
    assert!(report.is_saturated() && report.warnings().iter().any(|warning| warning.contains("buffer")));
}

#[test]
fn what_belongs_to_no_route_is_counted_and_dropped() {
    if !is_available() {
        return;
    }
    let (pair, emulator, _) = Pair::start(link("there"), |_| {});
    let (left, right) = pair.sockets();
    // From somebody without a route, to somebody without one, to somebody outside all blocks.
    let other = pair.left.run(|| UdpSocket::bind("10.1.0.9:0")).expect("it runs").expect("the address is local");
    for to in ["10.2.3.4:5000", "10.2.0.99:9", "192.0.2.1:9"] {
        other.send_to(b"whom?", to).expect("it leaves");
    }
    left.send(b"you").expect("it leaves");
    assert_eq!(receive_all(&right), [b"you"]);
    let report = emulator.stop().expect("it worked");
    assert_eq!((report.devices[0].unroutable, report.routes[0].entered), (3, 1));
}

#[test]
fn a_route_that_leads_nowhere_is_an_error() {
    if !is_available() {
        return;
    }
    let namespace = Namespace::new().expect("a namespace");
    let block = Block::new(Ipv4Addr::new(10, 1, 0, 0), 16).expect("a block");
    let start = |source, destination| {
        let mut network = NetworkBuilder::new();
        let there = network.link(link("there"));
        let route = network.route(&[there]);
        let devices = vec![Tun::open(&namespace, TunConfig::new(block)).expect("the last device is gone")];
        let routes = vec![RouteConfig { source, destination, route, extra_bytes: 0, ecn: true }];
        EmulatorConfig::new(network, 1, devices, routes)
            .start(Clock::start())
            .expect_err("it leads nowhere")
            .to_string()
    };
    assert!(start(LEFT, RIGHT).starts_with("10.2.3.4: in the block of no device"));
    assert!(start(LEFT, LEFT).contains("both behind one device"));
}

#[test]
fn a_namespace_has_variables_of_its_own() {
    if !is_available() {
        return;
    }
    let namespace = Namespace::new().expect("a namespace");
    let read = || std::fs::read_to_string("/proc/sys/net/ipv4/tcp_no_metrics_save");
    let outside = read().expect("it is there");
    let other = if outside.trim() == "0" { "1" } else { "0" };
    match namespace.set_variable("net.ipv4.tcp_no_metrics_save", other) {
        Ok(()) => assert_eq!(namespace.run(read).expect("it runs").expect("it is there").trim(), other),
        Err(error) => assert!(error.to_string().contains("tcp_no_metrics_save"), "{error}"),
    }
    assert_eq!(read().expect("it is there"), outside);
    assert!(namespace.set_variable("kernel.hostname", "x").is_err());
    assert!(namespace.set_variable("net.../kernel/hostname", "x").is_err());
}

/// Names of network devices that this process sees, and of its threads, and of namespaces
/// with a name.
fn traces() -> [Vec<String>; 3] {
    let list = |path: &str| -> Vec<String> {
        let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
        let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    };
    let threads = list("/proc/self/task").into_iter().filter_map(|thread| {
        let name = std::fs::read_to_string(format!("/proc/self/task/{thread}/comm")).ok()?;
        (name.trim() == "emulator").then_some(thread)
    });
    [list("/sys/class/net"), list("/run/netns"), threads.collect()]
}

#[test]
fn nothing_is_left_behind() {
    if !is_available() {
        return;
    }
    let before = traces();
    let (pair, emulator, _) = Pair::start(link("there"), |_| {});
    let _sockets = pair.sockets();
    let inside = pair.left.run(|| std::fs::read_link("/proc/thread-self/ns/net")).expect("it runs").expect("a link");
    assert_ne!(inside, std::fs::read_link("/proc/self/ns/net").expect("a link"));
    let [devices, namespaces, _] = traces();
    assert_eq!((&devices, &namespaces), (&before[0], &before[1]), "no device here, and no name");
    emulator.stop().expect("it worked");
    drop(pair);
    let [devices, namespaces, _] = traces();
    assert_eq!((&devices, &namespaces), (&before[0], &before[1]));
}
