//! The neighbours of a client: what they have, and which of them is asked for what is missing.
//!
//! Each tells the others regularly what it has; at each round, what is missing is matched with those
//! who have it ([`matching`](super::matching)), and each is asked for a few packets.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use anabranch_control::time::{Duration, Time};

use super::matching::Matching;
use super::message::{BufferMap, MAX_WANTED};
use super::packet::PacketId;
use crate::session::SessionId;

/// How often neighbours are told what is here, where a mesh alone carries the stream: the thesis's
/// successor leaves the period open. Each hop takes half of it, and a round trip and a half. Twice as often, maps to
/// its neighbours take 30 % of a line of 1 Mbit/s, and what it asks for and its ACKs wait behind them.
pub const MAP_PERIOD: Duration = Duration::from_millis(200);

/// Where trees carry it, maps only say who can fill a hole, of which there are few: whoever misses something tells its
/// neighbours what it has, and they answer with what they have, no more often than this. What makes one miss packets
/// makes others.
pub const MAP_PERIOD_WITH_HOLES: Duration = Duration::from_millis(500);

/// A new neighbour is told so often what is here without asking, while it may lack what it begins with: what players
/// wait for, and as long again.
pub const MAP_PERIOD_OF_NEW: Duration = Duration::from_millis(1000);
const NEW: Duration = Duration::from_millis(6000);

/// How often what is missing is sought.
pub(super) const ROUND: Duration = Duration::from_millis(100);

/// A question may come so much sooner behind the one before than it left: it waited less on its way, by the round in
/// which each is asked.
const EARLY: Duration = ROUND;

/// Packets that a neighbour is asked for in a round. The paper has one block; a block of it is some
/// tens of our packets.
const ASKED_A_ROUND: usize = 16;

/// Who has not sent what it was asked for in this time is not waited for: two long round trips, and the
/// time in which a neighbour empties its queue.
const ASK_AGAIN: Duration = Duration::from_millis(400);

/// The same where a mesh alone carries the stream, and the queues of most are long: an answer that leaves in time has
/// come by then. After 400 ms, every tenth packet came twice.
const ASK_AGAIN_ALONE: Duration = Duration::from_millis(600);

/// A neighbour sends what it was asked for within this time or not at all, so that what is asked of
/// another comes once; the rest of the time is for the way.
pub const ANSWERED_WITHIN: Duration = Duration::from_millis(300);

/// A neighbour whose packets come within this time could send more: what is asked of it waits for little else. Were
/// it asked for more until packets fail to come, those would be lost to the round that they were asked in.
const SOON: Duration = Duration::from_millis(250);

/// Packets that a neighbour of whom nothing is known may owe.
const FIRST_OWED: f64 = 8.0;

/// Packets that each may owe, however little it has sent in time.
const LEAST_OWED: f64 = 2.0;

/// All together may owe what the stream brings in this time: were it less, whoever has been served late would ask
/// for too little ever to catch up. It is longer than [`ASK_AGAIN_ALONE`]: a question that nobody answers counts for
/// so long.
const OWED_BY_ALL: Duration = Duration::from_millis(800);

/// The most neighbours.
pub const MOST_NEIGHBOURS: usize = 32;

/// The most packets that are sought in one round, the oldest first.
pub const MOST_SOUGHT: usize = 512;

/// How finely it is reckoned where the stream ended before somebody came.
const PAST_STEP: Duration = Duration::from_millis(100);

/// How far back the ends of the stream are remembered.
const MEMORY: Duration = Duration::from_millis(10_000);

#[derive(Clone, Debug)]
struct Neighbour {
    session: SessionId,
    map: Option<Arc<BufferMap>>,
    /// Since when it is one, and when it was last told what is here.
    since: Time,
    told: Option<Time>,
    /// Packets that it was asked for and may still send.
    asked: usize,
    /// How many those may be: one more each time that as many came, or in a mesh alone came soon, and there one less
    /// if they came late; half as many after a round in which some did not come.
    most: f64,
    /// In a mesh alone, whether none has come late yet, or not at all: until then it may owe one more for each that
    /// came.
    is_new: bool,
}

