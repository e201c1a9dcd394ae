//! What a user's edge tells its user, on its page and as metrics.

use std::collections::VecDeque;
use std::net::SocketAddr;

use anabranch_control::time::{Duration, Time};
use anabranch_gateway::onion::{
    Guard, Happening, HappeningKind, MOST_EVENTS, MOST_RELAYS, Network, Overview, Place, PlaceKind, Relay, RoundTrip,
    Settings, Streams, Traffic,
};
use anabranch_net::onion::follow::wall;
use anabranch_net::onion::user_edge::{EdgeUser, UserEdge};
use anabranch_onion::RelayIndex;
use anabranch_onion::directory::{AuthorityConfig, Document, Member, PublicKey};
use anabranch_onion::guards::Drawn;
use anabranch_onion::node::UserSettings;
use anabranch_onion::size::DATAGRAM;
use anabranch_stats::{Entropy, percentile};

use super::metrics::{Row, counter, gauge};

/// Bytes of a relay's key that name it on the page.
const NAME_BYTES: usize = 5;

/// What happened lately.
#[derive(Clone, Debug, Default)]
pub struct Events(VecDeque<Happening>);

impl Events {
    /// Notes that it happened. What is the same as the last of all is not noted again.
    pub fn note(&mut self, now: Time, kind: HappeningKind, text: impl Into<String>) {
        let text = text.into();
        if self.0.back().is_some_and(|last| last.kind == kind && last.text == text) {
            return;
        }
        if self.0.len() == MOST_EVENTS {
            self.0.pop_front();
        }
        self.0.push_back(Happening { at_s: seconds(now), kind, text });
    }
}

/// What does not change while an edge runs.
#[derive(Clone, Debug)]
pub struct Fixed {
    /// Where programs come.
    pub socks: SocketAddr,
    /// How it was told to go.
    pub settings: Settings,
    /// Authorities, and how many of them must sign.
    pub authorities: (usize, usize),
}

impl Fixed {
    /// Of a user of `settings` in the network of `authorities`.
    pub fn new(socks: SocketAddr, settings: &UserSettings, authorities: &AuthorityConfig) -> Fixed {
        let settings = Settings {
            guards: settings.guards,
            hops: settings.hops,
            placement: settings.placement.clone(),
            packets_per_key: settings.packets_per_key.get(),
            packet_bytes: DATAGRAM,
        };
        Fixed { socks, settings, authorities: (authorities.authorities.len(), authorities.threshold) }
    }
}

fn seconds(time: Time) -> f64 {
    time.since(Time::ZERO).as_secs_f64()
}

/// The first digits of a relay's key.
fn name(identity: &PublicKey) -> String {
    identity.0[..NAME_BYTES].iter().map(|byte| format!("{byte:02x}")).collect()
}

/// How `edge` stands; `refused` connections led to no exit.
pub fn overview(fixed: &Fixed, edge: &UserEdge, events: &Events, refused: u64) -> Overview {
    let (open, opened) = edge.connections();
    let mut overview = Overview {
        version: env!("CARGO_PKG_VERSION"),
        uptime_s: seconds(edge.now()),
        socks: fixed.socks.to_string(),
        network: None,
        settings: fixed.settings.clone(),
        traffic: Traffic::default(),
        round_trip: None,
        streams: Streams { open, opened, refused, sessions: edge.sessions() },
        guards: Vec::new(),
        places: Vec::new(),
        relays: Vec::new(),
        events: events.0.iter().cloned().collect(),
    };
    let Some(user) = edge.user() else { return overview };
    let document = user.document();
    overview.network = Some(network(document, fixed));
    let counts = user.counts();
    overview.traffic = Traffic {
        sent: counts.sent,
        received: counts.received,
        delivered: counts.delivered,
        lost: counts.lost,
        unknown: counts.unknown,
        blocks: counts.blocks,
    };
    overview.round_trip = round_trip(user.round_trips());
    overview.guards = guards(user, edge.now());
    overview.places = places(user, &fixed.settings);
    overview.relays = relays(user, fixed.settings.hops);
    overview
}

