//! How a server finds out what its viewers can pass on and how far they are from each other
//! [Raiber 2010, 3.2.3, figure 3.6].
//!
//! ```text
//! server --t1--> C1 --> C2 --> C3          packets of the stream, as redundancy
//!    ^                          |
//!    +-----------ACK------------+ t5
//!
//! a link:   ((t5 − t1) − RTT_C3 / 2) / h, into L and V of its pair (eq. 4.3, 4.4)
//! timeout:  Σ (L + α V) over the chain (eq. 4.6), and the ACK's way
//! ```
//!
//! An ACK or a timeout is one outcome for each client that had to pass the packet on, learned by
//! Q-learning (5.4). What is learned is the rate that a client bears in all: what it passes on in the trees
//! and the exploration packets.
//!
//! What the thesis leaves open and we chose:
//!
//! - A chain stays for some seconds, and its clients are told of it before its first packet: sessions take
//!   round trips to begin, which are not the links' doing. Until then nothing is sent over it.
//! - A learner's state counts slices a second, not packets: a tree's place is a slice, and a state in
//!   packets would take minutes for one step at the few outcomes that a client has a second.
//! - An ACK raises nothing while a client has less to pass on than it is believed to bear: it says only that
//!   it bears that.
//! - A newcomer begins with what it says that it can send, as if this many ACKs had come.
//! - Five percent of what the server can send, and three hops.

use std::collections::BTreeMap;

use anabranch_control::path::learner::{Evidence, RateLearner};
use anabranch_control::path::q_learning::{QLearning, QLearningConfig};
use anabranch_control::path::{Hop, MAX_RELAYS, Outcome, Report, Slot, Ticket};
use anabranch_control::rng::Rng;
use anabranch_control::rtt::{PairRtts, RttConfig};
use anabranch_control::time::{Duration, Time};
use anabranch_control::units::{Bytes, Rate};

use super::content::ClientId;
use super::message::{ChainLink, Contact};
use super::on_wire;
use crate::session::SessionId;

/// Slots of viewers that are explored at most: pairs take eight megabytes then.
pub const MOST_SLOTS: usize = 2048;

/// A chain's clients have so long to reach each other before packets pass.
const PREPARATION: Duration = Duration::from_millis(1500);

/// How long packets pass over a chain.
const LIFE: Duration = Duration::from_millis(6000);

/// Two packets of a chain are so far apart: a queue that one of them finds is another's at the next.
const GAP: Duration = Duration::from_millis(250);

/// Packets whose fate is open at most: three seconds of a thousand a second.
const MOST_OPEN: usize = 4096;

/// Bytes of an exploration packet with all headers.
const ON_WIRE: f64 = on_wire::EXPLORATION as f64;

/// Who has this share of what it is believed to bear shows with an ACK that it bears it.
const FULL: f64 = 0.8;

/// How exploration is done.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ExplorationConfig {
    /// The part of what the server can send that explores.
    pub share: f64,
    /// h: clients of a chain.
    pub hops: usize,
}

impl Default for ExplorationConfig {
    fn default() -> ExplorationConfig {
        ExplorationConfig { share: 0.05, hops: 3 }
    }
}

/// A viewer, as far as exploration needs to know.
#[derive(Clone, Copy, Debug)]
pub struct Member<A> {
    /// Who, and where others reach it.
    pub contact: Contact<A>,
    /// Its place in tables.
    pub slot: usize,
    /// Its session.
    pub session: SessionId,
    /// Slices that it could pass on by what it says.
    pub announced: usize,
    /// Slices that it passes on.
    pub held: usize,
}

/// One viewer's learner.
#[derive(Clone, Debug)]
struct Explored {
    slot: Slot,
    learner: QLearning,
    is_full: bool,
}

/// Clients one after the other.
#[derive(Clone, Debug)]
struct Chain {
    number: u32,
    clients: Vec<(ClientId, Slot)>,
    first: SessionId,
    begins: Time,
    ends: Time,
}

/// A packet on its way.
#[derive(Clone, Debug)]
struct Sent {
    at: Time,
    deadline: Time,
    /// Whether its loss has been learned.
    is_late: bool,
    clients: Vec<(ClientId, Slot)>,
    hops: Vec<Hop>,
}

