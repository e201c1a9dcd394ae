//! One environment: a world of flows that is stepped, observed and rewarded.

use std::sync::Arc;

use anabranch_control::flow::PeerId;
use anabranch_control::rng::Rng;
use anabranch_control::time::Time;
use anabranch_control::units::Rate;
use anabranch_lab::flows::coordinator::lease;
use anabranch_lab::flows::{FlowRunError, FlowWorld};
use anabranch_scenario::flows::{FlowScenario, PacketSpec};
use anabranch_sim::network::LinkId;

use crate::action::MOST;
use crate::feature::{Feature, HostSeen, LinkSeen};
use crate::host::hosts;
use crate::reward::Terms;
use crate::spec::{Source, Spec, SpecError, longest_wait};
use crate::watcher::Watcher;

/// How an episode stands after a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ended {
    /// All flows have sent what they had: nothing that an agent does matters any more.
    pub terminated: bool,
    /// The scenario's time is over.
    pub truncated: bool,
}

impl Ended {
    /// Whether it has, either way.
    pub fn is_over(self) -> bool {
        self.terminated || self.truncated
    }
}

/// What had been counted when it was looked at last.
#[derive(Clone, Debug, Default)]
struct Counted {
    /// Of each host: data bytes acknowledged, packets sent and lost.
    hosts: Vec<(u64, u64, u64)>,
    /// Of the link: packets transmitted and dropped.
    link: (u64, u64),
    /// Bytes of cross traffic that arrived.
    cross: u64,
}

/// When cross traffic came and went, as far as it was measured.
#[derive(Clone, Copy, Debug, Default)]
struct CrossCourse {
    is_there: bool,
    /// Seconds.
    age: f64,
    on: f64,
    off: f64,
}

impl CrossCourse {
    /// A span of so many seconds in which it took `share` of the link.
    fn pass(&mut self, seconds: f64, share: f64) {
        let is_there = share > 0.0;
        if is_there != self.is_there {
            *(if is_there { &mut self.off } else { &mut self.on }) = self.age;
            (self.is_there, self.age) = (is_there, 0.0);
        }
        self.age += seconds;
    }
}

/// One environment.
#[derive(Clone, Debug)]
pub struct Session {
    spec: Arc<Spec>,
    scenario: Arc<FlowScenario>,
    world: FlowWorld<Watcher>,
    /// The flows of each host.
    hosts: Vec<Vec<usize>>,
    seed: u64,
    episode: u64,
    /// What exploring draws from.
    explorer: Rng,
    /// The relative rates in force; nothing before the first action.
    rates: Vec<f32>,
    counted: Counted,
    cross: CrossCourse,
    /// Its share of the link in the last step.
    crossed: f64,
    /// Observations, the newest last: as many as history and delay need.
    frames: Vec<f32>,
    /// What was seen of each host last.
    seen: Vec<HostSeen>,
    terms: Terms,
    ended: Ended,
}

impl Session {
    /// An environment before the first step of its first episode.
    ///
    /// # Errors
    ///
    /// What can't be, or can't be run.
    pub fn new(spec: Arc<Spec>, seed: u64) -> Result<Session, SpecError> {
        let scenario = spec.source.draw(&mut Rng::indexed(seed, "episode", 0));
        spec.check(&scenario)?;
        let hosts = hosts(&scenario, spec.link);
        let world = FlowWorld::watching(Arc::clone(&scenario), &[spec.link], Watcher::new(&scenario))?;
        let row = hosts.len() * spec.features.len();
        let mut session = Session {
            rates: vec![0.0; hosts.len()],
            frames: vec![0.0; row * (spec.history + spec.delay)],
            seen: vec![HostSeen::default(); hosts.len()],
            counted: Counted { hosts: vec![(0, 0, 0); hosts.len()], ..Counted::default() },
            cross: CrossCourse::default(),
            crossed: 0.0,
            terms: Terms::default(),
            ended: Ended::default(),
            episode: 0,
            explorer: Rng::stream(seed, "exploration"),
            hosts,
            world,
            scenario,
            seed,
            spec,
        };
        session.begin();
        Ok(session)
    }

    /// What it is.
    pub fn spec(&self) -> &Arc<Spec> {
        &self.spec
    }

    /// What the present episode runs.
    pub fn scenario(&self) -> &Arc<FlowScenario> {
        &self.scenario
    }

    /// How many hosts there are, which is how many numbers an action has.
    pub fn hosts(&self) -> usize {
        self.hosts.len()
    }

    /// How many numbers an observation has: hosts by features, for each observation in it.
    pub fn observation_len(&self) -> usize {
        self.frame_len() * self.spec.history
    }

    fn frame_len(&self) -> usize {
        self.hosts.len() * self.spec.features.len()
    }

    /// The time in the episode.
    pub fn now(&self) -> Time {
        self.world.now()
    }

