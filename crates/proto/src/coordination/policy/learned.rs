//! A policy, and what it is for.

use anabranch_control::policy::Policy;

use super::{Actuator, Sight};
use crate::coordination::message;

/// A policy that steers hosts of any link.
#[derive(Clone, Debug, PartialEq)]
pub struct Learned {
    /// What messages call it: its file's name.
    pub name: String,
    /// The network.
    pub policy: Policy,
    /// What it sees, and how its rates become windows. Which link it says does not count.
    pub sight: Sight,
}

impl Learned {
    /// How hosts that are told its rates make their flows keep to them.
    pub fn actuator(&self) -> message::Actuator {
        match self.sight.actuator {
            Actuator::Fixed => message::Actuator::Fixed,
            Actuator::Bounded => message::Actuator::Maximum,
            // An initial window is no rate: no coordinator of hosts tells one.
            Actuator::Rate | Actuator::Share | Actuator::Lent | Actuator::Initial => message::Actuator::Rate,
        }
    }
}
