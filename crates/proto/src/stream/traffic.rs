//! What leaves a peer, by what it is for: so that overhead can be told by its parts.

use super::content::Content;
use super::message::Datagram;

/// Bytes that left, with the headers of the packets that they left in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Packets of the stream.
    pub packets: u64,
    /// What they are told apart by.
    pub manifests: u64,
    /// What neighbours have.
    pub maps: u64,
    /// Questions for packets and manifests.
    pub wants: u64,
    /// Packets that explore.
    pub explored: u64,
    /// What peers know together.
    pub gossip: u64,
    /// Messages between server and viewers, and between viewers.
    pub messages: u64,
    /// ACKs, and what is asked of them; where that cannot be told apart, all that is QUIC's own.
    pub acks: u64,
    /// Handshakes, probes and goodbyes.
    pub sessions: u64,
}

impl Traffic {
    /// A datagram left, which took `bytes`.
    #[inline]
    pub fn on_datagram<C: Content>(&mut self, datagram: &Datagram<C>, bytes: u64) {
        *self.of_datagram(datagram) += bytes;
    }

    /// What is counted of such datagrams.
    #[inline]
    pub fn of_datagram<C: Content>(&mut self, datagram: &Datagram<C>) -> &mut u64 {
        match datagram {
            Datagram::Packet { .. } => &mut self.packets,
            Datagram::Manifest(_) => &mut self.manifests,
            Datagram::Have(_) => &mut self.maps,
            Datagram::Want(_) | Datagram::WantManifests(..) => &mut self.wants,
            Datagram::Explore { .. } => &mut self.explored,
            Datagram::Mass(..) => &mut self.gossip,
        }
    }

    /// The same of two peers, or of two times.
    #[must_use]
    pub fn and(&self, other: &Traffic) -> Traffic {
        Traffic {
            packets: self.packets + other.packets,
            manifests: self.manifests + other.manifests,
            maps: self.maps + other.maps,
            wants: self.wants + other.wants,
            explored: self.explored + other.explored,
            gossip: self.gossip + other.gossip,
            messages: self.messages + other.messages,
            acks: self.acks + other.acks,
            sessions: self.sessions + other.sessions,
        }
    }

    /// All that is no packet of the stream.
    pub fn beside_packets(&self) -> u64 {
        let Traffic { packets: _, manifests, maps, wants, explored, gossip, messages, acks, sessions } = *self;
        manifests + maps + wants + explored + gossip + messages + acks + sessions
    }

    /// What part of `useful` each kind took where `all` bytes left, in percent.
    pub fn overhead(&self, all: u64, useful: f64) -> Overhead {
        let percent = |bytes: f64| 100.0 * bytes / useful.max(1.0);
        let of = |bytes: u64| percent(bytes as f64);
        Overhead {
            all: percent(all as f64 - useful),
            repeated: percent(all as f64 - self.beside_packets() as f64 - useful),
            manifests: of(self.manifests),
            maps: of(self.maps),
            wants: of(self.wants),
            explored: of(self.explored),
            gossip: of(self.gossip),
            messages: of(self.messages),
            acks: of(self.acks),
            sessions: of(self.sessions),
        }
    }
}

/// Bytes beside packets of the stream that came first, in percent of those packets with their headers.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Overhead {
    /// All of them: the sum of the others.
    pub all: f64,
    /// Packets of the stream that came a second time, too late for players, or not at all. What still waits to leave at
    /// the end, whatever it is, is taken off here.
    pub repeated: f64,
    /// As in [`Traffic`].
    pub manifests: f64,
    /// As in [`Traffic`].
    pub maps: f64,
    /// As in [`Traffic`].
    pub wants: f64,
    /// As in [`Traffic`].
    pub explored: f64,
    /// As in [`Traffic`].
    pub gossip: f64,
    /// As in [`Traffic`].
    pub messages: f64,
    /// As in [`Traffic`].
    pub acks: f64,
    /// As in [`Traffic`].
    pub sessions: f64,
}

impl Overhead {
    /// Each kind by the name that it has among a run's metrics, and what it is in words.
    pub fn kinds(&self) -> [(&'static str, &'static str, f64); 9] {
        [
            ("overhead_repeated_percent", "packets again, late or lost", self.repeated),
            ("overhead_manifests_percent", "manifests", self.manifests),
            ("overhead_maps_percent", "buffer maps", self.maps),
            ("overhead_wants_percent", "questions for packets", self.wants),
            ("overhead_explored_percent", "exploration", self.explored),
            ("overhead_gossip_percent", "gossip", self.gossip),
            ("overhead_messages_percent", "messages", self.messages),
            ("overhead_acks_percent", "ACKs", self.acks),
            ("overhead_sessions_percent", "handshakes and probes", self.sessions),
        ]
    }

    /// All kinds that are worth a word, the greatest first.
    pub fn in_words(&self) -> String {
        let mut kinds = self.kinds();
        kinds.sort_by(|(.., one), (.., other)| other.total_cmp(one));
        let said = kinds.iter().filter(|(.., percent)| *percent >= 0.05);
        let words: Vec<String> = said.map(|(_, words, percent)| format!("{words} {percent:.1} %")).collect();
        words.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_add_up_to_all() {
        let traffic = Traffic {
            packets: 1200,
            manifests: 1,
            maps: 2,
            wants: 3,
            explored: 4,
            gossip: 5,
            messages: 6,
            acks: 7,
            sessions: 8,
        };
        // Of the packets, 1000 bytes came first, and 50 wait yet.
        let overhead = traffic.overhead(1200 + 36 - 50, 1000.0);
        assert!((overhead.all - 18.6).abs() < 1e-9 && (overhead.repeated - 15.0).abs() < 1e-9, "{overhead:?}");
        let sum: f64 = overhead.kinds().iter().map(|(.., percent)| percent).sum();
        assert!((sum - overhead.all).abs() < 1e-9, "{overhead:?}");
        assert!(overhead.in_words().starts_with("packets again, late or lost 15.0 %, handshakes and probes 0.8 %"));
        let both = traffic.and(&traffic);
        assert_eq!((both.beside_packets(), both.packets), (72, 2400));
    }
}