/// A client's neighbours.
#[derive(Clone, Debug, Default)]
pub struct Mesh {
    /// Whether no tree brings anything: all is asked for, not only what trees leave out.
    is_alone: bool,
    neighbours: Vec<Neighbour>,
    /// The server, once it was asked for anything: it may owe less and less where nothing comes of it. Many who miss
    /// much at once would else fill its line with questions.
    server: Option<Neighbour>,
    /// Who was asked for what, and when.
    asked: BTreeMap<PacketId, (SessionId, Time)>,
    /// Nobody was asked before for what is in there.
    asked_since: Time,
    matching: Matching,
    /// Where the stream ended, and when.
    ends: VecDeque<(Time, PacketId)>,
}

impl Mesh {
    /// No neighbour yet; `is_alone` if a mesh alone carries the stream.
    pub fn new(is_alone: bool) -> Mesh {
        Mesh { is_alone, ..Mesh::default() }
    }

    /// Whether a mesh alone carries the stream.
    pub fn is_alone(&self) -> bool {
        self.is_alone
    }

    /// All neighbours are told what is here, or all that are new.
    pub fn tell(&mut self, now: Time, only_new: bool, mut tell: impl FnMut(SessionId)) {
        for neighbour in self.neighbours.iter_mut().filter(|neighbour| !only_new || now < neighbour.since + NEW) {
            neighbour.told = Some(now);
            tell(neighbour.session);
        }
    }

    /// Whether `session` leads to a neighbour that is to be told what is here, as is then noted: it was not told for
    /// [`MAP_PERIOD_WITH_HOLES`], less what its next question may come early.
    pub fn may_be_told(&mut self, now: Time, session: SessionId) -> bool {
        let Some(neighbour) = self.neighbours.iter_mut().find(|neighbour| neighbour.session == session) else {
            return false;
        };
        let may = neighbour.told.is_none_or(|told| now + EARLY >= told + MAP_PERIOD_WITH_HOLES);
        if may {
            neighbour.told = Some(now);
        }
        may
    }

    /// `session` leads to a neighbour. False if there are too many.
    pub fn add(&mut self, now: Time, session: SessionId) -> bool {
        if self.neighbours.iter().any(|neighbour| neighbour.session == session) {
            return true;
        }
        let has_room = self.neighbours.len() < MOST_NEIGHBOURS;
        if has_room {
            let is_new = self.is_alone;
            self.neighbours.push(Neighbour {
                session,
                map: None,
                since: now,
                told: None,
                asked: 0,
                most: FIRST_OWED,
                is_new,
            });
        }
        has_room
    }

    /// The session is over.
    pub fn forget(&mut self, session: SessionId) {
        self.neighbours.retain(|neighbour| neighbour.session != session);
        self.server = self.server.take().filter(|server| server.session != session);
        self.asked.retain(|_, (asked, _)| *asked != session);
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.neighbours.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.neighbours.is_empty()
    }

    /// Their sessions.
    pub fn sessions(&self) -> impl Iterator<Item = SessionId> {
        self.neighbours.iter().map(|neighbour| neighbour.session)
    }

    /// Whether `session` leads to one.
    pub fn contains(&self, session: SessionId) -> bool {
        self.sessions().any(|other| other == session)
    }

    /// A neighbour says what it has.
    pub fn on_map(&mut self, session: SessionId, map: Arc<BufferMap>) {
        if let Some(neighbour) = self.neighbours.iter_mut().find(|neighbour| neighbour.session == session) {
            neighbour.map = Some(map);
        }
    }

    /// How many packets a neighbour has said that it has; none if it has said nothing.
    pub fn has(&self, session: SessionId) -> Option<u32> {
        let neighbour = self.neighbours.iter().find(|neighbour| neighbour.session == session)?;
        neighbour.map.as_ref().map(|map| map.words.iter().map(|word| word.count_ones()).sum())
    }

    /// Whether a neighbour has said that it has `id`.
    pub fn is_anywhere(&self, id: PacketId) -> bool {
        self.neighbours.iter().any(|neighbour| neighbour.map.as_ref().is_some_and(|map| map.contains(id)))
    }

    /// The packet above all that neighbours have.
    pub fn end(&self) -> PacketId {
        let end = |map: &BufferMap| {
            let last = map.words.iter().rposition(|&word| word != 0)?;
            Some(map.base.after(64 * last as u64 + 64 - u64::from(map.words[last].leading_zeros())))
        };
        self.neighbours.iter().filter_map(|neighbour| end(neighbour.map.as_ref()?)).max().unwrap_or_default()
    }

