//! The tables and keys of an overlay's scenario, and the scenario that they make.

use anabranch_control::path::registry::{self, Build, Entry, Pacing, Setup};
use anabranch_control::path::{MAX_KNOWN_PEERS, MAX_RELAYS};
use anabranch_control::registry::no_parameters;
use anabranch_control::rtt::RttConfig;
use anabranch_control::time::{Duration, Time};
use anabranch_control::units::{Bytes, Rate};

use super::error::is_option;
use super::error::{Problem, Span};
use super::parameters::Parameters;
use super::shape::{
    Many, Optional, OrStandard, Part, Said, Section, Sections, Shape, Value, keys, said, sections, some, span, write,
};
use super::values::{
    BitRate, Millis, NOTHING_PASSES, Number, Seconds, Seed, Share, Whole, Word, Words, after_start, since_start,
};
use crate::overlay::{
    LONGEST_RUN_S, LimitChange, LimitKind, MOST_PEERS, Misbehaviour, Overlay, STANDARD_QUEUE, Scenario, Sender,
    default_offered,
};

mod delay;
#[cfg(test)]
mod tests;

use delay::Delay;

/// The most that one UDP datagram over IPv4 carries.
const LARGEST_PACKET: u64 = 65_507;

/// What a sender keeps for each pair of the peers it knows.
const RTT_BYTES: u64 = 8;

/// The most memory that all senders' round-trip times together may take, in bytes.
const MOST_RTT_BYTES: u64 = 64 << 30;

type PacketBytes = Whole<1, LARGEST_PACKET>;
type RunSeconds = Seconds<0, LONGEST_RUN_S>;
/// A millionth to a million.
type StampFactor = Number<1_000, 1_000_000>;
type Peer = Whole<0, { MOST_PEERS - 1 }>;

keys! {
    /// All tables.
    pub struct File {
        run: Option<Section<Run>>,
        overlay: Section<OverlayKeys>,
    }
}

keys! {
    /// `[run]`.
    pub struct Run {
        seconds: Optional<Whole<1, LONGEST_RUN_S>>,
        seed: Optional<Seed>,
        watch: Optional<Peer>,
    }
}

keys! {
    /// `[overlay]`.
    pub struct OverlayKeys {
        peers: Said<Whole<2, MOST_PEERS>>,
        relays: Said<Whole<1, { MAX_RELAYS as u64 }>>,
        known_peers: Optional<Whole<2, MOST_PEERS>>,
        limit: Optional<RelayRate>,
        limit_model: Optional<Word<LimitModel>>,
        bucket_bytes: Optional<Whole<1, { 1 << 40 }>>,
        queue_ms: Optional<Millis>,
        stamps: Optional<bool>,
        fair_shares: Optional<bool>,
        packet_bytes: Optional<PacketBytes>,
        ack_bytes: Optional<PacketBytes>,
        controller: Said<Controller>,
        pacing: Optional<Word<Pacing>>,
        loss: Optional<Share>,
        offered: Optional<RelayRate>,
        parameters: Optional<Parameters>,
        delay: Option<Section<Delay>>,
        rtt: Option<Section<Rtt>>,
        join: Option<Section<Join>>,
        limit_change: Sections<Change>,
        misbehave: Sections<Misbehave>,
        sender: Sections<SenderKeys>,
    }
}

keys! {
    /// `[overlay.rtt]`.
    pub struct Rtt {
        gain: Optional<Share>,
        deviations: Optional<Number<0, 100>>,
        compact: Optional<bool>,
    }
}

keys! {
    /// `[overlay.join]`.
    pub struct Join {
        every_s: Said<RunSeconds>,
    }
}

keys! {
    /// `[[overlay.limit_change]]`.
    pub struct Change {
        at_s: Said<RunSeconds>,
        peers: Said<Peers>,
        limit: Said<RelayRate>,
    }
}

