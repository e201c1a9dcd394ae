//! What an environment is: a scenario, the link that is divided, and what an agent sees, does and is paid for.

use std::fmt;
use std::sync::Arc;

use anabranch_control::rng::Rng;
use anabranch_control::time::{Duration, Time};
use anabranch_lab::flows::FlowRunError;
use anabranch_scenario::flows::{FlowScenario, QueueSpec};
use anabranch_sim::network::{Capacity, Limit};

use crate::action::Actuator;
use crate::feature::Feature;
use crate::host;
use crate::reward::Weights;

/// The most observations that one holds, the present one included.
pub const MOST_HISTORY: usize = 64;

/// The most steps that an observation is late.
pub const MOST_DELAY: usize = 64;

/// The longest wait at a link whose queue has no end counts as this.
const UNLIMITED: Duration = Duration::from_millis(100);

/// What an episode runs.
#[derive(Clone)]
pub enum Source {
    /// The same each time; its random streams differ.
    Fixed(Arc<FlowScenario>),
    /// Drawn for each episode. All draws have the same hosts, and differ in anything else.
    Drawn(fn(&mut Rng) -> FlowScenario),
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Fixed(scenario) => write!(f, "Fixed({} flows)", scenario.flows.len()),
            Source::Drawn(_) => write!(f, "Drawn"),
        }
    }
}

impl Source {
    /// That of the episode with these draws.
    pub fn draw(&self, rng: &mut Rng) -> Arc<FlowScenario> {
        match self {
            Source::Fixed(scenario) => Arc::clone(scenario),
            Source::Drawn(draw) => Arc::new(draw(rng)),
        }
    }
}

/// An environment.
#[derive(Clone, Debug)]
pub struct Spec {
    /// What an episode runs.
    pub source: Source,
    /// The link that is divided, by its number in the scenario.
    pub link: usize,
    /// Between two actions.
    pub interval: Duration,
    /// How a rate becomes a window.
    pub actuator: Actuator,
    /// A host's row of an observation.
    pub features: Vec<Feature>,
    /// Observations in one, the newest first; 1 has the present alone.
    pub history: usize,
    /// How many steps old the newest of them is.
    pub delay: usize,
    /// What the terms of a reward count.
    pub weights: Weights,
}

/// Why there is no such environment.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SpecError {
    /// An option is out of its range.
    #[error("{option} is {value}, must be from {least} to {most}")]
    Range {
        /// Its name.
        option: &'static str,
        /// What it is.
        value: f64,
        /// The least.
        least: f64,
        /// The most.
        most: f64,
    },
    /// There is nothing to see.
    #[error("an observation needs a feature; there are: {}", names())]
    NoFeature,
    /// There is no such link.
    #[error("the scenario has no link number {link}; it has {links}")]
    NoLink {
        /// What was asked for.
        link: usize,
        /// How many there are.
        links: usize,
    },
    /// There is nothing to divide.
    #[error("link \"{0}\" has no rate: choose one that takes time to transmit a packet")]
    NoRate(String),
    /// There is nobody to steer.
    #[error("no flow of the scenario passes link \"{0}\"")]
    NoHost(String),
    /// The scenario can't be run.
    #[error(transparent)]
    Scenario(#[from] FlowRunError),
}

fn names() -> String {
    Feature::ALL.map(Feature::name).join(", ")
}

fn in_range(option: &'static str, value: f64, least: f64, most: f64) -> Result<(), SpecError> {
    if value.is_finite() && (least..=most).contains(&value) {
        return Ok(());
    }
    Err(SpecError::Range { option, value, least, most })
}

impl Spec {
    /// An environment over `scenario` with the options of [C3]: six features, a window that is set, and equal
    /// weights, every 100 ms. The link is the one that the scenario's coordinator divides, if it has one, and else
    /// the slowest.
    pub fn of(source: Source) -> Spec {
        let scenario = source.draw(&mut Rng::stream(0, "episode"));
        let slowest = || {
            let rated =
                scenario.links.iter().enumerate().filter_map(|(link, spec)| Some((spec.rate.as_ref()?.first, link)));
            rated.min().map_or(0, |(_, link)| link)
        };
        Spec {
            link: scenario.steering.as_ref().map_or_else(slowest, |steering| steering.link),
            interval: scenario.steering.as_ref().map_or(Duration::from_millis(100), |steering| steering.every),
            source,
            actuator: Actuator::default(),
            features: Feature::C3.to_vec(),
            history: 1,
            delay: 0,
            weights: Weights::default(),
        }
    }

    /// Whether there can be such an environment over `scenario`.
    ///
    /// # Errors
    ///
    /// What can't be.
    pub fn check(&self, scenario: &FlowScenario) -> Result<(), SpecError> {
        let length = scenario.length.as_secs_f64();
        in_range("interval in seconds", self.interval.as_secs_f64(), 1e-3, length)?;
        in_range("history", self.history as f64, 1.0, MOST_HISTORY as f64)?;
        in_range("delay", self.delay as f64, 0.0, MOST_DELAY as f64)?;
        let Weights { throughput, queue, drop, sending, unfairness } = self.weights;
        for (option, weight) in [
            ("weight of throughput", throughput),
            ("weight of queue", queue),
            ("weight of drop", drop),
            ("weight of sending", sending),
            ("weight of unfairness", unfairness),
        ] {
            in_range(option, f64::from(weight), 0.0, 1e6)?;
        }
        if self.features.is_empty() {
            return Err(SpecError::NoFeature);
        }
        let links = scenario.links.len();
        let Some(link) = scenario.links.get(self.link) else {
            return Err(SpecError::NoLink { link: self.link, links });
        };
        if link.rate.is_none() {
            return Err(SpecError::NoRate(link.name.clone()));
        }
        if host::hosts(scenario, self.link).is_empty() {
            return Err(SpecError::NoHost(link.name.clone()));
        }
        Ok(())
    }

    /// The names of the links that it has, in their order.
    pub fn links(&self) -> Vec<String> {
        let scenario = self.source.draw(&mut Rng::stream(0, "episode"));
        scenario.links.iter().map(|link| link.name.clone()).collect()
    }

    /// When an episode ends.
    pub fn end(scenario: &FlowScenario) -> Time {
        Time::ZERO + scenario.length
    }
}

/// The longest wait that a queue allows at a link of `rate` bytes a second.
pub fn longest_wait(queue: &QueueSpec, rate: f64, full_packet: f64) -> f64 {
    let bytes = match *queue {
        QueueSpec::DropTail(Capacity::Time(wait)) => return wait.as_secs_f64(),
        QueueSpec::DropTail(Capacity::Unlimited) => return UNLIMITED.as_secs_f64(),
        QueueSpec::DropTail(Capacity::Bytes(bytes)) => bytes as f64,
        QueueSpec::DropTail(Capacity::Packets(packets)) => packets as f64 * full_packet,
        QueueSpec::FqCodel(config) => f64::from(config.limit) * full_packet,
        QueueSpec::Red(anabranch_sim::network::RedConfig { limit, .. })
        | QueueSpec::Codel(anabranch_sim::network::CodelConfig { limit, .. }) => match limit {
            Limit::Bytes(bytes) => bytes as f64,
            Limit::Packets(packets) => packets as f64 * full_packet,
        },
    };
    bytes / rate
}
