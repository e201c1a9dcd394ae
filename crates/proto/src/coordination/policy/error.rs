//! Why a coordinator cannot see what it is to see.

use super::action::Actuator;
use super::agents::Agents;

/// Why nothing can be seen so.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SightError {
    /// A number is out of its range.
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
    /// A feature that stands there twice.
    #[error("the feature \"{0}\" stands there twice")]
    Twice(String),
    /// There is nothing to see.
    #[error("an observation needs a feature; there are: {known}")]
    NoFeature {
        /// The names that there are.
        known: String,
    },
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
    /// Nobody has such a window to divide.
    #[error("sub-domains divide rates; with the actuator \"initial\" agents must be hosts")]
    Windows,
    /// There is nobody to steer.
    #[error("no flow of the scenario passes link \"{0}\"")]
    NoHost(String),
}

impl SightError {
    /// There is no actuator of that name.
    pub fn actuator(name: &str) -> SightError {
        let known = Actuator::ALL.map(|(known, _)| known).join(", ");
        SightError::Unknown { kind: "actuator", name: name.to_owned(), known }
    }

    /// There are no agents of that name.
    pub fn agents(name: &str) -> SightError {
        let known = Agents::ALL.map(|(known, _)| known).join(", ");
        SightError::Unknown { kind: "agents", name: name.to_owned(), known }
    }
}
