//! The emulator's loop: what is due in the model is written, what waits is read, and when
//! there is neither, the thread sleeps until there is.

use std::collections::HashMap;
use std::io;
use std::mem;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, Ordering};

use anabranch_control::time::{Duration, Time};
use anabranch_sim::network::{Event, LinkCount, LinkId, Network, TimerId};
use rustix::time::{ClockId, clock_gettime};

use super::ip::{self, Unfit};
use super::report::{Report, SourceReport};
use super::{Delivery, EmulatorConfig, Entry, Observer, Payload, Source, Way};
use crate::namespace::TestbedError;
use crate::realtime;
use crate::tun::Tun;
use anabranch_net::clock::{Clock, std_duration};
use anabranch_net::wait::Waiter;

/// Packets that are read from a device before another has its turn.
const BATCH: usize = 64;

/// This many devices are tried each time whether packets wait.
const FEW_DEVICES: usize = 4;

/// Longest sleep: so soon a stop is seen.
const LONGEST_SLEEP: Duration = Duration::from_millis(20);

/// A buffer holds no packet.
const NONE: u32 = u32::MAX;

/// What is remembered of a packet while the model carries it, by its number there. The
/// model says nothing when it drops a packet: that is seen when the number comes again.
#[derive(Debug)]
struct Slot {
    /// The place of its route in the configuration, or `NONE`.
    route: u32,
    length: usize,
    size: u32,
    bytes: Vec<u8>,
}

/// Something that happens at equal spans.
struct Span {
    interval: Duration,
    /// When it does next.
    at: Time,
}

pub struct Engine {
    clock: Clock,
    network: Network<Payload>,
    devices: Vec<Tun>,
    waiter: Waiter,
    /// At which devices packets may wait.
    readable: Vec<bool>,
    ways: HashMap<(Ipv4Addr, Ipv4Addr), Way>,
    /// The device that each route leads to.
    exits: Vec<usize>,
    sources: Vec<Box<dyn Source>>,
    observer: Option<Box<dyn Observer>>,
    /// When the model is sampled, and when it is looked at.
    spans: [Option<Span>; 2],
    slots: Vec<Slot>,
    /// The packet that is being read.
    scratch: Vec<u8>,
    longest: usize,
    limit: usize,
    spin: Duration,
    grain: Duration,
    /// When the thread last looked, or meant to be back from its sleep.
    back_by: Time,
    /// When the thread last woke up, and how long it had slept.
    woke_at: Time,
    slept: Duration,
    realtime: bool,
    report: Report,
    /// What links and sources had done when counting ended.
    counted: Option<Counted>,
}

type Counted = (Vec<LinkCount>, Vec<SourceReport>);

impl Engine {
    pub fn new(
        config: EmulatorConfig,
        ways: HashMap<(Ipv4Addr, Ipv4Addr), Way>,
        clock: Clock,
    ) -> Result<Engine, TestbedError> {
        let EmulatorConfig { network, seed, devices, routes, sources, observer, packets, .. } = config;
        let intervals = [config.sample_interval, config.look_interval];
        if intervals.contains(&Some(Duration::ZERO)) {
            return Err(TestbedError::Invalid("a sample interval of 0: it must be longer".into()));
        }
        let mut exits = vec![0; routes.len()];
        ways.values().for_each(|way| exits[way.place as usize] = way.to);
        let mut network = network.build(sources.len() + intervals.len(), seed);
        for (source, timer) in sources.iter().zip(0..) {
            network.set_timer(TimerId(timer), source.next_at());
        }
        for (place, _) in intervals.iter().enumerate().filter(|(_, interval)| interval.is_some()) {
            network.set_timer(TimerId((sources.len() + place) as u32), Time::ZERO);
        }
        let longest = devices.iter().map(|device| device.mtu() as usize).max().unwrap_or(0);
        let watch = || -> io::Result<Waiter> {
            let waiter = Waiter::new()?;
            devices.iter().enumerate().try_for_each(|(number, device)| waiter.watch(device, number))?;
            Ok(waiter)
        };
        let waiter = watch().map_err(TestbedError::system("watch the TUN devices"))?;
        Ok(Engine {
            clock,
            report: Report::new(routes.len(), devices.len(), sources.len(), false),
            network,
            waiter,
            readable: vec![true; devices.len()],
            devices,
            ways,
            exits,
            sources,
            observer,
            spans: intervals.map(|interval| interval.map(|interval| Span { interval, at: Time::ZERO })),
            slots: Vec::new(),
            scratch: vec![0; longest],
            longest,
            limit: packets,
            spin: config.spin,
            grain: config.grain,
            back_by: Time::ZERO,
            woke_at: Time::ZERO,
            slept: LONGEST_SLEEP,
            realtime: config.realtime,
            counted: None,
        })
    }

