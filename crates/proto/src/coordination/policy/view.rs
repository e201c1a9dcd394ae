//! What a coordinator that has learned, or is learning, sees of hosts and their link, and what it directs: one code for
//! environments, runs, real packets and real hosts, so that a policy sees in all the same.
//!
//! What is directed is for agents: hosts, or sub-domains of hosts. A sub-domain has a coordinator of its own, by the
//! rule: it divides what it was directed evenly among those of its hosts that are active, each [`BELOW`]. As often,
//! sub-domains tell each other how many those are, or that there are none, where what they were directed depends on it
//! ([`Actuator::Share`], [`Actuator::Lent`]).

use anabranch_control::time::{Duration, Time};

use super::cross_course::CrossCourse;
use super::feature::{HostSeen, LinkSeen};
use super::{Actuator, Agents, Feature, Sight};

/// Between two divisions of what agents were directed, where that is not for good: within sub-domains, and of what the
/// idle lend. It is the interval of a coordinator of hosts.
const BELOW: Duration = Duration::from_millis(100);

/// What a link did in a span.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LinkSpan {
    /// How long the span is, in seconds.
    pub seconds: f64,
    /// What the link transmits, in bytes a second; 0 if a packet takes no time.
    pub rate: f64,
    /// How long a packet would wait for it at the span's end, in seconds.
    pub waits: f64,
    /// The longest wait that its queue allows, in seconds.
    pub longest_wait: f64,
    /// Packets that it has transmitted.
    pub passed: f64,
    /// Packets that found no room.
    pub dropped: f64,
    /// Bytes of others than the hosts that have passed over it.
    pub crossed: f64,
    /// The share of it that they will take in the next span, where that can be known.
    pub cross_next: f64,
}

/// What a host did in a span.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HostSpan {
    /// Bytes of its data that were acknowledged; with headers they are `on_wire` times as many.
    pub acked: f64,
    /// Packets that it has sent, or bytes.
    pub sent: f64,
    /// Of these, those that it found to be lost.
    pub lost: f64,
    /// Flows that have something to send.
    pub active: usize,
    /// The sum of its flows' mean round trips, each over its least.
    pub ratios: f64,
    /// Of how many that is.
    pub sampled: u32,
    /// The least round trip, in seconds.
    pub least: f64,
}

impl Default for HostSpan {
    fn default() -> HostSpan {
        HostSpan { acked: 0.0, sent: 0.0, lost: 0.0, active: 0, ratios: 0.0, sampled: 0, least: f64::INFINITY }
    }
}

impl HostSpan {
    fn add(&mut self, other: &HostSpan) {
        (self.acked, self.sent, self.lost) = (self.acked + other.acked, self.sent + other.sent, self.lost + other.lost);
        (self.active, self.sampled) = (self.active + other.active, self.sampled + other.sampled);
        self.ratios += other.ratios;
        self.least = self.least.min(other.least);
    }
}

/// A full packet, in bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FullPacket {
    /// With headers.
    pub on_wire: f64,
    /// What a host counts of it as acknowledged.
    pub data: f64,
}

/// The view of what is steered.
#[derive(Clone, Debug)]
pub struct View {
    sight: Sight,
    packet: FullPacket,
    /// The hosts of each agent.
    agents: Vec<Vec<usize>>,
    /// What agents were directed, relative to the link; 0 before the first directive.
    directed: Vec<f32>,
    /// What they hold of it, when some lend what they do not need.
    held: Vec<f32>,
    /// The relative rates of hosts that are in force.
    rates: Vec<f32>,
    /// Whether there was a directive.
    is_directed: bool,
    /// When what was directed is divided anew.
    divides: Time,
    /// Whether it was looked at before.
    has_looked: bool,
    cross: CrossCourse,
    /// The link as it was seen last.
    link: LinkSeen,
    /// What was seen of each host last.
    seen: Vec<HostSeen>,
    /// What was seen of each agent last.
    of_agents: Vec<HostSeen>,
    /// Observations, the newest last: as many as history and delay need.
    frames: Vec<f32>,
    /// The place of what is known without delay in a row, if it has one.
    prompt: Option<usize>,
}

impl View {
    /// Of `hosts` that send packets as `packet`, before the beginning; `agents` has the hosts of each who is directed.
    pub fn new(sight: Sight, packet: FullPacket, hosts: usize, agents: Vec<Vec<usize>>) -> View {
        let frame = agents.len() * sight.features.len();
        View {
            directed: vec![0.0; agents.len()],
            held: Vec::with_capacity(agents.len()),
            rates: vec![0.0; hosts],
            is_directed: false,
            divides: Time::MAX,
            has_looked: false,
            cross: CrossCourse::default(),
            link: LinkSeen::default(),
            seen: vec![HostSeen::default(); hosts],
            of_agents: vec![HostSeen::default(); agents.len()],
            frames: vec![0.0; frame * (sight.history + sight.delay)],
            prompt: sight.features.iter().position(|&feature| feature == Feature::PromptRate),
            packet,
            agents,
            sight,
        }
    }

