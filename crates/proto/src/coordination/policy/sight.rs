//! What a coordinator that learns sees, and how what it says becomes windows.

use anabranch_control::time::Duration;

use super::action::Actuator;
use super::agents::Agents;
use super::error::SightError;
use super::feature::Feature;

/// The most observations that one holds, the present one included.
pub const MOST_HISTORY: usize = 64;

/// The most steps that an observation is late.
pub const MOST_DELAY: usize = 64;

/// The shortest time between two actions, in seconds.
pub const SHORTEST_INTERVAL_S: f64 = 1e-3;

/// The longest.
const LONGEST_INTERVAL_S: f64 = 1e6;

/// What is seen of a link and its hosts, how often, and what becomes of the rates.
#[derive(Clone, Debug, PartialEq)]
pub struct Sight {
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
}

/// Whether a number of the `option` is from `least` to `most`.
///
/// # Errors
///
/// When it is not, or is no number.
pub fn in_range(option: &'static str, value: f64, least: f64, most: f64) -> Result<(), SightError> {
    if value.is_finite() && (least..=most).contains(&value) {
        return Ok(());
    }
    Err(SightError::Range { option, value, least, most })
}

/// An interval of this many seconds.
///
/// # Errors
///
/// When it can't be one.
pub fn interval(seconds: f64) -> Result<Duration, SightError> {
    in_range("interval in seconds", seconds, SHORTEST_INTERVAL_S, LONGEST_INTERVAL_S)?;
    Ok(Duration::from_secs_f64(seconds))
}

impl Sight {
    /// Whether its numbers can be.
    ///
    /// # Errors
    ///
    /// What can't be.
    pub fn check(&self) -> Result<(), SightError> {
        interval(self.interval.as_secs_f64())?;
        in_range("history", self.history as f64, 1.0, MOST_HISTORY as f64)?;
        in_range("delay", self.delay as f64, 0.0, MOST_DELAY as f64)?;
        if self.agents == Agents::Domains && self.actuator == Actuator::Initial {
            return Err(SightError::Windows);
        }
        if self.features.is_empty() { Err(SightError::NoFeature { known: Feature::names() }) } else { Ok(()) }
    }
}