    /// Carries packets until `stop`, and counts what links and sources do until `over`.
    pub fn run(mut self, stop: &AtomicBool, over: &AtomicBool) -> Result<Report, TestbedError> {
        realtime::sleep_exactly();
        self.report.is_realtime = self.realtime && realtime::go_first();
        let before: Vec<u64> = self.overruns()?;
        let (began, busy_before) = (self.clock.now(), processor_time());
        self.back_by = began;
        while !stop.load(Ordering::Relaxed) {
            let now = self.back();
            self.advance(now);
            if over.load(Ordering::Relaxed) {
                self.end_counting();
            }
            if self.read()? == 0 {
                self.sleep()?;
            }
        }
        self.report.elapsed = self.clock.now().since(began);
        self.report.busy = processor_time() - busy_before;
        let after = self.overruns()?;
        for ((device, after), before) in self.report.devices.iter_mut().zip(after).zip(before) {
            device.overruns = after - before;
        }
        Ok(self.settle())
    }

    /// What time it is, and how much later the thread is back than it meant to.
    fn back(&mut self) -> Time {
        let now = self.clock.now();
        self.report.on_back(now.since(self.back_by));
        self.back_by = now;
        now
    }

    fn overruns(&mut self) -> Result<Vec<u64>, TestbedError> {
        let all: io::Result<_> = self.devices.iter_mut().map(Tun::overruns).collect();
        all.map_err(TestbedError::system("read a TUN device's counters"))
    }

    /// Lets the model do what is due before `now`.
    fn advance(&mut self, now: Time) {
        while let Some(event) = self.network.next(now) {
            match event {
                Event::Arrived => self.deliver(),
                Event::Timer(TimerId(timer)) => match self.sources.get_mut(timer as usize) {
                    Some(source) => {
                        let packet = source.take();
                        self.network.set_timer(TimerId(timer), source.next_at());
                        if self.has_room() {
                            self.report.sources[timer as usize].sent += 1;
                            let number = self.network.send_numbered(
                                packet.route,
                                packet.size,
                                packet.ecn_capable,
                                Payload::Model(timer),
                            );
                            self.slot(number);
                        }
                    }
                    None => self.look(timer as usize - self.sources.len()),
                },
            }
        }
    }

    /// The packet that has arrived in the model is written.
    fn deliver(&mut self) {
        let due = self.network.now();
        let packet = self.network.arrived();
        let route = match packet.payload {
            Payload::Real(route) => route,
            Payload::Model(source) => {
                self.report.sources[source as usize].arrived += 1;
                self.sources[source as usize].arrived();
                return;
            }
        };
        let slot = &mut self.slots[self.network.arrived_number() as usize];
        slot.route = NONE;
        let bytes = &mut slot.bytes[..slot.length];
        if packet.marked {
            ip::mark(bytes);
        }
        let exit = self.exits[route as usize];
        match self.devices[exit].write(bytes) {
            Ok(()) => self.report.devices[exit].written += 1,
            Err(_) => self.report.devices[exit].refused += 1,
        }
        let written_at = self.clock.now();
        self.report.lateness.saturating_record(written_at.since(due).as_nanos());
        let count = &mut self.report.routes[route as usize];
        count.delivered += 1;
        count.delivered_bytes += u64::from(slot.size);
        count.marked += u64::from(packet.marked);
        if let Some(observer) = &mut self.observer {
            observer.delivered(&Delivery {
                route: route as usize,
                entered_at: packet.sent_at,
                due,
                written_at,
                size: slot.size,
                is_marked: packet.marked,
                packet: bytes,
            });
        }
    }

