//! Whom a node knows.

use anabranch_control::rng::Rng;
use anabranch_scenario::overlay::Overlay;

/// The nodes that `node` knows: all others, or as many as the scenario says at random.
pub fn view(overlay: &Overlay, seed: u64, node: u32) -> Box<[u32]> {
    let others = overlay.peers - 1;
    // The i-th of the others, in order of their numbers.
    let other = |index: usize| if index < node as usize { index as u32 } else { index as u32 + 1 };
    let known = overlay.known_peers.min(others);
    if known == others {
        return (0..others).map(other).collect();
    }
    // Floyd's sampling without replacement (Bentley, Floyd, CACM 1987).
    let mut rng = Rng::indexed(seed, "view", u64::from(node));
    let mut chosen = std::collections::BTreeSet::new();
    for top in others - known..others {
        let drawn = rng.below(top + 1);
        chosen.insert(if chosen.contains(&drawn) { top } else { drawn });
    }
    chosen.into_iter().map(other).collect()
}
