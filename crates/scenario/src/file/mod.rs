//! Scenarios as TOML files: text in, checked types out.
//!
//! Only `peers`, `relays` and `controller` must be said; everything else is that of
//! [`Scenario::standard`]. Whatever is unknown, of a wrong type or impossible is
//! refused with its line, its key and what would be right, and so is what the
//! command line sets instead.
//!
//! ```toml
//! [run]
//! seconds = 2000                  # simulated
//! seed = 1
//! watch = 0                       # the sender whose rates are recorded; none if left out
//!
//! [overlay]
//! peers = 20
//! relays = 3                      # for each packet
//! known_peers = 19                # each sender's choice of peers; all others if left out
//! limit = "400000 B/s"            # what each peer forwards and receives
//! limit_model = "window"          # window | bucket | queue
//! # bucket_bytes = 400000         # with "bucket"; a second of the limit if left out
//! # queue_ms = 100                # with "queue"; the longest wait
//! packet_bytes = 1500
//! ack_bytes = 40
//! controller = "q-learning"       # anabranch controllers
//! pacing = "burst"                # burst | paced
//! loss = 0.0                      # probability that a link loses a packet
//! # offered = "1250000 B/s"       # what each application sends; all it can if left out
//!
//! [overlay.delay]
//! model = "plane"                 # plane | matrix | constant
//! span_ms = 100                   # plane: delay across one side of the unit square
//! access_ms = 5                   # plane: delay of each access link
//! stretch = 1.0                   # plane: distances are raised to this power
//! # matrix_ms = [[0, 9], [9, 0]]  # matrix: from row to column
//! # constant_ms = 60              # constant: between any two
//! jitter = 0.10                   # standard deviation, as a share of the delay
//!
//! [overlay.rtt]
//! gain = 0.1
//! deviations = 4.0
//!
//! [overlay.parameters]            # the controller's own
//! epsilon = 0.1
//!
//! [overlay.join]
//! every_s = 500                   # peer i begins to send i times this after the start
//!
//! [[overlay.limit_change]]
//! at_s = 1000
//! peers = "0-9"                   # or [0, 1, 2]
//! limit = "200000 B/s"
//!
//! [[overlay.misbehave]]
//! peers = [3]
//! drop = 0.5                      # share of packets and ACKs that it swallows
//! delay_ms = 20                   # by which it delays the others
//! forge = false                   # discards data and makes up its ACK
//! ```

//!
//! A scenario of flows over links has other tables: see [`flows`]; that of a stream has others again: see
//! `docs/stream-scenarios.md`; and so does that of an onion overlay: see `docs/onion-scenarios.md`.

use std::fs;
use std::path::Path;

use toml::de::DeTable;

pub use document::Override;
pub use error::{Place, ScenarioError, Source, Wrong, nearest};

use crate::flows::FlowScenario;
use crate::onion::OnionScenario;
use crate::onion_run::OnionRunScenario;
use crate::overlay::Scenario;
use crate::stream::StreamScenario;
use document::Document;
use error::Problem;

mod document;
#[cfg(test)]
mod documented;
mod error;
pub mod flows;
mod layout;
mod onion;
mod onion_run;
mod overlay;
mod parameters;
mod shape;
mod stream;
mod values;

/// A scenario of any kind.
#[derive(Clone, Debug)]
pub enum AnyScenario {
    /// Peers that relay: the file has a table `[overlay]`.
    Overlay(Scenario),
    /// Flows over links: it has `[[flow]]`.
    Flows(FlowScenario),
    /// A stream and who watches it: it has `[audience]`.
    Stream(StreamScenario),
    /// An onion overlay that carries its users' traffic: it has `[onion]`, and no `[adversary]`.
    Onion(OnionRunScenario),
}

impl AnyScenario {
    /// It as text that says everything, defaults too; reading it gives the same scenario.
    pub fn to_toml(&self) -> String {
        match self {
            AnyScenario::Overlay(scenario) => to_toml(scenario),
            AnyScenario::Flows(scenario) => flows_to_toml(scenario),
            AnyScenario::Stream(scenario) => layout::to_toml(&stream::File::from(scenario)),
            AnyScenario::Onion(scenario) => onion_run_to_toml(scenario),
        }
    }

