//! What can be stepped, alone or in a [`Vector`](crate::Vector).

use anabranch_lab::flows::FlowRunError;

use crate::spec::SpecError;

/// How an episode stands after a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ended {
    /// All flows have sent what they had: nothing that an agent does matters any more.
    pub terminated: bool,
    /// The scenario's time is over.
    pub truncated: bool,
}

impl Ended {
    /// Whether it has, either way.
    pub fn is_over(self) -> bool {
        self.terminated || self.truncated
    }
}

/// An environment.
pub trait Steps: Send {
    /// Numbers in an action.
    fn action_len(&self) -> usize;

    /// Numbers in an observation.
    fn observation_len(&self) -> usize;

    /// Terms of a reward.
    fn terms_len(&self) -> usize;

    /// Begins an episode anew: the first of `seed`, or the next of the seed before.
    ///
    /// # Errors
    ///
    /// When a drawn scenario can't be run.
    fn reset(&mut self, seed: Option<u64>) -> Result<(), SpecError>;

    /// An action, and what follows until the next; nothing once the episode is over.
    ///
    /// # Errors
    ///
    /// When a controller can't go on. The episode is over then.
    ///
    /// # Panics
    ///
    /// When the action has another length.
    fn step(&mut self, action: &[f32]) -> Result<Ended, FlowRunError>;

    /// How the episode stands.
    fn ended(&self) -> Ended;

    /// Writes what is seen.
    ///
    /// # Panics
    ///
    /// When `into` has another length than an observation.
    fn observe(&self, into: &mut [f32]);

    /// What the last step was worth.
    fn reward(&self) -> f32;

    /// Writes the last step's terms.
    ///
    /// # Panics
    ///
    /// When `into` has another length than there are terms.
    fn write_terms(&self, into: &mut [f32]);
}