    /// The span of that place is over.
    fn look(&mut self, place: usize) {
        if let (Some(observer), Some(span)) = (&mut self.observer, &mut self.spans[place]) {
            match place {
                0 => observer.sampled(span.at, &mut self.network),
                _ => observer.looked(span.at, &mut self.network),
            }
            span.at += span.interval;
            self.network.set_timer(TimerId((self.sources.len() + place) as u32), span.at);
        }
    }

    /// Reads what waits at the devices, a batch at most from each; how many packets.
    fn read(&mut self) -> Result<usize, TestbedError> {
        let mut all = 0;
        self.look_for_packets()?;
        for device in 0..self.devices.len() {
            if !self.readable[device] {
                continue;
            }
            for _ in 0..BATCH {
                match self.devices[device].read(&mut self.scratch) {
                    Ok(length) => {
                        all += 1;
                        self.enter(device, length);
                    }
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(TestbedError::system("read a TUN device")(error)),
                }
            }
        }
        Ok(all)
    }

    /// Finds out at which devices packets may wait: one question is cheaper than a try at each of many.
    fn look_for_packets(&mut self) -> Result<(), TestbedError> {
        if self.devices.len() > FEW_DEVICES {
            self.wait(Duration::ZERO)?;
        }
        Ok(())
    }

    /// A packet was read: it is offered to the model, after all that is due by now.
    fn enter(&mut self, device: usize, length: usize) {
        let now = self.clock.now();
        self.advance(now);
        let count = &mut self.report.devices[device];
        count.read += 1;
        let header = match ip::parse(&self.scratch[..length]) {
            Ok(header) => header,
            Err(Unfit::OtherVersion) => {
                count.other_version += 1;
                return;
            }
            Err(Unfit::Malformed) => {
                count.malformed += 1;
                return;
            }
        };
        let way = match self.ways.get(&(header.source, header.destination)) {
            Some(&way) if way.from == device => way,
            _ => {
                count.unroutable += 1;
                return;
            }
        };
        if !self.has_room() {
            return;
        }
        let size = (header.length as i64 + i64::from(way.extra_bytes)).clamp(1, i64::from(u32::MAX)) as u32;
        let count = &mut self.report.routes[way.place as usize];
        count.entered += 1;
        count.entered_bytes += u64::from(size);
        if let Some(observer) = &mut self.observer {
            let packet = &self.scratch[..header.length];
            observer.entered(&Entry { route: way.place as usize, at: now, size, packet });
        }
        let ecn_capable = header.ecn_capable && way.ecn;
        let number = self.network.send_numbered(way.route, size, ecn_capable, Payload::Real(way.place));
        self.slot(number);
        let slot = &mut self.slots[number as usize];
        (slot.route, slot.length, slot.size) = (way.place, header.length, size);
        mem::swap(&mut slot.bytes, &mut self.scratch);
        self.scratch.resize(self.longest, 0);
    }

    /// Whether another packet may set out; one that may not is counted.
    fn has_room(&mut self) -> bool {
        // Numbers are given again, so there are as many slots as packets were ever on their
        // way at once: most times that alone says that there is room.
        let has_room = self.slots.len() < self.limit || self.network.in_flight() < self.limit;
        self.report.overflows += u64::from(!has_room);
        has_room
    }