/// What leaves now: over which session, of which chain, and what its ACK must say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Departure {
    /// To the chain's first client.
    pub session: SessionId,
    /// The chain.
    pub chain: u32,
    /// What only who got the packet can know.
    pub nonce: u32,
}

/// What has become of exploration packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Explorations {
    /// That left.
    pub sent: u64,
    /// Whose ACK came in time.
    pub acked: u64,
    /// Whose did not.
    pub timed_out: u64,
}

/// A server's exploration.
#[derive(Clone, Debug)]
pub struct Exploration {
    config: ExplorationConfig,
    learning: QLearningConfig,
    viewers: BTreeMap<ClientId, Explored>,
    chains: Vec<Chain>,
    next_chain: u32,
    /// The chain whose turn is next.
    turn: usize,
    next_packet: Time,
    open: BTreeMap<u32, Sent>,
    /// Exploration packets a second, and slices that each client passes on of them.
    rate: f64,
    load: f64,
    counts: Explorations,
    rng: Rng,
}

/// A table for the links of this many slots.
pub fn links(slots: usize) -> PairRtts {
    PairRtts::new(&RttConfig { compact: true, ..RttConfig::default() }, slots.min(MOST_SLOTS))
}

impl Exploration {
    /// Nothing is known yet; chains are drawn by `rng`.
    pub fn new(config: ExplorationConfig, rng: Rng) -> Exploration {
        let hops = config.hops.clamp(2, MAX_RELAYS);
        Exploration {
            config: ExplorationConfig { hops, ..config },
            learning: QLearningConfig::default(),
            viewers: BTreeMap::new(),
            chains: Vec::new(),
            next_chain: 0,
            turn: 0,
            next_packet: Time::MAX,
            open: BTreeMap::new(),
            rate: 0.0,
            load: 0.0,
            counts: Explorations::default(),
            rng,
        }
    }

    /// What has become of its packets.
    pub fn counts(&self) -> Explorations {
        self.counts
    }

    /// Looks who is there, of a server that can send `upload` and a stream whose slices take `slice` each on the
    /// wire; draws chains in place of those that are over. Who is to be sent which link.
    pub fn on_tick<A: Copy>(
        &mut self,
        now: Time,
        members: &[Member<A>],
        (upload, slice): (Rate, Rate),
        links: &mut PairRtts,
    ) -> Vec<(SessionId, ChainLink<A>)> {
        let members: Vec<&Member<A>> = members.iter().filter(|member| member.slot < links.peers()).collect();
        self.note_members(&members, links);
        let hops = self.config.hops;
        if members.len() < hops || slice == Rate::ZERO {
            (self.chains, self.next_packet) = (Vec::new(), Time::MAX);
            return Vec::new();
        }
        self.rate = upload.bytes_per_sec() * self.config.share / ON_WIRE;
        self.load = self.rate * (hops - 1) as f64 / members.len() as f64 * ON_WIRE / slice.bytes_per_sec();
        for member in &members {
            if let Some(viewer) = self.viewers.get_mut(&member.contact.client) {
                let bears = viewer.learner.rate(&self.learning, Bytes::new(1)).bytes_per_sec();
                viewer.is_full = member.held as f64 + self.load >= FULL * bears;
            }
        }
        let viewers = &self.viewers;
        self.chains
            .retain(|chain| now < chain.ends && chain.clients.iter().all(|(client, _)| viewers.contains_key(client)));
        let wanted = (self.rate * GAP.as_secs_f64()).ceil().max(1.0) as usize;
        // Those to come are made ready while others are at work.
        let ready = wanted + (wanted as f64 * PREPARATION.as_secs_f64() / LIFE.as_secs_f64()).ceil() as usize;
        let mut chain_links = Vec::new();
        while self.chains.len() < ready {
            self.draw(now, &members, &mut chain_links);
        }
        if self.next_packet == Time::MAX {
            self.next_packet = now;
        }
        chain_links
    }

