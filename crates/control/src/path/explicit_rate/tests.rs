use super::*;
use crate::path::Stamp;
use crate::path::setup::{Pacing, Setup};
use crate::rtt::{PairRtts, RttConfig};

const SETUP: Setup = Setup { peers: 6, packet: Bytes::new(1500), start: Time::ZERO, pacing: Pacing::Burst };

/// The controller, its clock, and relays that grant this many packets a second, lose a share, and
/// may stamp nothing.
struct Overlay {
    controller: Box<dyn PathController>,
    rng: Rng,
    rtts: PairRtts,
    now: Time,
    /// Packets go to these in turn.
    destinations: Vec<Slot>,
}

struct Packet {
    sent_at: Time,
    destination: Slot,
    path: [Hop; 2],
    outcome: Outcome,
}

/// Who receives relays as the first one does.
fn relay(hop: Hop) -> usize {
    hop.slot.index() % 5
}

impl Overlay {
    fn new(parameters: &str) -> Overlay {
        let controller = build(&parameters.parse().unwrap()).unwrap()(&SETUP);
        let rtts = PairRtts::new(&RttConfig::default(), 6);
        Overlay { controller, rng: Rng::stream(1, "overlay"), rtts, now: Time::ZERO, destinations: vec![Slot(5)] }
    }

    /// An ACK comes after 100 ms; that none does is known after 300.
    fn run(&mut self, seconds: f64, grants: [Option<f32>; 5], loses: [f64; 5]) {
        let end = self.now + Duration::from_secs_f64(seconds);
        let mut under_way: Vec<(Time, Packet)> = Vec::new();
        while self.now < end {
            let next = under_way.iter().map(|&(due, _)| due).min();
            if next.is_some_and(|due| due <= self.now) {
                let first = under_way.iter().position(|&(due, _)| Some(due) == next).unwrap();
                let (due, packet) = under_way.remove(first);
                self.outcome(due, &packet, grants);
                continue;
            }
            let (destination, mut path) = (self.destinations[0], [Hop::default(); 2]);
            if !self.controller.select(self.now, destination, SETUP.packet, &mut path, &mut self.rng) {
                let wake = self.controller.wake(self.now).time(self.now);
                self.now = next.map_or(wake, |due| due.min(wake));
                continue;
            }
            self.destinations.rotate_left(1);
            let lost = path.map(|hop| self.rng.chance(loses[relay(hop)])).contains(&true);
            let outcome = if lost { Outcome::TimedOut } else { Outcome::Acked };
            let after = Duration::from_millis(if lost { 300 } else { 100 });
            under_way.push((self.now + after, Packet { sent_at: self.now, destination, path, outcome }));
        }
    }

    fn outcome(&mut self, now: Time, packet: &Packet, grants: [Option<f32>; 5]) {
        let Packet { sent_at, destination, path, outcome } = packet;
        let stamps = path.map(|hop| grants[relay(hop)].map_or(Stamp::NONE, |rate| Stamp::granting(1500.0 * rate)));
        let stamps = if *outcome == Outcome::Acked { &stamps[..] } else { &[] };
        let base = Report::of(*outcome, path, &self.rtts);
        let report = Report { now, sent_at: *sent_at, destination: *destination, stamps, ..base };
        self.controller.on_outcome(&report, &mut self.rng);
    }

    fn traced(&self, relay: u16, key: &str) -> f64 {
        let mut found = f64::NAN;
        self.controller.trace(Slot(relay), &mut |name, value| {
            if name == key {
                found = value
            }
        });
        found
    }

    fn rates(&self) -> Vec<f64> {
        (0..5).map(|relay| self.controller.rate(Slot(relay)).unwrap().bytes_per_sec() / 1500.0).collect()
    }
}

#[test]
fn a_rate_is_what_the_relay_grants() {
    let mut overlay = Overlay::new("");
    overlay.run(5.0, [Some(10.0), Some(20.0), Some(30.0), Some(40.0), Some(50.0)], [0.0; 5]);
    assert_eq!(overlay.rates(), [10.0, 20.0, 30.0, 40.0, 50.0]);
}

#[test]
fn what_half_of_the_relays_grant_is_believed_of_all_once_it_is_known() {
    let mut overlay = Overlay::new("");
    let grants = [1000.0, 2000.0, 3000.0, 1e6];
    for (index, grant) in grants.into_iter().enumerate() {
        let before = overlay.rates();
        assert!(before[..index].iter().all(|&rate| rate < 200.0), "step by step before: {before:?}");
        let path = [Hop { slot: Slot(index as u16), ..Hop::default() }];
        let stamps = [Stamp::granting(1500.0 * grant)];
        let base = Report::of(Outcome::Acked, &path, &overlay.rtts);
        let now = overlay.now + Duration::from_millis(100);
        let report = Report { now, sent_at: overlay.now, destination: Slot(5), stamps: &stamps, ..base };
        overlay.controller.on_outcome(&report, &mut overlay.rng);
    }
    // Of four, the third is in the middle. Who claims a million has shown nothing yet, and the fifth has not said.
    assert_eq!(overlay.rates(), [1000.0, 2000.0, 3000.0, 3000.0, LEAST.0]);
}

