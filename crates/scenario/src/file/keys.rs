//! Every key of a scenario: its type, its range, and what it becomes.

use anabranch_control::path::registry::{self, Entry as Controller, Pacing, Setup};
use anabranch_control::path::{MAX_KNOWN_PEERS, MAX_RELAYS};
use anabranch_control::registry::no_parameters;
use anabranch_control::rtt::RttConfig;
use anabranch_control::time::{Duration, Time};
use anabranch_control::units::Bytes;
use anabranch_sim::delay::DelayModel;

use super::error::ScenarioError;
use super::parameters;
use super::section::{Entry, Section};
use super::tree::Node;
use crate::overlay::{
    LONGEST_RUN_S, LimitChange, LimitKind, MOST_PEERS, Misbehaviour, Overlay, STANDARD_QUEUE, Scenario, default_offered,
};

const ROOT: &[&str] = &["run", "overlay"];
const RUN: &[&str] = &["seconds", "seed", "watch"];
const OVERLAY: &[&str] = &[
    "peers",
    "relays",
    "known_peers",
    "limit",
    "limit_model",
    "bucket_bytes",
    "queue_ms",
    "packet_bytes",
    "ack_bytes",
    "controller",
    "parameters",
    "pacing",
    "offered",
    "loss",
    "delay",
    "rtt",
    "limit_change",
    "join",
    "misbehave",
];
const DELAY: &[&str] = &["model", "span_ms", "access_ms", "stretch", "matrix_ms", "constant_ms", "jitter"];
const RTT: &[&str] = &["gain", "deviations"];
const LIMIT_CHANGE: &[&str] = &["at_s", "peers", "limit"];
const JOIN: &[&str] = &["every_s"];
const MISBEHAVE: &[&str] = &["peers", "drop", "delay_ms", "forge"];

/// The most that one UDP datagram over IPv4 carries.
const LARGEST_PACKET: u64 = 65_507;

/// A shorter delay would let a controller send without end in no time.
const SHORTEST_DELAY: Duration = Duration::from_nanos(1000);

/// What a sender keeps for each pair of the peers it knows.
const RTT_BYTES: u64 = 8;

/// The most memory that all senders' round-trip times together may take, in bytes.
const MOST_RTT_BYTES: u64 = 64 << 30;

/// The scenario that `root` describes.
pub fn scenario(root: &Node) -> Result<Scenario, ScenarioError> {
    let root = Section::open("", root, ROOT)?;
    let run = root.section("run", RUN)?;
    let Some(overlay) = root.section("overlay", OVERLAY)? else {
        return Err(root.missing("overlay", "a table [overlay] with peers, relays and controller"));
    };

    let mut scenario = Scenario::standard();
    scenario.overlay = read_overlay(&overlay)?;
    if let Some(run) = run {
        if let Some(entry) = run.get("seconds") {
            scenario.seconds = entry.whole(1..=LONGEST_RUN_S)?;
        }
        if let Some(entry) = run.get("seed") {
            // What TOML can write.
            scenario.seed = entry.whole(0..=i64::MAX as u64)?;
        }
        if let Some(entry) = run.get("watch") {
            let last = scenario.overlay.peers as u64 - 1;
            scenario.overlay.watch = Some(entry.whole(0..=last)? as u32);
        }
    }
    Ok(scenario)
}

