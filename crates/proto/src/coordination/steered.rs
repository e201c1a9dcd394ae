//! A link whose hosts a policy steers: what agents and monitors have reported becomes what a policy sees, and its rates
//! become hosts' budgets.
//!
//! ```text
//! of a host          throughput, loss    what left it less what it lost, and that, by its last reports
//!                    round trips         the mean and the least of its flows, if it tells them
//! of the link        queue, dropped      bytes that wait, packets dropped, as its monitor says
//!                    cross traffic       what passed less what hosts sent, in the span that all reports cover
//! ```
//!
//! Each counts over one interval that ends with its last report, so that it does not matter when reports come. What a
//! policy sees and nobody has reported yet is not made up: until then the rule decides, and [`Blocked`] says why.

use std::sync::Arc;

use anabranch_control::time::{Duration, Time};
use anabranch_control::units::Rate;

use super::config::{CoordinatorConfig, Duty, OfLink};
use super::known::{self, Known};
use super::message::HostSeen;
use super::policy::action::MOST;
use super::policy::deciding::Deciding;
use super::policy::view::{FullPacket, HostSpan, LinkSpan, View};
use super::policy::{Feature, Learned};

/// Packets are taken to be as long as the longest of Ethernet: agents count bytes.
const PACKET: FullPacket = FullPacket { on_wire: known::PACKET as f64, data: known::PACKET as f64 };

/// Less than this share of a link is no cross traffic: counts of different machines differ by some packets, and whether
/// there is any is something that policies see.
const LEAST_CROSS: f64 = 0.01;

/// Why the rule decides in place of the policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blocked {
    /// Nobody who watches the link has reported.
    Unwatched(usize, Feature),
    /// Who watches it does not know its queue.
    Queue(usize, Feature),
    /// A host that sends, by its place, has reported no round trips.
    RoundTrips(usize, Feature),
}

impl Blocked {
    /// In words.
    pub fn in_words(self, config: &CoordinatorConfig, policy: &Learned) -> String {
        let (what, feature) = match self {
            Blocked::Unwatched(link, feature) => {
                (format!("no monitor of link \"{}\" reports", config.links[link].name), feature)
            }
            Blocked::Queue(link, feature) => {
                (format!("the monitor of link \"{}\" does not know its queue", config.links[link].name), feature)
            }
            Blocked::RoundTrips(place, feature) => {
                (format!("host \"{}\" tells no round trips", config.members[place].name), feature)
            }
        };
        format!("{what}, and {} sees \"{}\"", policy.name, feature.name())
    }
}

/// A link with its policy.
#[derive(Clone, Debug)]
pub struct Steered {
    link: usize,
    deciding: Deciding,
    /// The members that send over it, and the most flows that count of each.
    hosts: Vec<usize>,
    most_flows: Vec<u32>,
    /// Those that watch it.
    monitors: Vec<usize>,
    /// The longest wait that its queue allows.
    queue: Option<Duration>,
    /// The spans of its hosts.
    spans: Vec<HostSpan>,
    /// Whether the policy decided last, or why not; none before the first decision.
    decided: Option<Result<(), Blocked>>,
}

impl Steered {
    /// That link with its members, if there is a policy and it has hosts.
    ///
    /// # Panics
    ///
    /// When the policy does not fit ([`super::fitness::check`]).
    pub(super) fn new(config: &CoordinatorConfig, link: usize, OfLink { hosts, monitors }: &OfLink) -> Option<Steered> {
        let learned: &Arc<Learned> = config.policy.as_ref()?;
        if hosts.is_empty() {
            return None;
        }
        let sight = &learned.sight;
        let reading = learned.policy.reading(hosts.len(), sight.features.len(), sight.history);
        let reading = reading.expect("a policy that fits its links");
        let view = View::new(sight.clone(), PACKET, hosts.len(), (0..hosts.len()).map(|host| vec![host]).collect());
        let most_flows = hosts.iter().map(|&place| match config.members[place].duty {
            Duty::Host { most_flows, .. } => most_flows,
            Duty::Monitor { .. } => 0,
        });
        Some(Steered {
            link,
            deciding: Deciding::new(learned.name.clone(), learned.policy.clone(), reading, view),
            most_flows: most_flows.collect(),
            monitors: monitors.clone(),
            queue: config.links[link].queue,
            spans: vec![HostSpan::default(); hosts.len()],
            decided: None,
            hosts: hosts.clone(),
        })
    }

    /// The members that send over it.
    pub fn hosts(&self) -> &[usize] {
        &self.hosts
    }

    /// Whether the policy decided last; none before the first decision.
    pub fn decides(&self) -> Option<bool> {
        self.decided.map(|decided| decided.is_ok())
    }

    /// Why it did not.
    pub fn blocked(&self) -> Option<Blocked> {
        self.decided?.err()
    }

    /// That it has seen what no training had shown it, if it has.
    pub fn note(&self) -> Option<&str> {
        self.deciding.note()
    }

