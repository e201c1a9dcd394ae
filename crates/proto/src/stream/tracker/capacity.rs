//! How many children each may have: as many as what it can send bears, some of them kept free for those whose
//! parent fails.

use anabranch_control::time::{Duration, Time};
use anabranch_control::units::Rate;

use super::super::on_wire;
use super::super::tree::NodeId;
#[cfg(doc)]
use super::TrackerConfig;
use super::{Tracker, Viewer};

/// Part of what each may hold that stays free for children whose parent fails, if there is enough for all
/// without: a child that has found another parent keeps it.
const SPARE_PART: usize = 8;

/// Parts of [`TrackerConfig::reserve`] that viewers keep: all of it while all have places so, else the half, else a
/// quarter. A viewer that watches with less left for repairs is better off than one that is refused, and rounding down
/// to whole children costs each viewer up to one besides. What the server keeps stays: newcomers and messages take it.
pub(super) const KEPT_PARTS: [f64; 3] = [1.0, 0.5, 0.25];

/// Copies of the stream that a server sends however much viewers could: each slice leaves it to this many
/// viewers, so that one that dies or lies takes no more than a third of a tree with it.
const LEAST_COPIES: usize = 3;

/// Children that the server gives away in a period of reports if viewers have room for them: half a copy of a
/// stream of twenty slices. Each misses a packet or two.
const GIVEN_AWAY: usize = 10;

/// The part of what a server can send with which newcomers begin, if viewers say that they can bear all without: a
/// newcomer takes a second of the stream, and its parents bring that only after seconds.
const FOR_NEWCOMERS: f64 = 0.45;

/// Whatever a viewer announces, it is taken to bear no more than this many streams before it has borne them.
const MOST_BELIEVED: usize = 2;

/// Children that somebody gets who may have `places`, if [`SPARE_PART`] of them stays free.
fn beside_spare(places: usize) -> usize {
    places - places / SPARE_PART
}

impl<A: Copy + Eq> Tracker<A> {
    /// Children that a viewer may have that can send `upload`.
    pub(super) fn viewer_places(&self, upload: Rate) -> usize {
        self.viewer_places_if(upload, self.kept_part)
    }

    /// The same, if viewers keep `part` of the reserve.
    fn viewer_places_if(&self, upload: Rate, part: u8) -> usize {
        let left = upload.bytes_per_sec() - on_wire::ACKS * self.bitrate.bytes_per_sec();
        let kept = self.config.reserve * KEPT_PARTS[usize::from(part)];
        self.places_in(Rate::from_bytes_per_sec_f64(left.max(0.0) * (1.0 - kept)))
    }

    /// Children that the server may have if it can send `upload` to them.
    pub(super) fn places(&self, upload: Rate) -> usize {
        self.places_in(Rate::from_bytes_per_sec_f64(upload.bytes_per_sec() * (1.0 - self.config.reserve)))
    }

    /// Children that take all of `rate`.
    fn places_in(&self, rate: Rate) -> usize {
        let slice = self.bitrate.bytes_per_sec() * on_wire::STREAM / f64::from(self.config.slices);
        if slice <= 0.0 {
            return 0;
        }
        (rate.bytes_per_sec() / slice) as usize
    }

    /// The stream takes `bitrate`: all places are counted anew if that differs by more than a tenth.
    pub fn set_bitrate(&mut self, bitrate: Rate) {
        let (before, after) = (self.bitrate.bytes_per_sec(), bitrate.bytes_per_sec());
        if (before - after).abs() <= 0.1 * before {
            return;
        }
        self.bitrate = bitrate;
        self.weigh(0);
        self.recount_all();
    }

    pub(super) fn set_places(&mut self, node: NodeId, places: usize) {
        if self.book.places(node).0 == places {
            return;
        }
        // Who is left without a place waits in the book for the next one.
        let _ = self.book.set_places(node, places, &self.latencies, &mut self.changes);
        self.note_changes();
    }

    /// Children that a viewer may have, as far as anybody knows.
    pub(super) fn bears(&self, viewer: &Viewer<A>) -> usize {
        self.bears_if(viewer, self.kept_part)
    }