    /// The seed of every random stream.
    pub fn seed(&self) -> u64 {
        match self {
            AnyScenario::Overlay(scenario) => scenario.seed,
            AnyScenario::Flows(scenario) => scenario.seed,
            AnyScenario::Stream(scenario) => scenario.seed,
            AnyScenario::Onion(scenario) => scenario.seed,
        }
    }
}

/// Reads the scenario at `path`, of any kind, with `overrides` in place of what it says.
///
/// # Errors
///
/// When the file cannot be read, and whatever [`parse_any`] refuses.
pub fn read_any(path: &Path, overrides: &[Override]) -> Result<AnyScenario, ScenarioError> {
    parse_any(&text_of(path)?, &path.display().to_string(), overrides)
}

/// Reads the scenario of an overlay at `path`, with `overrides` in place of what it says.
///
/// # Errors
///
/// When the file cannot be read, and whatever [`parse`] refuses.
pub fn read(path: &Path, overrides: &[Override]) -> Result<Scenario, ScenarioError> {
    parse(&text_of(path)?, &path.display().to_string(), overrides)
}

fn text_of(path: &Path) -> Result<String, ScenarioError> {
    fs::read_to_string(path).map_err(|source| ScenarioError::Unreadable { path: path.to_owned(), source })
}

/// Reads the scenario in `text`, of any kind, with `overrides` in place of what it
/// says; errors call it `file`.
///
/// # Errors
///
/// The first thing that is not TOML, unknown, of a wrong type or impossible.
pub fn parse_any(text: &str, file: &str, overrides: &[Override]) -> Result<AnyScenario, ScenarioError> {
    let document = Document::new(text, file, overrides);
    let tree = document.tree()?;
    // Each kind has tables that no other has.
    let of_kind = |kind: Kind| kind.tables().iter().find_map(|key| tree.get_key_value(*key));
    let mut found = Kind::ALL.into_iter().filter_map(|kind| Some((kind, of_kind(kind)?.0)));
    if let (Some((key, _)), true) = (tree.get_key_value("onion"), tree.contains_key("adversary")) {
        let problem = "an adversary of an onion overlay has a command of its own; expected anabranch onion attack";
        return Err(document.error(&Problem::at(key.span(), problem)));
    }
    match (found.next(), found.next()) {
        (Some((_, _)), Some((_, key))) => {
            let problem = "a scenario has an overlay, flows over links, a stream or an onion overlay, not several; \
                           expected tables of one kind";
            Err(document.error(&Problem::at(key.span(), problem)))
        }
        (Some((kind, _)), None) => match kind {
            Kind::Overlay => document.read(&tree, overlay::scenario).map(AnyScenario::Overlay),
            Kind::Flows => read_flows(&document, &tree).map(AnyScenario::Flows),
            Kind::Stream => document.read(&tree, stream::scenario).map(AnyScenario::Stream),
            Kind::Onion => document.read(&tree, onion_run::scenario).map(AnyScenario::Onion),
        },
        (None, _) => {
            let kinds = Kind::ALL.into_iter().flat_map(Kind::tables).copied();
            let known: Vec<&str> = ["run"].into_iter().chain(kinds).collect();
            let stray = tree.keys().find(|key| key.get_ref() != "run");
            Err(document.error(&match stray {
                Some(key) => Problem::unknown_key(key.span(), key.get_ref(), &known),
                None => Problem::missing(
                    0..0,
                    "overlay",
                    "a table [overlay], or [[flow]] with the links that flows pass, or [audience] of a stream, or [onion]",
                ),
            }))
        }
    }
}

/// What a scenario is about.
#[derive(Clone, Copy)]
enum Kind {
    Overlay,
    Flows,
    Stream,
    Onion,
}

impl Kind {
    const ALL: [Kind; 4] = [Kind::Overlay, Kind::Flows, Kind::Stream, Kind::Onion];