keys! {
    /// `[[overlay.misbehave]]`.
    pub struct Misbehave {
        peers: Said<Peers>,
        drop: Optional<Share>,
        delay_ms: Optional<Millis>,
        forge: Optional<bool>,
        stamp_factor: Optional<StampFactor>,
        from_s: Optional<RunSeconds>,
        until_s: Optional<RunSeconds>,
    }
}

keys! {
    /// `[[overlay.sender]]`.
    pub struct SenderKeys {
        peers: Said<Peers>,
        controller: Said<Controller>,
        offered: Optional<RelayRate>,
    }
}

/// How a limit is held.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum LimitModel {
    Window,
    Bucket,
    Queue,
}

impl Words for LimitModel {
    const WORDS: &'static [(&'static str, Self)] =
        &[("window", LimitModel::Window), ("bucket", LimitModel::Bucket), ("queue", LimitModel::Queue)];
}

impl Words for Pacing {
    const WORDS: &'static [(&'static str, Self)] = &[("burst", Pacing::Burst), ("paced", Pacing::Paced)];
}

/// Who decides the rates.
struct Controller;

impl Shape for Controller {
    type Holds = &'static Entry;

    fn expected() -> String {
        "a controller's name in quotes (anabranch controllers)".to_owned()
    }

    fn read(value: &Value<'_>) -> Result<&'static Entry, Problem> {
        let name = value.text(Self::expected)?;
        registry::find(name).map_err(|unknown| {
            let for_each_peer = format!("flow:{name}");
            value.wrong(match registry::find(&for_each_peer) {
                Ok(_) => format!(
                    "this is a flow controller, of one sender and one receiver; did you mean \"{for_each_peer}\", one of \
                     it for each peer?"
                ),
                Err(_) => unknown.to_string(),
            })
        })
    }

    fn write(entry: &&'static Entry, out: &mut String) {
        write(entry.name, out);
    }
}

/// What a relay passes on.
struct RelayRate;

impl Shape for RelayRate {
    type Holds = Rate;

    fn expected() -> String {
        BitRate::expected()
    }

    fn read(value: &Value<'_>) -> Result<Rate, Problem> {
        BitRate::read(value).map_err(|mut problem| {
            if problem.text == NOTHING_PASSES {
                problem.text += " (a relay that passes nothing on is [[overlay.misbehave]] with drop = 1)";
            }
            problem
        })
    }

    /// In bytes where they are whole.
    fn write(rate: &Rate, out: &mut String) {
        let text = match rate.bits_per_sec() {
            bits if bits.is_multiple_of(8) => format!("{} B/s", bits / 8),
            bits => format!("{bits} bit/s"),
        };
        write(&text, out);
    }
}

/// Peers by number: a list, a range such as "0-9", or several with commas between.
enum Peers {
    Ranges(String),
    Listed(Vec<Said<Peer>>),
}

impl Shape for Peers {
    type Holds = Self;

    fn expected() -> String {
        "peers as [0, 3] or \"0-9\"".to_owned()
    }

    fn read(value: &Value<'_>) -> Result<Self, Problem> {
        match value.part {
            Part::List(_) => Many::read(value).map(Peers::Listed),
            _ => value.text(Self::expected).map(|text| Peers::Ranges(text.to_owned())),
        }
    }

