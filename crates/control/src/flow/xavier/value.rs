//! The value of an action in a state: a sum of weights, one for each feature that is on.
//!
//! ```text
//! Q(s, a) = sum of w_f over the features f of (s, a)
//! features: RTT-RATIO = r,  EWMA-RTT = e,  ACTION = a,  (r, a),  (e, a)     4.3.2
//! ```
//!
//! A feature is a place in a table, so memory is bounded: what lies beyond a table's end
//! counts as its last place.

use super::ACTIONS;

/// Ratios that are told apart, in tenths from 1.0: up to 26.5.
pub const RATIOS: usize = 256;

/// Mean round-trip times that are told apart, in steps of the precision: with 10 ms, up to 5 s.
pub const MEANS: usize = 512;

/// Which features there are; a state of two numbers, each in whole steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Templates {
    /// RTT-RATIO, alone.
    pub ratio: bool,
    /// EWMA-RTT, alone.
    pub ewma: bool,
    /// Those two that there are, each with the action.
    pub cross: bool,
}

impl Templates {
    /// Features that are on at once, that of the action included.
    pub fn count(self) -> usize {
        let alone = usize::from(self.ratio) + usize::from(self.ewma);
        1 + if self.cross { 2 * alone } else { alone }
    }
}

/// A state: RTT-RATIO in tenths above 1, EWMA-RTT in steps of its precision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct State {
    ratio: u16,
    mean: u16,
}

impl State {
    /// The state for a ratio and a mean in steps; rounds both.
    pub fn new(ratio: f64, mean: f64) -> State {
        let place = |value: f64, places: usize| (value + 0.5).clamp(0.0, (places - 1) as f64) as u16;
        State { ratio: place((ratio - 1.0) * 10.0, RATIOS), mean: place(mean, MEANS) }
    }
}

/// The weights.
#[derive(Clone, Debug)]
pub struct Value {
    templates: Templates,
    action: [f64; ACTIONS],
    ratio: Vec<f64>,
    mean: Vec<f64>,
    ratio_action: Vec<[f64; ACTIONS]>,
    mean_action: Vec<[f64; ACTIONS]>,
}

impl Value {
    /// All weights 0.
    pub fn new(templates: Templates) -> Value {
        let (ratios, means) = (if templates.ratio { RATIOS } else { 0 }, if templates.ewma { MEANS } else { 0 });
        let cross = usize::from(templates.cross);
        Value {
            templates,
            action: [0.0; ACTIONS],
            ratio: vec![0.0; ratios],
            mean: vec![0.0; means],
            ratio_action: vec![[0.0; ACTIONS]; ratios * cross],
            mean_action: vec![[0.0; ACTIONS]; means * cross],
        }
    }

    /// Q(s, a).
    #[inline]
    pub fn of(&self, state: State, action: usize) -> f64 {
        let (ratio, mean) = (usize::from(state.ratio), usize::from(state.mean));
        let mut sum = self.action[action];
        if self.templates.ratio {
            sum += self.ratio[ratio];
        }
        if self.templates.ewma {
            sum += self.mean[mean];
        }
        if self.templates.cross {
            sum += self.ratio_action.get(ratio).map_or(0.0, |weights| weights[action]);
            sum += self.mean_action.get(mean).map_or(0.0, |weights| weights[action]);
        }
        sum
    }

    /// Adds to the weight of each feature of (s, a).
    #[inline]
    pub fn add(&mut self, state: State, action: usize, step: f64) {
        let (ratio, mean) = (usize::from(state.ratio), usize::from(state.mean));
        self.action[action] += step;
        if self.templates.ratio {
            self.ratio[ratio] += step;
        }
        if self.templates.ewma {
            self.mean[mean] += step;
        }
        if self.templates.cross {
            if let Some(weights) = self.ratio_action.get_mut(ratio) {
                weights[action] += step;
            }
            if let Some(weights) = self.mean_action.get_mut(mean) {
                weights[action] += step;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FULL: Templates = Templates { ratio: true, ewma: true, cross: true };

    #[test]
    fn ratios_have_one_decimal_and_means_their_precision() {
        assert_eq!(State::new(1.0, 15.0), State { ratio: 0, mean: 15 });
        assert_eq!(State::new(1.04, 15.4), State { ratio: 0, mean: 15 });
        assert_eq!(State::new(1.06, 15.6), State { ratio: 1, mean: 16 });
        assert_eq!(State::new(2.5, 0.0).ratio, 15);
    }

    #[test]
    fn what_lies_beyond_a_table_is_its_last_place() {
        assert_eq!(State::new(1e9, 1e9), State { ratio: 255, mean: 511 });
        assert_eq!(State::new(f64::NAN, -1.0), State { ratio: 0, mean: 0 });
    }

    #[test]
    fn a_step_moves_each_feature_once() {
        for (templates, count) in [
            (FULL, 5),
            (Templates { cross: false, ..FULL }, 3),
            (Templates { ratio: false, ..FULL }, 3),
            (Templates { ratio: false, cross: false, ewma: true }, 2),
            (Templates { ratio: false, cross: false, ewma: false }, 1),
        ] {
            assert_eq!(templates.count(), count);
            let mut value = Value::new(templates);
            value.add(State::new(1.2, 7.0), 2, 0.1);
            let q = value.of(State::new(1.2, 7.0), 2);
            assert!((q - 0.1 * count as f64).abs() < 1e-12, "{templates:?}: {q}");
        }
    }

    #[test]
    fn another_action_in_the_same_state_shares_what_does_not_name_the_action() {
        let mut value = Value::new(FULL);
        let state = State::new(1.2, 7.0);
        value.add(state, 2, 1.0);
        assert_eq!(value.of(state, 0), 2.0, "the ratio's and the mean's weight");
        assert_eq!(value.of(State::new(1.2, 8.0), 2), 3.0, "the ratio's, the action's and their cross");
        assert_eq!(value.of(State::new(3.0, 8.0), 1), 0.0);
    }
}