    /// The same, if viewers keep `part` of the reserve.
    fn bears_if(&self, viewer: &Viewer<A>, part: u8) -> usize {
        let held = self.book.places(viewer.node).1;
        let announced = self.viewer_places_if(viewer.contribution.announced(), part);
        viewer.contribution.places(announced, held).min(viewer.explored.unwrap_or(usize::MAX))
    }

    /// What the stream takes on the wire, one slice of it.
    pub fn slice_rate(&self) -> Rate {
        Rate::from_bytes_per_sec_f64(self.bitrate.bytes_per_sec() * on_wire::STREAM / f64::from(self.config.slices))
    }

    /// The server may send so much from now on.
    pub fn set_upload(&mut self, upload: Rate) {
        self.config.upload = upload;
        self.recount_all();
    }

    /// What the server may send.
    pub fn upload(&self) -> Rate {
        self.config.upload
    }

    /// So much of it goes into messages.
    pub fn set_control(&mut self, control: Rate) {
        self.control = control;
    }

    /// What messages leave of what the server may send.
    pub fn for_the_stream(&self) -> Rate {
        let left = self.config.upload.bytes_per_sec() - self.control.bytes_per_sec();
        Rate::from_bytes_per_sec_f64(left.max(0.0))
    }

    /// What a node that may have `places` children gets of them while nobody's parent fails.
    pub(super) fn planned(&self, places: usize) -> usize {
        if self.has_spare { beside_spare(places) } else { places }
    }

    pub(super) fn recount(&mut self, node: NodeId) {
        let Some(viewer) = &self.viewers[node.slot()] else { return };
        let places = self.bears(viewer);
        // Nobody has to leave for the sake of what is to stay free.
        let planned = self.planned(places).max(self.book.places(node).1.min(places));
        if let Some(viewer) = &mut self.viewers[node.slot()] {
            if viewer.places != places {
                viewer.has_new_places = true;
                self.news.insert(node.slot());
            }
            viewer.places = places;
        }
        self.set_places(node, planned);
    }

    pub(super) fn recount_all(&mut self) {
        let nodes: Vec<NodeId> = self.viewers.iter().flatten().map(|viewer| viewer.node).collect();
        for node in nodes {
            self.recount(node);
        }
        self.recount_server();
    }