    /// Begins an episode anew: the first of `seed`, or the next of the seed before.
    ///
    /// # Errors
    ///
    /// When a drawn scenario can't be run.
    pub fn reset(&mut self, seed: Option<u64>) -> Result<(), SpecError> {
        (self.seed, self.episode) = seed.map_or((self.seed, self.episode + 1), |seed| (seed, 0));
        match &self.spec.source {
            Source::Fixed(_) => {}
            Source::Drawn(_) => {
                let scenario = self.spec.source.draw(&mut Rng::indexed(self.seed, "episode", self.episode));
                self.spec.check(&scenario)?;
                let hosts = hosts(&scenario, self.spec.link);
                debug_assert_eq!(hosts.len(), self.hosts.len(), "all draws have the same hosts");
                let watcher = Watcher::new(&scenario);
                self.world = FlowWorld::watching(Arc::clone(&scenario), &[self.spec.link], watcher)?;
                (self.hosts, self.scenario) = (hosts, scenario);
            }
        }
        self.begin();
        Ok(())
    }

    /// At the beginning of an episode.
    fn begin(&mut self) {
        self.world.reset(Rng::indexed(self.seed, "world", self.episode).bits());
        self.world.observer_mut().reset();
        self.explorer = Rng::indexed(self.seed, "exploration", self.episode);
        self.rates.fill(0.0);
        self.frames.fill(0.0);
        self.seen.fill(HostSeen::default());
        self.counted.hosts.fill((0, 0, 0));
        (self.counted.link, self.counted.cross) = ((0, 0), 0);
        self.cross = CrossCourse::default();
        self.terms = Terms::default();
        self.ended = Ended::default();
        self.look();
    }

    /// The hosts have these relative rates from now on, from 0 to [`MOST`]; what lies beyond, or is no number, counts
    /// as the nearest, or 0. Then a span passes.
    ///
    /// # Errors
    ///
    /// When a controller can't go on. The episode is over then, as after its end: only [`Session::reset`] helps.
    ///
    /// # Panics
    ///
    /// When there are more or fewer rates than hosts.
    pub fn step(&mut self, rates: &[f32]) -> Result<Ended, FlowRunError> {
        assert_eq!(rates.len(), self.hosts.len(), "an action has a number for each host");
        if self.ended.is_over() {
            return Ok(self.ended);
        }
        for (held, &rate) in self.rates.iter_mut().zip(rates) {
            // `clamp` would let what is no number through.
            *held = if rate.is_nan() { 0.0 } else { rate.clamp(0.0, MOST) };
        }
        (0..self.hosts.len()).for_each(|host| self.direct(host));
        let end = Spec::end(&self.scenario).min(self.world.now() + self.spec.interval);
        if let Err(error) = self.advance(end) {
            self.ended.truncated = true;
            return Err(error);
        }
        self.look();
        let mut flows = self.hosts.iter().flatten();
        let terminated = flows.all(|&flow| self.world.source(flow).is_over());
        self.ended = Ended { terminated, truncated: end >= Spec::end(&self.scenario) };
        Ok(self.ended)
    }

    /// How the episode stands.
    pub fn ended(&self) -> Ended {
        self.ended
    }

    /// Lets everything happen before `end`; hosts whose flows change divide their rates anew.
    fn advance(&mut self, end: Time) -> Result<(), FlowRunError> {
        while !self.world.step_until_called(end, u64::MAX) {
            if let Some(error) = self.world.observer_mut().take_error(&self.scenario) {
                return Err(error);
            }
            while let Some(flow) = self.world.observer_mut().pop_changed() {
                if let Some(host) = self.hosts.iter().position(|flows| flows.contains(&flow)) {
                    self.direct(host);
                }
            }
        }
        Ok(())
    }

    /// A host divides its rate among its active flows.
    fn direct(&mut self, host: usize) {
        let Some(capacity) = self.world.network().rate(LinkId(self.spec.link as u32)) else { return };
        let active = self.hosts[host].iter().filter(|&&flow| self.world.source(flow).is_on()).count();
        if active == 0 {
            return;
        }
        let PacketSpec { data, header, .. } = self.scenario.packets;
        let data_share = data.get() as f64 / (data + header).get() as f64;
        let rate = capacity.bytes_per_sec() * data_share * f64::from(self.rates[host]) / active as f64;
        let rate = Rate::from_bytes_per_sec_f64(rate);
        let expires = self.world.now() + lease(self.spec.interval);
        for place in 0..self.hosts[host].len() {
            let flow = self.hosts[host][place];
            let Some(min_rtt) = self.world.sender(flow).and_then(|sender| sender.min_rtt(PeerId(0))) else { continue };
            self.world.set_bounds(flow, self.spec.actuator.bounds(rate, min_rtt, data, expires));
        }
    }