    /// Makes room for the packet of that number; the one that had it before is gone.
    fn slot(&mut self, number: u32) {
        let place = number as usize;
        if place >= self.slots.len() {
            self.slots.resize_with(place + 1, || Slot { route: NONE, length: 0, size: 0, bytes: Vec::new() });
        }
        let before = mem::replace(&mut self.slots[place].route, NONE);
        if before != NONE {
            self.report.routes[before as usize].gone += 1;
        }
    }

    /// Sleeps until something is due or a packet waits. When packets come one close upon the
    /// other, it sleeps for a grain of time whatever comes, and then serves many at once:
    /// setting a timer and waking up cost more than carrying a packet.
    fn sleep(&mut self) -> Result<(), TestbedError> {
        let now = self.back();
        let awake = now.since(self.woke_at);
        if self.slept < self.grain && awake < self.grain {
            self.back_by = now + (self.grain - awake);
            std::thread::sleep(std_duration(self.grain - awake));
        } else {
            let left = self.network.next_time().since(now);
            if left <= self.spin {
                return Ok(());
            }
            let longest = (left - self.spin).min(LONGEST_SLEEP);
            self.back_by = now + longest;
            self.wait(longest)?;
        }
        self.woke_at = self.clock.now();
        self.slept = self.woke_at.since(now);
        Ok(())
    }

    /// Waits until packets wait at a device, for `longest` at most.
    fn wait(&mut self, longest: Duration) -> Result<(), TestbedError> {
        let Engine { waiter, readable, devices, .. } = self;
        if devices.len() > FEW_DEVICES {
            readable.fill(false);
        }
        let waited = waiter.wait(Some(longest), |ready| readable[ready.number] = true);
        waited.map_err(TestbedError::system("wait for packets"))
    }

    /// What links and sources have done by now is what they did, if nothing was before.
    fn end_counting(&mut self) {
        let Engine { network, report, counted, .. } = self;
        counted.get_or_insert_with(|| {
            let links = (0..network.links() as u32).map(|link| network.count(LinkId(link)));
            (links.collect(), report.sources.clone())
        });
    }

    /// Tells packets that are on their way from those that are gone: the former arrive in
    /// the model once nothing new comes. One that a link of rate 0 holds for ever is gone.
    fn settle(mut self) -> Report {
        self.end_counting();
        (self.report.links, self.report.sources) = self.counted.take().expect("counting has ended");
        for timer in 0..=self.sources.len() as u32 {
            self.network.set_timer(TimerId(timer), Time::MAX);
        }
        while let Some(event) = self.network.next(Time::MAX) {
            if event == Event::Arrived
                && let Payload::Real(route) = self.network.arrived().payload
            {
                self.report.routes[route as usize].in_flight += 1;
                self.slots[self.network.arrived_number() as usize].route = NONE;
            }
        }
        for slot in self.slots.iter().filter(|slot| slot.route != NONE) {
            self.report.routes[slot.route as usize].gone += 1;
        }
        self.report
    }
}

fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::from_nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

#[cfg(test)]
mod tests {
    use anabranch_sim::loss::LossModel;
    use anabranch_sim::network::{Capacity, Jitter, LinkConfig, NetworkBuilder};
    use anabranch_sim::varying::Course;
    use etherparse::{IpNumber, Ipv4Header};
    use proptest::collection::vec;
    use proptest::prelude::{any, prop_assert, prop_assert_eq, proptest};

    use super::*;
    use crate::emulator::report::DeviceReport;

    const FROM: [u8; 4] = [10, 1, 0, 1];
    const TO: [u8; 4] = [10, 2, 0, 1];