    /// Places of `viewers` that nobody has.
    fn free<'a>(&self, viewers: impl Iterator<Item = &'a Viewer<A>>) -> usize
    where
        A: 'a,
    {
        let places = viewers.map(|viewer| self.book.places(viewer.node));
        places.map(|(places, held)| places.saturating_sub(held)).sum()
    }

    /// Children that the server may have if `more` viewers come: as many as it can send to while viewers have not
    /// places for all and some to spare; else as many as leave one stream's worth of places free, since the upload
    /// of viewers costs nothing. Trees alone are as printed, and the server holds as many as it can.
    fn server_places(&self, more: usize) -> usize {
        let all = self.planned(self.server_room());
        let beside_messages = self.planned(self.room_beside_messages());
        let slices = usize::from(self.config.slices);
        let wanted = (more + 1) * slices;
        let borne: usize = self.viewers().map(|viewer| self.planned(self.bears(viewer))).sum();
        // What nobody else can give is not kept, neither for newcomers nor for messages.
        let lacking = (self.len() * slices + wanted).saturating_sub(borne);
        let most = (beside_messages - self.kept_for_newcomers(beside_messages, wanted)).max(lacking).min(all);
        if !self.config.has_backups || !self.has_spare || borne < self.len() * slices + wanted {
            return most;
        }
        let (free, held) = (self.free(self.viewers()), self.book.places(NodeId::SERVER).1);
        let needed = if free < wanted { held + wanted - free } else { held - held.min(GIVEN_AWAY).min(free - wanted) };
        needed.max(LEAST_COPIES * slices).min(most)
    }

    /// Of `all` children that the server could have, those in whose place newcomers get what they begin with, if
    /// `wanted` places are to stay free. Where there are no backups nothing is kept: trees alone are as printed.
    pub(super) fn kept_for_newcomers(&self, all: usize, wanted: usize) -> usize {
        if !self.config.has_backups {
            return 0;
        }
        let slices = usize::from(self.config.slices);
        let believed = |viewer: &Viewer<A>| {
            let places = self.viewer_places(viewer.contribution.announced()).min(MOST_BELIEVED * slices);
            beside_spare(places)
        };
        let announced: usize = self.viewers().map(believed).sum();
        let spare = announced.saturating_sub(self.len() * slices + wanted);
        ((all as f64 * FOR_NEWCOMERS) as usize).min(spare)
    }

    /// Somebody comes: the server has places for whom viewers have none.
    pub(super) fn make_room(&mut self) {
        let wanted = self.server_places(1);
        if wanted > self.book.places(NodeId::SERVER).0 {
            self.set_places(NodeId::SERVER, wanted);
        }
    }

    /// The server takes those who wait for a place.
    pub(super) fn take_waiting(&mut self) {
        let waiting = self.book.waiting().count();
        if waiting > 0 {
            let (places, held) = self.book.places(NodeId::SERVER);
            let most = self.server_room();
            self.set_places(NodeId::SERVER, (held + waiting).min(most).max(places));
        }
    }

    /// Children that the server may have besides what it tells viewers.
    pub(super) fn room_beside_messages(&self) -> usize {
        let taken = self.places(self.config.upload) - self.places(self.for_the_stream());
        self.server_room().saturating_sub(taken)
    }

    /// Whether those who have come in the last `span`, and another, can get that much of the stream in
    /// that time besides what is new: that takes each as many places again as it has parents, and of those
    /// who have not just come themselves.
    pub fn has_room_to_catch_up(&self, now: Time, span: Duration) -> bool {
        let is_new = |viewer: &&Viewer<A>| now.since(viewer.joined) < span;
        let new = self.viewers().filter(is_new).count();
        let server = self.room_beside_messages().saturating_sub(self.book.places(NodeId::SERVER).1);
        new * usize::from(self.config.slices) <= self.free(self.viewers().filter(|viewer| !is_new(viewer))) + server
    }

    pub(super) fn recount_server(&mut self) {
        self.set_places(NodeId::SERVER, self.server_places(0));
    }

    /// Looks whether all, and `more` who come, have places if each keeps some free, and how much of the reserve viewers
    /// can keep so. Where some were free and may not be any more, they are given away.
    pub(super) fn weigh(&mut self, more: usize) {
        let needed = (self.len() + more) * usize::from(self.config.slices);
        let before = (self.has_spare, self.kept_part);
        self.weigh_reserve(needed, more > 0);
        self.has_spare = self.has_spare_if(self.kept_part, needed);
        if before.0 && !self.has_spare || before.1 != self.kept_part {
            self.recount_all();
        }
    }

    /// Whether there are `needed` places if each keeps some free, and viewers keep `part` of the reserve.
    fn has_spare_if(&self, part: u8, needed: usize) -> bool {
        let borne: usize = self.viewers().map(|viewer| beside_spare(self.bears_if(viewer, part))).sum();
        borne + beside_spare(self.server_room()) >= needed
    }

    /// Viewers keep less of the reserve if somebody comes and there are no `needed` places otherwise, and more again
    /// once there are more than enough so. After deaths places lack only until it is known who is dead, and repairs
    /// need what is kept most. Trees alone are as printed.
    fn weigh_reserve(&mut self, needed: usize, somebody_comes: bool) {
        if !self.config.has_backups {
            return;
        }
        let is_enough = |part: u8| {
            let borne: usize = self.viewers().map(|viewer| self.bears_if(viewer, part)).sum();
            borne + self.server_room() >= needed
        };
        let mut part = self.kept_part;
        while part > 0 && self.has_spare_if(part - 1, needed) {
            part -= 1;
        }
        while somebody_comes && usize::from(part) + 1 < KEPT_PARTS.len() && !is_enough(part) {
            part += 1;
        }
        self.kept_part = part;
    }
}