    /// Who has come, and who has gone.
    fn note_members<A>(&mut self, members: &[&Member<A>], links: &mut PairRtts) {
        let here: BTreeMap<ClientId, Slot> =
            members.iter().map(|member| (member.contact.client, Slot(member.slot as u16))).collect();
        self.viewers.retain(|client, viewer| {
            let stays = here.contains_key(client);
            if !stays {
                // Its slot may soon be another's.
                links.forget(viewer.slot);
            }
            stays
        });
        for member in members {
            let slot = Slot(member.slot as u16);
            let learning = &self.learning;
            self.viewers.entry(member.contact.client).or_insert_with(|| {
                links.forget(slot);
                let mut learner = QLearning::new(learning, Bytes::new(1));
                let begin = (member.announced as u32).min(learning.max_state);
                let path = [Hop { slot, ticket: Ticket(learner.on_sent(learning).into()) }];
                for _ in 1..begin {
                    let report = Report::of(Outcome::Acked, &path, links);
                    let evidence = Evidence { report: &report, place: 0, note: learner.on_sent(learning) };
                    learner.on_outcome(learning, Bytes::new(1), evidence, &mut self.rng);
                }
                Explored { slot, learner, is_full: false }
            });
        }
    }

    /// One more chain of different clients at random.
    fn draw<A: Copy>(&mut self, now: Time, members: &[&Member<A>], chain_links: &mut Vec<(SessionId, ChainLink<A>)>) {
        let mut chosen: Vec<&Member<A>> = Vec::with_capacity(self.config.hops);
        while chosen.len() < self.config.hops {
            let member = members[self.rng.below(members.len())];
            if chosen.iter().all(|other| other.slot != member.slot) {
                chosen.push(member);
            }
        }
        let number = self.next_chain;
        self.next_chain = self.next_chain.wrapping_add(1);
        for (place, member) in chosen.iter().enumerate() {
            let next = chosen.get(place + 1).map(|next| next.contact);
            chain_links.push((member.session, ChainLink { chain: number, next }));
        }
        let begins = now + PREPARATION;
        let clients = chosen.iter().map(|member| (member.contact.client, Slot(member.slot as u16))).collect();
        // Not all end at once.
        let life = LIFE + Duration::from_secs_f64(LIFE.as_secs_f64() * self.rng.uniform() / 2.0);
        self.chains.push(Chain { number, clients, first: chosen[0].session, begins, ends: begins + life });
    }

    /// When the next packet leaves.
    pub fn due(&self) -> Time {
        self.next_packet
    }

    /// The next packet, if one is due and a chain is ready.
    pub fn depart(&mut self, now: Time, links: &PairRtts, ack: impl Fn(SessionId) -> Duration) -> Option<Departure> {
        if now < self.next_packet {
            return None;
        }
        self.next_packet = now + Duration::from_secs_f64(1.0 / self.rate.max(0.1));
        let count = self.chains.len();
        let ready = |turn: &usize| now >= self.chains[turn % count].begins;
        let turn = (self.turn..self.turn + count).find(ready)?;
        self.turn = (turn + 1) % count;
        if self.open.len() >= MOST_OPEN {
            return None;
        }
        let chain = &self.chains[turn % count];
        let nonce = self.rng.bits() as u32;
        let slots: Vec<Slot> = chain.clients.iter().map(|(_, slot)| *slot).collect();
        // T = Σ (L + α V) (4.6), and the way of the ACK.
        let timeout = links.timeout(&slots) + ack(chain.first);
        let forwarding = &chain.clients[..chain.clients.len() - 1];
        let hops = forwarding.iter().map(|(client, slot)| {
            let note = self.viewers.get_mut(client).map(|viewer| viewer.learner.on_sent(&self.learning));
            Hop { slot: *slot, ticket: note.map(|note| Ticket(note.into())).unwrap_or_default() }
        });
        let sent = Sent {
            at: now,
            deadline: now + timeout,
            is_late: false,
            hops: hops.collect(),
            clients: chain.clients.clone(),
        };
        let departure = Departure { session: chain.first, chain: chain.number, nonce };
        self.open.insert(nonce, sent);
        self.counts.sent += 1;
        Some(departure)
    }