    /// The stream ends with the packet before `end` now.
    pub fn note_end(&mut self, now: Time, end: PacketId) {
        while self.ends.front().is_some_and(|&(at, _)| now.since(at) > MEMORY) {
            self.ends.pop_front();
        }
        self.ends.push_back((now, end));
    }

    /// The stream was at `begin` and went on to `end`, which it has reached now; a packet takes `each`. Whoever
    /// comes knows so how old what it begins with is.
    pub fn note_past(&mut self, now: Time, (begin, end): (PacketId, PacketId), each: Duration) {
        let span = now.since(Time::ZERO).min(MEMORY);
        let known = (span.as_nanos() / each.as_nanos().max(1)).min(end.since(begin));
        let step = (PAST_STEP.as_nanos() / each.as_nanos().max(1)).max(1);
        for before in (0..=known / step).rev().map(|steps| steps * step) {
            self.note_end(Time::ZERO + (now.since(Time::ZERO + each * before)), PacketId(end.0 - before));
        }
    }

    /// Where it ended so long ago; none if that is not known.
    pub fn end_before(&self, now: Time, span: Duration) -> Option<PacketId> {
        let known = self.ends.iter().rev().find(|&&(at, _)| now.since(at) >= span);
        known.map(|&(_, end)| end)
    }

    /// A packet is here.
    #[inline]
    pub fn on_packet(&mut self, now: Time, id: PacketId) {
        if self.asked.is_empty() {
            return;
        }
        let Some((session, asked)) = self.asked.remove(&id) else { return };
        let mut all = self.neighbours.iter_mut().chain(&mut self.server);
        if let Some(neighbour) = all.find(|neighbour| neighbour.session == session) {
            neighbour.asked = neighbour.asked.saturating_sub(1);
            let more = match (!self.is_alone || now.since(asked) < SOON, neighbour.is_new) {
                (true, true) => 1.0,
                (true, false) => 1.0 / neighbour.most,
                (false, _) => -1.0 / neighbour.most,
            };
            neighbour.is_new &= more > 0.0;
            neighbour.most = (neighbour.most + more).clamp(LEAST_OWED, MAX_WANTED as f64);
        }
    }

    /// Whether somebody is asked for `id`, and may still send it.
    pub fn is_asked(&self, id: PacketId) -> bool {
        self.asked.contains_key(&id)
    }

    /// Notes that the server, to which `session` leads, is asked for `id`.
    pub fn note_asked(&mut self, now: Time, session: SessionId, id: PacketId) {
        self.server_of(session).asked += 1;
        self.asked.insert(id, (session, now));
    }

    /// How many packets the server may be asked for now.
    pub fn left_of_server(&mut self, session: SessionId) -> usize {
        let server = self.server_of(session);
        (server.most as usize).saturating_sub(server.asked)
    }

    fn server_of(&mut self, session: SessionId) -> &mut Neighbour {
        let most = MAX_WANTED as f64;
        self.server.get_or_insert(Neighbour {
            session,
            map: None,
            since: Time::ZERO,
            told: None,
            asked: 0,
            most,
            is_new: false,
        })
    }

    /// Forgets questions that were not answered, and those about packets below `next`.
    pub fn give_up(&mut self, now: Time, next: PacketId) {
        let ask_again = if self.is_alone { ASK_AGAIN_ALONE } else { ASK_AGAIN };
        let are_above = self.asked.first_key_value().is_none_or(|(&first, _)| first >= next);
        if are_above && now.since(self.asked_since) < ask_again {
            return;
        }
        let mut given_up = Vec::new();
        self.asked_since = now;
        self.asked.retain(|&id, &mut (session, at)| {
            let stays = id >= next && now.since(at) < ask_again;
            if stays {
                self.asked_since = self.asked_since.min(at);
            } else {
                given_up.push(session);
            }
            stays
        });
        for neighbour in self.neighbours.iter_mut().chain(&mut self.server) {
            let missing = given_up.iter().filter(|&&session| session == neighbour.session).count();
            if missing > 0 {
                neighbour.asked = neighbour.asked.saturating_sub(missing);
                neighbour.most = (neighbour.most / 2.0).max(LEAST_OWED);
                neighbour.is_new = false;
            }
        }
    }

