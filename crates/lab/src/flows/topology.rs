//! Shapes of networks that many scenarios share.
//!
//! ```text
//! dumbbell   s0 ---.                      .--- r0
//!            s1 ---- left == bottleneck == right ---- r1
//!            s2 ---'                      '--- r2
//! ```

use anabranch_control::time::Duration;
use anabranch_control::units::Rate;

use super::scenario::{LinkSpec, QueueSpec, Receiver};

/// One sender's or receiver's own link.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Access {
    /// Its rate in each direction.
    pub rate: Rate,
    /// Its propagation in each direction.
    pub delay: Duration,
}

/// A dumbbell: pairs of hosts with a link in common.
#[derive(Clone, Debug)]
pub struct Dumbbell {
    /// Each pair's links: the sender's and the receiver's.
    pub pairs: Vec<(Access, Access)>,
    /// The link in common, from left to right.
    pub bottleneck: LinkSpec,
    /// The queue of each access link.
    pub access_queue: QueueSpec,
}

impl Dumbbell {
    /// Its links, and each pair's way there and back. The bottleneck is the first link, its
    /// way back the second: without losses, with the same rate, delay and queue.
    pub fn build(&self) -> (Vec<LinkSpec>, Vec<Receiver>) {
        let back = LinkSpec {
            name: format!("{}-back", self.bottleneck.name),
            loss: anabranch_sim::loss::LossModel::None,
            ..self.bottleneck.clone()
        };
        let mut links = vec![self.bottleneck.clone(), back];
        let mut add = |name: String, Access { rate, delay }: Access| {
            links.push(LinkSpec::new(name, rate, delay).with_queue(self.access_queue));
            links.len() - 1
        };
        let mut ways = Vec::new();
        for (i, &(sender, receiver)) in self.pairs.iter().enumerate() {
            let up = add(format!("s{i}-left"), sender);
            let down = add(format!("right-r{i}"), receiver);
            let back_up = add(format!("r{i}-right"), receiver);
            let back_down = add(format!("left-s{i}"), sender);
            ways.push(Receiver { there: vec![up, 0, down], back: vec![back_up, 1, back_down] });
        }
        (links, ways)
    }
}
