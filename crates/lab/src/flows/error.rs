//! Why a run could not begin, or did not end.

use anabranch_control::registry::ParameterError;
use anabranch_control::time::{Duration, Time};
use anabranch_proto::flow::Fault;

use anabranch_scenario::flows::FlowSpec;

/// Why a run could not begin, or did not end.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum FlowRunError {
    /// A controller refused its parameters.
    #[error("flow \"{flow}\", controller {controller}: {error}")]
    Parameter {
        /// The flow.
        flow: String,
        /// Its controller.
        controller: &'static str,
        /// What is wrong.
        error: ParameterError,
    },
    /// Times of the run's end are beyond what a network of this size can hold.
    #[error("a run over a network of this size lasts {} s at the longest", longest.as_secs_f64().floor())]
    TooLong {
        /// The longest run.
        longest: Duration,
    },
    /// A controller lets nothing leave any more.
    #[error("flow \"{flow}\": at {at} its controller {controller} has stopped it for good: {what}")]
    Stuck {
        /// The flow.
        flow: String,
        /// Its controller.
        controller: &'static str,
        /// When.
        at: Time,
        /// How.
        what: &'static str,
    },
    /// No flow's data has arrived.
    #[error(
        "in {length} no flow has delivered anything ({sent} packets were sent): no figure can come of this run; look \
         at the links' rates, delays and losses, and at when flows start"
    )]
    NothingDelivered {
        /// Simulated time.
        length: Duration,
        /// Packets that left.
        sent: u64,
    },
    /// A controller's own values are not numbers.
    #[error("flow \"{flow}\": at {at} its controller {controller} says that its {name} is {value}")]
    NotANumber {
        /// The flow.
        flow: String,
        /// Its controller.
        controller: &'static str,
        /// When.
        at: Time,
        /// The name of the value.
        name: &'static str,
        /// The value.
        value: f64,
    },
}

impl FlowRunError {
    /// A controller refuses its parameters.
    pub fn refused(spec: &FlowSpec, error: ParameterError) -> FlowRunError {
        FlowRunError::Parameter { flow: spec.name.clone(), controller: spec.controller.name, error }
    }

    /// A controller has stopped its flow.
    pub fn stuck(spec: &FlowSpec, at: Time, fault: Fault) -> FlowRunError {
        let what = match fault {
            Fault::NoWindow => "its window is 0 and it waits for nothing",
            Fault::NoRate => "its pacing rate is 0",
        };
        FlowRunError::Stuck { flow: spec.name.clone(), controller: spec.controller.name, at, what }
    }
}
