//! What a peer's page is told, made from what its machines know.

use std::time::Duration;

use anabranch_control::units::Rate;
use anabranch_gateway::overview::{
    Client, ClientState, Feed, FeedState, Here, HereState, Histogram, Mode, Overlay, Overview, Role, ServerLoad,
    Stream, Tree, Upload,
};
use anabranch_net::stream::link::Link;
use anabranch_net::stream::snapshot::{self, ClientFigures, ServerFigures, Snapshot, State};
use anabranch_proto::stream::message;

use super::events::Events;

/// Bytes of the headers of IPv4 and UDP, which each packet has besides QUIC's.
pub const HEADERS: u64 = 28;

/// Upper ends of the classes of delays, in seconds; the last has none.
const DELAYS_S: [f64; 7] = [0.25, 0.5, 1.0, 2.0, 3.0, 4.0, 5.0];

/// A viewer of whom nothing was heard for so long is called silent: two of its reports are missing.
const SILENT_AFTER: Duration = Duration::from_secs(3);

/// A viewer that misses more of its packets than this share is called late.
const LATE: f64 = 0.01;

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
            key: snapshot.key.0.iter().map(|byte| format!("{byte:02x}")).collect(),
            link: about.link.to_string(),
            mode,
            slices: snapshot.slices.map_or(0, u32::from),
            bitrate_bits_per_s: snapshot.bitrate.map(bits),
            buffer_s: about.buffer.as_secs_f64(),
            has_video: None,
            is_private: false,
        },
        input: None,
        here: here(about, snapshot),
        overlay: snapshot.server.as_ref().map(|figures| overlay(snapshot, figures, events)),
    }
}

fn here(about: &About<'_>, snapshot: &Snapshot) -> Here {
    let (state, detail) = match &snapshot.state {
        State::Connecting => (HereState::Connecting, None),
        State::Live => (HereState::Live, None),
        State::Overloaded => {
            let why = "nobody has room to pass the stream on to another viewer; the server is asked again";
            (HereState::Overloaded, Some(why.to_owned()))
        }
        State::Unreachable(why) => (HereState::Unreachable, Some(why.clone())),
    };
    let feed = |(slice, feed): (usize, &snapshot::Feed)| {
        let (parent, is_server, state) = match feed {
            snapshot::Feed::None => (None, false, FeedState::None),
            snapshot::Feed::Server => (None, true, FeedState::Live),
            snapshot::Feed::Client(client) => (Some(u64::from(*client)), false, FeedState::Live),
        };
        Feed { slice: slice as u32, parent, is_server, state }
    };
    Here {
        address: Some(about.address.clone()),
        client: snapshot.client.map(u64::from),
        state,
        detail,
        received_packets: snapshot.played_packets,
        played_packets: snapshot.played_packets,
        skipped_packets: snapshot.skipped_packets,
        forged_packets: snapshot.forged_packets,
        delay_s: snapshot.delay.map(seconds),
        buffered_s: None,
        upload: Upload {
            sent_bytes: snapshot.sent_bytes + HEADERS * snapshot.sent_packets,
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
        children_by_slice: Vec::new(),
    }
}

fn overlay(snapshot: &Snapshot, figures: &ServerFigures, events: &Events) -> Overlay {
    let delivered = delivered_bytes(figures);
    let delays = figures.clients.iter().filter_map(|client| client.told.as_ref()?.delay).map(seconds);
    let sent_bytes = snapshot.sent_bytes + HEADERS * snapshot.sent_packets;
    let mut counts = vec![0; DELAYS_S.len() + 1];
    for delay in delays {
        counts[DELAYS_S.iter().position(|upper| delay <= *upper).unwrap_or(DELAYS_S.len())] += 1;
    }
    Overlay {
        server: ServerLoad {
            sent_bits_per_s: Some(bits(snapshot.upload)),
            sent_bytes,
            source_bytes: figures.source_bytes,
            children: snapshot.children as u64,
            capacity_bits_per_s: None,
        },
        delivered_bytes: delivered,
        savings: (delivered > 0).then(|| 1.0 - sent_bytes as f64 / delivered as f64),
        clients: figures.clients.iter().map(client).collect(),
        trees: figures.trees.iter().enumerate().map(|(slice, edges)| tree(slice, edges)).collect(),
        delays_s: Histogram { upper_bounds: DELAYS_S.into_iter().map(Some).chain([None]).collect(), counts },
        events: events.newest(),
    }
}

/// What viewers say that they got, in bytes of video. Whoever lies got no more packets than there are.
fn delivered_bytes(figures: &ServerFigures) -> u64 {
    let told = figures.clients.iter().filter_map(|client| client.told.as_ref());
    let played: f64 = told.map(|told| told.played.min(figures.source_packets) as f64).sum();
    // They tell of packets; all are about as long as the source's.
    (played * figures.source_bytes as f64 / figures.source_packets.max(1) as f64) as u64
}

fn tree(slice: usize, edges: &[(u32, Option<u32>)]) -> Tree {
    let edges = edges.iter().map(|(child, parent)| (u64::from(*child), parent.map(u64::from)));
    Tree { slice: slice as u32, edges: edges.collect() }
}

fn client(figures: &ClientFigures) -> Client {
    let told = figures.told.as_ref();
    let (played, skipped) = told.map_or((0, 0), |told| (told.played, told.skipped));
    // Rates of nothing are none: a viewer that has not had to send knows nothing of what it can.
    let rate = |rate: Rate| Some(bits(rate)).filter(|bits| *bits > 0.0);
    let state = if figures.is_suspect {
        ClientState::Suspect
    } else if seconds(figures.heard) > SILENT_AFTER.as_secs_f64() {
        ClientState::Silent
    } else if skipped as f64 > (played as f64 + skipped as f64) * LATE {
        ClientState::Late
    } else {
        ClientState::Live
    };
    Client {
        client: u64::from(figures.client),
        state,
        upload_bits_per_s: told.map(|told| bits(told.sent)),
        capacity_bits_per_s: told.and_then(|told| rate(told.capacity)),
        places: figures.places as u64,
        children: figures.children as u64,
        played_packets: played,
        skipped_packets: skipped,
        delay_s: told.and_then(|told| told.delay).map(seconds),
        round_trip_s: figures.round_trip.map(seconds),
        buffered_s: None,
    }
}

#[cfg(test)]
mod tests {
    use anabranch_control::time::Duration;
    use anabranch_proto::stream::message::Report;

    use super::*;

    fn viewer(number: u32, played: u64, skipped: u64) -> ClientFigures {
        ClientFigures {
            client: number,
            announced: Rate::ZERO,
            places: 0,
            children: 0,
            round_trip: None,
            heard: Duration::ZERO,
            is_suspect: false,
            told: Some(Report { played, skipped, ..Report::default() }),
        }
    }

    #[test]
    fn what_viewers_claim_is_no_more_than_there_was_and_breaks_nothing() {
        let clients = vec![viewer(1, 50, 0), viewer(2, u64::MAX, u64::MAX), viewer(3, u64::MAX, 0)];
        let figures = ServerFigures { source_bytes: 131_600, source_packets: 100, clients, ..ServerFigures::default() };
        assert_eq!(delivered_bytes(&figures), 1316 * 250);
        assert_eq!(client(&figures.clients[1]).state, ClientState::Late);
        assert_eq!(client(&figures.clients[2]).state, ClientState::Live);
        assert_eq!(delivered_bytes(&ServerFigures::default()), 0);
    }
}
