//! The paths of one sender's packets, by the guards and routes that users have.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use anabranch_control::rng::Rng;
use anabranch_control::time::Time;
use anabranch_onion::RelayIndex;
use anabranch_onion::guards::{Choice, GuardState, Guards};
use anabranch_onion::routes::{Fate, Half, Request, RouteId, Routes, RoutesConfig};
use anabranch_onion::size::MOST_HOPS;
use anabranch_scenario::onion::{Exit, Mode, OnionScenario};

use super::network::{Network, WALL};

/// After this many seconds a packet that has not come is lost.
const DEADLINE_S: f64 = 3.0;

/// One sender's paths.
pub struct Paths {
    guards: Choice,
    /// Chosen once; packets take one of them at random. None if each packet has its own.
    fixed: Vec<Vec<RelayIndex>>,
    routes: Routes,
    /// The last relay, if it is another one for each session alone.
    exit: Vec<RelayIndex>,
    /// The receiver's half, if it chooses one.
    far: Option<Routes>,
    rng: Rng,
    /// Whether anything is learned from outcomes.
    learns: bool,
    outcomes: BinaryHeap<Reverse<(Time, RouteId, Option<i64>)>>,
    path: Vec<RelayIndex>,
}

impl Paths {
    pub fn new(scenario: &OnionScenario, network: &Network, seed: u64, sender: u64) -> Paths {
        let overlay = &scenario.overlay;
        let mut rng = Rng::indexed(seed, "paths", sender);
        let draw = |count: u64, name: &str| {
            let mut rng = Rng::indexed(seed, name, sender);
            Guards::new(count as usize, GuardState::default()).choose(&network.document, Time::ZERO, WALL, &mut rng)
        };
        let guards = draw(overlay.guards, "guards");
        // Where the last relay is chosen apart, the routes are one hop shorter.
        let keeps_exit = overlay.mode == Mode::TwoLegs || overlay.exit == Exit::PerSession;
        let hops = overlay.hops as usize - usize::from(keeps_exit);
        let new = |hops, placement: &str, count: u64, guards: &Choice| {
            let config = RoutesConfig { hops, placement: placement.to_owned(), ..RoutesConfig::default() };
            Routes::new(config, &network.document, count as usize, guards.clone(), Time::ZERO)
                .expect("the scenario was checked")
        };
        let mut routes = new(hops, &overlay.placement, overlay.guards, &guards);
        // Blocks for replies were made before anybody knew what would be sent over them: the receiver
        // knows nothing of the sender's half, nor the sender of the receiver's.
        let far = (overlay.far_hops > 0).then(|| {
            new(overlay.far_hops as usize, "random", overlay.far_guards, &draw(overlay.far_guards, "far guards"))
        });
        let mut draw_path = |routes: &mut Routes, elsewhere: &[RelayIndex]| {
            let request = Request { half: Half::FromUser, elsewhere, far: 0 };
            let route = routes.choose(Time::ZERO, request, &mut rng).expect("there are relays enough");
            route.path.relays().to_vec()
        };
        // No guard of the sender is an exit of it.
        let middles = Choice { in_use: Vec::new(), ..guards.clone() };
        let exit = match keeps_exit {
            true => draw_path(&mut new(1, "random", 0, &middles), &[]),
            false => Vec::new(),
        };
        let fixed = match overlay.mode {
            Mode::PerPacket => Vec::new(),
            Mode::Circuit => vec![draw_path(&mut routes, &[])],
            Mode::TwoLegs => {
                let first = draw_path(&mut routes, &exit);
                let second = draw_path(&mut routes, &[&exit[..], &first[..]].concat());
                vec![[&first[..], &exit[..]].concat(), [&second[..], &exit[..]].concat()]
            }
        };
        Paths {
            guards,
            fixed,
            routes,
            exit,
            far,
            rng,
            learns: overlay.placement != "random" && overlay.mode == Mode::PerPacket,
            outcomes: BinaryHeap::new(),
            path: Vec::with_capacity(2 * MOST_HOPS),
        }
    }

    /// The relays by which its packets enter, if they are always the same.
    pub fn guards(&self) -> impl Iterator<Item = RelayIndex> + '_ {
        let of_circuits = self.fixed.iter().map(|path| path[0]);
        let of_packets = self.guards.in_use.iter().copied().filter(|_| self.fixed.is_empty());
        of_circuits.chain(of_packets)
    }

    /// The relays of a packet that leaves at `now`.
    pub fn choose(&mut self, now: Time) -> (&[RelayIndex], Option<RouteId>) {
        while let Some(&Reverse((at, id, one_way_nanos))) = self.outcomes.peek()
            && at <= now
        {
            self.outcomes.pop();
            let fate = match one_way_nanos {
                Some(nanos) => Fate::Arrived { one_way_nanos: Some(nanos) },
                None => Fate::Lost,
            };
            self.routes.on_outcome(id, at, fate, &mut self.rng);
        }
        self.path.clear();
        if !self.fixed.is_empty() {
            let leg = if self.fixed.len() == 1 { 0 } else { self.rng.below(self.fixed.len()) };
            self.path.extend_from_slice(&self.fixed[leg]);
            return (&self.path, None);
        }
        let request = Request { half: Half::FromUser, elsewhere: &self.exit, far: 0 };
        let route = self.routes.choose(now, request, &mut self.rng).expect("there are relays enough");
        self.path.extend_from_slice(route.path.relays());
        self.path.extend_from_slice(&self.exit);
        if let Some(far) = &mut self.far {
            let request = Request { half: Half::ToUser, ..request };
            let behind = far.choose(now, request, &mut self.rng).expect("there are relays enough");
            self.path.extend_from_slice(behind.path.relays());
            far.on_outcome(behind.id, now, Fate::Lost, &mut self.rng);
        }
        if !self.learns {
            self.routes.on_outcome(route.id, now, Fate::Lost, &mut self.rng);
        }
        (&self.path, self.learns.then_some(route.id))
    }

    /// The packet that left at `sent_at` has arrived, or has not.
    pub fn on_outcome(&mut self, route: Option<RouteId>, sent_at: Time, arrived: Option<Time>) {
        let Some(id) = route else { return };
        let deadline = sent_at + anabranch_control::time::Duration::from_secs_f64(DEADLINE_S);
        let outcome = match arrived {
            // Its ACK takes as long again.
            Some(at) => {
                let one_way = at.since(sent_at);
                (at + one_way, id, Some(one_way.as_nanos() as i64))
            }
            None => (deadline, id, None),
        };
        self.outcomes.push(Reverse(outcome));
    }
}
