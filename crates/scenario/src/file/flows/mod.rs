//! Scenarios of flows over links as TOML files.
//!
//! Nodes are known by the links between them. Packets take the path with the least
//! propagation delay at the beginning (then the fewest links, then the links that come
//! first); a flow may name its links instead.
//!
//! ```toml
//! [run]
//! seconds = 30                         # simulated; may have a fraction
//! seed = 1
//! goodput_from_s = 5                   # goodput and utilisation are counted from then on
//! delays_from_s = 0
//! sample_every_s = 0.1                 # rows of the series; a 600th of the run if left out, 0 for none
//!
//! [packets]                            # of all flows
//! data_bytes = 1448
//! header_bytes = 66
//! ack_bytes = 66
//! ack_every = 2
//! max_ack_delay_ms = 25
//! ecn = false
//! paced = false                        # spread windows over the round trip
//! recovery = "rack"                    # or "rfc6675", "rfc6582": how losses are found and repaired
//! # least_timeout_ms = 1000            # of the latter two's retransmission timer
//! # restart_after_idle = false         # with the first window, after a timeout in which nothing was in flight
//! # reduction = "ns-3"                 # of rfc6675, or "rfc6675", "rfc6937": how its window comes down in a recovery
//! # partial_ack = "next-seg"           # of rfc6675, or "rfc6582": what an ACK sends that leaves a gap
//! linux = ["push", "filled-gap"]       # what Linux's TCP answers at once
//!
//! [dumbbell]                           # s0, s1, ... - left = bottleneck = right - r0, r1, ...
//! pairs = 6                            # as many as the flows need if left out
//! rate = { at_s = [0, 10], values = ["5 Mbit/s", "8 Mbit/s"] }
//! delay_ms = 10                        # or { uniform = [5, 15], every_s = 10 }
//! queue = { ms = 60 }                  # or { bytes = 37500 }, { packets = 25 }, "unlimited"
//! # queue = { kind = "codel", packets = 1000, target_ms = 5, interval_ms = 100 }
//! # queue = { kind = "fq-codel", queues = 1024, quantum_bytes = 1514 }
//! # queue = { kind = "red", packets = 100, min_threshold = 5, max_threshold = 15 }
//! loss = 0.001                         # or { to_bad = 0.01, to_good = 0.3, loss_good = 0, loss_bad = 0.5 }
//! jitter_ms = 0.1                      # standard deviation
//! reorder = false                      # whether packets may overtake each other
//! access_rate = "100 Mbit/s"
//! access_delay_ms = [10, 10, 10, 10, 20, 20]  # one for each pair, or one for all
//!
//! [star]                               # h0, h1, ... around hub
//! hosts = 3
//! rate = "4 Mbit/s"
//! down_rate = "16 Mbit/s"              # from the hub, if it differs
//! delay_ms = [5, 10, 20]
//! queue = { packets = 50 }
//!
//! [[link]]
//! name = "bridge"                      # "left-hub" if left out
//! from = "left"
//! to = "hub"
//! rate = "unlimited"
//! delay_ms = 1
//! both_ways = true                     # and "bridge-back", which is like it
//!
//! [[flow]]
//! controller = "reno"                  # the dumbbell's next pair, as neither from nor to is there
//! count = 4
//! name = "reno{i}"                     # each copy's number in place of {i}
//! steered = true                       # their windows are the coordinator's
//!
//! [[flow]]
//! name = "steady"
//! controller = "fixed"
//! parameters = { window = 20 }
//! from = "s0"
//! to = ["h0", "h1"]                    # blocks in turn
//! start_s = 2
//! start_within_s = 1                   # begins within so long after that, at random
//! stop_s = 25
//! workload = { block_bytes = 15000 }
//! # workload = { sizes = "web-search", off_mean_s = 0.5 }
//! # workload = { sizes = { cdf = [[100, 0], [1e6, 1]], interpolate = "log" } }
//! # workload = { sizes = { file = "sizes.csv" }, every_s = 10 }
//! initial_window_packets = 10
//! handshake = false                    # a round trip before any data
//!
//! [steering]                           # a coordinator divides a link among the steered flows
//! link = "bottleneck"
//! every_ms = 100
//! actuator = "maximum"                 # or "fixed"
//! expected = "last-span"               # of cross traffic; "last-period": as if it comes and goes as the last time; "closer" of both
//! # policy = "cross.safetensors"       # decides in place of the rule, when and how it was made to
//!
//! [[cross_traffic]]
//! from = "s1"
//! to = "r1"
//! rate = "2 Mbit/s"
//! packet_bytes = 1500
//! pattern = { on_s = 1, off_s = 3 }
//! ```