    /// The tables that only a scenario of this kind has.
    fn tables(self) -> &'static [&'static str] {
        match self {
            Kind::Overlay => &["overlay"],
            Kind::Flows => flows::OWN,
            Kind::Stream => stream::OWN,
            Kind::Onion => onion_run::OWN,
        }
    }
}

/// Reads the scenario of an overlay in `text`, with `overrides` in place of what it says;
/// errors call it `file`.
///
/// An override that chooses another controller leaves out the parameters in the text,
/// which are the old one's; one that chooses another model of limits or delays leaves
/// out the keys of the old model.
///
/// # Errors
///
/// The first thing that is not TOML, unknown, of a wrong type or impossible.
pub fn parse(text: &str, file: &str, overrides: &[Override]) -> Result<Scenario, ScenarioError> {
    let document = Document::new(text, file, overrides);
    document.read(&document.tree()?, overlay::scenario)
}

/// Reads the scenario of flows in `text`, as [`parse`] does.
///
/// # Errors
///
/// The first thing that is not TOML, unknown, of a wrong type or impossible.
pub fn parse_flows(text: &str, file: &str, overrides: &[Override]) -> Result<FlowScenario, ScenarioError> {
    let document = Document::new(text, file, overrides);
    read_flows(&document, &document.tree()?)
}

/// Reads the scenario of a stream in `text`, as [`parse`] does.
///
/// # Errors
///
/// The first thing that is not TOML, unknown, of a wrong type or impossible.
pub fn parse_stream(text: &str, file: &str, overrides: &[Override]) -> Result<StreamScenario, ScenarioError> {
    let document = Document::new(text, file, overrides);
    document.read(&document.tree()?, stream::scenario)
}

/// Reads the scenario of an onion overlay that carries traffic in `text`, as [`parse`] does.
///
/// # Errors
///
/// The first thing that is not TOML, unknown, of a wrong type or impossible.
pub fn parse_onion_run(text: &str, file: &str, overrides: &[Override]) -> Result<OnionRunScenario, ScenarioError> {
    let document = Document::new(text, file, overrides);
    document.read(&document.tree()?, onion_run::scenario)
}

/// `scenario` as [`to_toml`] writes one.
pub fn onion_run_to_toml(scenario: &OnionRunScenario) -> String {
    layout::to_toml(&onion_run::File::from(scenario))
}

/// Reads the scenario of an onion overlay and its adversary at `path`, as [`read_any`] does.
///
/// # Errors
///
/// When the file cannot be read, and whatever [`parse_onion`] refuses.
pub fn read_onion(path: &Path, overrides: &[Override]) -> Result<OnionScenario, ScenarioError> {
    parse_onion(&text_of(path)?, &path.display().to_string(), overrides)
}

/// Reads the scenario of an onion overlay and its adversary in `text`, as [`parse`] does.
///
/// # Errors
///
/// The first thing that is not TOML, unknown, of a wrong type or impossible.
pub fn parse_onion(text: &str, file: &str, overrides: &[Override]) -> Result<OnionScenario, ScenarioError> {
    let document = Document::new(text, file, overrides);
    document.read(&document.tree()?, onion::scenario)
}

/// `scenario` as [`to_toml`] writes one.
pub fn onion_to_toml(scenario: &OnionScenario) -> String {
    layout::to_toml(&onion::File::from(scenario))
}

fn read_flows(document: &Document<'_>, tree: &DeTable<'_>) -> Result<FlowScenario, ScenarioError> {
    document.read(tree, |file| flows::scenario(file, &document.directory()))
}

/// `scenario` as TOML that says everything, defaults too: what a report shows, and what
/// repeats a run after the defaults have changed. Reading it gives the same scenario.
pub fn to_toml(scenario: &Scenario) -> String {
    layout::to_toml(&overlay::File::from(scenario))
}

/// `scenario` as [`to_toml`] writes one, with drawn starts too. Paths are written as the
/// links that they pass, so that any scenario can be written.
pub fn flows_to_toml(scenario: &FlowScenario) -> String {
    layout::to_toml(&flows::File::from(scenario))
}
