//! Whether a policy can decide for a coordinator's links.

use anabranch_control::policy::PolicyError;
use anabranch_control::time::Duration;

use super::agent::{LEAST_PERIOD, LONGEST_PERIOD};
use super::config::CoordinatorConfig;
use super::policy::{Actuator, Agents, Feature, Learned, Sight};

/// Why it can not. Keys are those of a policy's JSON file.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Unfit {
    /// It sees what no coordinator can know.
    #[error(
        "purpose.features has \"{0}\", which no coordinator of real hosts can know; expected a policy that does not see it"
    )]
    Hidden(&'static str),
    /// It tells windows.
    #[error(
        "purpose.actuator is \"initial\", the window that a connection begins with, and hosts are told rates; expected fixed, \
         bounded, rate, share or lent"
    )]
    Initial,
    /// It steers sub-domains.
    #[error("purpose.agents is \"domains\", and a coordinator tells hosts; expected a policy for \"hosts\"")]
    Domains,
    /// It decides too often, or too seldom.
    #[error(
        "purpose.interval_s is {seconds}, and agents report {least} to {most} s apart; expected a policy that decides so often"
    )]
    Interval {
        /// What it is.
        seconds: f64,
        /// The least.
        least: f64,
        /// The most.
        most: f64,
    },
    /// Nobody watches a link.
    #[error("purpose.features has \"{feature}\", and nobody watches link \"{link}\"; expected a [[monitor]] of it")]
    Unwatched {
        /// What it sees.
        feature: &'static str,
        /// The link's name.
        link: String,
    },
    /// It is not known how full a queue is.
    #[error(
        "purpose.features has \"{feature}\", and it is not known how long the queue of link \"{link}\" is; expected its longest \
         wait in its [[link]], as queue_ms = 50"
    )]
    Queue {
        /// What it sees.
        feature: &'static str,
        /// The link's name.
        link: String,
    },
    /// It is for another number of hosts or features.
    #[error("its tensors are not for link \"{link}\" with {hosts} hosts: {error}")]
    Shape {
        /// The link's name.
        link: String,
        /// How many hosts it has.
        hosts: usize,
        /// What is otherwise.
        error: PolicyError,
    },
}

/// Whether `learned` can decide for the links of `config`.
///
/// # Errors
///
/// The first thing that it can not do there.
pub fn check(learned: &Learned, config: &CoordinatorConfig) -> Result<(), Unfit> {
    can_direct_hosts(learned)?;
    let Sight { features, history, .. } = &learned.sight;
    for (number, link) in config.links.iter().enumerate() {
        let hosts = config.hosts_of(number).len();
        if hosts == 0 {
            continue;
        }
        let name = || link.name.clone();
        let is_watched = config.is_monitored(number);
        if let Some(feature) = features.iter().find(|feature| feature.needs_monitor() && !is_watched) {
            return Err(Unfit::Unwatched { feature: feature.name(), link: name() });
        }
        if features.contains(&Feature::Queue) && link.queue.is_none() {
            return Err(Unfit::Queue { feature: Feature::Queue.name(), link: name() });
        }
        let reading = learned.policy.reading(hosts, features.len(), *history);
        reading.map_err(|error| Unfit::Shape { link: name(), hosts, error })?;
    }
    Ok(())
}

/// Whether it can decide for any coordinator of hosts.
///
/// # Errors
///
/// Why not.
pub fn can_direct_hosts(learned: &Learned) -> Result<(), Unfit> {
    let Sight { features, actuator, agents, interval, .. } = &learned.sight;
    if let Some(hidden) = features.iter().find(|feature| !feature.is_deployable()) {
        return Err(Unfit::Hidden(hidden.name()));
    }
    if *actuator == Actuator::Initial {
        return Err(Unfit::Initial);
    }
    if *agents == Agents::Domains {
        return Err(Unfit::Domains);
    }
    if *interval < LEAST_PERIOD || *interval > LONGEST_PERIOD {
        let seconds = Duration::as_secs_f64;
        let (seconds, least, most) = (seconds(*interval), seconds(LEAST_PERIOD), seconds(LONGEST_PERIOD));
        return Err(Unfit::Interval { seconds, least, most });
    }
    Ok(())
}