    /// Back to the beginning.
    pub fn reset(&mut self) {
        self.directed.fill(0.0);
        self.rates.fill(0.0);
        (self.is_directed, self.divides, self.has_looked) = (false, Time::MAX, false);
        self.frames.fill(0.0);
        self.seen.fill(HostSeen::default());
        self.of_agents.fill(HostSeen::default());
        (self.cross, self.link) = (CrossCourse::default(), LinkSeen::default());
    }

    /// What is seen, and what becomes of the rates.
    pub fn sight(&self) -> &Sight {
        &self.sight
    }

    /// The hosts of each agent: itself, or all of a sub-domain.
    pub fn agents(&self) -> &[Vec<usize>] {
        &self.agents
    }

    /// How many numbers an observation has: agents by features, for each observation in it.
    pub fn observation_len(&self) -> usize {
        self.frame_len() * self.sight.history
    }

    fn frame_len(&self) -> usize {
        self.agents.len() * self.sight.features.len()
    }

    /// What was seen of each host last, without delay.
    pub fn seen(&self) -> &[HostSeen] {
        &self.seen
    }

    /// The same of each agent: of a sub-domain the sums over its hosts, and the means and the least of their round
    /// trips.
    pub fn of_agents(&self) -> &[HostSeen] {
        &self.of_agents
    }

    /// What cross traffic will take of the step that begins `late` steps from now, if it comes and goes as the last time.
    pub fn cross_expected(&self, late: usize) -> f64 {
        let step = self.sight.interval.as_secs_f64();
        self.cross.expected(step * late as f64, step * (late + 1) as f64)
    }

    /// The link as it was seen last, without delay.
    pub fn link(&self) -> &LinkSeen {
        &self.link
    }

    /// The relative rates of hosts, or their initial windows; none before the first directive.
    pub fn rates(&self) -> Option<&[f32]> {
        self.is_directed.then_some(&self.rates)
    }

    /// At `now` the agents are directed these relative rates, or initial windows, from 0 to [`Actuator::most`]; what
    /// lies beyond, or is no number, counts as the nearest, or 0. Those hosts have something to send of which
    /// `is_active` says so.
    ///
    /// # Panics
    ///
    /// When there are more or fewer rates than agents.
    pub fn direct(&mut self, now: Time, rates: &[f32], is_active: impl Fn(usize) -> bool) {
        assert_eq!(rates.len(), self.agents.len(), "an action has a number for each agent");
        self.is_directed = true;
        let active = self.active(&is_active);
        for (agent, &rate) in rates.iter().enumerate() {
            // `clamp` would let what is no number through.
            let directed = if rate.is_nan() { 0.0 } else { rate.clamp(0.0, self.sight.actuator.most()) };
            // Sub-domains know at each division who sends; hosts only when they are directed.
            let is_for_good = self.sight.agents == Agents::Hosts;
            self.directed[agent] = if is_for_good { self.sight.actuator.relative(directed, active) } else { directed };
        }
        self.divides = now;
        self.divide(is_active);
    }

    /// Hosts were directed these relative rates by who decides in the policy's place: that is what it sees as its own.
    ///
    /// # Panics
    ///
    /// When there are more or fewer rates than hosts, or agents are not hosts.
    pub fn on_directed_by_another(&mut self, rates: &[f32]) {
        assert_eq!(self.sight.agents, Agents::Hosts, "sub-domains divide what is directed to them");
        self.is_directed = true;
        self.directed.copy_from_slice(rates);
        self.rates.copy_from_slice(rates);
        self.divides = Time::MAX;
    }

    /// When [`View::divide`] is to be called next; never where what was directed stands as it is.
    pub fn divides(&self) -> Time {
        self.divides
    }