fn network(document: &Document, fixed: &Fixed) -> Network {
    let count = |is: fn(&Member) -> bool| document.relays().filter(|(_, member)| is(member)).count();
    Network {
        epoch: document.epoch,
        relays: document.len(),
        exits: count(|member| member.descriptor.service.is_some()),
        may_guard: count(|member| member.guard),
        authorities: fixed.authorities.0,
        threshold: fixed.authorities.1,
    }
}

fn round_trip(samples: impl Iterator<Item = Duration>) -> Option<RoundTrip> {
    let mut samples: Vec<f64> = samples.map(Duration::as_secs_f64).collect();
    samples.sort_unstable_by(f64::total_cmp);
    let (median_s, p95_s) = percentile(&samples, 0.5).zip(percentile(&samples, 0.95))?;
    Some(RoundTrip { median_s, p95_s, packets: samples.len() })
}

fn guards(user: &EdgeUser, now: Time) -> Vec<Guard> {
    let (document, wall) = (user.document(), wall());
    let guard = |drawn: Drawn| {
        let relay = document.index_of(&drawn.identity);
        let (forth, back) =
            relay.map_or_else(Default::default, |relay| (user.routes().used(relay), user.routes_back().used(relay)));
        Guard {
            name: name(&drawn.identity),
            age_s: drawn.at.map(|at| wall.since(at)),
            left_s: drawn.until.since(wall),
            is_listed: relay.is_some(),
            is_in_use: relay.is_some_and(|relay| user.choice().in_use.contains(&relay)),
            answers: relay.is_some_and(|relay| user.hangs_on(relay, now)),
            sent: forth.at[0],
            delivered: forth.arrived,
            lost: forth.lost,
            received: back.arrived,
        }
    };
    user.guards().drawn().map(guard).collect()
}

/// Packets on whose path a relay stood first, and between the first and the exit: on the way there, and back.
struct Stood {
    entry: u64,
    middle: u64,
    middle_back: u64,
}

fn stood(user: &EdgeUser, relay: RelayIndex, hops: usize) -> Stood {
    let (forth, back) = (user.routes().used(relay).at, user.routes_back().used(relay).at);
    let all = |places: &[u64]| places.iter().sum::<u64>();
    // An exit is no part of routes; on the way back, the entry is last.
    let middles = hops.saturating_sub(2);
    Stood { entry: forth[0], middle: all(&forth[1..=middles]), middle_back: all(&back[..middles]) }
}

fn places(user: &EdgeUser, settings: &Settings) -> Vec<Place> {
    let Settings { guards, hops, .. } = *settings;
    let document = user.document();
    let reserved = &user.choice().reserved;
    let of = |kind: PlaceKind, may: &dyn Fn(RelayIndex) -> bool, count: &dyn Fn(RelayIndex) -> u64| {
        let counts: Vec<f64> = document
            .relays()
            .map(|(relay, _)| relay)
            .filter(|relay| may(*relay))
            .map(|relay| count(relay) as f64)
            .collect();
        let Entropy { bits, degree } = Entropy::of(&counts)?;
        let packets = (kind != PlaceKind::Anybody).then(|| counts.iter().sum::<f64>() as u64);
        Some(Place { kind, bits, degree, of: counts.len(), packets })
    };
    let is_free = |relay: RelayIndex| guards == 0 || !reserved.contains(&relay);
    let may_guard = |relay: RelayIndex| guards == 0 || document.member(relay).is_some_and(|member| member.guard);
    let weight = |relay: RelayIndex| document.member(relay).map_or(0, |member| member.weight);
    let stood = |relay| stood(user, relay, hops);
    let all = [
        of(PlaceKind::Entry, &|relay| may_guard(relay) || reserved.contains(&relay), &|relay| stood(relay).entry),
        of(PlaceKind::Middle, &is_free, &|relay| stood(relay).middle),
        of(PlaceKind::MiddleBack, &is_free, &|relay| stood(relay).middle_back),
        of(PlaceKind::Anybody, &may_guard, &weight),
    ];
    all.into_iter().flatten().collect()
}