    /// One with a route and no devices: nothing arrives before an hour is over.
    fn engine(extra_bytes: i32) -> Engine {
        let mut network = NetworkBuilder::new();
        let link = network.link(LinkConfig {
            name: "far".into(),
            rate: None,
            delay: Course::constant(Duration::SECOND * 3600),
            capacity: Capacity::Unlimited,
            discipline: None,
            loss: LossModel::None,
            jitter: Jitter::NONE,
        });
        let route = network.route(&[link]);
        let way = Way { place: 0, route, from: 0, to: 1, extra_bytes, ecn: true };
        let config = EmulatorConfig::new(network, 1, Vec::new(), Vec::new());
        let ways = HashMap::from([((FROM.into(), TO.into()), way)]);
        let mut engine =
            Engine::new(EmulatorConfig { packets: 8, ..config }, HashMap::new(), Clock::start()).expect("it is valid");
        engine.ways = ways;
        engine.exits = vec![1];
        engine.report = Report::new(1, 2, 0, false);
        engine.longest = 1500;
        engine
    }

    fn packet(source: [u8; 4], destination: [u8; 4], payload: usize) -> Vec<u8> {
        let header = Ipv4Header::new(payload as u16, 64, IpNumber::UDP, source, destination).expect("it fits");
        let mut bytes = header.to_bytes().to_vec();
        bytes.resize(20 + payload, 0);
        bytes
    }

    fn enter(engine: &mut Engine, device: usize, bytes: &[u8]) {
        engine.scratch = bytes.to_vec();
        engine.enter(device, bytes.len());
    }

    #[test]
    fn what_cannot_be_carried_is_counted_and_dropped() {
        let mut engine = engine(0);
        let good = packet(FROM, TO, 100);
        enter(&mut engine, 0, &good);
        enter(&mut engine, 1, &good);
        enter(&mut engine, 0, &packet(TO, FROM, 100));
        enter(&mut engine, 0, &good[..119]);
        enter(&mut engine, 0, &good[..10]);
        enter(&mut engine, 0, &[]);
        enter(&mut engine, 0, &[0x60; 40]);
        let counted = engine.report.devices[0];
        let expected =
            DeviceReport { read: 6, unroutable: 1, malformed: 3, other_version: 1, ..DeviceReport::default() };
        assert_eq!(counted, expected);
        assert_eq!((engine.report.devices[1].unroutable, engine.report.routes[0].entered), (1, 1));
        assert_eq!(engine.settle().routes[0].in_flight, 1);
    }

    #[test]
    fn a_packet_is_charged_its_length_and_a_constant_and_one_byte_at_least() {
        for (extra, charged) in [(0, 120), (38, 158), (-60, 60), (-500, 1), (i32::MIN, 1)] {
            let mut engine = engine(extra);
            enter(&mut engine, 0, &packet(FROM, TO, 100));
            assert_eq!(engine.report.routes[0].entered_bytes, charged);
        }
    }

    #[test]
    fn what_links_carry_once_counting_has_ended_is_not_counted() {
        let mut engine = engine(0);
        let good = packet(FROM, TO, 100);
        enter(&mut engine, 0, &good);
        engine.end_counting();
        enter(&mut engine, 0, &good);
        let report = engine.settle();
        assert_eq!((report.links[0].packets, report.routes[0].entered), (1, 2));
    }

    proptest! {
        #[test]
        fn hostile_bytes_never_panic_and_memory_stays_bounded(packets in vec(vec(any::<u8>(), 0..64), 0..64)) {
            let mut engine = engine(0);
            for bytes in &packets {
                enter(&mut engine, 0, bytes);
                let mut led = packet(FROM, TO, 0);
                led.extend(bytes);
                enter(&mut engine, 0, &led);
            }
            let DeviceReport { read, unroutable, other_version, malformed, .. } = engine.report.devices[0];
            let carried = engine.report.routes[0].entered;
            prop_assert_eq!(read, 2 * packets.len() as u64);
            prop_assert_eq!(read, carried + engine.report.overflows + unroutable + other_version + malformed);
            prop_assert_eq!(carried, 8.min(packets.len() as u64));
            prop_assert!(engine.slots.len() <= 8);
        }
    }
}
