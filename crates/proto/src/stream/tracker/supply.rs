//! What a viewer had of each slice to pass on.
//!
//! Who passes on all that it gets of a slice of which half comes is not to blame for the other half: its parent is, or
//! somebody above. So what its children miss counts only as far as it had it itself. By its own word, of which the worse
//! of the last two reports counts, since its periods do not begin with its children's. But who passes nothing on could
//! say that it got nothing: it is believed no less than those who have the same parent in the same tree say, who should
//! have got the same. Where there are none it is believed, and its parent is to blame instead.

use super::super::content::ClientId;
use super::super::message::FeedReport;
use super::super::tree::NodeId;
use super::Tracker;

/// What somebody has got of a slice.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Got {
    /// From whom, by its last report; none for the server.
    parent: Option<ClientId>,
    /// The part that came, by its last two reports; none of what it says nothing of.
    last: f64,
    before: f64,
}

/// What a viewer has got, by slice.
#[derive(Clone, Debug)]
pub(super) struct Supply {
    got: Vec<Got>,
}

impl Supply {
    /// Of somebody who has said nothing yet.
    pub(super) fn new(slices: u8) -> Supply {
        Supply { got: vec![Got::default(); usize::from(slices)] }
    }

    /// It reports `feeds`, no slice twice.
    pub(super) fn on_report(&mut self, feeds: &[FeedReport]) {
        for (slice, got) in (0..).zip(&mut self.got) {
            let feed = feeds.iter().find(|feed| feed.slice == slice);
            let part =
                |feed: &FeedReport| f64::from(feed.received.min(feed.expected)) / f64::from(feed.expected.max(1));
            *got = Got { parent: feed.and_then(|feed| feed.parent), last: feed.map_or(0.0, part), before: got.last };
        }
    }

    /// The part of `slice` that it had to pass on, by its own word, and from whom.
    fn had(&self, slice: usize) -> (Option<ClientId>, f64) {
        self.got.get(slice).map_or((None, 0.0), |got| (got.parent, got.last.min(got.before)))
    }
}

impl<A: Copy + Eq> Tracker<A> {
    /// The part of `slice` that `node` had to pass on.
    pub(super) fn supplied(&self, slice: usize, node: NodeId) -> f64 {
        let had = |node: NodeId| Some(self.viewers.get(node.slot())?.as_ref()?.supply.had(slice));
        let (Some((parent, own)), Some(above)) = (had(node), self.book.parent(slice, node)) else { return 0.0 };
        if parent != self.client_of(above) {
            return own;
        }
        let siblings = self.book.children(slice, above).into_iter().filter(|&sibling| sibling != node);
        let siblings = siblings.filter_map(had).filter(|&(theirs, _)| theirs == parent).map(|(_, part)| part);
        let (count, all) = siblings.fold((0_u32, 0.0), |(count, all), part| (count + 1, all + part));
        own.max(all / f64::from(count.max(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worse_of_two_reports_counts() {
        let mut supply = Supply::new(2);
        let mut had = |reported: &[(u8, u16)]| {
            let parent = Some(ClientId(7));
            let feed = |&(slice, received): &(u8, u16)| FeedReport { slice, parent, expected: 10, received };
            supply.on_report(&reported.iter().map(feed).collect::<Vec<_>>());
            (supply.had(0), supply.had(1).1, supply.had(9))
        };
        let nothing = (None, 0.0);
        assert_eq!(had(&[(0, 10), (1, 10)]), ((Some(ClientId(7)), 0.0), 0.0, nothing), "it has just come");
        assert_eq!(had(&[(0, 8), (1, 10)]), ((Some(ClientId(7)), 0.8), 1.0, nothing));
        assert_eq!(had(&[(0, 10)]), ((Some(ClientId(7)), 0.8), 0.0, nothing), "of one it says nothing");
    }
}
