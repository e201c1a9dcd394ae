//! What the server remembers of all viewers for those who look, and what it answers them
//! ([`overlay`](super::super::overlay)).

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use anabranch_control::time::{Duration, Time};
use anabranch_control::units::Rate;

use super::super::content::ClientId;
use super::super::message::Report;
use super::super::overlay::{
    DELAYS, Happened, Happening, MOST_HAPPENINGS, MOST_LISTED, OverlayView, ServerLoad, ViewerFigures, ViewerState,
};
use super::super::packet::PacketId;
use super::super::report_history::ReportHistory;
use super::super::tracker::Tracker;
use super::super::tree::NodeId;

/// The part of what the server can send that answers take.
pub const PART_OF_UPLOAD: f64 = 0.02;

/// Who is gone is shown for so long.
const GONE_SHOWN: Duration = Duration::from_millis(30_000);

/// A viewer of whom nothing was heard for so long is called silent: two of its reports are missing.
const SILENT_AFTER: Duration = Duration::from_millis(3000);

/// A viewer that has missed more of its packets [lately](crate::stream::report_history::LATELY) than this share is called late.
const LATE: f64 = 0.01;

/// What the server remembers for it.
#[derive(Clone, Debug, Default)]
pub(in crate::stream) struct OverlayViews {
    pub(in crate::stream) load: ServerLoad,
    /// With which packet each viewer has begun.
    began: BTreeMap<ClientId, Beginning>,
    /// Packets that those who are gone have got.
    departed: u64,
    happenings: VecDeque<(Time, ClientId, Happened)>,
    /// Who has asked, in order.
    asking: VecDeque<ClientId>,
    /// Bytes that may leave, since when that was counted.
    allowance: f64,
    counted: Time,
}

/// Where a viewer has begun.
#[derive(Clone, Copy, Debug)]
struct Beginning {
    packet: PacketId,
    /// What it had got by then, of this server or of one before: known once it has reported.
    played: Option<u64>,
}

impl OverlayViews {
    pub(in crate::stream) fn on_joined(&mut self, now: Time, client: ClientId, begin: PacketId) {
        self.began.insert(client, Beginning { packet: begin, played: None });
        self.note(now, client, Happened::Joined);
    }

    /// A viewer says what it has got, its first report being what it begins to be counted with: more than there was since
    /// it came, it had before it came back.
    pub(in crate::stream) fn on_report(&mut self, client: ClientId, played: u64, edge: PacketId) {
        if let Some(begin) = self.began.get_mut(&client) {
            let had = if played > edge.since(begin.packet) { played } else { 0 };
            begin.played.get_or_insert(had);
        }
    }

    /// Somebody goes, who had said this; the source's next packet is `edge`.
    pub(in crate::stream) fn on_gone(
        &mut self,
        now: Time,
        client: ClientId,
        how: Happened,
        played: u64,
        edge: PacketId,
    ) {
        self.departed = self.departed.saturating_add(self.delivered(client, played, edge));
        self.began.remove(&client);
        self.asking.retain(|&other| other != client);
        self.note(now, client, how);
    }

    fn note(&mut self, now: Time, client: ClientId, what: Happened) {
        if self.happenings.len() == MOST_HAPPENINGS {
            self.happenings.pop_front();
        }
        self.happenings.push_back((now, client, what));
    }

    /// What a viewer has got of what it says: no more than there was since it came.
    fn delivered(&self, client: ClientId, played: u64, edge: PacketId) -> u64 {
        self.began
            .get(&client)
            .map_or(0, |begin| played.saturating_sub(begin.played.unwrap_or(0)).min(edge.since(begin.packet)))
    }

    /// Somebody wants to know.
    pub(in crate::stream) fn on_asked(&mut self, client: ClientId) {
        if !self.asking.contains(&client) {
            self.asking.push_back(client);
        }
    }

    /// Who is told next, as far as `upload` allows.
    pub(in crate::stream) fn next(&mut self, now: Time, upload: Rate) -> Option<ClientId> {
        let a_second = upload.bytes_per_sec() * PART_OF_UPLOAD;
        let since = now.since(self.counted).as_secs_f64();
        self.counted = now;
        self.allowance = (self.allowance + a_second * since).min(a_second);
        if self.allowance < 0.0 { None } else { self.asking.pop_front() }
    }