    /// The last of a chain has got a packet; `round_trip` is that between it and the server.
    pub fn on_ack(
        &mut self,
        now: Time,
        from: ClientId,
        nonce: u32,
        round_trip: Option<Duration>,
        links: &mut PairRtts,
    ) {
        let is_its = |sent: &Sent| sent.clients.last().is_some_and(|(client, _)| *client == from);
        if !self.open.get(&nonce).is_some_and(is_its) {
            return;
        }
        let Some(sent) = self.open.remove(&nonce) else { return };
        if let Some(round_trip) = round_trip {
            let route: Vec<Slot> = sent.clients.iter().map(|(_, slot)| *slot).collect();
            // ((t5 − t1) − RTT_C3 / 2), of which each link is a part.
            let way = Duration::from_nanos(now.since(sent.at).as_nanos().saturating_sub(round_trip.as_nanos() / 2));
            let is_here =
                |(client, slot): &(ClientId, Slot)| self.viewers.get(client).is_some_and(|viewer| viewer.slot == *slot);
            if sent.clients.iter().all(is_here) {
                links.sample(&route, way);
            }
        }
        if !sent.is_late {
            self.counts.acked += 1;
            self.learn(Outcome::Acked, &sent, links);
        }
    }

    /// Packets whose ACK is late are lost; they are remembered for as long again.
    pub fn expire(&mut self, now: Time, links: &PairRtts) {
        let late: Vec<u32> =
            self.open.iter().filter(|(_, sent)| now >= sent.deadline).map(|(nonce, _)| *nonce).collect();
        for nonce in late {
            let Some(mut sent) = self.open.remove(&nonce) else { continue };
            if sent.is_late {
                continue;
            }
            self.counts.timed_out += 1;
            self.learn(Outcome::TimedOut, &sent, links);
            sent.is_late = true;
            sent.deadline = now + sent.deadline.since(sent.at);
            self.open.insert(nonce, sent);
        }
    }

    fn learn(&mut self, outcome: Outcome, sent: &Sent, links: &PairRtts) {
        let report = Report::of(outcome, &sent.hops, links);
        for (place, (client, _)) in sent.clients.iter().take(sent.hops.len()).enumerate() {
            let Some(viewer) = self.viewers.get_mut(client) else { continue };
            if outcome == Outcome::Acked && !viewer.is_full {
                continue;
            }
            let evidence = Evidence { report: &report, place, note: sent.hops[place].ticket.0.into() };
            viewer.learner.on_outcome(&self.learning, Bytes::new(1), evidence, &mut self.rng);
        }
    }