use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::Arc;

use anabranch_control::flow::Actuator;
use anabranch_control::time::{Duration, Time};
use anabranch_control::units::Bytes;
use anabranch_proto::coordination::forecast::Expected;
use anabranch_proto::flow::{AckPolicy, LossRecovery, PartialAck, Reduction, TcpOptions};

use super::error::Problem;
use super::shape::{Many, Optional, OrStandard, Said, Section, Sections, keys, many, said, sections, some};
use super::values::{Millis, Seconds, Seed, Whole, Word, Words, after_start, since_start};
use crate::flows::{FlowScenario, FlowSpec, PacketSpec, Steering};

mod flow;
mod learned;
mod links;
mod queues;
mod sizes;
#[cfg(test)]
mod tests;
mod traffic;
mod varying;
mod ways;
mod workload;

/// The tables that only a scenario of flows has.
pub(super) const OWN: &[&str] = &["flow", "dumbbell", "star", "link", "packets", "cross_traffic", "steering"];

/// No run is longer, in seconds: 11 days.
const LONGEST_RUN_S: u64 = 1_000_000;
/// A run's length if nothing is said.
const STANDARD_RUN: Duration = Duration::from_millis(60_000);
/// Rows of the series if nothing is said.
const STANDARD_ROWS: u64 = 600;
/// The most values that a series may hold: 400 MB.
const MOST_VALUES: u64 = 50_000_000;
/// About how many values a flow has in each row.
const VALUES_OF_A_FLOW: u64 = 12;
/// No scenario has more flows, or more sources of cross traffic.
const MOST_FLOWS: usize = 4096;
/// No dumbbell has more pairs, no star more hosts.
const MOST_HOSTS: u64 = 4096;
/// No scenario has more links.
const MOST_LINKS: u64 = 20_000;
/// No flows have more receivers together.
const MOST_RECEIVERS: usize = 100_000;
/// The most that one UDP datagram over IPv4 carries.
const LARGEST_PACKET: u64 = 65_507;
/// No amount of data is larger.
const MOST_BYTES: u64 = 1 << 40;
/// No queue or window has more packets.
const MOST_PACKETS: u64 = 1 << 30;
/// A coordinator decides at most so often.
const SHORTEST_STEERING: Duration = Duration::from_millis(1);
/// An ACK answers at most this many packets.
const MOST_TO_ACK: u64 = 1000;

/// The least timeouts that TCP's timer may have: of a granularity of clocks, up to RFC 6298's bound.
const LEAST_TIMEOUTS: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_millis(60_000);

type RunSeconds = Seconds<0, LONGEST_RUN_S>;
type PacketBytes = Whole<1, LARGEST_PACKET>;

keys! {
    /// All tables.
    pub(super) struct File {
        run: Option<Section<Run>>,
        packets: Option<Section<Packets>>,
        steering: Option<Section<SteeringKeys>>,
        dumbbell: Option<Section<links::DumbbellKeys>>,
        star: Option<Section<links::StarKeys>>,
        link: Sections<links::LinkKeys>,
        flow: Sections<flow::FlowKeys>,
        cross_traffic: Sections<traffic::CrossTrafficKeys>,
    }
}

keys! {
    /// `[run]`.
    struct Run {
        /// A millisecond at least.
        seconds: Optional<Seconds<1_000_000, LONGEST_RUN_S>>,
        seed: Optional<Seed>,
        goodput_from_s: Optional<RunSeconds>,
        delays_from_s: Optional<RunSeconds>,
        sample_every_s: Optional<RunSeconds>,
    }
}

