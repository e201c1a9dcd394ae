//! Who trades with whom: each has neighbours in proportion to what it can send [Efthymiopoulos 2015, 2].
//!
//! Whoever comes early would else be found by all who come later, and have to send several times what others send.
//! So a newcomer gets half of its neighbours at once, and the other half are those who come after it; if they do
//! not, it gets another with each report. Who has twice as many as it should is named to nobody. Else all are as
//! likely: were those preferred who lack most, the last ones would know each other only, and packets would take
//! twice as many hops.

use anabranch_control::rng::Rng;

use super::super::content::ClientId;
use super::super::message::Contact;
use super::{Tracker, Viewer};

/// Neighbours of a viewer that can send the stream once where a mesh alone carries it; of who can send least, who has
/// to get the stream nevertheless; and of who can send most.
const ALONE: (usize, usize, usize) = (10, 8, 24);

/// The same where a mesh only repairs, of those that a viewer looks for. As many find it.
const BESIDE_TREES: (usize, usize, usize) = (6, 6, 12);

/// Who has this many times the neighbours that it should have is named to nobody.
const TOO_MANY: usize = 2;

/// This many are drawn for each that is to be found.
const DRAWN: usize = 4;

impl<A: Copy + Eq> Tracker<A> {
    /// How many neighbours a viewer is to have.
    pub(super) fn degree(&self, viewer: &Viewer<A>) -> usize {
        let places = self.viewer_places(viewer.contribution.announced());
        let (of_one, least, most) = if self.is_mesh_alone { ALONE } else { BESIDE_TREES };
        (places.saturating_mul(of_one) / usize::from(self.config.slices)).clamp(least, most)
    }

    /// Others for `client` to trade with, which has `has` neighbours: none while those are enough.
    pub fn neighbours(&mut self, client: ClientId, has: usize, rng: &mut Rng) -> Vec<Contact<A>> {
        let Some(viewer) = self.viewer_mut(client) else { return Vec::new() };
        viewer.neighbours = has;
        let Some(viewer) = self.viewer(client) else { return Vec::new() };
        let degree = self.degree(viewer);
        let (own, others) = (viewer.node.slot(), self.taken.len() - 1);
        if has >= degree {
            return Vec::new();
        }
        let lacking = if self.is_mesh_alone { (degree / 2).saturating_sub(has).max(1) } else { degree - has };
        let is_free = |other: &Viewer<A>| !self.is_mesh_alone || other.neighbours < TOO_MANY * self.degree(other);
        let mut chosen: Vec<Contact<A>> = Vec::new();
        for _ in 0..DRAWN * lacking {
            if chosen.len() == lacking.min(others) {
                break;
            }
            // The slots of the others, in order, are those that are taken without its own.
            let place = rng.below(others);
            let slot = self.taken[place + usize::from(self.taken[place] >= own)];
            if let Some(other) = &self.viewers[slot]
                && is_free(other)
                && chosen.iter().all(|chosen| chosen.client != other.contact.client)
            {
                chosen.push(other.contact);
            }
        }
        for contact in &chosen {
            if let Some(other) = self.viewer_mut(contact.client) {
                other.neighbours += 1;
            }
        }
        if let Some(viewer) = self.viewer_mut(client) {
            viewer.neighbours += chosen.len();
        }
        chosen
    }
}
