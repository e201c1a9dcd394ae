//! What every path controller is made from.

use serde::Deserialize;

use super::PathController;
use crate::time::Time;
use crate::units::Bytes;

/// What a sender tells its controller at the start.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// How many peers the sender knows, relays and destinations together.
    pub peers: usize,
    /// Size of its packets.
    pub packet: Bytes,
    /// When it begins.
    pub start: Time,
    /// How rates become sending times.
    pub pacing: Pacing,
}

/// Makes controllers of parameters that were read, and found right, before.
pub type Factory = Box<dyn Fn(&Setup) -> Box<dyn PathController> + Send + Sync>;

/// The factory of one kind of controller.
pub fn factory<C: PathController + 'static>(make: impl Fn(&Setup) -> C + Send + Sync + 'static) -> Factory {
    Box::new(move |setup| Box::new(make(setup)))
}

/// How rates become sending times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pacing {
    /// All that a second allows leaves at its beginning, as in the thesis.
    #[default]
    Burst,
    /// Packets leave evenly.
    Paced,
}
