//! What a user's edge of the onion overlay tells its user: the body of `GET /api/overview`, and of each event of
//! `GET /events`.
//!
//! It holds no target and no name of a program's user. Relays are named by the first digits of their keys. Units are in
//! the names. What is unknown is `None`, and `null` in JSON; it is never zero.

use serde::Serialize;

/// Events that an overview holds at most.
pub const MOST_EVENTS: usize = 100;

/// Relays that an overview tells of at most: those that carry most.
pub const MOST_RELAYS: usize = 200;

/// What a user's edge knows.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Overview {
    /// Of the program.
    pub version: &'static str,
    /// Since it began.
    pub uptime_s: f64,
    /// Where programs come.
    pub socks: String,
    /// The list of relays; null until there is one.
    pub network: Option<Network>,
    /// How it was told to go.
    pub settings: Settings,
    /// Packets since it began.
    pub traffic: Traffic,
    /// There and back; null before there was any.
    pub round_trip: Option<RoundTrip>,
    /// What programs do.
    pub streams: Streams,
    /// The guards that it has drawn, in that order.
    pub guards: Vec<Guard>,
    /// How hard it is to guess which relay stands where.
    pub places: Vec<Place>,
    /// The relays, [`MOST_RELAYS`] at most: those that are given most.
    pub relays: Vec<Relay>,
    /// What happened, newest last, [`MOST_EVENTS`] at most.
    pub events: Vec<Happening>,
}

/// A list of relays.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Network {
    /// Its epoch.
    pub epoch: u64,
    /// Relays, n.
    pub relays: usize,
    /// Of these, those that connect to hosts.
    pub exits: usize,
    /// Of these, those that may be somebody's guard.
    pub may_guard: usize,
    /// Authorities, a.
    pub authorities: usize,
    /// Of these, those that must sign, t.
    pub threshold: usize,
}

/// How a user goes through the overlay.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Settings {
    /// Guards, g.
    pub guards: usize,
    /// Relays of a path, the exit among them.
    pub hops: usize,
    /// What places packets.
    pub placement: String,
    /// k.
    pub packets_per_key: u16,
    /// Bytes of every packet.
    pub packet_bytes: usize,
}

/// Packets since the edge began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Traffic {
    /// That left.
    pub sent: u64,
    /// That came.
    pub received: u64,
    /// Of those that left, known to have arrived.
    pub delivered: u64,
    /// Of those that left, given up.
    pub lost: u64,
    /// That came and were none of ours, or changed on the way.
    pub unknown: u64,
    /// Blocks to be answered by that were made.
    pub blocks: u64,
}

/// Of the last packets.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct RoundTrip {
    /// Half of them took no longer.
    pub median_s: f64,
    /// Nineteen of twenty took no longer.
    pub p95_s: f64,
    /// How many.
    pub packets: usize,
}

/// What programs do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Streams {
    /// Connections that are open.
    pub open: usize,
    /// That were ever asked for.
    pub opened: u64,
    /// That no exit led to.
    pub refused: u64,
    /// Sessions with exits.
    pub sessions: usize,
}

/// A guard.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Guard {
    /// The first digits of its key.
    pub name: String,
    /// Since it was drawn; null if that was before such things were written down.
    pub age_s: Option<u64>,
    /// For how long it is kept yet.
    pub left_s: u64,
    /// Whether the list has it.
    pub is_listed: bool,
    /// Whether packets take it, as long as it answers; spares wait.
    pub is_in_use: bool,
    /// Whether it answers.
    pub answers: bool,
    /// Packets that left by it.
    pub sent: u64,
    /// Of these, those that arrived.
    pub delivered: u64,
    /// Of these, those that were given up.
    pub lost: u64,
    /// Packets that came by it.
    pub received: u64,
}

/// A place on paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PlaceKind {
    /// Where packets enter.
    Entry,
    /// Between the entry and the exit, on the way there.
    Middle,
    /// Between the exit and the entry, on the way back.
    MiddleBack,
    /// Where whoever uses this network may enter, by the list alone.
    Anybody,
}

/// How hard it is to guess which relay stands at a place, by the shares with which relays really stood there.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Place {
    /// Which.
    pub kind: PlaceKind,
    /// H, in bits ([Serjantov and Danezis 2002]).
    pub bits: f64,
    /// d ([Díaz et al. 2002]); null where there is one relay to choose from.
    pub degree: Option<f64>,
    /// N: relays that might stand there.
    pub of: usize,
    /// Packets that were counted; null where the list alone is.
    pub packets: Option<u64>,
}

/// A relay.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Relay {
    /// The first digits of its key.
    pub name: String,
    /// Whether it is a guard of this user.
    pub is_guard: bool,
    /// Whether it connects to hosts.
    pub is_exit: bool,
    /// The part of all middles' weight that the list gives it; null for a guard of this user.
    pub by_list: Option<f64>,
    /// The part of middles that it is given now; null for a guard of this user.
    pub given: Option<f64>,
    /// Packets on whose path it stood between entry and exit, both ways.
    pub carried: u64,
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Happening {
    /// Since the edge began.
    pub at_s: f64,
    /// What.
    pub kind: HappeningKind,
    /// In words.
    pub text: String,
}

/// What can happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum HappeningKind {
    /// A list of relays.
    List,
    /// Other guards.
    Guards,
    /// No path, or no exit.
    Refused,
    /// An authority, or what it says.
    Directory,
}