    fn write(peers: &Self, out: &mut String) {
        match peers {
            Peers::Ranges(text) => write(text, out),
            Peers::Listed(list) => Many::write(list, out),
        }
    }
}

impl Said<Peers> {
    /// The numbers, all of which must be below `peers`.
    fn numbers(&self, peers: usize) -> Result<Vec<u32>, Problem> {
        let last = peers as u64 - 1;
        let expected = format!("expected peers from 0 to {last}, as [0, 3] or \"0-{last}\"");
        let mut numbers = Vec::new();
        match &**self {
            Peers::Ranges(text) => {
                for part in text.split(',') {
                    let (first, end) = part.split_once('-').unwrap_or((part, part));
                    match (first.trim().parse::<u64>(), end.trim().parse::<u64>()) {
                        (Ok(first), Ok(end)) if first <= end && end <= last => {
                            numbers.extend(first as u32..=end as u32);
                        }
                        _ => return Err(self.wrong(expected)),
                    }
                }
            }
            Peers::Listed(list) => {
                for peer in list {
                    numbers.push(peer_below(peer, peers)?);
                }
            }
        }
        if numbers.is_empty() { Err(self.wrong(format!("this names no peer; {expected}"))) } else { Ok(numbers) }
    }
}

fn peer_below(peer: &Said<Peer>, peers: usize) -> Result<u32, Problem> {
    match **peer < peers as u64 {
        true => Ok(**peer as u32),
        false => Err(peer.wrong(format!("expected a whole number from 0 to {}", peers - 1))),
    }
}

/// The scenario that `file` describes.
pub fn scenario(file: &Section<File>) -> Result<Scenario, Problem> {
    let mut scenario = Scenario { overlay: file.overlay.overlay()?, ..Scenario::standard() };
    if let Some(run) = &file.run {
        scenario.seconds = run.seconds.or_standard(scenario.seconds);
        scenario.seed = run.seed.or_standard(scenario.seed);
        scenario.overlay.watch = run.watch.as_ref().map(|peer| peer_below(peer, scenario.overlay.peers)).transpose()?;
    }
    Ok(scenario)
}

impl Section<OverlayKeys> {
    fn overlay(&self) -> Result<Overlay, Problem> {
        let standard = Scenario::standard().overlay;
        let peers = *self.peers as usize;
        let mut overlay = Overlay {
            peers,
            relays: *self.relays as usize,
            // Fewer others than that: all are known.
            known_peers: self.known_peers.as_ref().map_or(peers - 1, |known| (**known as usize).min(peers - 1)),
            packet: self.packet_bytes.as_ref().map_or(standard.packet, |bytes| Bytes::new(**bytes)),
            ack: self.ack_bytes.as_ref().map_or(standard.ack, |bytes| Bytes::new(**bytes)),
            limit: self.limit.or_standard(standard.limit),
            stamps: self.stamps.or_standard(standard.stamps),
            fair_shares: self.fair_shares.or_standard(standard.fair_shares),
            loss: self.loss.or_standard(standard.loss),
            controller: *self.controller,
            pacing: self.pacing.or_standard(standard.pacing),
            offered: self.offered.as_ref().map_or(default_offered(*self.controller), |offered| Some(**offered)),
            rtt: self.rtt.as_ref().map_or(Ok(standard.rtt), |rtt| rtt.config())?,
            join_every: self.join.as_ref().map_or(standard.join_every, |join| *join.every_s),
            ..standard
        };
        self.check_view(&overlay)?;
        overlay.limit_model = self.limit_kind(&overlay)?;
        for change in self.limit_change.iter().flat_map(|changes| changes.iter()) {
            let (at, peers) = (after_start(*change.at_s), change.peers.numbers(peers)?);
            overlay.limit_changes.push(LimitChange { at, peers, limit: *change.limit });
        }
        if let Some(loss) = self.loss.as_ref().filter(|loss| ***loss == 1.0) {
            return Err(loss.wrong("no packet would ever arrive; expected less than 1"));
        }
        if let Some(delay) = &self.delay {
            overlay.jitter = delay.jitter.or_standard(overlay.jitter);
            overlay.jitter_tail = delay.jitter_tail.or_standard(overlay.jitter_tail);
            overlay.delay = delay.delays(&overlay)?;
        }
        match &self.parameters {
            None => check_alone(&self.controller, "expected overlay.parameters with it, or another controller")?,
            Some(parameters) => {
                // Those of `flow:*` are read with a sender's setup: any tells whether they are right.
                let setup = Setup { peers: 2, packet: Bytes::new(1500), start: Time::ZERO, pacing: Pacing::Burst };
                overlay.parameters =
                    parameters.checked(|table| match overlay.controller.build.make(&setup, table) {
                        Some(made) => made.map(drop),
                        None => no_parameters(table),
                    })?;
            }
        }
        for group in self.misbehave.iter().flat_map(|groups| groups.iter()) {
            overlay.misbehaving.push((group.peers.numbers(peers)?, group.misbehaviour()?));
        }
        for group in self.sender.iter().flat_map(|groups| groups.iter()) {
            overlay.senders.push((group.peers.numbers(peers)?, group.sender(overlay.controller)?));
        }
        Ok(overlay)
    }