keys! {
    /// `[packets]`.
    struct Packets {
        data_bytes: Optional<PacketBytes>,
        header_bytes: Optional<Whole<0, LARGEST_PACKET>>,
        ack_bytes: Optional<PacketBytes>,
        ack_every: Optional<Whole<1, MOST_TO_ACK>>,
        max_ack_delay_ms: Optional<Millis>,
        ecn: Optional<bool>,
        paced: Optional<bool>,
        recovery: Optional<Word<LossRecovery>>,
        least_timeout_ms: Optional<Millis>,
        restart_after_idle: Optional<bool>,
        reduction: Optional<Word<Reduction>>,
        partial_ack: Optional<Word<PartialAck>>,
        linux: Optional<Many<Word<LinuxRule>>>,
    }
}

keys! {
    /// `[steering]`.
    struct SteeringKeys {
        link: Said<String>,
        every_ms: Optional<Millis>,
        actuator: Optional<Word<Actuator>>,
        expected: Optional<Word<Expected>>,
        policy: Optional<learned::Policy>,
    }
}

/// What Linux's TCP does when packets are answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LinuxRule {
    All,
    /// The last of several packets that leave together is answered at once.
    Push,
    /// What fills the last gap is.
    FilledGap,
}

impl Words for LinuxRule {
    const WORDS: &'static [(&'static str, LinuxRule)] =
        &[("all", LinuxRule::All), ("push", LinuxRule::Push), ("filled-gap", LinuxRule::FilledGap)];
}

impl Words for LossRecovery {
    const WORDS: &'static [(&'static str, LossRecovery)] = &LossRecovery::ALL;
}

impl Words for Reduction {
    const WORDS: &'static [(&'static str, Reduction)] = &Reduction::ALL;
}

impl Words for PartialAck {
    const WORDS: &'static [(&'static str, PartialAck)] = &PartialAck::ALL;
}

impl Words for Expected {
    const WORDS: &'static [(&'static str, Expected)] = &Expected::ALL;
}

impl Words for Actuator {
    const WORDS: &'static [(&'static str, Actuator)] = &[("maximum", Actuator::Maximum), ("fixed", Actuator::Fixed)];
}

/// The scenario that `file` describes; files that it names lie in `directory`.
pub(super) fn scenario(file: &Section<File>, directory: &Path) -> Result<FlowScenario, Problem> {
    let (topology, pairs) = links::read(file)?;
    if topology.links().is_empty() {
        return Err(file.missing("link", "links: [dumbbell], [star] or [[link]]"));
    }
    let run = file.run.as_ref();
    let length = run.and_then(|run| run.seconds.as_ref()).map_or(STANDARD_RUN, |seconds| **seconds);
    let mut scenario = FlowScenario {
        length,
        seed: run.and_then(|run| run.seed.as_ref()).map_or(1, |seed| **seed),
        goodput_from: counted_from(run.and_then(|run| run.goodput_from_s.as_ref()), length)?,
        delays_from: counted_from(run.and_then(|run| run.delays_from_s.as_ref()), length)?,
        sample_every: None,
        links: Vec::new(),
        flows: Vec::new(),
        cross_traffic: Vec::new(),
        steering: None,
        packets: file.packets.as_ref().map_or_else(|| Ok(PacketSpec::default()), |packets| packets.spec())?,
    };
    scenario.flows = flow::read(&file.flow, &topology, pairs, &scenario, directory)?;
    scenario.cross_traffic = traffic::read(&file.cross_traffic, &topology)?;
    if scenario.flows.is_empty() && scenario.cross_traffic.is_empty() {
        return Err(file.missing("flow", "a table [[flow]] with a controller"));
    }
    scenario.links = topology.into_links();
    scenario.steering = file.steering.as_ref().map(|keys| keys.steering(&scenario, directory)).transpose()?;
    if let (None, Some(flow)) = (&scenario.steering, scenario.flows.iter().find(|flow| flow.steered)) {
        let what = format!("a table [steering] with the link that is divided: the flow \"{}\" is steered", flow.name);
        return Err(file.missing("steering", what));
    }
    scenario.sample_every = sample_every(file, &scenario)?;
    Ok(scenario)
}