fn read_overlay(section: &Section<'_>) -> Result<Overlay, ScenarioError> {
    let mut overlay = Scenario::standard().overlay;
    let peers = section.required("peers", "the number of peers")?;
    overlay.peers = peers.whole(2..=MOST_PEERS)? as usize;
    overlay.known_peers = overlay.peers - 1;
    let relays = section.required("relays", "the number of relays for each packet")?;
    overlay.relays = relays.whole(1..=MAX_RELAYS as u64)? as usize;
    read_view(section, &peers, &relays, &mut overlay)?;

    if let Some(entry) = section.get("packet_bytes") {
        overlay.packet = Bytes::new(entry.whole(1..=LARGEST_PACKET)?);
    }
    if let Some(entry) = section.get("ack_bytes") {
        overlay.ack = Bytes::new(entry.whole(1..=LARGEST_PACKET)?);
    }
    if let Some(entry) = section.get("limit") {
        overlay.limit = entry.rate()?;
    }
    overlay.limit_model = read_limit_model(section, &overlay)?;
    overlay.limit_changes = read_limit_changes(section, overlay.peers)?;
    if let Some(entry) = section.get("loss") {
        overlay.loss = entry.number(0.0..=1.0)?;
        if overlay.loss == 1.0 {
            return Err(entry.wrong("no packet would ever arrive; expected less than 1"));
        }
    }
    read_delay(section, &mut overlay)?;

    let controller = section.required("controller", "the controller's name in quotes (anabranch controllers)")?;
    overlay.controller = registry::find(controller.text("the controller's name")?)
        .map_err(|unknown| controller.wrong(unknown.to_string()))?;
    if let Some(entry) = section.get("pacing") {
        overlay.pacing = entry.choice(&[("burst", Pacing::Burst), ("paced", Pacing::Paced)])?.1;
    }
    overlay.parameters = toml::Table::new();
    if let Some(entry) = section.get("parameters") {
        overlay.parameters = read_parameters(&entry, overlay.controller)?;
    }
    overlay.offered = match section.get("offered") {
        Some(entry) => Some(entry.rate()?),
        None => default_offered(overlay.controller),
    };
    if let Some(rtt) = section.section("rtt", RTT)? {
        overlay.rtt = read_rtt(&rtt)?;
    }
    if let Some(join) = section.section("join", JOIN)? {
        let every = join.required("every_s", "the seconds from one peer's start to the next one's")?;
        overlay.join_every = every.seconds(LONGEST_RUN_S)?;
    }
    overlay.misbehaving = read_misbehaving(section, overlay.peers)?;
    Ok(overlay)
}

/// How many peers each knows, and whether a path can be made of them.
fn read_view(
    section: &Section<'_>,
    peers: &Entry<'_>,
    relays: &Entry<'_>,
    overlay: &mut Overlay,
) -> Result<(), ScenarioError> {
    let known = section.get("known_peers");
    if let Some(entry) = &known {
        // Fewer others than that: all are known.
        overlay.known_peers = (entry.whole(2..=MOST_PEERS)? as usize).min(overlay.peers - 1);
    }
    let blamed = known.as_ref().unwrap_or(peers);
    let each = overlay.known_peers as u64;
    if overlay.known_peers > MAX_KNOWN_PEERS {
        return Err(blamed.wrong(format!(
            "each peer would know {each} others, and a sender holds {MAX_KNOWN_PEERS}; set overlay.known_peers, for \
             example to 64"
        )));
    }
    let rtts = overlay.peers as u64 * (each + 1) * each / 2 * RTT_BYTES;
    if rtts > MOST_RTT_BYTES {
        return Err(blamed.wrong(format!(
            "{} senders that know {each} peers each keep round-trip times of {} GiB; set overlay.known_peers, for \
             example to 64",
            overlay.peers,
            rtts >> 30
        )));
    }
    if overlay.relays >= overlay.known_peers {
        return Err(relays.wrong(format!(
            "{} relays of {each} known peers, one of which is the destination; expected fewer relays or more {}",
            overlay.relays,
            if known.is_some() { "known_peers" } else { "peers" }
        )));
    }
    Ok(())
}

#[derive(Clone, Copy)]
enum LimitModelName {
    Window,
    Bucket,
    Queue,
}

