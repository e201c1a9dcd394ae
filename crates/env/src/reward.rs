//! What a step was worth, by terms.
//!
//! ```text
//! R = a throughput - b queue - c drop - d sending - e unfairness + f completion
//! ```
//!
//! The first five terms are those of [C3]; it tells no weights, so all are 1 unless said otherwise. The last is ours, for
//! transfers that end: it counts 0 unless said otherwise. In its sum over hosts each
//! has an interface of its own. Here all share one link: its queue and its drops count once.

use crate::feature::{HostSeen, LinkSeen};

/// How much each term counts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Weights {
    /// What was carried.
    pub throughput: f32,
    /// What waited.
    pub queue: f32,
    /// That something was dropped.
    pub drop: f32,
    /// Rates of hosts that have nothing to send.
    pub sending: f32,
    /// How much rates differ.
    pub unfairness: f32,
    /// How soon transfers were over.
    pub completion: f32,
}

impl Default for Weights {
    fn default() -> Weights {
        Weights { throughput: 1.0, queue: 1.0, drop: 1.0, sending: 1.0, unfairness: 1.0, completion: 0.0 }
    }
}

impl Weights {
    /// Of what transfers take, and nothing else.
    pub const OF_COMPLETION: Weights =
        Weights { throughput: 0.0, queue: 0.0, drop: 0.0, sending: 0.0, unfairness: 0.0, completion: 1.0 };

    /// The weight of the term with that name.
    pub fn named_mut(&mut self, name: &str) -> Option<&mut f32> {
        let Weights { throughput, queue, drop, sending, unfairness, completion } = self;
        let all = [throughput, queue, drop, sending, unfairness, completion];
        Terms::NAMES.into_iter().zip(all).find(|(term, _)| *term == name).map(|(_, weight)| weight)
    }
}

/// The terms of a step, none of them negative.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Terms {
    /// Data of all hosts that was acknowledged, with headers, over what the link carries.
    pub throughput: f32,
    /// The wait at the link at the step's end over the longest that its queue allows.
    pub queue: f32,
    /// 1 if the link has dropped a packet, else 0.
    pub drop: f32,
    /// The sum of the relative rates that hosts, or sub-domains, without active flows were directed.
    pub sending: f32,
    /// The standard deviation of what the active hosts sent, over what the link carries.
    pub unfairness: f32,
    /// The sum over the transfers that ended of the time that each would have taken alone over what it took.
    pub completion: f32,
}

impl Terms {
    /// The names, in the order of [`Terms::values`].
    pub const NAMES: [&'static str; 6] = ["throughput", "queue", "drop", "sending", "unfairness", "completion"];

    /// Of what was seen of hosts, and of those who were directed: hosts, too, or sub-domains of them.
    pub fn of(link: &LinkSeen, hosts: &[HostSeen], agents: &[HostSeen], completion: f64) -> Terms {
        let active = || hosts.iter().filter(|host| host.active > 0).map(|host| host.throughput);
        let count = active().count().max(1) as f64;
        let mean = active().sum::<f64>() / count;
        let variance = active().map(|rate| (rate - mean) * (rate - mean)).sum::<f64>() / count;
        Terms {
            throughput: hosts.iter().map(|host| host.throughput).sum::<f64>() as f32,
            queue: link.queue.min(1.0) as f32,
            drop: f32::from(u8::from(link.dropped > 0.0)),
            sending: agents.iter().filter(|host| host.active == 0).map(|host| host.rate).sum::<f64>() as f32,
            unfairness: variance.sqrt() as f32,
            completion: completion as f32,
        }
    }

    /// In the order of [`Terms::NAMES`].
    pub fn values(&self) -> [f32; 6] {
        [self.throughput, self.queue, self.drop, self.sending, self.unfairness, self.completion]
    }

    /// The reward.
    pub fn reward(&self, weights: &Weights) -> f32 {
        weights.throughput * self.throughput
            - weights.queue * self.queue
            - weights.drop * self.drop
            - weights.sending * self.sending
            - weights.unfairness * self.unfairness
            + weights.completion * self.completion
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where hosts are told something themselves.
    fn of(link: &LinkSeen, hosts: &[HostSeen]) -> Terms {
        Terms::of(link, hosts, hosts, 0.0)
    }

    fn host(throughput: f64, active: usize, rate: f64) -> HostSeen {
        HostSeen { throughput, active, rate, ..HostSeen::default() }
    }

    #[test]
    fn throughput_is_the_sum_over_hosts() {
        let terms = of(&LinkSeen::default(), &[host(0.25, 1, 0.5), host(0.5, 1, 0.5)]);
        assert_eq!(terms.throughput, 0.75);
    }

    #[test]
    fn the_queue_counts_once_whatever_the_number_of_hosts() {
        let link = LinkSeen { queue: 0.5, ..LinkSeen::default() };
        let terms = |hosts: &[HostSeen]| of(&link, hosts).queue;
        assert_eq!((terms(&[host(0.0, 1, 0.0)]), terms(&[host(0.0, 1, 0.0); 4])), (0.5, 0.5));
    }

    #[test]
    fn a_drop_is_a_signal_and_not_a_share() {
        let drop = |dropped| of(&LinkSeen { dropped, ..LinkSeen::default() }, &[]).drop;
        assert_eq!((drop(0.0), drop(0.001), drop(0.5)), (0.0, 1.0, 1.0));
    }

    #[test]
    fn a_rate_for_a_host_that_has_nothing_to_send_costs() {
        let terms = of(&LinkSeen::default(), &[host(0.0, 0, 0.5), host(1.0, 1, 1.0), host(0.0, 0, 0.25)]);
        assert_eq!(terms.sending, 0.75);
    }

    #[test]
    fn unfairness_is_the_deviation_over_the_active_hosts() {
        // 0.2 and 0.6: mean 0.4, each 0.2 from it; the idle one does not count.
        let terms = of(&LinkSeen::default(), &[host(0.2, 1, 0.5), host(0.6, 2, 0.5), host(0.0, 0, 0.0)]);
        assert!((terms.unfairness - 0.2).abs() < 1e-6, "{terms:?}");
        assert_eq!(of(&LinkSeen::default(), &[host(0.9, 1, 1.0)]).unfairness, 0.0, "alone");
        assert_eq!(of(&LinkSeen::default(), &[]).unfairness, 0.0, "nobody");
    }

    #[test]
    fn the_reward_weighs_the_terms() {
        let terms = Terms { throughput: 0.9, queue: 0.1, drop: 1.0, sending: 0.2, unfairness: 0.05, completion: 0.5 };
        assert!((terms.reward(&Weights::default()) - (0.9 - 0.1 - 1.0 - 0.2 - 0.05)).abs() < 1e-6);
        let weights =
            Weights { throughput: 2.0, queue: 0.5, drop: 0.25, sending: 0.0, unfairness: 4.0, completion: 2.0 };
        assert!((terms.reward(&weights) - (1.8 - 0.05 - 0.25 - 0.2 + 1.0)).abs() < 1e-6);
    }

    #[test]
    fn sub_domains_are_directed_and_their_hosts_are_treated_alike() {
        let hosts = [host(0.2, 1, 0.25), host(0.6, 1, 0.25), host(0.0, 0, 0.5), host(0.0, 0, 0.125)];
        let domains = [host(0.8, 2, 0.5), host(0.0, 0, 0.375)];
        let terms = Terms::of(&LinkSeen::default(), &hosts, &domains, 0.0);
        assert_eq!((terms.sending, terms.throughput), (0.375, 0.8));
        assert!((terms.unfairness - 0.2).abs() < 1e-6, "{}", terms.unfairness);
    }
}