    /// Whether paths can be made of the peers that each knows.
    fn check_view(&self, overlay: &Overlay) -> Result<(), Problem> {
        let blamed = |problem| Problem::at(span(&self.known_peers).unwrap_or(self.peers.span()), problem);
        let each = overlay.known_peers as u64;
        if overlay.known_peers > MAX_KNOWN_PEERS {
            return Err(blamed(format!(
                "each peer would know {each} others, and a sender holds {MAX_KNOWN_PEERS}; set overlay.known_peers, \
                 for example to 64"
            )));
        }
        let bytes = if overlay.rtt.compact { RTT_BYTES / 2 } else { RTT_BYTES };
        let rtts = overlay.peers as u64 * (each + 1) * each / 2 * bytes;
        if rtts > MOST_RTT_BYTES {
            return Err(blamed(format!(
                "{} senders that know {each} peers each keep round-trip times of {} GiB; set overlay.known_peers, for \
                 example to 64",
                overlay.peers,
                rtts >> 30
            )));
        }
        if overlay.relays >= overlay.known_peers {
            return Err(self.relays.wrong(format!(
                "{} relays of {each} known peers, one of which is the destination; expected fewer relays or more {}",
                overlay.relays,
                if self.known_peers.is_some() { "known_peers" } else { "peers" }
            )));
        }
        Ok(())
    }

