//! What a peer's page is sent, made from what its machines know.

use std::time::Duration;

use anabranch_control::units::Rate;
use anabranch_gateway::overview::{
    Client, ClientState, Event, Feed, FeedState, Here, HereState, Histogram, Mode, Overlay, Overview, Role, SentByKind,
    ServerLoad, Stream, Tree, Upload,
};
use anabranch_net::stream::link::Link;
use anabranch_net::stream::snapshot::{self, Snapshot, State};
use anabranch_proto::stream::content::ClientId;
use anabranch_proto::stream::feeds;
use anabranch_proto::stream::message;
use anabranch_proto::stream::overlay::{DELAYS, OverlayView, ViewerFigures, ViewerState};
use anabranch_proto::stream::traffic::Traffic;

use super::events::Events;

/// Bytes of the headers of IPv4 and UDP, which each packet has besides QUIC's.
pub const HEADERS: u64 = 28;

/// What is the same for a peer's whole life.
#[derive(Debug)]
pub struct About<'a> {
    /// The stream's link.
    pub link: &'a Link,
    /// Where this peer listens.
    pub address: String,
    /// What players hold.
    pub buffer: Duration,
}

fn bits(rate: Rate) -> f64 {
    rate.bytes_per_sec() * 8.0
}

fn seconds(duration: anabranch_control::time::Duration) -> f64 {
    duration.as_secs_f64()
}

/// What `snapshot` says, for a page.
pub fn of(about: &About<'_>, snapshot: &Snapshot, events: &Events) -> Overview {
    let mode = match snapshot.mode {
        Some(message::Mode::Trees) => Mode::Trees,
        Some(message::Mode::Mesh) => Mode::Mesh,
        Some(message::Mode::Hybrid) | None => Mode::Hybrid,
    };
    Overview {
        role: match snapshot.role {
            snapshot::Role::Server => Role::Server,
            snapshot::Role::Viewer => Role::Viewer,
        },
        version: env!("CARGO_PKG_VERSION").to_owned(),
        uptime_s: seconds(snapshot.uptime),
        stream: Stream {
            key: snapshot.key.to_string(),
            link: about.link.to_string(),
            mode,
            slices: snapshot.slices.map_or(0, u32::from),
            bitrate_bits_per_s: snapshot.bitrate.map(bits),
            buffer_s: about.buffer.as_secs_f64(),
            has_video: None,
            is_private: snapshot.is_private,
        },
        input: None,
        here: here(about, snapshot),
        overlay: snapshot.overlay.as_ref().map(|(age, view)| {
            // The server notes what happens itself; a viewer is sent what happens to others, and notes what happens to
            // it.
            let events = match snapshot.role {
                snapshot::Role::Server => events.newest(),
                snapshot::Role::Viewer => events.with_happenings(seconds(snapshot.uptime), *age, &view.happenings),
            };
            overlay(seconds(*age), view, events)
        }),
    }
}

/// Why somebody may not watch, in words.
pub const NO_ROOM: &str = "nobody has room to pass the stream on to another viewer";
pub const NO_ROOM_ALONE: &str = "the server cannot feed another viewer by itself, as private ones are";

/// What is wrong with a stream that runs, in words.
pub fn trouble(snapshot: &Snapshot) -> Option<String> {
    if let Some(carries) = snapshot.narrowest {
        return Some(format!(
            "{} packets were too long for the network to somebody, which carries {carries} bytes: they get nothing \
             from here; raise its MTU to 1400, or serve with --narrow",
            snapshot.too_long
        ));
    }
    let State::Silent { span, is_missed } = snapshot.state else { return None };
    let may_be = if is_missed {
        "those who watch may have too little upload for all"
    } else {
        "its source or its server may have stopped"
    };
    Some(if snapshot.played_packets == 0 {
        format!(
            "the server answers, and no packet of the stream comes: {may_be}, or the network carries no packets of \
             1400 bytes, for which the server has --narrow"
        )
    } else {
        format!("nothing of the stream has come for {:.0} s: {may_be}", seconds(span))
    })
}

fn by_kind(traffic: &Traffic) -> SentByKind {
    let Traffic { packets, manifests, maps, wants, explored, gossip, messages, acks, sessions } = *traffic;
    // Both carry the stream; nothing is explored on sockets.
    let packets = packets + explored;
    SentByKind { packets, manifests, maps, wants, gossip, messages, transport: acks + sessions }
}

