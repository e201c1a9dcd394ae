//! What exploration has shown of viewers, and of the links between them.

use anabranch_control::rtt::PairRtts;

use super::super::content::ClientId;
use super::super::exploration::{self, Member};
use super::{Tracker, Viewer};

impl<A: Copy + Eq> Tracker<A> {
    /// Who can be explored.
    pub fn members(&self) -> Vec<Member<A>> {
        let member = |viewer: &Viewer<A>| Member {
            contact: viewer.contact,
            slot: viewer.node.slot(),
            session: viewer.session,
            announced: self.viewer_places(viewer.contribution.announced()),
            held: self.book.places(viewer.node).1,
        };
        self.viewers().map(member).collect()
    }

    /// What is known of links between viewers: what explores them notes it here.
    pub fn explored_links(&mut self) -> &mut PairRtts {
        let slots = self.config.most_clients + 1;
        self.latencies.explored.get_or_insert_with(|| exploration::links(slots))
    }

    /// Viewers bear as many children in all trees as exploration has shown; where nothing is said of one, as
    /// it was.
    pub fn set_explored(&mut self, places: impl Fn(ClientId) -> Option<usize>) {
        for slot in 1..self.viewers.len() {
            let Some(viewer) = &mut self.viewers[slot] else { continue };
            let (node, explored) = (viewer.node, places(viewer.contact.client));
            if viewer.explored != explored {
                viewer.explored = explored;
                self.recount(node);
            }
        }
    }
}