    /// Slices that a client can pass on in the trees: the rate that was learned, less its part of
    /// exploration; none if it is not explored.
    pub fn places(&self, client: ClientId) -> Option<usize> {
        let bears = self.viewers.get(&client)?.learner.rate(&self.learning, Bytes::new(1)).bytes_per_sec();
        Some((bears - self.load).max(0.0) as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::PeerKey;

    fn at(millis: u64) -> Time {
        Time::ZERO + Duration::from_millis(millis)
    }

    fn members(count: usize, held: usize) -> Vec<Member<u32>> {
        let member = |client: usize| Member {
            contact: Contact { client: ClientId(client as u32), address: client as u32, key: PeerKey::default() },
            slot: client,
            session: SessionId(client as u32),
            announced: 20,
            held,
        };
        (1..=count).map(member).collect()
    }

    const RATES: (Rate, Rate) = (Rate::from_bits_per_sec(20_000_000), Rate::from_bits_per_sec(108_000));

    /// Explores `count` clients for `seconds`, whose links take what `latency` says; those for whom `drops` says
    /// so pass nothing on.
    fn explored(
        count: usize,
        held: usize,
        seconds: u64,
        latency: impl Fn(usize, usize) -> u64,
        drops: impl Fn(usize) -> bool,
    ) -> (Exploration, PairRtts) {
        let mut links = links(count + 1);
        let mut exploration = Exploration::new(ExplorationConfig::default(), Rng::stream(1, "explore"));
        let members = members(count, held);
        let mut acks: BTreeMap<(u64, u32), (ClientId, Duration)> = BTreeMap::new();
        for millis in 0..seconds * 1000 {
            if millis % 50 == 0 {
                exploration.on_tick(at(millis), &members, RATES, &mut links);
                exploration.expire(at(millis), &links);
            }
            while let Some((&(due, nonce), &(from, round_trip))) = acks.first_key_value()
                && due <= millis
            {
                acks.remove(&(due, nonce));
                exploration.on_ack(at(millis), from, nonce, Some(round_trip), &mut links);
            }
            let Some(departure) = exploration.depart(at(millis), &links, |_| Duration::from_millis(200)) else {
                continue;
            };
            let chain = exploration.chains.iter().find(|chain| chain.number == departure.chain).unwrap();
            let slots: Vec<usize> = chain.clients.iter().map(|(_, slot)| slot.index()).collect();
            if slots[..slots.len() - 1].iter().any(|&slot| drops(slot)) {
                continue;
            }
            let last = slots[slots.len() - 1];
            let way: u64 = [0].iter().chain(&slots).zip(&slots).map(|(&from, &to)| latency(from, to)).sum();
            let back = latency(last, 0);
            acks.insert(
                (millis + way + back, departure.nonce),
                (ClientId(last as u32), Duration::from_millis(2 * back)),
            );
        }
        (exploration, links)
    }

    #[test]
    fn links_of_one_length_are_known_exactly() {
        let (exploration, links) = explored(8, 19, 60, |_, _| 30, |_| false);
        assert!(exploration.counts().sent > 4000, "{:?}", exploration.counts());
        assert_eq!(exploration.counts().timed_out, 0);
        for a in 1..=8u16 {
            for b in 1..a {
                let mean = links.mean_between(Slot(a), Slot(b)).expect("all pairs were explored");
                assert!(mean.as_nanos().abs_diff(30_000_000) < 1_000_000, "{a} {b}: {mean}");
            }
        }
    }

    #[test]
    fn far_pairs_have_longer_estimates_than_near_ones() {
        // Two groups, 10 ms within and 90 ms between them.
        let latency = |a: usize, b: usize| if (a <= 6) == (b <= 6) { 10 } else { 90 };
        let (_, links) = explored(12, 19, 120, latency, |_| false);
        let mut sums = [(0.0, 0); 2];
        for a in 1..=12usize {
            for b in 1..a {
                let mean = links.mean_between(Slot(a as u16), Slot(b as u16)).unwrap().as_secs_f64();
                let sum = &mut sums[usize::from(latency(a, b) == 90)];
                *sum = (sum.0 + mean, sum.1 + 1);
            }
        }
        let [near, far] = sums.map(|(sum, count)| 1000.0 * sum / f64::from(count));
        assert!(far > 1.3 * near, "near {near} ms, far {far} ms: each link gets a third of its chain's time");
    }

    #[test]
    fn who_passes_nothing_on_bears_less_and_less() {
        let (exploration, _) = explored(12, 19, 120, |_, _| 30, |slot| slot == 3);
        let dropper = exploration.places(ClientId(3)).unwrap();
        let others: Vec<usize> =
            (1..=12).filter(|&c| c != 3).map(|c| exploration.places(ClientId(c)).unwrap()).collect();
        let mean = others.iter().sum::<usize>() / others.len();
        assert!(dropper < 3 && mean > 3 * dropper.max(1), "{dropper} against {others:?}");
    }

    #[test]
    fn who_has_little_to_pass_on_is_not_believed_to_bear_more() {
        let (exploration, _) = explored(12, 2, 60, |_, _| 30, |_| false);
        let begin = 20 - exploration.load.ceil() as usize;
        assert!((1..=12).all(|client| exploration.places(ClientId(client)).unwrap() <= begin));
        let (exploration, _) = explored(12, 1000, 60, |_, _| 30, |_| false);
        assert!((1..=12).all(|client| exploration.places(ClientId(client)).unwrap() > begin + 100));
    }

    #[test]
    fn an_ack_of_another_or_with_another_number_says_nothing() {
        let mut table = links(13);
        let mut exploration = Exploration::new(ExplorationConfig::default(), Rng::stream(1, "explore"));
        exploration.on_tick(at(0), &members(12, 0), RATES, &mut table);
        let sent = exploration.depart(at(2000), &table, |_| Duration::ZERO).expect("chains are ready");
        let last = exploration.open[&sent.nonce].clients[2].0;
        let other = ClientId(if last == ClientId(1) { 2 } else { 1 });
        exploration.on_ack(at(2100), other, sent.nonce, None, &mut table);
        exploration.on_ack(at(2100), last, sent.nonce ^ 1, None, &mut table);
        assert_eq!(exploration.counts().acked, 0);
        exploration.on_ack(at(2100), last, sent.nonce, None, &mut table);
        exploration.on_ack(at(2100), last, sent.nonce, None, &mut table);
        assert_eq!(exploration.counts().acked, 1);
    }
}
