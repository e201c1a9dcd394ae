//! One environment: a world of flows that is stepped, observed and rewarded.

use std::sync::Arc;

use anabranch_control::rng::Rng;
use anabranch_control::time::{Duration, Time};
use anabranch_control::units::Rate;
use anabranch_lab::flows::view::View;
use anabranch_lab::flows::{FlowRunError, FlowWorld};
use anabranch_scenario::flows::FlowScenario;
use anabranch_scenario::policy::feature::{HostSeen, LinkSeen};
use anabranch_sim::network::LinkId;

use crate::reward::Terms;
use crate::spec::{Source, Spec, SpecError};
use crate::steps::{Ended, Steps};
use crate::watcher::Watcher;

/// One environment.
#[derive(Clone, Debug)]
pub struct Session {
    spec: Arc<Spec>,
    scenario: Arc<FlowScenario>,
    world: FlowWorld<Watcher>,
    view: View,
    seed: u64,
    episode: u64,
    /// What exploring draws from.
    explorer: Rng,
    terms: Terms,
    /// Of the transfers that have ended in this step, the sum of what each would have taken alone over what it took.
    completed: f64,
    /// Bytes of each flow that were acknowledged when its last transfer ended.
    acked: Vec<u64>,
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
        let world = FlowWorld::watching(Arc::clone(&scenario), &[spec.link], Watcher::new(&scenario))?;
        let mut session = Session {
            view: View::new(spec.sight(), &scenario),
            terms: Terms::default(),
            completed: 0.0,
            acked: vec![0; scenario.flows.len()],
            ended: Ended::default(),
            episode: 0,
            explorer: Rng::stream(seed, "exploration"),
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

    /// How many hosts, or sub-domains, are directed, which is how many numbers an action has.
    pub fn hosts(&self) -> usize {
        self.view.agents().len()
    }

    /// How many numbers an observation has: hosts by features, for each observation in it.
    pub fn observation_len(&self) -> usize {
        self.view.observation_len()
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
                let view = View::new(self.spec.sight(), &scenario);
                debug_assert_eq!(view.agents(), self.view.agents(), "all draws have the same hosts");
                let watcher = Watcher::new(&scenario);
                self.world = FlowWorld::watching(Arc::clone(&scenario), &[self.spec.link], watcher)?;
                (self.view, self.scenario) = (view, scenario);
            }
        }
        self.begin();
        Ok(())
    }

    /// At the beginning of an episode.
    fn begin(&mut self) {
        // A scenario's first episode is what `anabranch run` with this seed runs.
        let seed = match self.episode {
            0 => self.seed,
            episode => Rng::indexed(self.seed, "world", episode).bits(),
        };
        self.world.reset(seed);
        self.world.observer_mut().reset();
        self.explorer = Rng::indexed(self.seed, "exploration", self.episode);
        self.view.reset();
        self.terms = Terms::default();
        self.completed = 0.0;
        self.acked.clear();
        self.acked.resize(self.scenario.flows.len(), 0);
        self.ended = Ended::default();
        self.look();
    }

    /// The hosts have these relative rates from now on, from 0 to the actuator's most; what lies beyond, or is no number, counts
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
        assert_eq!(rates.len(), self.hosts(), "an action has a number for each host");
        if self.ended.is_over() {
            return Ok(self.ended);
        }
        self.view.direct(rates, &mut self.world);
        self.pass()
    }

    /// A span passes in which nobody is directed: a coordinator that has said nothing yet leaves its flows to their
    /// controllers.
    ///
    /// # Errors
    ///
    /// As of [`Session::step`].
    pub fn step_undirected(&mut self) -> Result<Ended, FlowRunError> {
        if self.ended.is_over() { Ok(self.ended) } else { self.pass() }
    }

    fn pass(&mut self) -> Result<Ended, FlowRunError> {
        let end = Spec::end(&self.scenario).min(self.world.now() + self.spec.interval);
        loop {
            let stop = self.view.divides().min(end);
            if let Err(error) = self.advance(stop) {
                self.ended.truncated = true;
                return Err(error);
            }
            if stop == end {
                break;
            }
            self.view.divide(&mut self.world);
        }
        self.look();
        let mut flows = self.view.hosts().iter().flatten();
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
            while let Some((flow, took)) = self.world.observer_mut().pop_finished() {
                self.on_finished(flow, took);
            }
            while let Some(flow) = self.world.observer_mut().pop_changed() {
                self.view.on_changed(flow, &mut self.world);
            }
        }
        Ok(())
    }

    /// A transfer has ended, of which all has been acknowledged.
    fn on_finished(&mut self, flow: usize, took: Duration) {
        if !self.view.hosts().iter().flatten().any(|&of_host| of_host == flow) {
            return;
        }
        let acked = self.world.sent(flow).acked_bytes;
        let bytes = acked - std::mem::replace(&mut self.acked[flow], acked);
        self.completed += self.alone(flow, bytes).as_secs_f64() / took.as_secs_f64();
    }

    /// What a transfer of a flow would take if the link were its own, and its first window held all of it:
    ///
    /// ```text
    /// trips * (propagation there and back) + its packets / the link's rate       trips: 1, and 1 for a handshake
    /// ```
    ///
    /// Nothing is faster: what other links take to transmit comes on top.
    pub fn alone(&mut self, flow: usize, bytes: u64) -> Duration {
        let Session { scenario, world, spec, .. } = self;
        let (flow, packets) = (&scenario.flows[flow], &scenario.packets);
        let receiver = &flow.receivers[0];
        let links = receiver.there.iter().chain(&receiver.back);
        let round_trip: f64 = links.map(|&link| scenario.links[link].delay.first.as_secs_f64()).sum();
        let on_wire = bytes + bytes.div_ceil(packets.data.get()) * packets.header.get();
        let rate = world.network().rate(LinkId(spec.link as u32)).map_or(f64::INFINITY, Rate::bytes_per_sec);
        let trips = 1.0 + f64::from(u8::from(flow.handshake));
        Duration::from_secs_f64(trips * round_trip + on_wire as f64 / rate)
    }

    /// Looks at what has happened since the last look.
    fn look(&mut self) {
        self.view.look(&mut self.world);
        let (link, hosts, agents) = (self.view.link(), self.view.seen(), self.view.of_agents());
        self.terms = Terms::of(link, hosts, agents, std::mem::take(&mut self.completed));
    }

    /// Writes what is seen: the newest observation, which is `delay` steps old, host by host, then the one before
    /// it. What is before the episode is 0.
    ///
    /// # Panics
    ///
    /// When `into` has another length than [`Session::observation_len`].
    pub fn observe(&self, into: &mut [f32]) {
        self.view.observe(into);
    }

    /// The stream that an agent's exploring draws from: the same for the same seed and episode.
    pub fn explorer(&mut self) -> &mut Rng {
        &mut self.explorer
    }

    /// What was seen of each host last, without delay.
    pub fn seen(&self) -> &[HostSeen] {
        self.view.seen()
    }

    /// The same of each that is directed: hosts, or sub-domains.
    pub fn of_agents(&self) -> &[HostSeen] {
        self.view.of_agents()
    }

    /// How many of an agent's hosts had something to send when it was looked last.
    pub fn active_hosts(&self, agent: usize) -> usize {
        self.view.agents()[agent].iter().filter(|&&host| self.view.seen()[host].active > 0).count()
    }

    /// What was seen of the link last, without delay.
    pub fn link(&self) -> &LinkSeen {
        self.view.link()
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
        self.view.packets()
    }

    /// Cross traffic's share of the link in the last step.
    pub fn cross_share(&self) -> f64 {
        self.view.link().cross
    }

    /// The same of the step that begins `late` steps from now, if cross traffic comes and goes as the last time.
    pub fn cross_expected(&self, late: usize) -> f64 {
        self.view.cross_expected(late)
    }

    /// How many hosts of an agent that send nothing now begin from `now` on and before `next`, as only an oracle knows it.
    pub(crate) fn beginning(&self, agent: usize, now: Time, next: Time) -> usize {
        let starts = |host: usize| self.view.hosts()[host].iter().map(|&flow| self.scenario.flows[flow].start);
        let begins = |host: usize| starts(host).any(|start| start >= now && start < next);
        let idle = self.view.agents()[agent].iter().filter(|&&host| self.view.seen()[host].active == 0);
        idle.filter(|&&host| begins(host)).count()
    }

    /// How many flows of a host do.
    pub(crate) fn beginning_flows(&self, host: usize, now: Time, next: Time) -> usize {
        let starts = self.view.hosts()[host].iter().map(|&flow| self.scenario.flows[flow].start);
        starts.filter(|&start| start >= now && start < next).count()
    }

    /// Packets that the link carries in the propagation there and back of a host's first flow, as only an oracle knows it
    /// before anything was sent.
    pub(crate) fn true_pipe(&mut self, host: usize) -> f64 {
        let Session { scenario, world, spec, view, .. } = self;
        let receiver = &scenario.flows[view.hosts()[host][0]].receivers[0];
        let links = receiver.there.iter().chain(&receiver.back);
        let round_trip: f64 = links.map(|&link| scenario.links[link].delay.first.as_secs_f64()).sum();
        let rate = world.network().rate(LinkId(spec.link as u32)).map_or(0.0, Rate::bytes_per_sec);
        rate * round_trip / (scenario.packets.data + scenario.packets.header).get() as f64
    }

    /// Cross traffic's share of the link in the step to come, as only an oracle knows it.
    pub(crate) fn cross_next(&mut self) -> f64 {
        self.view.cross_next(&mut self.world)
    }
}

impl Steps for Session {
    fn action_len(&self) -> usize {
        self.hosts()
    }

    fn observation_len(&self) -> usize {
        Session::observation_len(self)
    }

    fn terms_len(&self) -> usize {
        Terms::NAMES.len()
    }

    fn reset(&mut self, seed: Option<u64>) -> Result<(), SpecError> {
        Session::reset(self, seed)
    }

    fn step(&mut self, action: &[f32]) -> Result<Ended, FlowRunError> {
        Session::step(self, action)
    }

    fn ended(&self) -> Ended {
        Session::ended(self)
    }

    fn observe(&self, into: &mut [f32]) {
        Session::observe(self, into);
    }

    fn reward(&self) -> f32 {
        Session::reward(self)
    }

    fn write_terms(&self, into: &mut [f32]) {
        into.copy_from_slice(&self.terms.values());
    }
}
