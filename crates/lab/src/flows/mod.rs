//! Flows over links: the flow machines on a simulated network.

pub mod acting;
pub mod coordinator;
pub mod cross;
mod error;
pub mod events;
pub mod measured;
mod measuring;
pub mod node;
pub mod observation;
#[cfg(feature = "recording")]
pub mod record;
mod recording;
mod run;
pub mod run_files;
pub mod sample;
pub mod shares;
pub mod steerable;
mod steering;
pub mod summary;
pub mod traffic;
pub mod view;
pub mod world;

pub use anabranch_scenario::flows::FlowScenario;
pub use error::FlowRunError;
pub use measured::FlowsMeasured;
pub use run::{blind_flows, delivered, late_flows, run, run_recorded};
pub use world::FlowWorld;

use node::FlowNode;

use crate::world::Observer;

/// Each controller's own values must be numbers.
fn check_traces<O: Observer<FlowNode>>(world: &FlowWorld<O>) -> Result<(), FlowRunError> {
    for (flow, spec) in world.scenario().flows.iter().enumerate() {
        let Some(sender) = world.sender(flow) else { continue };
        let mut wrong = None;
        sender.trace(&mut |name, value| {
            if !value.is_finite() {
                wrong.get_or_insert((name, value));
            }
        });
        if let Some((name, value)) = wrong {
            let (flow, controller, at) = (spec.name.clone(), spec.controller.name, world.now());
            return Err(FlowRunError::NotANumber { flow, controller, at, name, value });
        }
    }
    Ok(())
}
