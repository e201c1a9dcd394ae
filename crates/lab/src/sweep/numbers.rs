//! A point's run in numbers, whichever kind of scenario it has.

use serde_json::{Map, Value};

use crate::finished::{Application, Metrics};
use crate::flows::FlowRunError;
use crate::flows::summary::FlowsSummary;
use crate::monitor::Monitor;
use crate::onion::OnionRunError;
use crate::overlay::OverlayRunError;
use crate::overlay::summary::Summary;
use crate::parallel::Job;
use crate::stream::StreamRunError;
use anabranch_scenario::file::AnyScenario;

/// What a run measured.
#[derive(Clone, Debug)]
pub struct Numbers {
    /// The registered names of the controllers that ran.
    pub controller: String,
    /// Packets and ACKs that arrived at a node.
    pub packet_hops: u64,
    /// Every number of its summary.
    pub metrics: Map<String, Value>,
    /// Whether the run came to its end.
    whole: bool,
}

/// Why a point has no run.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PointError {
    /// An overlay's controller refused its parameters, or nothing was delivered.
    #[error(transparent)]
    Overlay(#[from] OverlayRunError),
    /// A flow's controller did, or misbehaved, or nothing was delivered.
    #[error(transparent)]
    Flow(#[from] FlowRunError),
    /// Users of an onion overlay cannot choose so, or nothing was delivered.
    #[error(transparent)]
    Onion(#[from] OnionRunError),
    /// Nothing of a stream was delivered.
    #[error(transparent)]
    Stream(#[from] StreamRunError),
}

impl Numbers {
    fn of_application<S: Application>(scenario: &S, measured: &S::Measured) -> Numbers {
        let metrics = S::metrics(measured);
        Numbers {
            controller: scenario.controller(),
            packet_hops: metrics.packet_hops(),
            metrics: metrics.to_map(),
            whole: scenario.is_whole(measured),
        }
    }
}

impl Job for AnyScenario {
    type Measured = Numbers;
    type Error = PointError;

    fn seconds(&self) -> u64 {
        match self {
            AnyScenario::Overlay(scenario) => scenario.seconds(),
            AnyScenario::Flows(scenario) => scenario.seconds(),
            AnyScenario::Stream(scenario) => scenario.seconds(),
            AnyScenario::Onion(scenario) => scenario.seconds(),
        }
    }

    fn run(&self, monitor: &dyn Monitor) -> Result<Numbers, PointError> {
        Ok(match self {
            AnyScenario::Overlay(scenario) => {
                let measured = scenario.run(monitor)?;
                let whole = scenario.is_whole(&measured);
                let summary = Summary::of(&measured);
                let (controller, packet_hops) = (summary.controller.to_owned(), summary.packet_hops);
                Numbers { controller, packet_hops, metrics: summary.metrics(), whole }
            }
            AnyScenario::Flows(scenario) => {
                let measured = scenario.run(monitor)?;
                let whole = scenario.is_whole(&measured);
                let summary = FlowsSummary::of(scenario, &measured);
                let (controller, packet_hops) = (summary.controllers(), summary.packet_hops);
                Numbers { controller, packet_hops, metrics: summary.metrics(), whole }
            }
            AnyScenario::Stream(scenario) => Numbers::of_application(scenario, &scenario.run(monitor)?),
            AnyScenario::Onion(scenario) => Numbers::of_application(scenario, &scenario.run(monitor)?),
        })
    }

    fn is_whole(&self, measured: &Numbers) -> bool {
        measured.whole
    }
}