    /// This many bytes have left for it.
    pub(in crate::stream) fn on_sent(&mut self, bytes: usize) {
        self.allowance -= bytes as f64;
    }

    /// How things stand, with the part of the viewers that is around `around`, or with all of them.
    pub(in crate::stream) fn view<A: Copy + Eq>(
        &self,
        now: Time,
        tracker: &Tracker<A>,
        edge: PacketId,
        around: Option<ClientId>,
    ) -> OverlayView {
        let mut viewers: Vec<ViewerFigures> = figures(now, tracker).collect();
        let played = viewers.iter().map(|viewer| self.delivered(viewer.client, viewer.played, edge));
        let packets = played.fold(self.departed, u64::saturating_add);
        let mut delays = [0; DELAYS.len() + 1];
        for delay in viewers.iter().filter_map(|viewer| viewer.delay) {
            delays[DELAYS.iter().position(|&upper| delay <= upper).unwrap_or(DELAYS.len())] += 1;
        }
        if let Some(around) = around
            && viewers.len() > MOST_LISTED
        {
            let part = part(tracker, around);
            viewers.retain(|viewer| part.contains(&viewer.client));
        }
        viewers.extend(self.gone(now));
        viewers.sort_by_key(|viewer| viewer.client);
        let is_shown = |client: &ClientId| viewers.binary_search_by_key(client, |viewer| viewer.client).is_ok();
        let trees = (0..tracker.slices()).map(|slice| edges(tracker, slice, is_shown)).collect();
        let a_packet = self.load.source_bytes as f64 / edge.0.max(1) as f64;
        let happenings = self.happenings.iter();
        OverlayView {
            load: self.load,
            server_children: tracker.server_held() as u32,
            delivered_bytes: (packets as f64 * a_packet) as u64,
            watching: tracker.watching() as u32,
            delays,
            viewers,
            trees,
            happenings: happenings.map(|&(at, client, what)| Happening { ago: now.since(at), client, what }).collect(),
        }
    }

    /// Those who have just died or were shut out.
    fn gone(&self, now: Time) -> impl Iterator<Item = ViewerFigures> {
        self.happenings.iter().filter(move |(at, ..)| now.since(*at) < GONE_SHOWN).filter_map(|&(_, client, what)| {
            let state = match what {
                Happened::Died => ViewerState::Silent,
                Happened::Excluded => ViewerState::Excluded,
                Happened::Joined | Happened::Left | Happened::LeftOut => return None,
            };
            Some(ViewerFigures { state, ..unknown(client) })
        })
    }
}

fn unknown(client: ClientId) -> ViewerFigures {
    ViewerFigures {
        client,
        state: ViewerState::Live,
        is_private: false,
        places: 0,
        children: 0,
        sent: Rate::ZERO,
        capacity: Rate::ZERO,
        played: 0,
        skipped: 0,
        delay: None,
        round_trip: None,
    }
}

fn with_report(figures: ViewerFigures, report: Option<&Report>) -> ViewerFigures {
    let Some(report) = report else { return figures };
    let Report { sent, capacity, played, skipped, delay, .. } = *report;
    ViewerFigures { sent, capacity, played, skipped, delay, ..figures }
}

fn state(is_suspect: bool, heard: Duration, reports: &ReportHistory) -> ViewerState {
    if is_suspect {
        ViewerState::Suspect
    } else if heard > SILENT_AFTER {
        ViewerState::Silent
    } else if reports.missed_lately() > LATE {
        ViewerState::Late
    } else {
        ViewerState::Live
    }
}

fn short(number: usize) -> u16 {
    u16::try_from(number).unwrap_or(u16::MAX)
}