fn read_limit_model(section: &Section<'_>, overlay: &Overlay) -> Result<LimitKind, ScenarioError> {
    const MODELS: &[(&str, LimitModelName)] =
        &[("window", LimitModelName::Window), ("bucket", LimitModelName::Bucket), ("queue", LimitModelName::Queue)];
    let (chosen, model) = match section.get("limit_model") {
        Some(entry) => entry.choice(MODELS)?,
        None => MODELS[0],
    };
    for (key, belongs) in [("bucket_bytes", "bucket"), ("queue_ms", "queue")] {
        if chosen != belongs {
            section.refuse(key, "limit_model", chosen, belongs)?;
        }
    }
    let a_second = overlay.limit * Duration::SECOND;
    let passes = |most: Bytes| overlay.packet.max(overlay.ack) <= most;
    Ok(match model {
        LimitModelName::Window => {
            if !passes(a_second) {
                let problem = format!(
                    "a relay that counts in seconds would refuse every packet of {}; expected a limit of at least \
                     that much a second",
                    overlay.packet.max(overlay.ack)
                );
                return Err(section.blame(&["limit", "packet_bytes", "ack_bytes"], problem));
            }
            LimitKind::Window
        }
        LimitModelName::Bucket => {
            let depth = match section.get("bucket_bytes") {
                Some(entry) => Bytes::new(entry.whole(1..=1 << 40)?),
                // As much at once as a window lets through.
                None => a_second,
            };
            if !passes(depth) {
                let problem = format!(
                    "a bucket of {depth} never holds a packet of {}; expected a larger one",
                    overlay.packet.max(overlay.ack)
                );
                return Err(section.blame(&["bucket_bytes", "limit", "packet_bytes", "ack_bytes"], problem));
            }
            LimitKind::Bucket { depth }
        }
        LimitModelName::Queue => {
            LimitKind::Queue { longest: section.get("queue_ms").map_or(Ok(STANDARD_QUEUE), |entry| entry.millis())? }
        }
    })
}

fn read_limit_changes(section: &Section<'_>, peers: usize) -> Result<Vec<LimitChange>, ScenarioError> {
    let changes = section.sections("limit_change", LIMIT_CHANGE)?;
    let read = |change: &Section<'_>| {
        let at = change.required("at_s", "the second at which the limit changes")?;
        let whose = change.required("peers", "the peers whose limit changes, as [0, 3] or \"0-9\"")?;
        let limit = change.required("limit", "the new limit, such as \"200000 B/s\"")?;
        Ok(LimitChange {
            at: Time::ZERO + at.seconds(LONGEST_RUN_S)?,
            peers: whose.peers(peers)?,
            limit: limit.rate()?,
        })
    };
    changes.iter().map(read).collect()
}

#[derive(Clone, Copy)]
enum DelayModelName {
    Plane,
    Matrix,
    Constant,
}

fn read_delay(section: &Section<'_>, overlay: &mut Overlay) -> Result<(), ScenarioError> {
    const MODELS: &[(&str, DelayModelName)] =
        &[("plane", DelayModelName::Plane), ("matrix", DelayModelName::Matrix), ("constant", DelayModelName::Constant)];
    let Some(delay) = section.section("delay", DELAY)? else {
        return Ok(());
    };
    if let Some(entry) = delay.get("jitter") {
        overlay.jitter = entry.number(0.0..=1.0)?;
    }
    let (chosen, model) = match delay.get("model") {
        Some(entry) => entry.choice(MODELS)?,
        None => MODELS[0],
    };
    for (key, belongs) in [
        ("span_ms", "plane"),
        ("access_ms", "plane"),
        ("stretch", "plane"),
        ("matrix_ms", "matrix"),
        ("constant_ms", "constant"),
    ] {
        if chosen != belongs {
            delay.refuse(key, "model", chosen, belongs)?;
        }
    }
    overlay.delay = match model {
        DelayModelName::Plane => read_plane(&delay, &overlay.delay)?,
        DelayModelName::Matrix => read_matrix(&delay, overlay.peers)?,
        DelayModelName::Constant => {
            let entry = delay.required("constant_ms", "the delay between any two peers in milliseconds")?;
            DelayModel::Constant(long_enough(&entry, entry.millis()?)?)
        }
    };
    Ok(())
}

