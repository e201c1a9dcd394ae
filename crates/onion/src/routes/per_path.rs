//! Control of individual paths, which the thesis holds against control of relays.
//!
//! There are too many paths to learn of each, so a selection of them is kept: packets go over those in
//! proportion to what each is believed to carry, each path for itself by additive increase and
//! multiplicative decrease, and now and then over a new random path that takes the place of the worst
//! ([Raiber 2010] 2.3, 3.1.5).
//!
//! ```text
//! x <- x + 1 / x        at each ACK of the path
//! x <- x / 2            at each loss, no less than 1
//! ```
//!
//! The thesis names what this costs: few outcomes for each path, oscillation, and that the relays of the
//! selection see more of the user than a random relay would. It says no numbers; those here are ours.
//! The cap on a relay's share does not hold here: it is a rule about relays, and this controller
//! knows none.

use anabranch_control::rng::Rng;
use serde::Deserialize;

use super::Path;

/// Parameters.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PerPathConfig {
    /// Paths that are kept.
    pub paths: usize,
    /// Probability that a packet tries a new path.
    pub explore: f64,
}

impl Default for PerPathConfig {
    fn default() -> PerPathConfig {
        PerPathConfig { paths: 32, explore: 0.05 }
    }
}

/// One of the selection.
#[derive(Clone, Copy, Debug)]
struct Kept {
    id: u32,
    path: Path,
    /// What it is believed to carry, relative to the others.
    rate: f64,
}

/// The selection.
#[derive(Clone, Debug)]
pub struct PerPath {
    config: PerPathConfig,
    kept: Vec<Kept>,
    next: u32,
}

impl PerPath {
    /// No path yet.
    pub fn new(config: PerPathConfig) -> PerPath {
        PerPath { config, kept: Vec::new(), next: 0 }
    }

    /// Forgets all paths: places have changed their meaning.
    pub fn clear(&mut self) {
        self.kept.clear();
    }

    /// A path that `allows`, one of the selection or one that `draw` makes; and its name there, by which
    /// its outcome is reported.
    pub fn choose(
        &mut self,
        allows: impl Fn(&Path) -> bool,
        draw: impl Fn(&mut Rng) -> Option<Path>,
        rng: &mut Rng,
    ) -> Option<(Option<u32>, Path)> {
        let explores = self.kept.len() < self.config.paths || rng.chance(self.config.explore);
        if !explores {
            let allowed: Vec<&Kept> = self.kept.iter().filter(|kept| allows(&kept.path)).collect();
            let mut left = rng.uniform() * allowed.iter().map(|kept| kept.rate).sum::<f64>();
            let chosen = allowed.iter().find(|kept| {
                left -= kept.rate;
                left < 0.0
            });
            if let Some(kept) = chosen.or(allowed.last()) {
                return Some((Some(kept.id), kept.path));
            }
        }
        let path = draw(rng)?;
        // A new path is taken to be as the others are: neither starved nor flooded.
        let mean = match self.kept.len() {
            0 => 1.0,
            count => self.kept.iter().map(|kept| kept.rate).sum::<f64>() / count as f64,
        };
        if self.kept.len() == self.config.paths {
            let worst = (0..self.kept.len()).min_by(|&a, &b| self.kept[a].rate.total_cmp(&self.kept[b].rate))?;
            self.kept.swap_remove(worst);
        }
        let id = self.next;
        self.next = self.next.wrapping_add(1);
        self.kept.push(Kept { id, path, rate: mean });
        Some((Some(id), path))
    }

    /// A packet over the path of that name has come or not.
    pub fn on_outcome(&mut self, path: Option<u32>, has_arrived: bool) {
        let Some(kept) = self.kept.iter_mut().find(|kept| Some(kept.id) == path) else { return };
        kept.rate = if has_arrived { kept.rate + 1.0 / kept.rate } else { (kept.rate / 2.0).max(1.0) };
    }
}