/// From when on something is counted.
fn counted_from(said: Option<&Said<RunSeconds>>, length: Duration) -> Result<Time, Problem> {
    match said {
        Some(span) if **span >= length => {
            Err(span.wrong(format!("the run ends before anything is counted; expected less than its {length}")))
        }
        said => Ok(said.map_or(Time::ZERO, |span| after_start(**span))),
    }
}

/// How often the series has a row.
fn sample_every(file: &Section<File>, scenario: &FlowScenario) -> Result<Option<Duration>, Problem> {
    let said = file.run.as_ref().and_then(|run| run.sample_every_s.as_ref());
    let every = said.map_or(scenario.length / STANDARD_ROWS, |every| **every);
    let every = (every > Duration::ZERO).then_some(every);
    let rows = every.map_or(0, |every| scenario.length.as_nanos() / every.as_nanos());
    let receivers = |flow: &FlowSpec| if flow.receivers.len() > 1 { flow.receivers.len() as u64 } else { 0 };
    let of_flows: u64 = scenario.flows.iter().map(|flow| VALUES_OF_A_FLOW + receivers(flow)).sum();
    let in_a_row = of_flows + scenario.links.len() as u64;
    if rows.saturating_mul(in_a_row) > MOST_VALUES {
        let problem = format!(
            "{rows} rows of {in_a_row} values are more than {MOST_VALUES}; expected a longer run.sample_every_s, or 0 \
             for no series"
        );
        return Err(Problem::at(said.map_or(file.span(), Said::span), problem));
    }
    Ok(every)
}

impl Packets {
    fn spec(&self) -> Result<PacketSpec, Problem> {
        let standard = PacketSpec::default();
        let AckPolicy { every, max_delay, form, .. } = standard.ack_policy;
        let asked = |rule| {
            let mut rules = self.linux.iter().flat_map(|rules| rules.iter());
            rules.any(|asked| [rule, LinuxRule::All].contains(asked))
        };
        Ok(PacketSpec {
            data: self.data_bytes.as_ref().map_or(standard.data, |bytes| Bytes::new(**bytes)),
            header: self.header_bytes.as_ref().map_or(standard.header, |bytes| Bytes::new(**bytes)),
            ack: self.ack_bytes.as_ref().map_or(standard.ack, |bytes| Bytes::new(**bytes)),
            ack_policy: AckPolicy {
                every: self.ack_every.as_ref().map_or(every, |every| **every as u32),
                max_delay: self.max_ack_delay_ms.or_standard(max_delay),
                form,
                filled_gap: asked(LinuxRule::FilledGap),
            },
            ecn: self.ecn.or_standard(false),
            paced: self.paced.or_standard(false),
            recovery: self.recovery.or_standard(standard.recovery),
            tcp: self.tcp_options(self.recovery.or_standard(standard.recovery))?,
            push: asked(LinuxRule::Push),
        })
    }

