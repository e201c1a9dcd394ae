//! What has happened to a stream, for pages: the newest events, in words.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use anabranch_gateway::overview::{Event, EventKind, MOST_EVENTS};
use anabranch_net::stream::NodeEvent;
use anabranch_proto::stream::overlay::{Happened, Happening};
use anabranch_proto::stream::tracker::Refusal;

/// The newest events.
#[derive(Debug, Default)]
pub struct Events {
    newest: VecDeque<Event>,
    /// The viewers that a server has, by their numbers.
    watching: BTreeSet<u32>,
    /// Some viewer was sent away from where it watched: it may not come back for a while, whatever room there is.
    has_left_out: bool,
}

impl Events {
    /// Notes `event`, if it is one for people; gives its words.
    pub fn note(&mut self, uptime: Duration, event: &NodeEvent) -> Option<&str> {
        self.count(event);
        let (kind, client, text) = match event {
            NodeEvent::Joined(client) => happened(*client, Happened::Joined),
            NodeEvent::Left { client, was_silent: false } => happened(*client, Happened::Left),
            NodeEvent::Left { client, was_silent: true } => happened(*client, Happened::Died),
            NodeEvent::Refused(refusal) => {
                let why = match refusal {
                    Refusal::Full => "there are as many as may watch",
                    Refusal::NetworkIsFull => {
                        "as many of its network watch as may; --most-of-network says how many that are"
                    }
                    Refusal::Overloaded if self.watching.is_empty() && !self.has_left_out => {
                        "the server's own upload is too small for one viewer; --upload says what it can send: expected \
                         more than the stream takes"
                    }
                    Refusal::Overloaded => "nobody has room to pass the stream on to another",
                    Refusal::Excluded => "it was excluded before",
                    Refusal::NoRoomForPrivate => {
                        "it is private, and the server cannot feed another by itself; --upload says what it can"
                    }
                };
                (EventKind::Refused, None, format!("somebody could not watch: {why}"))
            }
            NodeEvent::Excluded(client) => happened(*client, Happened::Excluded),
            NodeEvent::LeftOut(client) => happened(*client, Happened::LeftOut),
            NodeEvent::Forged(client) => {
                let whose = client.map_or("somebody".to_owned(), |client| format!("viewer {client}"));
                (EventKind::Excluded, *client, format!("{whose} sent what is not the stream's; it was thrown away"))
            }
            NodeEvent::Welcomed(_)
            | NodeEvent::Restarted
            | NodeEvent::Overloaded
            | NodeEvent::Unreachable(_)
            | NodeEvent::Packet { .. }
            | NodeEvent::Gap { .. }
            | NodeEvent::Silent { .. } => return None,
        };
        self.push(Event { at_s: uptime.as_secs_f64(), kind, client: client.map(u64::from), text });
        self.newest.back().map(|event| event.text.as_str())
    }

    /// Counts who watches.
    fn count(&mut self, event: &NodeEvent) {
        self.has_left_out |= matches!(event, NodeEvent::LeftOut(_));
        match event {
            NodeEvent::Joined(client) => {
                self.watching.insert(*client);
            }
            NodeEvent::Left { client, .. } | NodeEvent::Excluded(client) | NodeEvent::LeftOut(client) => {
                self.watching.remove(client);
            }
            _ => {}
        }
    }

    fn push(&mut self, event: Event) {
        while self.newest.len() >= MOST_EVENTS {
            self.newest.pop_front();
        }
        self.newest.push_back(event);
    }

    /// The newest, together with what the server reported `age` ago of others, in the order of time.
    pub fn with_happenings(
        &self,
        uptime_s: f64,
        age: anabranch_control::time::Duration,
        happenings: &[Happening],
    ) -> Vec<Event> {
        let others = happenings.iter().filter_map(|happening| {
            let (kind, client, text) = happened(happening.client.0, happening.what);
            let at_s = uptime_s - (age + happening.ago).as_secs_f64();
            // Before this viewer was here it has no time for it.
            (at_s >= 0.0).then(|| Event { at_s, kind, client: client.map(u64::from), text })
        });
        let mut all: Vec<Event> = self.newest().into_iter().chain(others).collect();
        all.sort_by(|one, other| one.at_s.total_cmp(&other.at_s));
        all.split_off(all.len().saturating_sub(MOST_EVENTS))
    }

    /// The newest last.
    pub fn newest(&self) -> Vec<Event> {
        self.newest.iter().cloned().collect()
    }
}

/// What has happened to a viewer, in words.
fn happened(client: u32, what: Happened) -> (EventKind, Option<u32>, String) {
    let (kind, text) = match what {
        Happened::Joined => (EventKind::Joined, format!("viewer {client} watches")),
        Happened::Left => (EventKind::Left, format!("viewer {client} has left")),
        Happened::Died => (EventKind::Died, format!("viewer {client} has gone without a word")),
        Happened::Excluded => (EventKind::Excluded, format!("viewer {client} was excluded: it sent forged packets")),
        Happened::LeftOut => {
            let why = "there is not enough for all, and it passed nothing on or got nothing";
            (EventKind::Refused, format!("viewer {client} was left out: {why}"))
        }
    };
    (kind, Some(client), text)
}

#[cfg(test)]
mod tests {
    use anabranch_proto::stream::content::ClientId;

    use super::*;

    #[test]
    fn no_more_are_kept_than_a_page_shows_and_the_oldest_go_first() {
        let mut events = Events::default();
        for client in 0..MOST_EVENTS as u32 + 5 {
            events.note(Duration::from_secs(1), &NodeEvent::Joined(client));
        }
        let newest = events.newest();
        assert_eq!((newest.len(), newest[0].client), (MOST_EVENTS, Some(5)));
        assert_eq!(events.note(Duration::ZERO, &NodeEvent::Overloaded), None);
    }

    #[test]
    fn where_the_very_first_finds_no_room_the_server_has_too_little_upload() {
        let mut events = Events::default();
        let mut refused = |before: &[NodeEvent]| {
            before.iter().for_each(|event| _ = events.note(Duration::ZERO, event));
            events.note(Duration::ZERO, &NodeEvent::Refused(Refusal::Overloaded)).unwrap().to_owned()
        };
        let first = refused(&[]);
        assert!(first.contains("server's own upload is too small for one viewer; --upload"), "{first}");
        assert!(refused(&[NodeEvent::Joined(1)]).contains("nobody has room"));
        assert_eq!(refused(&[NodeEvent::Left { client: 1, was_silent: false }]), first);
        // Whoever was left out is not let in at once, though there be room.
        assert!(refused(&[NodeEvent::Joined(2), NodeEvent::LeftOut(2)]).contains("nobody has room"));
    }

    #[test]
    fn what_the_server_reports_of_others_stands_where_it_happened() {
        let millis = anabranch_control::time::Duration::from_millis;
        let mut events = Events::default();
        events.note(Duration::from_secs(5), &NodeEvent::Forged(Some(3)));
        let happening = |ago, client, what| Happening { ago: millis(ago), client: ClientId(client), what };
        let happenings = [
            happening(30_000, 1, Happened::Joined),
            happening(6000, 2, Happened::Died),
            happening(0, 3, Happened::Excluded),
        ];
        let all = events.with_happenings(10.0, millis(1000), &happenings);
        let seen: Vec<_> = all.iter().map(|event| (event.at_s, event.kind)).collect();
        assert_eq!(seen, [(3.0, EventKind::Died), (5.0, EventKind::Excluded), (9.0, EventKind::Excluded)]);
    }
}