fn read_plane(delay: &Section<'_>, standard: &DelayModel) -> Result<DelayModel, ScenarioError> {
    let &DelayModel::Plane { mut span, mut access, mut stretch } = standard else {
        unreachable!("the standard scenario stands in the plane");
    };
    if let Some(entry) = delay.get("span_ms") {
        span = entry.millis()?;
    }
    if let Some(entry) = delay.get("access_ms") {
        access = entry.millis()?;
    }
    if let Some(entry) = delay.get("stretch") {
        stretch = entry.number(0.01..=100.0)?;
    }
    if span + access < SHORTEST_DELAY {
        let problem = "packets would take no time at all; expected a span_ms or an access_ms of at least 0.001";
        return Err(delay.blame(&["span_ms", "access_ms"], problem));
    }
    Ok(DelayModel::Plane { span, access, stretch })
}

fn read_matrix(delay: &Section<'_>, peers: usize) -> Result<DelayModel, ScenarioError> {
    let what = format!("{peers} rows of {peers} delays in milliseconds, one for each peer");
    let matrix = delay.required("matrix_ms", &what)?;
    let rows = matrix.list(&what)?;
    if rows.len() != peers {
        return Err(matrix.wrong(format!("expected {what}, not {} rows", rows.len())));
    }
    let mut delays = Vec::with_capacity(peers * peers);
    for (from, row) in rows.iter().enumerate() {
        let entries = row.list(&what)?;
        if entries.len() != peers {
            return Err(row.wrong(format!("expected {what}, not {} delays in row {from}", entries.len())));
        }
        for (to, entry) in entries.iter().enumerate() {
            let delay = entry.millis()?;
            delays.push(if from == to { delay } else { long_enough(entry, delay)? });
        }
    }
    Ok(DelayModel::Matrix(delays))
}

fn long_enough(entry: &Entry<'_>, delay: Duration) -> Result<Duration, ScenarioError> {
    if delay < SHORTEST_DELAY {
        return Err(entry.wrong("packets would take no time at all; expected at least 0.001"));
    }
    Ok(delay)
}

fn read_rtt(rtt: &Section<'_>) -> Result<RttConfig, ScenarioError> {
    let mut config = RttConfig::default();
    if let Some(entry) = rtt.get("gain") {
        config.gain = entry.number(0.0..=1.0)?;
        if config.gain == 0.0 {
            return Err(entry.wrong("the estimate would never change; expected more than 0"));
        }
    }
    if let Some(entry) = rtt.get("deviations") {
        config.deviations = entry.number(0.0..=100.0)?;
    }
    Ok(config)
}

/// The controller's own parameters, checked by making one.
fn read_parameters(entry: &Entry<'_>, controller: &Controller) -> Result<toml::Table, ScenarioError> {
    let setup = Setup { peers: 2, packet: Bytes::new(1500), start: Time::ZERO, pacing: Pacing::Burst };
    parameters::read(entry, |table| match controller.build.make(&setup, table) {
        Some(made) => made.map(drop),
        None => no_parameters(table),
    })
}

fn read_misbehaving(section: &Section<'_>, peers: usize) -> Result<Vec<(Vec<u32>, Misbehaviour)>, ScenarioError> {
    let groups = section.sections("misbehave", MISBEHAVE)?;
    let read = |group: &Section<'_>| {
        let who = group.required("peers", "the peers that misbehave, as [0, 3] or \"0-9\"")?.peers(peers)?;
        let mut misbehaviour = Misbehaviour::default();
        if let Some(entry) = group.get("drop") {
            misbehaviour.drop = entry.number(0.0..=1.0)?;
        }
        if let Some(entry) = group.get("delay_ms") {
            misbehaviour.delay = entry.millis()?;
        }
        if let Some(entry) = group.get("forge") {
            misbehaviour.forge = entry.flag()?;
        }
        if misbehaviour == Misbehaviour::default() {
            return Err(group.wrong("these peers do nothing wrong; expected drop, delay_ms or forge"));
        }
        Ok((who, misbehaviour))
    };
    groups.iter().map(read).collect()
}