    /// What only TCP's recoveries have.
    fn tcp_options(&self, recovery: LossRecovery) -> Result<TcpOptions, Problem> {
        const EXPECTED: &str =
            "it is TCP's alone; expected recovery = \"rfc6675\" or \"rfc6582\" beside it, or none of it";
        const OF_SACK: &str = "it is of recovery = \"rfc6675\" alone; expected that beside it, or none of it";
        let standard = TcpOptions::under(recovery);
        let has_sack = recovery == LossRecovery::Rfc6675;
        if let (Some(reduction), false) = (&self.reduction, has_sack) {
            return Err(reduction.wrong(OF_SACK));
        }
        if let (Some(partial_ack), false) = (&self.partial_ack, has_sack) {
            return Err(partial_ack.wrong(OF_SACK));
        }
        if let (Some(least), false) = (&self.least_timeout_ms, recovery.is_tcp()) {
            return Err(least.wrong(EXPECTED));
        }
        if let (Some(restart), false) = (&self.restart_after_idle, recovery.is_tcp()) {
            return Err(restart.wrong(EXPECTED));
        }
        if let Some(least) = self.least_timeout_ms.as_ref().filter(|least| !LEAST_TIMEOUTS.contains(&***least)) {
            return Err(least.wrong(format!("expected {} to {}", LEAST_TIMEOUTS.start(), LEAST_TIMEOUTS.end())));
        }
        Ok(TcpOptions {
            least_timeout: self.least_timeout_ms.or_standard(standard.least_timeout),
            restart_after_idle: self.restart_after_idle.or_standard(standard.restart_after_idle),
            reduction: self.reduction.or_standard(standard.reduction),
            partial_ack: self.partial_ack.or_standard(standard.partial_ack),
        })
    }
}

impl Section<SteeringKeys> {
    /// How the flows that are steered are.
    fn steering(&self, scenario: &FlowScenario, directory: &Path) -> Result<Steering, Problem> {
        let link = ways::link(&self.link, &scenario.links)?;
        if scenario.links[link].rate.is_none() {
            return Err(self.link.wrong("this link has no limit that could be divided; expected one with a rate"));
        }
        if let Some(every) = self.every_ms.as_ref().filter(|every| ***every < SHORTEST_STEERING) {
            return Err(every.wrong(format!("expected {SHORTEST_STEERING} or more")));
        }
        let Some(said) = &self.policy else {
            if !scenario.flows.iter().any(|flow| flow.steered) {
                return Err(
                    self.wrong("no flow is steered; expected steered = true in a table [[flow]], or no [steering]")
                );
            }
            let passes = |flow: &FlowSpec| flow.receivers.iter().any(|receiver| receiver.there.contains(&link));
            if let Some(flow) = scenario.flows.iter().find(|flow| flow.steered && !passes(flow)) {
                return Err(self.link.wrong(format!(
                    "the flow \"{}\" is steered and sends nothing over this link; expected one that each steered flow \
                     passes",
                    flow.name
                )));
            }
            let Some(every) = &self.every_ms else {
                return Err(self.missing("every_ms", "the time between two decisions, or a policy, which says it"));
            };
            let actuator = self.actuator.or_standard(Actuator::Maximum);
            let expected = self.expected.or_standard(Expected::default());
            return Ok(Steering { link, every: **every, actuator, expected, policy: None });
        };
        let learned = said.learned(link, scenario, directory)?;
        let interval = learned.sight.interval;
        if let Some(every) = self.every_ms.as_ref().filter(|every| ***every != interval) {
            return Err(
                every.wrong(format!("the policy was made to decide every {interval}; expected that, or nothing"))
            );
        }
        if let Some(actuator) = &self.actuator {
            let made = learned.sight.actuator.name();
            return Err(
                actuator.wrong(format!("the policy says how its rates become windows (\"{made}\"); take this out"))
            );
        }
        if let Some(expected) = &self.expected {
            return Err(
                expected.wrong("the policy decides by what it sees (cross_expected, if it was made to); take this out")
            );
        }
        let (actuator, expected) = (Actuator::default(), Expected::default());
        Ok(Steering { link, every: interval, actuator, expected, policy: Some(Arc::new(learned)) })
    }
}

/// The rules of Linux's that hold, if any does.
fn linux_rules(packets: &PacketSpec) -> Optional<Many<Word<LinuxRule>>> {
    let rules = [(packets.push, LinuxRule::Push), (packets.ack_policy.filled_gap, LinuxRule::FilledGap)];
    let held: Vec<LinuxRule> = rules.into_iter().filter_map(|(holds, rule)| holds.then_some(rule)).collect();
    (!held.is_empty()).then(|| many(held))
}

