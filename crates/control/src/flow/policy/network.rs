//! A network for one flow, as the controller's parameter `network` has it: features, intervals and numbers.

use serde::Deserialize;

use super::feature::{FlowFeature, MOST_HISTORY};
use crate::policy::{Activation, Cell, Layer, Policy, Reading, Scratch};
use crate::registry::{ParameterError, in_range};
use crate::time::Time;

/// The network, and how it sees.
#[derive(Clone, Debug)]
pub struct FlowNetwork {
    name: String,
    policy: Policy,
    reading: Reading,
    features: Vec<FlowFeature>,
    history: usize,
    rtts: f64,
}

/// The parameter.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Keys {
    /// What messages call it.
    #[serde(default)]
    name: String,
    features: Vec<String>,
    history: usize,
    interval_rtts: f64,
    activation: String,
    mean: Vec<f32>,
    deviation: Vec<f32>,
    least: Option<Vec<f32>>,
    most: Option<Vec<f32>>,
    cell: Option<CellKeys>,
    layers: Vec<LayerKeys>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CellKeys {
    inputs: LayerKeys,
    state: LayerKeys,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LayerKeys {
    /// An input's weights for all outputs, input by input.
    weights: Vec<f32>,
    biases: Vec<f32>,
}

impl FlowNetwork {
    /// The network of a `policy` that sees this many intervals, of `rtts` round trips each, by these features.
    ///
    /// # Errors
    ///
    /// What does not fit, and what was expected.
    pub fn new(
        name: String,
        policy: Policy,
        features: Vec<FlowFeature>,
        history: usize,
        rtts: f64,
    ) -> Result<FlowNetwork, ParameterError> {
        in_range("history", history as f64, 1.0..=MOST_HISTORY as f64)?;
        in_range("interval_rtts", rtts, 0.1..=100.0)?;
        let twice = |at: usize| features[..at].contains(&features[at]);
        if features.is_empty() || (0..features.len()).any(twice) {
            return Err(ParameterError("features must be names, at least one, and none twice".to_owned()));
        }
        let (inputs, outputs) = (policy.inputs(), policy.outputs());
        let reading = policy.reading(1, features.len(), history).map_err(|_| {
            let count = features.len();
            ParameterError(format!(
                "the network takes {inputs} numbers for {outputs} outputs; {history} intervals of {count} features need {} \
                 for 1",
                history * count
            ))
        })?;
        Ok(FlowNetwork { name, policy, reading, features, history, rtts })
    }

    /// Reads the parameter.
    pub(super) fn read(table: &toml::Table) -> Result<FlowNetwork, ParameterError> {
        let keys: Keys = crate::registry::parameters(table)?;
        let features = named(&keys.features)?;
        let activation = Activation::named(&keys.activation).ok_or_else(|| {
            let known = Activation::ALL.map(|(name, _)| name).join(", ");
            ParameterError(format!("there is no activation \"{}\"; there are: {known}", keys.activation))
        })?;
        let layer = |layer: LayerKeys| Layer { weights: layer.weights, biases: layer.biases };
        let layers = keys.layers.into_iter().map(layer).collect();
        let wrong = |error: crate::policy::PolicyError| ParameterError(error.to_string());
        let policy = match keys.cell {
            None => Policy::new(layers, activation, keys.mean, keys.deviation),
            Some(cell) => {
                let cell = Cell { inputs: layer(cell.inputs), state: layer(cell.state) };
                Policy::recurrent(cell, layers, activation, keys.mean, keys.deviation)
            }
        };
        let policy = policy.map_err(wrong)?;
        let policy = match (keys.least, keys.most) {
            (None, None) => policy,
            (Some(least), Some(most)) => policy.with_known(least, most).map_err(wrong)?,
            _ => return Err(ParameterError("least and most belong together: expected both or neither".to_owned())),
        };
        FlowNetwork::new(keys.name, policy, features, keys.history, keys.interval_rtts)
    }

    /// The parameter that makes this.
    pub fn written(&self) -> toml::Table {
        let numbers = |all: &[f32]| all.iter().map(|number| toml::Value::from(f64::from(*number))).collect::<Vec<_>>();
        let (mean, deviation) = self.policy.normal();
        let layer = |layer: &Layer| {
            toml::Table::from_iter([
                ("weights".to_owned(), numbers(&layer.weights).into()),
                ("biases".to_owned(), numbers(&layer.biases).into()),
            ])
        };
        let names: Vec<toml::Value> = self.features.iter().map(|feature| feature.name().into()).collect();
        let layers: Vec<toml::Value> = self.policy.layers().iter().map(|one| layer(one).into()).collect();
        let mut table = toml::Table::from_iter([
            ("name".to_owned(), self.name.as_str().into()),
            ("features".to_owned(), names.into()),
            ("history".to_owned(), (self.history as i64).into()),
            ("interval_rtts".to_owned(), self.rtts.into()),
            ("activation".to_owned(), self.policy.activation().name().into()),
            ("mean".to_owned(), numbers(mean).into()),
            ("deviation".to_owned(), numbers(deviation).into()),
            ("layers".to_owned(), layers.into()),
        ]);
        if let Some(Cell { inputs, state }) = self.policy.cell() {
            let parts = [("inputs".to_owned(), layer(inputs).into()), ("state".to_owned(), layer(state).into())];
            table.insert("cell".to_owned(), toml::Table::from_iter::<[(String, toml::Value); 2]>(parts).into());
        }
        if let Some((least, most)) = self.policy.known() {
            table.insert("least".to_owned(), numbers(least).into());
            table.insert("most".to_owned(), numbers(most).into());
        }
        table
    }

    /// What it sees of an interval.
    pub fn features(&self) -> &[FlowFeature] {
        &self.features
    }

    /// Of how many intervals.
    pub fn history(&self) -> usize {
        self.history
    }

    /// Round trips in an interval.
    pub fn rtts(&self) -> f64 {
        self.rtts
    }

    /// What it says of an observation.
    pub(super) fn action(&self, observation: &[f32], scratch: &mut Scratch) -> f32 {
        let mut action = [0.0];
        self.policy.rates(self.reading, observation, scratch, &mut action);
        // Finite weights can add up to what is no number.
        if action[0].is_nan() { 0.0 } else { action[0].clamp(-super::MOST_ACTION, super::MOST_ACTION) }
    }

    /// That an observation at `now` holds what no training showed it, if so.
    pub(super) fn note(&self, now: Time, observation: &[f32], scratch: &mut Scratch) -> Option<String> {
        let beyond = self.policy.beyond(self.reading, observation, scratch)?;
        let (name, feature) = (&self.name, self.features[self.reading.feature(beyond.input)].name());
        let (value, least, most) = (beyond.value, beyond.least, beyond.most);
        Some(format!(
            "{name}: at {now} {feature} is {value}, and was from {least} to {most} in its training: it is cut there, and \
             what the policy says of it was never tried"
        ))
    }
}

/// The features of these names.
///
/// # Errors
///
/// A name that no feature has.
pub fn named(names: &[String]) -> Result<Vec<FlowFeature>, ParameterError> {
    let find = |name: &String| {
        FlowFeature::named(name).ok_or_else(|| {
            let known = FlowFeature::ALL.map(FlowFeature::name).join(", ");
            ParameterError(format!("there is no feature \"{name}\" that a sender knows; there are: {known}"))
        })
    };
    names.iter().map(find).collect()
}