    /// Looks at what has happened since the last look.
    fn look(&mut self) {
        let seconds = self.spec.interval.as_secs_f64();
        let id = LinkId(self.spec.link as u32);
        let PacketSpec { data, header, .. } = self.scenario.packets;
        let full_packet = (data + header).get() as f64;
        let rate = self.world.network().rate(id).map_or(0.0, Rate::bytes_per_sec);
        let carries = rate * seconds;
        let share = |bytes: f64| if carries > 0.0 { bytes / carries } else { 0.0 };

        let count = self.world.network().count(id);
        let waits = self.world.network().backlog(id).as_secs_f64();
        let cross = self.scenario.cross_traffic.iter().enumerate();
        let arrived: u64 = cross.map(|(number, cross)| self.world.cross(number).1 * cross.packet.get()).sum();
        let (passed, dropped) = (count.packets - self.counted.link.0, count.dropped - self.counted.link.1);
        self.crossed = share((arrived - self.counted.cross) as f64);
        if self.world.now() > Time::ZERO {
            self.cross.pass(seconds, self.crossed);
        }
        let link = LinkSeen {
            queue: waits / longest_wait(&self.scenario.links[self.spec.link].queue, rate, full_packet),
            dropped: dropped as f64 / (passed + dropped).max(1) as f64,
            cross: self.crossed,
            cross_next: if self.spec.features.contains(&Feature::CrossNext) { self.cross_next() } else { 0.0 },
            cross_age: self.cross.age,
            cross_on: self.cross.on,
            cross_off: self.cross.off,
        };
        self.counted.link = (count.packets, count.dropped);
        self.counted.cross = arrived;

        for (host, flows) in self.hosts.iter().enumerate() {
            let (mut acked, mut sent, mut lost, mut active) = (0, 0, 0, 0);
            let (mut ratios, mut sampled) = (0.0, 0);
            for &flow in flows {
                let all = self.world.sent(flow);
                (acked, sent, lost) = (acked + all.acked_bytes, sent + all.packets, lost + all.lost);
                active += usize::from(self.world.source(flow).is_on());
                if let Some(rtt) = self.world.sender(flow).and_then(|sender| sender.metrics(PeerId(0)).rtt) {
                    ratios += rtt.smoothed.as_secs_f64() / rtt.min.as_secs_f64();
                    sampled += 1;
                }
            }
            let before = std::mem::replace(&mut self.counted.hosts[host], (acked, sent, lost));
            self.seen[host] = HostSeen {
                throughput: share((acked - before.0) as f64 * full_packet / data.get() as f64),
                active,
                rate: f64::from(self.rates[host]),
                round_trip: if sampled > 0 { ratios / f64::from(sampled) } else { 0.0 },
                loss: (lost - before.2) as f64 / (sent - before.1).max(1) as f64,
            };
        }
        self.terms = Terms::of(&link, &self.seen);

        let frame = self.frame_len();
        self.frames.rotate_left(frame);
        let newest = self.frames.len() - frame;
        let rows = self.frames[newest..].chunks_exact_mut(self.spec.features.len());
        for (row, host) in rows.zip(&self.seen) {
            for (value, feature) in row.iter_mut().zip(&self.spec.features) {
                *value = feature.value(&link, host);
            }
        }
    }

    /// Writes what is seen: the newest observation, which is `delay` steps old, host by host, then the one before
    /// it. What is before the episode is 0.
    ///
    /// # Panics
    ///
    /// When `into` has another length than [`Session::observation_len`].
    pub fn observe(&self, into: &mut [f32]) {
        assert_eq!(into.len(), self.observation_len(), "an observation has hosts x features x history numbers");
        let (frame, delay) = (self.frame_len(), self.spec.delay);
        for (age, part) in into.chunks_exact_mut(frame).enumerate() {
            let from = self.frames.len() - (age + delay + 1) * frame;
            part.copy_from_slice(&self.frames[from..from + frame]);
        }
    }

    /// The stream that an agent's exploring draws from: the same for the same seed and episode.
    pub fn explorer(&mut self) -> &mut Rng {
        &mut self.explorer
    }

    /// What was seen of each host last, without delay.
    pub fn seen(&self) -> &[HostSeen] {
        &self.seen
    }

    /// The last step's terms.
    pub fn terms(&self) -> Terms {
        self.terms
    }

    /// What the last step was worth.
    pub fn reward(&self) -> f32 {
        self.terms.reward(&self.spec.weights)
    }

    /// The world, to look at.
    pub fn world(&self) -> &FlowWorld<Watcher> {
        &self.world
    }

    /// Packets that the hosts' flows have sent in this episode.
    pub fn packets(&self) -> u64 {
        self.counted.hosts.iter().map(|&(_, sent, _)| sent).sum()
    }

    /// Cross traffic's share of the link in the last step.
    pub fn cross_share(&self) -> f64 {
        self.crossed
    }

    /// When the flows of a host begin.
    pub(crate) fn starts(&self, host: usize) -> impl Iterator<Item = Time> {
        self.hosts[host].iter().map(|&flow| self.scenario.flows[flow].start)
    }

    /// Cross traffic's share of the link in the step to come, as only an oracle knows it.
    pub(crate) fn cross_next(&mut self) -> f64 {
        let next = self.world.now() + self.spec.interval;
        let bytes: u64 =
            (0..self.scenario.cross_traffic.len()).map(|number| self.world.cross_to_come(number, next)).sum();
        let rate = self.world.network().rate(LinkId(self.spec.link as u32)).map_or(0.0, Rate::bytes_per_sec);
        let carries = rate * self.spec.interval.as_secs_f64();
        if carries > 0.0 { bytes as f64 / carries } else { 0.0 }
    }
}