fn here(about: &About<'_>, snapshot: &Snapshot) -> Here {
    let (state, detail) = match &snapshot.state {
        State::Connecting => (HereState::Connecting, None),
        State::Live => (HereState::Live, trouble(snapshot)),
        State::Silent { .. } => (HereState::Silent, trouble(snapshot)),
        State::Overloaded => {
            let why = if snapshot.is_alone { NO_ROOM_ALONE } else { NO_ROOM };
            (HereState::Overloaded, Some(format!("{why}; the server is asked again")))
        }
        State::Unreachable(why) => (HereState::Unreachable, Some(why.clone())),
    };
    let feed_state = |state| match state {
        feeds::FeedState::Awaited => FeedState::Asked,
        feeds::FeedState::Live => FeedState::Live,
        feeds::FeedState::Silent => FeedState::Silent,
    };
    let feed = |(slice, feed): (usize, &snapshot::Feed)| {
        let (parent, is_server, state) = match *feed {
            snapshot::Feed::None => (None, false, FeedState::None),
            snapshot::Feed::Server(how) => (None, true, feed_state(how)),
            snapshot::Feed::Client(client, how) => (Some(u64::from(client)), false, feed_state(how)),
        };
        Feed { slice: slice as u32, parent, is_server, state }
    };
    Here {
        address: Some(about.address.clone()),
        client: snapshot.client.map(u64::from),
        is_private: snapshot.is_alone,
        state,
        detail,
        played_packets: snapshot.played_packets,
        skipped_packets: snapshot.skipped_packets,
        forged_packets: snapshot.forged_packets,
        delay_s: snapshot.delay.map(seconds),
        buffered_s: None,
        upload: Upload {
            sent_bytes: snapshot.sent_bytes + HEADERS * snapshot.sent_packets,
            by_kind: by_kind(&snapshot.sent_by_kind),
            sent_bits_per_s: Some(bits(snapshot.upload)),
            capacity_bits_per_s: snapshot.capacity.map(bits),
            limit_bits_per_s: snapshot.upload_limit.map(bits),
        },
        download_bits_per_s: Some(bits(snapshot.download)),
        server_share: snapshot.server_share,
        sessions: snapshot.sessions as u64,
        children: snapshot.children as u64,
        players: 0,
        feeds: snapshot.feeds.iter().enumerate().map(feed).collect(),
        children_by_slice: snapshot
            .children_by_slice
            .iter()
            .map(|to| to.iter().copied().map(u64::from).collect())
            .collect(),
    }
}

fn overlay(age: f64, view: &OverlayView, events: Vec<Event>) -> Overlay {
    let sent_bytes = view.load.sent_bytes;
    let delivered = view.delivered_bytes;
    Overlay {
        age_s: age,
        watching: u64::from(view.watching),
        server: ServerLoad {
            sent_bits_per_s: Some(bits(view.load.sent)),
            sent_bytes,
            source_bytes: view.load.source_bytes,
            children: fed_by_server(view),
        },
        delivered_bytes: delivered,
        savings: (delivered > 0).then(|| 1.0 - sent_bytes as f64 / delivered as f64),
        clients: view.viewers.iter().map(client).collect(),
        trees: (0..).zip(&view.trees).map(|(slice, edges)| tree(slice, edges)).collect(),
        delays_s: Histogram {
            upper_bounds: DELAYS.iter().map(|upper| Some(seconds(*upper))).chain([None]).collect(),
            counts: view.delays.iter().map(|&count| u64::from(count)).collect(),
        },
        events,
    }
}

/// How many viewers get any slice from the server: of those that are listed, among whom they come first.
fn fed_by_server(view: &OverlayView) -> u64 {
    let edges = view.trees.iter().flatten().filter(|(_, parent)| parent.is_none());
    edges.map(|(child, _)| child.0).collect::<std::collections::BTreeSet<u32>>().len() as u64
}

fn tree(slice: u32, edges: &[(ClientId, Option<ClientId>)]) -> Tree {
    let edges = edges.iter().map(|(child, parent)| (u64::from(child.0), parent.map(|parent| u64::from(parent.0))));
    Tree { slice, edges: edges.collect() }
}

