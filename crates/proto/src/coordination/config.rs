//! What a coordinator is told before the first report: links, who may report, and who decides.

use std::sync::Arc;

use anabranch_control::time::Duration;
use anabranch_control::units::Rate;

use super::forecast::Expected;
use super::message::Actuator;
use super::policy::Learned;
use crate::session::PeerKey;

/// How hosts share a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Share {
    /// Equal rates for all flows.
    #[default]
    PerFlow,
    /// Equal rates for all hosts that have flows.
    PerHost,
}

/// A link that is divided.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkConfig {
    /// Its name.
    pub name: String,
    /// What it carries on the wire, unless its monitor knows better.
    pub capacity: Rate,
    /// The longest wait that its queue allows, if that is known.
    pub queue: Option<Duration>,
}

/// What an agent is there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Duty {
    /// Sending over a link.
    Host {
        /// Which.
        link: usize,
        /// What it keeps in any case while it has flows.
        least: Rate,
        /// What it takes at most.
        most: Rate,
        /// More flows than these do not count, whatever it reports.
        most_flows: u32,
    },
    /// Watching a link.
    Monitor {
        /// Which.
        link: usize,
    },
}

/// An agent that may report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its name.
    pub name: String,
    /// The key that it proves to have.
    pub key: PeerKey,
    /// What it is there for.
    pub duty: Duty,
}

/// What is settled before the first report.
#[derive(Clone, Debug, PartialEq)]
pub struct CoordinatorConfig {
    /// Which life this is: higher than those before.
    pub epoch: u64,
    /// How often it decides.
    pub every: Duration,
    /// Which part of a link's capacity is given away, from 0 to 1.
    pub utilisation: f64,
    /// How flows keep to their shares.
    pub actuator: Actuator,
    /// How hosts share.
    pub share: Share,
    /// What the rule takes others than the hosts to send until the next decision.
    pub expected: Expected,
    /// The links.
    pub links: Vec<LinkConfig>,
    /// Who may report.
    pub members: Vec<Member>,
    /// Who decides in place of the rule; [`super::fitness::check`] says whether it can.
    pub policy: Option<Arc<Learned>>,
}

/// The members of one link, in their order: a decision looks at a link's own alone.
#[derive(Clone, Debug, Default)]
pub(super) struct OfLink {
    pub(super) hosts: Vec<usize>,
    pub(super) monitors: Vec<usize>,
}

impl OfLink {
    /// Those of each link.
    ///
    /// # Panics
    ///
    /// If a member's link is not there.
    pub(super) fn each(config: &CoordinatorConfig) -> Vec<OfLink> {
        let mut all = vec![OfLink::default(); config.links.len()];
        for (place, member) in config.members.iter().enumerate() {
            match member.duty {
                Duty::Host { link, .. } => all[link].hosts.push(place),
                Duty::Monitor { link } => all[link].monitors.push(place),
            }
        }
        all
    }
}

impl CoordinatorConfig {
    /// Whether somebody watches a link.
    pub fn is_monitored(&self, link: usize) -> bool {
        self.members.iter().any(|member| member.duty == Duty::Monitor { link })
    }

    /// The members that send over a link, in their order.
    pub fn hosts_of(&self, link: usize) -> Vec<usize> {
        let is_host = |member: &Member| matches!(member.duty, Duty::Host { link: of, .. } if of == link);
        let all = self.members.iter().enumerate();
        all.filter(|(_, member)| is_host(member)).map(|(place, _)| place).collect()
    }
}
