//! The controllers of an overlay's senders, whose parameters are read once for all of them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use anabranch_control::path::PathController;
use anabranch_control::path::perfect::{Manager, Perfect};
use anabranch_control::path::registry::{Build, Factory, Setup};
use anabranch_control::registry::ParameterError;
use anabranch_control::time::Time;
use anabranch_scenario::overlay::Overlay;
use anabranch_sim::delay::Delays;

/// The manager of the perfect controller, if that one runs.
pub type SharedManager = Option<Arc<Mutex<Manager>>>;

/// What makes the controllers.
pub struct Controllers {
    manager: SharedManager,
    /// Of most senders; none where there is a manager.
    usual: Option<Factory>,
    /// Of those that are not like most, by the controller's name: they have no parameters.
    others: HashMap<&'static str, Factory>,
}

impl Controllers {
    /// Those of `overlay`, whose nodes are `delays` apart.
    ///
    /// # Errors
    ///
    /// What a controller says of its parameters.
    pub fn new(overlay: &Overlay, delays: &Delays) -> Result<Controllers, ParameterError> {
        let omniscient = matches!(overlay.controller.build, Build::Omniscient);
        let manager = omniscient.then(|| {
            let known = delays.clone();
            let longest = known.longest();
            let mean = move |from: u32, to: u32| known.mean(from, to);
            let limits = vec![overlay.limit; overlay.peers];
            Arc::new(Mutex::new(Manager::new(&limits, Arc::new(mean), longest, overlay.packet, overlay.ack)))
        });
        let usual = overlay.controller.build.factory(&overlay.parameters).transpose()?;
        let mut others = HashMap::new();
        for (_, sender) in &overlay.senders {
            if let Some(factory) = sender.controller.build.factory(&toml::Table::new()) {
                others.insert(sender.controller.name, factory?);
            }
        }
        Ok(Controllers { manager, usual, others })
    }

    /// The manager of the perfect controller, if that one runs.
    pub fn manager(&self) -> &SharedManager {
        &self.manager
    }

    /// That of `node`, which knows `known` and starts at `starts`.
    pub fn make(&self, overlay: &Overlay, node: u32, known: &[u32], starts: Time) -> Box<dyn PathController> {
        if let Some(manager) = &self.manager {
            return Box::new(Perfect::new(manager.clone(), node, known.into(), overlay.relays));
        }
        let setup = Setup { peers: known.len(), packet: overlay.packet, start: starts, pacing: overlay.pacing };
        let factory = match overlay.sender(node) {
            Some(other) => self.others.get(other.controller.name),
            None => self.usual.as_ref(),
        };
        factory.expect("an omniscient controller has a manager")(&setup)
    }
}