    /// Packets that each neighbour may owe at least.
    fn least(&self, now: Time) -> usize {
        let span = self.ends.back().zip(self.end_before(now, OWED_BY_ALL));
        let brought = span.map_or(0, |(&(_, end), before)| end.since(before));
        (brought as usize).div_ceil(self.neighbours.len().max(1)).min(MAX_WANTED)
    }

    /// One round: whom to ask for which of `sought`, which are in the order of their need.
    pub fn ask(&mut self, now: Time, sought: &[PacketId], mut ask: impl FnMut(SessionId, Vec<PacketId>)) {
        let least = if self.is_alone { self.least(now) } else { 0 };
        let mut open: Vec<PacketId> = sought.iter().copied().filter(|id| !self.asked.contains_key(id)).collect();
        let mut questions: Vec<Vec<PacketId>> = vec![Vec::new(); self.neighbours.len()];
        for _ in 0..ASKED_A_ROUND {
            if open.is_empty() {
                break;
            }
            let neighbours = &self.neighbours;
            let has = |neighbour: usize, packet: usize| {
                let Neighbour { map, asked, most, .. } = &neighbours[neighbour];
                *asked + questions[neighbour].len() < least.max(*most as usize)
                    && map.as_ref().is_some_and(|map| map.contains(open[packet]))
            };
            let found = self.matching.find(open.len(), neighbours.len(), has);
            let mut taken: Vec<usize> = Vec::new();
            for (neighbour, packet) in found.iter().enumerate() {
                if let Some(packet) = *packet {
                    questions[neighbour].push(open[packet]);
                    taken.push(packet);
                }
            }
            if taken.is_empty() {
                break;
            }
            taken.sort_unstable();
            for packet in taken.into_iter().rev() {
                open.remove(packet);
            }
        }
        for (neighbour, ids) in self.neighbours.iter_mut().zip(questions) {
            if !ids.is_empty() {
                neighbour.asked += ids.len();
                self.asked.extend(ids.iter().map(|&id| (id, (neighbour.session, now))));
                ask(neighbour.session, ids);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use anabranch_control::units::{Bytes, Rate};

    use super::super::message::Datagram;
    use super::super::on_wire;
    use super::super::testing::Tested;
    use super::*;

    fn map(base: u64, words: &[u64]) -> Arc<BufferMap> {
        Arc::new(BufferMap { base: PacketId(base), words: words.into() })
    }

    fn at(millis: u64) -> Time {
        Time::ZERO + Duration::from_millis(millis)
    }

    fn asked(mesh: &mut Mesh, now: Time, sought: &[u64]) -> Vec<(u32, Vec<u64>)> {
        let sought: Vec<PacketId> = sought.iter().copied().map(PacketId).collect();
        let mut questions = Vec::new();
        mesh.ask(now, &sought, |session, ids| {
            let mut ids: Vec<u64> = ids.into_iter().map(|id| id.0).collect();
            ids.sort_unstable();
            questions.push((session.0, ids));
        });
        questions
    }

    #[test]
    fn each_packet_is_asked_of_one_who_has_it_and_the_work_is_shared() {
        let mut mesh = Mesh::default();
        for session in 0..2 {
            assert!(mesh.add(at(0), SessionId(session)));
        }
        mesh.on_map(SessionId(0), map(64, &[0b1111]));
        mesh.on_map(SessionId(1), map(64, &[0b11]));
        assert_eq!(mesh.end(), PacketId(68));
        assert_eq!(asked(&mut mesh, at(0), &[64, 65, 66, 67, 68]), [(0, vec![65, 66, 67]), (1, vec![64])]);
        assert!(asked(&mut mesh, at(100), &[64, 65, 66, 67]).is_empty(), "they are on their way");
    }

    #[test]
    fn a_neighbour_is_told_again_only_after_a_while_so_that_an_answer_has_no_answer() {
        let mut mesh = Mesh::default();
        (1..=2).for_each(|session| assert!(mesh.add(at(0), SessionId(session))));
        let may = |mesh: &mut Mesh, millis: u64| [1, 2, 3].map(|other| mesh.may_be_told(at(millis), SessionId(other)));
        assert_eq!(may(&mut mesh, 0), [true, true, false], "the third is no neighbour");
        let mut told = Vec::new();
        mesh.tell(at(300), false, |session| told.push(session.0));
        assert_eq!((told, may(&mut mesh, 699)), (vec![1, 2], [false; 3]));
        assert_eq!(may(&mut mesh, 700), [true, true, false]);
        let new = |mesh: &mut Mesh, now: Time| {
            let mut told = Vec::new();
            mesh.tell(now, true, |session| told.push(session.0));
            told
        };
        assert_eq!((new(&mut mesh, at(5999)), new(&mut mesh, at(6000))), (vec![1, 2], vec![]));
    }

    #[test]
    fn what_does_not_come_is_asked_for_again() {
        let mut mesh = Mesh::default();
        mesh.add(at(0), SessionId(3));
        mesh.on_map(SessionId(3), map(0, &[0b111]));
        assert_eq!(asked(&mut mesh, at(0), &[0, 1]), [(3, vec![0, 1])]);
        mesh.on_packet(at(100), PacketId(0));
        mesh.give_up(at(399), PacketId(0));
        assert!(mesh.is_asked(PacketId(1)));
        mesh.give_up(at(400), PacketId(0));
        assert_eq!(asked(&mut mesh, at(400), &[1]), [(3, vec![1])]);
        mesh.forget(SessionId(3));
        assert!(mesh.is_empty() && !mesh.is_asked(PacketId(1)));
    }

    #[test]
    fn the_server_is_asked_for_less_and_less_where_nothing_comes_of_it() {
        let (mut mesh, server) = (Mesh::default(), SessionId(9));
        let mut next = 0;
        let mut round = |mesh: &mut Mesh, now: u64, comes: bool| {
            let left = mesh.left_of_server(server);
            for id in (next..).take(left).map(PacketId) {
                mesh.note_asked(at(now), server, id);
            }
            assert_eq!(mesh.left_of_server(server), 0);
            if comes {
                (next..).take(left).for_each(|id| mesh.on_packet(at(now + 100), PacketId(id)));
            }
            next += left as u64;
            mesh.give_up(at(now + 400), PacketId(0));
            left
        };
        let in_vain: Vec<usize> = (0..7).map(|number| round(&mut mesh, 400 * number, false)).collect();
        assert_eq!(in_vain, [64, 32, 16, 8, 4, 2, 2]);
        let answered: Vec<usize> = (7..15).map(|number| round(&mut mesh, 400 * number, true)).collect();
        assert!(answered.is_sorted() && answered[0] == 2 && answered[7] > 4, "{answered:?}");
        mesh.forget(server);
        assert_eq!(mesh.left_of_server(server), MAX_WANTED, "another session begins anew");
    }

    #[test]
    fn a_neighbour_is_asked_for_no_more_than_it_may_owe() {
        let mut mesh = Mesh::default();
        mesh.add(at(0), SessionId(0));
        mesh.on_map(SessionId(0), map(0, &[u64::MAX, u64::MAX]));
        let sought: Vec<u64> = (0..128).collect();
        let mut owed = 0;
        for round in 0..20 {
            owed += asked(&mut mesh, at(round), &sought).iter().map(|(_, ids)| ids.len()).sum::<usize>();
        }
        assert_eq!(owed, FIRST_OWED as usize);
        // All of it comes, then nothing.
        (0..8).for_each(|id| mesh.on_packet(at(100), PacketId(id)));
        let more: usize = asked(&mut mesh, at(30), &sought[8..]).iter().map(|(_, ids)| ids.len()).sum();
        assert_eq!(more, 8);
        mesh.give_up(at(430), PacketId(0));
        let less: usize = asked(&mut mesh, at(430), &sought[8..]).iter().map(|(_, ids)| ids.len()).sum();
        assert_eq!(less, 4);
    }

    #[test]
    fn who_is_served_late_in_a_mesh_alone_asks_for_more_than_the_stream_brings_until_it_asks_again() {
        let mut mesh = Mesh::new(true);
        for session in 0..4 {
            mesh.add(at(0), SessionId(session));
            mesh.on_map(SessionId(session), map(0, &[u64::MAX; 4]));
        }
        // 200 packets a second; none of those that were asked for comes, many times.
        let sought: Vec<u64> = (0..256).collect();
        let mut owed = 0;
        for tenth in 0..100 {
            mesh.note_end(at(100 * tenth), PacketId(20 * tenth));
            mesh.give_up(at(100 * tenth), PacketId(0));
            let questions = asked(&mut mesh, at(100 * tenth), &sought);
            owed = questions.iter().map(|(_, ids)| ids.len()).sum::<usize>().max(if tenth > 50 { owed } else { 0 });
        }
        assert!(
            mesh.neighbours.iter().all(|neighbour| neighbour.most == LEAST_OWED),
            "they are believed to bear little"
        );
        let open: usize = mesh.neighbours.iter().map(|neighbour| neighbour.asked).sum();
        // In the 600 ms until it asks again, the stream brings 120.
        assert_eq!((open, owed > 0), (160, true));
    }

    /// Of six seconds of 2 Mbit/s, to as many neighbours as somebody may have who can send least.
    #[test]
    fn maps_take_a_sixth_of_the_smallest_lines() {
        let map = Arc::new(BufferMap { base: PacketId(0), words: vec![1; 6 * 190 / 64].into() });
        let bytes = 16 * on_wire::of(&Datagram::<Tested>::Have(map));
        let taken = (Bytes::new(bytes as u64) / Rate::from_bits_per_sec(1_000_000)).as_secs_f64();
        assert!(taken < MAP_PERIOD.as_secs_f64() / 6.0, "{taken}");
    }

    #[test]
    fn in_a_mesh_alone_a_neighbour_whose_packets_come_late_is_asked_for_less_before_any_is_lost() {
        let mut mesh = Mesh::new(true);
        mesh.add(at(0), SessionId(0));
        mesh.on_map(SessionId(0), map(0, &[u64::MAX; 4]));
        let sought: Vec<u64> = (0..256).collect();
        assert_eq!(asked(&mut mesh, at(0), &sought)[0].1.len(), 8);
        (0..8).for_each(|id| mesh.on_packet(at(249), PacketId(id)));
        // Twice as many, while nothing is known of it.
        assert_eq!(asked(&mut mesh, at(300), &sought[8..])[0].1.len(), 16);
        (8..24).for_each(|id| mesh.on_packet(at(550), PacketId(id)));
        assert_eq!(asked(&mut mesh, at(600), &sought[24..])[0].1.len(), 14);
    }

    #[test]
    fn whoever_comes_knows_how_old_what_it_begins_with_is() {
        let mut mesh = Mesh::default();
        // 200 packets a second; it begins a second behind.
        mesh.note_past(at(9000), (PacketId(800), PacketId(1000)), Duration::from_millis(5));
        assert_eq!(mesh.end_before(at(9000), Duration::ZERO), Some(PacketId(1000)));
        assert_eq!(mesh.end_before(at(9000), Duration::from_millis(500)), Some(PacketId(900)));
        assert_eq!(mesh.end_before(at(9300), Duration::from_millis(1300)), Some(PacketId(800)));
        assert_eq!(mesh.end_before(at(9000), Duration::from_millis(1100)), None);
        mesh.note_end(at(9050), PacketId(1010));
        assert_eq!(mesh.end_before(at(9050), Duration::ZERO), Some(PacketId(1010)));
    }

    #[test]
    fn what_nobody_says_that_it_has_is_nowhere() {
        let mut mesh = Mesh::default();
        mesh.add(at(0), SessionId(0));
        mesh.on_map(SessionId(0), map(64, &[0b101]));
        assert_eq!([63, 64, 65, 66].map(|id| mesh.is_anywhere(PacketId(id))), [false, true, false, true]);
    }

    #[test]
    fn where_the_stream_ended_is_remembered() {
        let mut mesh = Mesh::default();
        for tenth in 0..50 {
            mesh.note_end(at(100 * tenth), PacketId(10 * tenth));
        }
        assert_eq!(mesh.end_before(at(4900), Duration::from_millis(1000)), Some(PacketId(390)));
        assert_eq!(mesh.end_before(at(4900), Duration::from_millis(6000)), None);
    }
}