    /// What the policy has directed a host of a link that carries `capacity`: what the idle lend, too, is no more than
    /// it may direct one host, however many they are.
    pub fn rate(&self, capacity: Rate, host: usize) -> Rate {
        let relative = self.deciding.view().rates().map_or(0.0, |rates| rates[host].min(MOST));
        Rate::from_bytes_per_sec_f64(capacity.bytes_per_sec() * f64::from(relative))
    }

    /// When [`Steered::divide`] is due next.
    pub fn divides(&self) -> Time {
        self.deciding.view().divides()
    }

    /// Divides anew what was directed.
    pub fn divide(&mut self, now: Time, known: &[Known]) {
        let Steered { deciding, hosts, .. } = self;
        deciding.view_mut().divide(|host| flows_of(now, &known[hosts[host]]) > 0);
    }

    /// The rule has decided: that is what hosts were directed.
    pub fn on_rule_decided(&mut self, capacity: Rate, known: &[Known]) {
        let carries = capacity.bytes_per_sec();
        let share = |rate: Rate| if carries > 0.0 { (rate.bytes_per_sec() / carries) as f32 } else { 0.0 };
        let rates: Vec<f32> = self.hosts.iter().map(|&place| share(known[place].decided)).collect();
        self.deciding.view_mut().on_directed_by_another(&rates);
    }

    /// Looks at a link that carries `capacity`, of which others than the hosts send `other` bytes a second, and decides
    /// if all that the policy sees is known.
    pub fn ask(&mut self, now: Time, known: &[Known], capacity: Rate, other: f64) {
        let interval = self.deciding.view().sight().interval;
        let watched = self.monitors.iter().map(|&place| &known[place]).find(|known| {
            // What a silent one said last holds until its session is over.
            known.report.is_some() && (known.is_here() || known.is_fresh(now))
        });
        let link = self.link_span(watched, capacity, other, interval);
        for (host, &place) in self.hosts.iter().enumerate() {
            self.spans[host] = host_span(now, &known[place], self.most_flows[host], interval);
        }
        let Steered { deciding, hosts, spans, .. } = self;
        deciding.view_mut().look(&link, spans);
        let is_known = is_known(deciding.view(), self.link, watched, now, known, hosts);
        if is_known.is_ok() {
            deciding.decide(now, |host| spans[host].active > 0);
        }
        self.decided = Some(is_known);
    }

    fn link_span(&self, watched: Option<&Known>, capacity: Rate, other: f64, interval: Duration) -> LinkSpan {
        let (seconds, rate) = (interval.as_secs_f64(), capacity.bytes_per_sec());
        let seen = watched.and_then(Known::link);
        LinkSpan {
            seconds,
            rate,
            waits: seen.and_then(|seen| seen.queued).map_or(0.0, |queued| (queued / capacity).as_secs_f64()),
            longest_wait: self.queue.map_or(f64::INFINITY, Duration::as_secs_f64),
            passed: watched.map_or(0.0, |known| known.counted.grown(interval)) / PACKET.on_wire,
            dropped: watched.map_or(0.0, |known| known.lost.grown(interval)),
            crossed: if other < rate * LEAST_CROSS { 0.0 } else { other * seconds },
            cross_next: 0.0,
        }
    }
}

/// What a policy sees of a host. Of one that is silent nothing is known but that it follows its lease.
fn host_span(now: Time, known: &Known, most_flows: u32, interval: Duration) -> HostSpan {
    let active = flows_of(now, known).min(most_flows) as usize;
    let Some(host) = known.host().filter(|_| known.is_fresh(now)) else {
        return HostSpan { active, ..HostSpan::default() };
    };
    let (sent, lost) = (known.counted.grown(interval), known.lost.grown(interval));
    let span = HostSpan { acked: (sent - lost).max(0.0), sent, lost, active, ..HostSpan::default() };
    match (host.rtt, host.min_rtt) {
        (Some(mean), Some(least)) if least > Duration::ZERO => {
            let (mean, least) = (mean.as_secs_f64(), least.as_secs_f64());
            HostSpan { ratios: mean / least, sampled: 1, least, ..span }
        }
        _ => span,
    }
}

/// Flows of a host that have something to send, as long as what it said of them is worth something, or its lease holds.
fn flows_of(now: Time, known: &Known) -> u32 {
    let counts = known.is_fresh(now) || known.is_directed(now);
    known.host().filter(|_| counts).map_or(0, |host: HostSeen| host.flows)
}

/// Whether all that is seen through `view` has been reported.
fn is_known(
    view: &View,
    link: usize,
    watched: Option<&Known>,
    now: Time,
    known: &[Known],
    hosts: &[usize],
) -> Result<(), Blocked> {
    for &feature in &view.sight().features {
        if feature.needs_monitor() && watched.is_none() {
            return Err(Blocked::Unwatched(link, feature));
        }
        if feature.needs_queue() && watched.and_then(Known::link).is_none_or(|seen| seen.queued.is_none()) {
            return Err(Blocked::Queue(link, feature));
        }
        let is_mute = |place: &&usize| flows_of(now, &known[**place]) > 0 && !known[**place].has_round_trips;
        if feature.needs_round_trips()
            && let Some(&place) = hosts.iter().find(is_mute)
        {
            return Err(Blocked::RoundTrips(place, feature));
        }
    }
    Ok(())
}
