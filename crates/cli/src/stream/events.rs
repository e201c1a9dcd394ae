//! What has happened to a stream, for pages: the newest events, in words.

use std::collections::VecDeque;
use std::time::Duration;

use anabranch_gateway::overview::{Event, EventKind, MOST_EVENTS};
use anabranch_net::stream::node::NodeEvent;
use anabranch_proto::stream::tracker::Refusal;

/// The newest events.
#[derive(Debug, Default)]
pub struct Events(VecDeque<Event>);

impl Events {
    /// Notes `event`, if it is one for people; gives its words.
    pub fn note(&mut self, uptime: Duration, event: &NodeEvent) -> Option<&str> {
        let (kind, client, text) = match event {
            NodeEvent::Joined(client) => (EventKind::Joined, Some(*client), format!("viewer {client} watches")),
            NodeEvent::Left { client, was_silent: false } => {
                (EventKind::Left, Some(*client), format!("viewer {client} has left"))
            }
            NodeEvent::Left { client, was_silent: true } => {
                (EventKind::Died, Some(*client), format!("viewer {client} has gone without a word"))
            }
            NodeEvent::Refused(refusal) => {
                let why = match refusal {
                    Refusal::Full => "there are as many as may watch",
                    Refusal::Overloaded => "nobody has room to pass the stream on to another",
                    Refusal::Excluded => "it was excluded before",
                };
                (EventKind::Refused, None, format!("somebody could not watch: {why}"))
            }
            NodeEvent::Excluded(client) => {
                (EventKind::Excluded, Some(*client), format!("viewer {client} was excluded: it sent forged packets"))
            }
            NodeEvent::LeftOut(client) => {
                let text =
                    format!("viewer {client} passes nothing on, and there is not enough for all: it was left out");
                (EventKind::Refused, Some(*client), text)
            }
            NodeEvent::Forged(client) => {
                let whose = client.map_or("somebody".to_owned(), |client| format!("viewer {client}"));
                (EventKind::Excluded, *client, format!("{whose} sent what is not the stream's; it was thrown away"))
            }
            NodeEvent::Welcomed(_)
            | NodeEvent::Overloaded
            | NodeEvent::Unreachable(_)
            | NodeEvent::Packet { .. }
            | NodeEvent::Gap { .. }
            | NodeEvent::Silent { .. } => return None,
        };
        while self.0.len() >= MOST_EVENTS {
            self.0.pop_front();
        }
        self.0.push_back(Event { at_s: uptime.as_secs_f64(), kind, client: client.map(u64::from), text });
        self.0.back().map(|event| event.text.as_str())
    }

    /// The newest last.
    pub fn newest(&self) -> Vec<Event> {
        self.0.iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
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
}