fn figures<A: Copy + Eq>(now: Time, tracker: &Tracker<A>) -> impl Iterator<Item = ViewerFigures> {
    let public = tracker.viewers().map(move |viewer| {
        let (places, children) = tracker.book().places(viewer.node);
        let figures = ViewerFigures {
            state: state(viewer.contribution.is_suspect(), now.since(viewer.heard), &viewer.reports),
            places: short(places),
            children: short(children),
            round_trip: tracker.round_trip(viewer.node),
            ..unknown(viewer.contact.client)
        };
        with_report(figures, viewer.reports.last())
    });
    let private = tracker.private_viewers().map(move |viewer| {
        let state = state(false, now.since(viewer.heard), &viewer.reports);
        with_report(ViewerFigures { state, is_private: true, ..unknown(viewer.contact.client) }, viewer.reports.last())
    });
    public.chain(private)
}

/// Who of those that are told gets `slice` from whom of them.
fn edges<A: Copy + Eq>(
    tracker: &Tracker<A>,
    slice: u8,
    is_shown: impl Fn(&ClientId) -> bool,
) -> Vec<(ClientId, Option<ClientId>)> {
    let public = tracker.viewers().filter_map(|viewer| {
        let parent = tracker.book().parent(usize::from(slice), viewer.node)?;
        let parent = if parent == NodeId::SERVER { None } else { Some(tracker.client_of(parent)?) };
        Some((viewer.contact.client, parent))
    });
    let private = tracker.private_viewers().map(|viewer| (viewer.contact.client, None));
    let is_shown =
        |(child, parent): &(ClientId, Option<ClientId>)| is_shown(child) && parent.as_ref().is_none_or(&is_shown);
    let mut edges: Vec<_> = public.chain(private).filter(is_shown).collect();
    edges.sort_unstable();
    edges
}

/// Up to [`MOST_LISTED`] viewers, those nearest to `around` in the trees first.
fn part<A: Copy + Eq>(tracker: &Tracker<A>, around: ClientId) -> BTreeSet<ClientId> {
    let book = tracker.book();
    let mut nodes: Vec<NodeId> = Vec::new();
    if let Some(viewer) = tracker.viewer(around) {
        let slices = 0..usize::from(tracker.slices());
        for slice in slices.clone() {
            let mut above = book.parent(slice, viewer.node);
            while let Some(node) = above.filter(|&node| node != NodeId::SERVER) {
                nodes.push(node);
                above = book.parent(slice, node);
            }
        }
        nodes.extend(slices.clone().flat_map(|slice| book.children(slice, viewer.node)));
        nodes.extend(slices.flat_map(|slice| book.children(slice, NodeId::SERVER)));
    }
    let near = [around].into_iter().chain(nodes.into_iter().filter_map(|node| tracker.client_of(node)));
    let others = tracker.viewers().map(|viewer| viewer.contact.client);
    let mut part = BTreeSet::new();
    for client in near.chain(others) {
        part.insert(client);
        if part.len() == MOST_LISTED {
            break;
        }
    }
    part
}

#[cfg(test)]
mod tests {
    use super::*;

    const VIEWER: ClientId = ClientId(7);

    fn joined(begin: u64) -> OverlayViews {
        let mut views = OverlayViews::default();
        views.on_joined(Time::ZERO, VIEWER, PacketId(begin));
        views
    }

    #[test]
    fn who_comes_back_is_counted_from_what_it_had_by_then() {
        let mut views = joined(1000);
        assert_eq!(views.delivered(VIEWER, 0, PacketId(1000)), 0);
        // Of a server before this one it had 5000.
        views.on_report(VIEWER, 5010, PacketId(1100));
        assert_eq!(views.delivered(VIEWER, 5010, PacketId(1100)), 0);
        views.on_report(VIEWER, 5060, PacketId(1200));
        assert_eq!(views.delivered(VIEWER, 5060, PacketId(1200)), 50);
        views.on_gone(Time::ZERO, VIEWER, Happened::Left, 5060, PacketId(1300));
        assert_eq!((views.departed, views.delivered(VIEWER, 6000, PacketId(1400))), (50, 0));
    }

    #[test]
    fn who_is_new_is_counted_from_its_first_packet_and_no_more_than_there_was() {
        let mut views = joined(1000);
        views.on_report(VIEWER, 90, PacketId(1100));
        assert_eq!(views.delivered(VIEWER, 90, PacketId(1100)), 90);
        views.on_report(VIEWER, 900, PacketId(1200));
        assert_eq!(views.delivered(VIEWER, 900, PacketId(1200)), 200);
    }
}
