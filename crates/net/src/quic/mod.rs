//! Any flow controller as the congestion controller of a QUIC connection, of quinn or of
//! noq, bounded and watched from outside while the connection lives.
//!
//! ```
//! use std::sync::Arc;
//!
//! let mut transport = quinn::TransportConfig::default();
//! transport.congestion_controller_factory(Arc::new(anabranch_net::quic::controller("copa")?));
//! # Ok::<(), anabranch_net::quic::ControllerError>(())
//! ```
//!
//! The sizes that a controller sees are those of QUIC packets with their headers, without
//! those of UDP and IP; its packet is the path's MTU when the connection begins. Controllers
//! that pace are themselves under noq. quinn takes no rate: there they act through their
//! window alone, which is enough for most and not for all, see `Factory::needs_pacer`.

mod flow;
pub mod identity;
mod ledger;
mod noq;
mod quinn;
mod steering;
pub mod stream;
pub mod transfer;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use anabranch_control::flow::FlowController;
use anabranch_control::flow::registry::{self, Entry, Setup};
use anabranch_control::registry::{ParameterError, UnknownController};
use anabranch_control::rng::Rng;
use anabranch_control::time::Time;
use anabranch_control::units::Bytes;

pub use self::flow::{Flow, Snapshot};
pub use self::noq::flow_of as flow_of_noq;
pub use self::quinn::flow_of;
pub use self::steering::Steering;

/// The least that a QUIC path carries in a packet, RFC 9000 14.
const LEAST_PACKET: Bytes = Bytes::new(1200);

/// Controllers that are not themselves where nobody keeps to their rate: they try rates a few
/// percent apart and compare what became of them.
const NEED_PACER: [&str; 3] = ["allegro", "allegro-quic", "vivace"];

/// Why there is no such controller.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ControllerError {
    /// None has that name.
    #[error("{0}")]
    Unknown(#[from] UnknownController),
    /// It cannot be made with those parameters.
    #[error("controller \"{name}\": {why}")]
    Parameter {
        /// Its name.
        name: &'static str,
        /// Which parameter, and what is expected.
        why: ParameterError,
    },
}

/// Makes the flow controller `name`, with its defaults, for every connection that is begun
/// with it, of quinn or of noq.
///
/// # Errors
///
/// When none has that name, or it needs parameters.
pub fn controller(name: &str) -> Result<Factory, ControllerError> {
    controller_with(name, &toml::Table::new())
}

/// Makes the flow controller `name` with `parameters`, as a scenario would set them.
///
/// # Errors
///
/// When none has that name, or it refuses a parameter.
pub fn controller_with(name: &str, parameters: &toml::Table) -> Result<Factory, ControllerError> {
    let entry = registry::find(name)?;
    let factory = Factory {
        entry,
        parameters: parameters.clone(),
        initial_window: None,
        paced: true,
        steering: Steering::default(),
        seed: crate::setup::random_seed(),
        stream: "quic controller".to_owned(),
        connections: AtomicU64::new(0),
    };
    factory.make(LEAST_PACKET).map_err(|why| ControllerError::Parameter { name: entry.name, why })?;
    Ok(factory)
}

/// Makes a controller for each connection. Give it to
/// `TransportConfig::congestion_controller_factory` of quinn or noq.
#[derive(Debug)]
pub struct Factory {
    entry: &'static Entry,
    parameters: toml::Table,
    initial_window: Option<Bytes>,
    paced: bool,
    steering: Steering,
    seed: u64,
    stream: String,
    connections: AtomicU64,
}

impl Factory {
    /// Draws random numbers from streams of `seed` instead of one of the system's. A
    /// connection's number, in the order in which they begin, names its stream.
    #[must_use]
    pub fn with_seed(self, seed: u64) -> Factory {
        Factory { seed, ..self }
    }

    /// The same, from streams of this name: factories that share a seed draw apart.
    #[must_use]
    pub fn with_stream(self, seed: u64, name: String) -> Factory {
        Factory { seed, stream: name, ..self }
    }

    /// Begins with this window instead of RFC 9002's.
    #[must_use]
    pub fn with_initial_window(self, window: Bytes) -> Factory {
        Factory { initial_window: Some(window), ..self }
    }

    /// Lets what the window of a controller without a rate admits leave at once, as TCP does.
    /// Otherwise the library spreads it over four fifths of a round trip (RFC 9002, 7.7).
    /// noq does as it is told, quinn spreads it in any case.
    #[must_use]
    pub fn unpaced(self) -> Factory {
        Factory { paced: false, ..self }
    }

    /// Watches and bounds all connections that are begun with this factory.
    pub fn steering(&self) -> Steering {
        self.steering.clone()
    }

    /// The controller's name.
    pub fn name(&self) -> &'static str {
        self.entry.name
    }

    /// Whether the controller needs a library that keeps to its rate, as noq does and quinn
    /// does not. Other controllers that pace do under quinn about what they do under noq.
    pub fn needs_pacer(&self) -> bool {
        NEED_PACER.contains(&self.entry.name)
    }

    fn setup(&self, packet: Bytes) -> Setup {
        let setup = Setup::new(packet, Time::ZERO);
        Setup { initial_window: self.initial_window.unwrap_or(setup.initial_window), ..setup }
    }

    fn make(&self, packet: Bytes) -> Result<Box<dyn FlowController>, ParameterError> {
        self.entry.make(&self.setup(packet), &self.parameters)
    }

    fn flow(self: Arc<Self>, now: Instant, mtu: u16) -> Flow {
        let packet = Bytes::new(u64::from(mtu));
        let controller = self.make(packet).expect("the same parameters have made one before");
        let number = self.connections.fetch_add(1, Ordering::Relaxed);
        let rng = Rng::indexed(self.seed, &self.stream, number);
        let setup = self.setup(packet);
        self.steering.begin(|bounds| Flow::new(self.entry.name, controller, bounds, setup, rng, now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn controllers_that_compare_rates_need_a_pacer() {
        for name in NEED_PACER {
            assert!(controller(name).unwrap().needs_pacer());
        }
        assert!(!controller("bbr").unwrap().needs_pacer());
    }

    #[test]
    fn connections_to_come_are_bounded_too() {
        let factory = Arc::new(controller("fixed").unwrap().with_seed(7));
        let bounds = anabranch_control::flow::Bounds { maximum: Some(Bytes::new(3000)), ..Default::default() };
        factory.steering().set(bounds);
        let flows = [0, 1].map(|_| factory.clone().flow(Instant::now(), 1200));
        assert!(flows.iter().all(|flow| flow.bounds() == bounds && flow.snapshot().window == Bytes::new(3000)));
        assert_eq!((flows[0].controller(), factory.name()), ("fixed", "fixed"));
    }
}
