//! An environment as a user asks for it, by names and numbers.

use std::sync::Arc;

use anabranch_control::time::Duration;
use anabranch_scenario::flows::FlowScenario;

use crate::Agents;
use crate::SightError;
use crate::action::Actuator;
use crate::catalogue;
use crate::feature::Feature;
use crate::spec::{Source, Spec};

/// What an environment is about.
#[derive(Clone, Debug)]
pub enum About {
    /// One of the [catalogue](crate::catalogue)'s, by its name.
    Named(String),
    /// Flows of the user's.
    Scenario(Arc<FlowScenario>),
}

/// What of an environment is otherwise than it is unless said; none leaves it as it is.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The link that is divided, by its name.
    pub link: Option<String>,
    /// Between two actions, in seconds.
    pub interval_s: Option<f64>,
    /// An [`Actuator`]'s name.
    pub actuator: Option<String>,
    /// Names of [`Feature`]s, in the order of a host's row.
    pub features: Option<Vec<String>>,
    /// Refuse features that a coordinator of real hosts can't know.
    pub deployable: bool,
    /// Observations in one.
    pub history: Option<usize>,
    /// Steps that an observation is late.
    pub delay: Option<usize>,
    /// [`Agents`]' name.
    pub agents: Option<String>,
    /// Weights of a reward's terms, by their names.
    pub weights: Vec<(String, f64)>,
}

/// Why nothing can be made of it.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum OptionError {
    /// A name that nothing has.
    #[error("there is no {kind} \"{name}\"; there are: {known}")]
    Unknown {
        /// Of what it should be the name.
        kind: &'static str,
        /// The name.
        name: String,
        /// The names that there are.
        known: String,
    },
    /// Nothing can be seen so.
    #[error(transparent)]
    Sight(#[from] SightError),
    /// A feature that can't be deployed.
    #[error("no coordinator of real hosts can know \"{0}\": leave it out, or observe everything")]
    Hidden(&'static str),
    /// A span that is none.
    #[error("interval is {0}, must be a number of seconds, 0.001 or more")]
    Interval(String),
}

fn unknown(kind: &'static str, name: &str, known: &[&str]) -> OptionError {
    OptionError::Unknown { kind, name: name.to_owned(), known: known.join(", ") }
}

impl Options {
    /// The environment. Numbers out of their ranges are found by [`Spec::check`].
    ///
    /// # Errors
    ///
    /// The first name that nothing has, or that can't stand there.
    pub fn spec(&self, about: &About) -> Result<Spec, OptionError> {
        let mut spec = match about {
            About::Named(name) => catalogue::find(name)
                .ok_or_else(|| unknown("environment", name, &catalogue::ALL.map(|entry| entry.name)))?
                .spec(),
            About::Scenario(scenario) => Spec::of(Source::Fixed(Arc::clone(scenario))),
        };
        if let Some(name) = &self.link {
            let links = spec.links();
            let link = links.iter().position(|link| link == name);
            let known: Vec<&str> = links.iter().map(String::as_str).collect();
            spec.link = link.ok_or_else(|| unknown("link", name, &known))?;
        }
        if let Some(seconds) = self.interval_s {
            if !(1e-3..1e9).contains(&seconds) {
                return Err(OptionError::Interval(seconds.to_string()));
            }
            spec.interval = Duration::from_secs_f64(seconds);
        }
        if let Some(name) = &self.actuator {
            let actuator = Actuator::named(name);
            spec.actuator = actuator.ok_or_else(|| SightError::actuator(name))?;
        }
        if let Some(names) = &self.features {
            spec.features = Feature::all_named(names)?;
        }
        if self.deployable
            && let Some(feature) = spec.features.iter().find(|feature| !feature.is_deployable())
        {
            return Err(OptionError::Hidden(feature.name()));
        }
        spec.history = self.history.unwrap_or(spec.history);
        spec.delay = self.delay.unwrap_or(spec.delay);
        if let Some(name) = &self.agents {
            spec.agents = Agents::named(name).ok_or_else(|| SightError::agents(name))?;
        }
        for (name, weight) in &self.weights {
            *spec.weights.named_mut(name).ok_or_else(|| unknown("term", name, &crate::Terms::NAMES))? = *weight as f32;
        }
        Ok(spec)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Session, Weights};

    fn spec(options: Options) -> Result<Spec, String> {
        options.spec(&About::Named("C3-Cross".into())).map_err(|error| error.to_string())
    }

    #[test]
    fn what_is_asked_for_is_what_it_is() {
        let options = Options {
            link: Some("bottleneck".into()),
            interval_s: Some(0.05),
            actuator: Some("rate".into()),
            features: Some(vec!["queue".into(), "cross_next".into()]),
            history: Some(3),
            delay: Some(2),
            weights: vec![("queue".into(), 0.25)],
            deployable: false,
            agents: Some("domains".into()),
        };
        let spec = spec(options).unwrap();
        assert_eq!(spec.agents, Agents::Domains);
        assert_eq!((spec.link, spec.interval, spec.actuator), (0, Duration::from_millis(50), Actuator::Rate));
        assert_eq!((spec.features.as_slice(), spec.history), (&[Feature::Queue, Feature::CrossNext][..], 3));
        assert_eq!((spec.delay, spec.weights), (2, Weights { queue: 0.25, ..Weights::default() }));
        assert!(Session::new(Arc::new(spec), 1).is_ok());
        // Nothing said is the catalogue's.
        let plain = Options::default().spec(&About::Named("C3-Delayed".into())).unwrap();
        assert_eq!((plain.delay, plain.features.len()), (10, 10));
    }

    #[test]
    fn each_name_that_nothing_has_is_answered_by_those_that_there_are() {
        let named = |name: &str| Some(name.to_owned());
        let refused = |options: Options| spec(options).unwrap_err();
        let error = Options::default().spec(&About::Named("C3-Singel".into())).unwrap_err().to_string();
        assert!(
            error.starts_with("there is no environment \"C3-Singel\"; there are: C3-Single, C3-Parallel"),
            "{error}"
        );
        let link = refused(Options { link: named("b"), ..Options::default() });
        assert!(link.starts_with("there is no link \"b\"; there are: bottleneck, bottleneck-back"), "{link}");
        let actuator = refused(Options { actuator: named("pace"), ..Options::default() });
        assert_eq!(actuator, "there is no actuator \"pace\"; there are: fixed, bounded, rate, share, lent, initial");
        let agents = refused(Options { agents: named("groups"), ..Options::default() });
        assert_eq!(agents, "there is no agents \"groups\"; there are: hosts, domains");
        let features = |names: &[&str], deployable| Options {
            features: Some(names.iter().map(|&name| name.to_owned()).collect()),
            deployable,
            ..Options::default()
        };
        assert!(refused(features(&["goodput"], false)).contains("there are: throughput, queue, dropped"));
        assert_eq!(refused(features(&["queue", "queue"], false)), "the feature \"queue\" stands there twice");
        assert!(refused(features(&["cross_next"], true)).contains("no coordinator of real hosts can know"));
        assert!(spec(features(&["cross_next"], false)).is_ok());
        let term = refused(Options { weights: vec![("goodput".into(), 1.0)], ..Options::default() });
        assert!(term.contains("throughput, queue, drop, sending, unfairness"), "{term}");
        for seconds in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            let interval = refused(Options { interval_s: Some(seconds), ..Options::default() });
            assert!(interval.ends_with("must be a number of seconds, 0.001 or more"), "{interval}");
        }
    }
}