fn relays(user: &EdgeUser, hops: usize) -> Vec<Relay> {
    let document = user.document();
    let guards = &user.choice().reserved;
    let total: u64 =
        document.relays().filter(|(relay, _)| !guards.contains(relay)).map(|(_, member)| member.weight).sum();
    let mut relays: Vec<Relay> = document
        .relays()
        .map(|(relay, member)| {
            let is_guard = guards.contains(&relay);
            let Stood { middle, middle_back, .. } = stood(user, relay, hops);
            Relay {
                name: name(&member.descriptor.identity),
                is_guard,
                is_exit: member.descriptor.service.is_some(),
                by_list: (!is_guard && total > 0).then(|| member.weight as f64 / total as f64),
                given: (!is_guard).then(|| user.routes().share(relay)),
                carried: middle + middle_back,
            }
        })
        .collect();
    // Guards are listed, however many others there are.
    let rank = |relay: &Relay| if relay.is_guard { f64::INFINITY } else { relay.given.unwrap_or(0.0) };
    relays.sort_by(|one, other| rank(other).total_cmp(&rank(one)).then_with(|| one.name.cmp(&other.name)));
    relays.truncate(MOST_RELAYS);
    relays
}

/// The same as metrics: nothing of a single guard, stream or program.
pub fn rows(overview: &Overview) -> Vec<Row> {
    let Overview { network, traffic, streams, round_trip, guards, .. } = overview;
    let (epoch, relays) = network.as_ref().map_or((0, 0), |network| (network.epoch, network.relays));
    let answering = guards.iter().filter(|guard| guard.is_in_use && guard.answers).count();
    let mut rows = vec![
        gauge("uptime_seconds", "Since it began", overview.uptime_s),
        gauge("epoch", "The epoch whose list of relays it has, 0 for none", epoch as f64),
        gauge("relays", "Relays in that list", relays as f64),
        gauge("guards", "Guards that its user has, by its settings", overview.settings.guards as f64),
        gauge("answering_guards", "Guards that are in use and answer", answering as f64),
        counter("sent_packets", "Packets that left", traffic.sent),
        counter("received_packets", "Packets that came by a block", traffic.received),
        counter("delivered_packets", "Packets that left and are known to have arrived", traffic.delivered),
        counter("lost_packets", "Packets that left and were given up", traffic.lost),
        counter("unknown_packets", "Packets that came by no block, or were changed", traffic.unknown),
        counter("made_blocks", "Blocks to be answered by that were made", traffic.blocks),
        gauge("sessions", "Sessions with exits", streams.sessions as f64),
        gauge("connections", "Connections of programs", streams.open as f64),
        counter("opened_connections", "Connections of programs that were ever opened", streams.opened),
        counter("refused_connections", "Connections that led to no exit", streams.refused),
    ];
    if let Some(RoundTrip { median_s, p95_s, .. }) = round_trip {
        rows.push(gauge("round_trip_median_seconds", "There and back, the median of the last packets", *median_s));
        rows.push(gauge("round_trip_p95_seconds", "There and back, the 95th percentile of the last packets", *p95_s));
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_repeats_itself_is_noted_once_and_old_events_go() {
        let mut events = Events::default();
        for at in 0..3 {
            events.note(Time::from_secs_f64(f64::from(at)), HappeningKind::Refused, "no path");
        }
        assert_eq!(events.0.len(), 1);
        for at in 0..MOST_EVENTS + 5 {
            events.note(Time::ZERO, HappeningKind::List, format!("epoch {at}"));
        }
        assert_eq!((events.0.len(), events.0[0].text.as_str()), (MOST_EVENTS, "epoch 5"));
    }

    #[test]
    fn round_trips_are_given_by_median_and_tail_and_none_is_no_figure() {
        assert_eq!(round_trip(std::iter::empty()), None);
        let figures = round_trip((1..=101).map(Duration::from_millis)).unwrap();
        assert_eq!((figures.median_s, figures.p95_s, figures.packets), (0.051, 0.096, 101));
    }
}