    fn limit_kind(&self, overlay: &Overlay) -> Result<LimitKind, Problem> {
        let keys = [(span(&self.bucket_bytes), LimitModel::Bucket), (span(&self.queue_ms), LimitModel::Queue)];
        let model = chosen("overlay.limit_model", &self.limit_model, &keys)?;
        let largest = overlay.packet.max(overlay.ack);
        let a_second = overlay.limit * Duration::SECOND;
        let sizes = [span(&self.limit), span(&self.packet_bytes), span(&self.ack_bytes)];
        let blamed = |first: Option<Span>, problem| {
            let span = [first].into_iter().chain(sizes).flatten().next();
            Err(Problem::at(span.unwrap_or(self.span()), problem))
        };
        match model {
            LimitModel::Window if largest > a_second => blamed(
                None,
                format!(
                    "a relay that counts in seconds would refuse every packet of {largest}; expected a limit of at \
                     least that much a second"
                ),
            ),
            LimitModel::Window => Ok(LimitKind::Window),
            LimitModel::Bucket => {
                // As much at once as a window lets through.
                let depth = self.bucket_bytes.as_ref().map_or(a_second, |bytes| Bytes::new(**bytes));
                if largest > depth {
                    let problem =
                        format!("a bucket of {depth} never holds a packet of {largest}; expected a larger one");
                    return blamed(span(&self.bucket_bytes), problem);
                }
                Ok(LimitKind::Bucket { depth })
            }
            LimitModel::Queue => Ok(LimitKind::Queue { longest: self.queue_ms.or_standard(STANDARD_QUEUE) }),
        }
    }
}

/// The model that is chosen, or else the first one. A key of another model is refused,
/// unless the choice comes from the command line and the key from the file: then the
/// file's key has lost its use.
pub(super) fn chosen<T: Words>(
    chooser: &str,
    choice: &Optional<Word<T>>,
    keys: &[(Option<Span>, T)],
) -> Result<T, Problem> {
    let model = choice.or_standard(T::WORDS[0].1);
    let by_option = span(choice).is_some_and(|span| is_option(&span));
    for (span, belongs) in keys {
        if let Some(span) = span
            && *belongs != model
            && (is_option(span) || !by_option)
        {
            let (belongs, model) = (belongs.word(), model.word());
            let problem = format!("this belongs to {chooser} = \"{belongs}\", which is \"{model}\"");
            return Err(Problem::at(span.clone(), problem));
        }
    }
    Ok(model)
}

impl Rtt {
    fn config(&self) -> Result<RttConfig, Problem> {
        let standard = RttConfig::default();
        if let Some(gain) = self.gain.as_ref().filter(|gain| ***gain == 0.0) {
            return Err(gain.wrong("the estimate would never change; expected more than 0"));
        }
        Ok(RttConfig {
            gain: self.gain.or_standard(standard.gain),
            deviations: self.deviations.or_standard(standard.deviations),
            compact: self.compact.or_standard(standard.compact),
        })
    }
}

impl Section<Misbehave> {
    fn misbehaviour(&self) -> Result<Misbehaviour, Problem> {
        let misbehaviour = Misbehaviour {
            drop: self.drop.or_standard(0.0),
            delay: self.delay_ms.or_standard(Duration::ZERO),
            forge: self.forge.or_standard(false),
            stamp_factor: self.stamp_factor.or_standard(1.0),
            ..Misbehaviour::default()
        };
        if misbehaviour == Misbehaviour::default() {
            return Err(self.wrong("these peers do nothing wrong; expected drop, delay_ms, forge or stamp_factor"));
        }
        let from = self.from_s.as_ref().map_or(misbehaviour.from, |from| after_start(**from));
        let until = self.until_s.as_ref().map_or(misbehaviour.until, |until| after_start(**until));
        match &self.until_s {
            Some(said) if until <= from => {
                Err(said.wrong("it would be over before it begins; expected more than from_s"))
            }
            _ => Ok(Misbehaviour { from, until, ..misbehaviour }),
        }
    }
}

impl Section<SenderKeys> {
    /// Beside those whose controller is `others`.
    fn sender(&self, others: &'static Entry) -> Result<Sender, Problem> {
        let controller = *self.controller;
        if [controller, others].iter().any(|entry| matches!(entry.build, Build::Omniscient)) {
            let problem = format!(
                "\"perfect\" needs all senders; \"{}\" and it cannot run together",
                match controller.build {
                    Build::Omniscient => others.name,
                    _ => controller.name,
                }
            );
            return Err(self.controller.wrong(problem));
        }
        check_alone(&self.controller, "no key here gives it; expected another controller")?;
        let offered = self.offered.as_ref().map_or(default_offered(controller), |offered| Some(**offered));
        Ok(Sender { controller, offered })
    }
}

/// Refuses a controller that needs parameters, and says how they are given here.
fn check_alone(controller: &Said<Controller>, how: &str) -> Result<(), Problem> {
    let Build::Flow(flow) = controller.build else { return Ok(()) };
    // What a scenario of flows may say besides is no matter here.
    let Some(needs) = flow.needs().and_then(|needs| needs.split(" (").next()) else { return Ok(()) };
    Err(controller.wrong(format!("\"{}\" needs {needs}; {how}", controller.name)))
}

/// What is written of a scenario: everything, defaults too.
impl From<&Scenario> for File {
    fn from(scenario: &Scenario) -> File {
        let overlay = &scenario.overlay;
        let run = Run {
            seconds: some(scenario.seconds),
            seed: some(scenario.seed),
            watch: overlay.watch.map(|peer| said(peer.into())),
        };
        let (limit_model, bucket, longest) = match overlay.limit_model {
            LimitKind::Window => (LimitModel::Window, None, None),
            LimitKind::Bucket { depth } => (LimitModel::Bucket, some(depth.get()), None),
            LimitKind::Queue { longest } => (LimitModel::Queue, None, some(longest)),
        };
        let listed = |peers: &[u32]| said(Peers::Listed(peers.iter().map(|&peer| said(peer.into())).collect()));
        let change = |change: &LimitChange| {
            let at_s = said(since_start(change.at));
            Change { at_s, peers: listed(&change.peers), limit: said(change.limit) }
        };
        let group = |(peers, misbehaviour): &(Vec<u32>, Misbehaviour)| Misbehave {
            peers: listed(peers),
            drop: some(misbehaviour.drop),
            delay_ms: some(misbehaviour.delay),
            forge: some(misbehaviour.forge),
            stamp_factor: some(misbehaviour.stamp_factor),
            from_s: some(since_start(misbehaviour.from)),
            until_s: (misbehaviour.until < Time::MAX).then(|| said(since_start(misbehaviour.until))),
        };
        let sender = |(peers, sender): &(Vec<u32>, Sender)| SenderKeys {
            peers: listed(peers),
            controller: said(sender.controller),
            offered: sender.offered.map(said),
        };
        let keys = OverlayKeys {
            peers: said(overlay.peers as u64),
            relays: said(overlay.relays as u64),
            known_peers: some(overlay.known_peers as u64),
            limit: some(overlay.limit),
            limit_model: some(limit_model),
            bucket_bytes: bucket,
            queue_ms: longest,
            stamps: some(overlay.stamps),
            fair_shares: some(overlay.fair_shares),
            packet_bytes: some(overlay.packet.get()),
            ack_bytes: some(overlay.ack.get()),
            controller: said(overlay.controller),
            pacing: some(overlay.pacing),
            loss: some(overlay.loss),
            offered: overlay.offered.map(said),
            parameters: Parameters::written(&overlay.parameters),
            delay: some(Delay::written(overlay)),
            rtt: some(Rtt {
                gain: some(overlay.rtt.gain),
                deviations: some(overlay.rtt.deviations),
                compact: overlay.rtt.compact.then(|| said(true)),
            }),
            join: (overlay.join_every > Duration::ZERO).then(|| said(Join { every_s: said(overlay.join_every) })),
            limit_change: sections(overlay.limit_changes.iter().map(change)),
            misbehave: sections(overlay.misbehaving.iter().map(group)),
            sender: sections(overlay.senders.iter().map(sender)),
        };
        File { run: some(run), overlay: said(keys) }
    }
}

#[cfg(test)]
mod documentation {
    use super::super::documented::{documented, keys};
    use super::*;

    #[test]
    fn every_key_is_documented() {
        let page = include_str!("../../../../../docs/scenarios.md");
        // Tables have headings of their own.
        let tables = ["parameters", "delay", "rtt", "join", "limit_change", "misbehave", "sender"];
        let mut overlay = keys::<OverlayKeys>();
        for table in tables {
            assert!(overlay.remove(table), "{table}");
            assert!(page.contains(&format!("[overlay.{table}]")), "no heading for {table}");
        }
        assert_eq!(documented(page, "[overlay]"), overlay);
        assert_eq!(documented(page, "[run]"), keys::<Run>());
        assert_eq!(documented(page, "[overlay.delay]"), keys::<Delay>());
        assert_eq!(documented(page, "[overlay.rtt]"), keys::<Rtt>());
        assert_eq!(documented(page, "[overlay.join]"), keys::<Join>());
        assert_eq!(documented(page, "[[overlay.limit_change]]"), keys::<Change>());
        assert_eq!(documented(page, "[[overlay.misbehave]]"), keys::<Misbehave>());
        assert_eq!(documented(page, "[[overlay.sender]]"), keys::<SenderKeys>());
    }
}