fn client(figures: &ViewerFigures) -> Client {
    // Rates of nothing are none: a viewer that has not had to send knows nothing of what it can.
    let capacity = Some(bits(figures.capacity)).filter(|bits| *bits > 0.0);
    Client {
        client: u64::from(figures.client.0),
        state: match figures.state {
            ViewerState::Live => ClientState::Live,
            ViewerState::Late => ClientState::Late,
            ViewerState::Silent => ClientState::Silent,
            ViewerState::Suspect => ClientState::Suspect,
            ViewerState::Excluded => ClientState::Excluded,
        },
        is_private: figures.is_private,
        upload_bits_per_s: Some(bits(figures.sent)),
        capacity_bits_per_s: capacity,
        places: u64::from(figures.places),
        children: u64::from(figures.children),
        played_packets: figures.played,
        skipped_packets: figures.skipped,
        delay_s: figures.delay.map(seconds),
        round_trip_s: figures.round_trip.map(seconds),
        buffered_s: None,
    }
}

#[cfg(test)]
mod tests {
    use anabranch_net::sessions::identity::PeerIdentity;
    use anabranch_net::stream::node::{ServeOptions, StreamNode};

    use super::*;

    #[test]
    fn a_viewer_that_has_played_is_told_that_nothing_comes_any_more() {
        let options =
            ServeOptions::new(([127, 0, 0, 1], 0).into(), PeerIdentity::generate(), Rate::from_bits_per_sec(1_000_000));
        let (node, _video, _events) = StreamNode::serve(options).unwrap();
        let about = About { link: node.link(), address: node.local_addr().to_string(), buffer: Duration::from_secs(3) };
        let of = |state, played_packets| {
            let snapshot = Snapshot { role: snapshot::Role::Viewer, state, played_packets, ..node.snapshot() };
            let here = here(&about, &snapshot);
            (here.state, here.detail.unwrap_or_default())
        };
        let span = anabranch_control::time::Duration::from_millis(6200);
        assert_eq!(of(State::Live, 100), (HereState::Live, String::new()));
        let silent = |is_missed, played| {
            let (state, words) = of(State::Silent { span, is_missed }, played);
            assert_eq!(state, HereState::Silent);
            words
        };
        assert!(silent(false, 100).starts_with("nothing of the stream has come for 6 s: its source or its server"));
        assert!(silent(true, 100).contains("too little upload"));
        assert!(silent(false, 0).contains("--narrow"));
    }

    #[test]
    fn the_server_s_view_becomes_the_page_s() {
        let viewer = |number, state, capacity| ViewerFigures {
            client: ClientId(number),
            state,
            is_private: number == 2,
            places: 20,
            children: 7,
            sent: Rate::from_bits_per_sec(1000),
            capacity,
            played: 50,
            skipped: 1,
            delay: None,
            round_trip: None,
        };
        let view = OverlayView {
            delivered_bytes: 400,
            watching: 1000,
            viewers: vec![viewer(1, ViewerState::Late, Rate::ZERO), viewer(2, ViewerState::Live, Rate::ZERO)],
            trees: vec![
                vec![(ClientId(1), None), (ClientId(2), Some(ClientId(1)))],
                vec![(ClientId(1), None), (ClientId(2), Some(ClientId(1)))],
            ],
            ..OverlayView::default()
        };
        let overlay = overlay(1.5, &view, Vec::new());
        assert_eq!((overlay.watching, overlay.savings, overlay.age_s), (1000, Some(1.0), 1.5));
        assert_eq!(overlay.trees[0].edges, [(1, None), (2, Some(1))]);
        assert_eq!(overlay.server.children, 1, "a viewer, however many slices it gets");
        assert_eq!(overlay.clients[0].state, ClientState::Late);
        assert_eq!(overlay.clients[0].capacity_bits_per_s, None, "what is unknown is not zero");
        assert_eq!((overlay.clients[0].is_private, overlay.clients[1].is_private), (false, true));
        assert_eq!(overlay.delays_s.upper_bounds.len(), overlay.delays_s.counts.len());
        let nobody = super::overlay(0.0, &OverlayView::default(), Vec::new());
        assert_eq!(nobody.savings, None, "nothing was delivered yet");
    }
}
