//! What an environment is: a scenario, the link that is divided, and what an agent sees, does and is paid for.

use std::fmt;
use std::sync::Arc;

use anabranch_control::rng::Rng;
use anabranch_control::time::{Duration, Time};
use anabranch_lab::flows::FlowRunError;
use anabranch_scenario::flows::FlowScenario;
use anabranch_scenario::policy::sight::in_range;
use anabranch_scenario::policy::{Actuator, Agents, Feature, Sight, SightError, check_in};

use crate::reward::Weights;

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
    /// Who has a row of an observation, and a number of an action.
    pub agents: Agents,
    /// What the terms of a reward count.
    pub weights: Weights,
}

/// Why there is no such environment.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SpecError {
    /// Nothing can be seen so.
    #[error(transparent)]
    Sight(#[from] SightError),
    /// The scenario can't be run.
    #[error(transparent)]
    Scenario(#[from] FlowRunError),
    /// It has no flow that can be an agent.
    #[error("{0}")]
    Sender(String),
}

impl Spec {
    /// An environment over `scenario` with the options of [C3]: six features, a window that is set, and equal
    /// weights, every 100 ms; or with those of the scenario's policy, if it has one. The link is the one that the
    /// scenario's coordinator divides, if it has one, and else the slowest.
    pub fn of(source: Source) -> Spec {
        let scenario = source.draw(&mut Rng::stream(0, "episode"));
        let slowest = || {
            let rated =
                scenario.links.iter().enumerate().filter_map(|(link, spec)| Some((spec.rate.as_ref()?.first, link)));
            rated.min().map_or(0, |(_, link)| link)
        };
        let steering = scenario.steering.as_ref();
        let sight =
            steering.and_then(|steering| Some(steering.policy.as_ref()?.sight.clone())).unwrap_or_else(|| Sight {
                link: steering.map_or_else(slowest, |steering| steering.link),
                interval: steering.map_or(Duration::from_millis(100), |steering| steering.every),
                actuator: Actuator::default(),
                features: Feature::C3.to_vec(),
                history: 1,
                delay: 0,
                agents: Agents::default(),
            });
        let Sight { link, interval, actuator, features, history, delay, agents } = sight;
        Spec { source, link, interval, actuator, features, history, delay, agents, weights: Weights::default() }
    }

    /// What is seen, and what becomes of rates.
    pub fn sight(&self) -> Sight {
        let Spec { link, interval, actuator, history, delay, agents, .. } = *self;
        Sight { link, interval, actuator, features: self.features.clone(), history, delay, agents }
    }

    /// Whether there can be such an environment over `scenario`.
    ///
    /// # Errors
    ///
    /// What can't be.
    pub fn check(&self, scenario: &FlowScenario) -> Result<(), SpecError> {
        check_in(&self.sight(), scenario)?;
        let Weights { throughput, queue, drop, sending, unfairness, completion } = self.weights;
        for (option, weight) in [
            ("weight of throughput", throughput),
            ("weight of queue", queue),
            ("weight of drop", drop),
            ("weight of sending", sending),
            ("weight of unfairness", unfairness),
            ("weight of completion", completion),
        ] {
            in_range(option, f64::from(weight), 0.0, 1e6)?;
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