    /// Agents' rates become hosts': a host that is active has an even part of its agent's, and one that is not what it
    /// will have when it begins. Who has begun keeps an initial window.
    pub fn divide(&mut self, is_active: impl Fn(usize) -> bool) {
        let actuator = self.sight.actuator;
        let is_for_good = self.sight.agents == Agents::Hosts && actuator != Actuator::Lent;
        self.divides = if is_for_good { Time::MAX } else { self.divides + BELOW };
        let mut held = std::mem::take(&mut self.held);
        actuator.held(&self.directed, |agent| self.active_of(agent, &is_active) > 0, &mut held);
        if self.sight.agents == Agents::Domains && actuator == Actuator::Share {
            let all = self.active(&is_active);
            for (agent, rate) in held.iter_mut().enumerate() {
                *rate = match self.active_of(agent, &is_active) {
                    0 => actuator.relative(*rate, all + 1),
                    active => actuator.relative(*rate, all) * active as f32,
                };
            }
        }
        for (agent, &rate) in held.iter().enumerate() {
            let active = self.active_of(agent, &is_active);
            for &host in &self.agents[agent] {
                let parts = if is_active(host) { active } else { active + 1 };
                self.rates[host] = if actuator == Actuator::Initial { rate } else { rate / parts as f32 };
            }
        }
        self.held = held;
    }

    /// How many hosts have something to send.
    fn active(&self, is_active: &impl Fn(usize) -> bool) -> usize {
        (0..self.rates.len()).filter(|&host| is_active(host)).count()
    }

    /// How many of an agent's.
    fn active_of(&self, agent: usize, is_active: &impl Fn(usize) -> bool) -> usize {
        self.agents[agent].iter().filter(|&&host| is_active(host)).count()
    }

    /// Looks at what has happened since the last look.
    ///
    /// # Panics
    ///
    /// When there are more or fewer `hosts` than it was made for.
    pub fn look(&mut self, link: &LinkSpan, hosts: &[HostSpan]) {
        assert_eq!(hosts.len(), self.seen.len(), "there is a span of each host");
        let is_first = !std::mem::replace(&mut self.has_looked, true);
        let carries = link.rate * link.seconds;
        let share = |bytes: f64| if carries > 0.0 { bytes / carries } else { 0.0 };
        let crossed = share(link.crossed);
        if !is_first {
            self.cross.pass(link.seconds, crossed);
        }
        self.link = LinkSeen {
            queue: link.waits / link.longest_wait,
            dropped: link.dropped / (link.passed + link.dropped).max(1.0),
            cross: crossed,
            cross_next: link.cross_next,
            cross_age: self.cross.age,
            cross_on: self.cross.on,
            cross_off: self.cross.off,
            cross_expected: self.cross_expected(self.sight.delay),
            hosts: hosts.iter().filter(|host| host.active > 0).count(),
        };
        let FullPacket { on_wire, data } = self.packet;
        let seen = |of: &HostSpan, directed: f32| HostSeen {
            throughput: share(of.acked * on_wire / data),
            active: of.active,
            rate: shown(self.sight.actuator, directed),
            round_trip: if of.sampled > 0 { of.ratios / f64::from(of.sampled) } else { 0.0 },
            loss: of.lost / of.sent.max(1.0),
            pipe: if of.sampled > 0 { link.rate * of.least / on_wire } else { 0.0 },
        };
        for (agent, of) in self.agents.iter().enumerate() {
            let mut of_agent = HostSpan::default();
            for &host in of {
                self.seen[host] = seen(&hosts[host], self.rates[host]);
                of_agent.add(&hosts[host]);
            }
            self.of_agents[agent] = seen(&of_agent, self.directed[agent]);
        }

        let frame = self.frame_len();
        self.frames.rotate_left(frame);
        let newest = self.frames.len() - frame;
        let rows = self.frames[newest..].chunks_exact_mut(self.sight.features.len());
        for (row, agent) in rows.zip(&self.of_agents) {
            for (value, feature) in row.iter_mut().zip(&self.sight.features) {
                *value = feature.value(&self.link, agent);
            }
        }
    }

    /// Writes what is seen: the newest observation, which is `delay` steps old, agent by agent, then the one before
    /// it. What is before the beginning is 0.
    ///
    /// # Panics
    ///
    /// When `into` has another length than [`View::observation_len`].
    pub fn observe(&self, into: &mut [f32]) {
        assert_eq!(into.len(), self.observation_len(), "an observation has agents x features x history numbers");
        let (frame, delay) = (self.frame_len(), self.sight.delay);
        for (age, part) in into.chunks_exact_mut(frame).enumerate() {
            let at = |late: usize| &self.frames[self.frames.len() - (age + late + 1) * frame..][..frame];
            part.copy_from_slice(at(delay));
            if let Some(place) = self.prompt {
                let row = self.sight.features.len();
                part.iter_mut().zip(at(0)).skip(place).step_by(row).for_each(|(value, &prompt)| *value = prompt);
            }
        }
    }
}

/// What was directed, as a feature and a reward have it.
fn shown(actuator: Actuator, directed: f32) -> f64 {
    let directed = f64::from(directed);
    if actuator == Actuator::Initial { directed / 10.0 } else { directed }
}