/// What is written of a scenario: everything, defaults too.
impl From<&FlowScenario> for File {
    fn from(scenario: &FlowScenario) -> File {
        let (packets, links) = (&scenario.packets, &scenario.links);
        let run = Run {
            seconds: some(scenario.length),
            seed: some(scenario.seed),
            goodput_from_s: some(since_start(scenario.goodput_from)),
            delays_from_s: some(since_start(scenario.delays_from)),
            sample_every_s: some(scenario.sample_every.unwrap_or(Duration::ZERO)),
        };
        let has_sack = packets.recovery == LossRecovery::Rfc6675;
        let packets = Packets {
            data_bytes: some(packets.data.get()),
            header_bytes: some(packets.header.get()),
            ack_bytes: some(packets.ack.get()),
            ack_every: some(packets.ack_policy.every.into()),
            max_ack_delay_ms: some(packets.ack_policy.max_delay),
            ecn: some(packets.ecn),
            paced: some(packets.paced),
            recovery: some(packets.recovery),
            least_timeout_ms: packets.recovery.is_tcp().then(|| said(packets.tcp.least_timeout)),
            restart_after_idle: packets.recovery.is_tcp().then(|| said(packets.tcp.restart_after_idle)),
            reduction: has_sack.then(|| said(packets.tcp.reduction)),
            partial_ack: has_sack.then(|| said(packets.tcp.partial_ack)),
            linux: linux_rules(packets),
        };
        let steering = |steering: &Steering| SteeringKeys {
            link: said(links[steering.link].name.clone()),
            every_ms: some(steering.every),
            actuator: steering.policy.is_none().then(|| said(steering.actuator)),
            expected: steering.policy.is_none().then(|| said(steering.expected)),
            policy: steering.policy.as_ref().map(|learned| said(learned::written(learned))),
        };
        File {
            run: some(run),
            packets: some(packets),
            steering: scenario.steering.as_ref().map(|keys| said(steering(keys))),
            dumbbell: None,
            star: None,
            link: links::written(links),
            flow: flow::written(&scenario.flows, links),
            cross_traffic: sections(scenario.cross_traffic.iter().map(|source| traffic::written(source, links))),
        }
    }
}

#[cfg(test)]
mod documentation {
    use super::super::documented::{documented, keys};
    use super::*;

    #[test]
    fn every_key_is_documented() {
        let page = include_str!("../../../../../docs/flow-scenarios.md");
        let mut tables = keys::<File>();
        for (name, heading, keys) in [
            ("run", "[run]", keys::<Run>()),
            ("packets", "[packets]", keys::<Packets>()),
            ("steering", "[steering]", keys::<SteeringKeys>()),
            ("flow", "[[flow]]", keys::<flow::FlowKeys>()),
            ("cross_traffic", "[[cross_traffic]]", keys::<traffic::CrossTrafficKeys>()),
        ] {
            assert!(tables.remove(name), "{name}");
            assert_eq!(documented(page, heading), keys, "{heading}");
        }
        let mut links = documented(page, "Links");
        assert!(page.contains("`[star]` adds `hosts`") && page.contains("and `down_rate`"));
        links.extend(["hosts".to_owned(), "down_rate".to_owned()]);
        let (dumbbell, star, link) =
            (keys::<links::DumbbellKeys>(), keys::<links::StarKeys>(), keys::<links::LinkKeys>());
        assert_eq!(links, &(&dumbbell | &star) | &link);
        assert_eq!(tables.into_iter().collect::<Vec<_>>(), ["dumbbell", "link", "star"]);
        assert_eq!(documented(page, "queue"), keys::<queues::QueueKeys>());
        // Of other tables on a line there are examples.
        let on_a_line = [
            keys::<varying::Changes<Millis>>(),
            keys::<varying::LossKeys>(),
            keys::<sizes::SizesKeys>(),
            keys::<workload::WorkloadKeys>(),
            keys::<traffic::PatternKeys>(),
            keys::<ways::ReceiverKeys>(),
            keys::<learned::PolicyKeys>(),
        ];
        for key in on_a_line.iter().flatten() {
            assert!(page.contains(&format!("{key} =")), "{key}");
        }
    }
}