#[test]
fn a_relay_that_drops_is_set_aside_named_and_taken_back_once_it_has_mended() {
    let mut overlay = Overlay::new("");
    let grants = [Some(20.0); 5];
    // One ACK in ten takes it back, and it is judged anew.
    overlay.run(20.0, grants, [0.0, 0.0, 0.9, 0.0, 0.0]);
    assert_eq!((overlay.traced(2, "set_aside"), overlay.traced(1, "set_aside")), (1.0, 0.0));
    assert_eq!([1, 2].map(|relay| overlay.traced(relay, "misbehaves")), [0.0, 1.0]);
    assert_eq!(overlay.rates()[2], LEAST.0);
    let losses = [1, 2].map(|relay| overlay.traced(relay, "loss"));
    assert!(losses[1] > 0.2 && losses[0] < 0.1, "{losses:?}");
    overlay.run(30.0, grants, [0.0; 5]);
    assert_eq!((overlay.traced(2, "set_aside"), overlay.rates()[2]), (0.0, 20.0));
    let mut letter = Overlay::new("sets_aside = false");
    letter.run(10.0, grants, [0.0, 0.0, 0.9, 0.0, 0.0]);
    assert_eq!(letter.traced(2, "set_aside"), 0.0);
}

#[test]
fn a_relay_over_which_nothing_comes_is_asked_more_often_until_it_is_set_aside() {
    let mut overlay = Overlay::new("");
    let (grants, loses) = ([Some(20.0); 5], [0.0, 0.0, 1.0, 0.0, 0.0]);
    overlay.run(1.0, grants, loses);
    assert_eq!((overlay.rates()[2], overlay.traced(2, "set_aside")), (DOUBTED.0, 0.0));
    overlay.run(4.0, grants, loses);
    assert_eq!((overlay.rates()[2], overlay.traced(2, "set_aside")), (LEAST.0, 1.0));
}

#[test]
fn a_relay_that_falls_silent_has_died_unless_it_may_refuse_what_goes_to_several_destinations() {
    let loses = [0.0, 0.0, 1.0, 0.0, 0.0];
    for (granted, destinations, dies) in
        [(Some(20.0), vec![5], 1.0), (Some(20.0), vec![5, 0], 1.0), (None, vec![5], 1.0), (None, vec![5, 0], 0.0)]
    {
        let grants = [Some(20.0), Some(20.0), granted, Some(20.0), Some(20.0)];
        // Else it would be set aside for the share that it loses.
        let mut overlay = Overlay::new("tolerated_loss = 0.9");
        overlay.destinations = destinations.iter().copied().map(Slot).collect();
        overlay.run(2.0, grants, [0.0; 5]);
        overlay.run(4.0, grants, loses);
        let is_aside = overlay.traced(2, "set_aside");
        assert_eq!(is_aside, dies, "{destinations:?}, {granted:?}");
    }
}

#[test]
fn loss_on_every_path_alike_sets_nobody_aside() {
    let mut overlay = Overlay::new("");
    overlay.run(60.0, [Some(20.0); 5], [0.05; 5]);
    assert_eq!(overlay.rates(), [20.0; 5]);
}

#[test]
fn a_relay_that_stamps_nothing_gets_what_loss_allows() {
    let mut overlay = Overlay::new("");
    overlay.run(1.5, [Some(20.0), None, Some(20.0), None, Some(20.0)], [0.0; 5]);
    let rates = overlay.rates();
    assert!(rates[1] > 20.0 && rates[3] > 20.0 && rates[0] == 20.0, "{rates:?}");
    let mut blind = Overlay::new("stamps = false");
    blind.run(1.5, [Some(20.0); 5], [0.0; 5]);
    assert!(blind.rates().iter().all(|&rate| rate > 20.0), "{:?}", blind.rates());
}

#[test]
fn one_stamp_that_is_out_of_line_changes_nothing_and_two_do() {
    let mut relay = Relay::new(Time::ZERO);
    relay.on_stamp(Some(PacketRate(10.0)), true);
    relay.on_stamp(Some(PacketRate(1000.0)), true);
    assert_eq!(relay.granted(), Some(PacketRate(10.0)));
    relay.on_stamp(Some(PacketRate(11.0)), true);
    relay.on_stamp(Some(PacketRate(1.0)), true);
    assert_eq!(relay.granted(), Some(PacketRate(11.0)));
    relay.on_stamp(Some(PacketRate(1.0)), true);
    assert_eq!(relay.granted(), Some(PacketRate(1.0)));
    (0..UNSTAMPED).for_each(|_| relay.on_stamp(None, true));
    assert_eq!(relay.granted(), None);
}
