//! A coordinator that has learned, at work: at equal spans it looks at the flows that it steers and at their link, and tells
//! each host its rate.

use anabranch_control::time::{Duration, Time};
use anabranch_proto::coordination::policy::deciding::Deciding;
use anabranch_scenario::flows::FlowScenario;

use super::steerable::Steerable;
use super::view::Flows;

/// A policy that acts.
#[derive(Clone, Debug)]
pub struct Acting {
    flows: Flows,
    deciding: Deciding,
    /// When it decides next.
    due: Time,
    interval: Duration,
}

impl Acting {
    /// That of `scenario`, if a policy steers there. It decides for the first time at the beginning.
    pub fn new(scenario: &FlowScenario) -> Option<Acting> {
        let learned = scenario.steering.as_ref()?.policy.as_ref()?;
        let (flows, view) = Flows::new(learned.sight.clone(), scenario);
        let deciding = Deciding::new(learned.name.clone(), learned.saved.policy.clone(), learned.reading, view);
        Some(Acting { flows, deciding, due: Time::ZERO, interval: learned.sight.interval })
    }

    /// When it acts next: it decides, or those below divide anew what they were directed.
    pub fn due(&self) -> Time {
        self.due.min(self.deciding.view().divides())
    }

    /// That it has seen what no training had shown it, if it has.
    pub fn note(&self) -> Option<&str> {
        self.deciding.note()
    }

    /// What is to be known of it when the run is over.
    pub fn into_note(self) -> Option<String> {
        self.note().map(str::to_owned)
    }

    /// The relative rates that hosts have; none before the first decision.
    pub fn rates(&self) -> Option<&[f32]> {
        self.deciding.view().rates()
    }

    /// A flow has begun or ended to send, or has a connection now.
    pub fn on_changed<W: Steerable>(&self, flow: usize, world: &mut W) {
        self.flows.on_changed(flow, self.deciding.view(), world);
    }

    /// Does what is due; the rates that it has directed, if it has decided.
    pub fn act<W: Steerable>(&mut self, world: &mut W) -> Option<&[f32]> {
        let Acting { flows, deciding, due, interval } = self;
        if world.now() < *due {
            // Those below divide what is directed to them.
            deciding.view_mut().divide(|host| flows.is_active(host, world));
            flows.follow(deciding.view(), world);
            return None;
        }
        let (link, hosts) = flows.look(deciding.view().sight(), world);
        deciding.view_mut().look(&link, hosts);
        deciding.decide(world.now(), |host| flows.is_active(host, world));
        flows.follow(deciding.view(), world);
        // A decision that was missed is not made up for.
        while *due <= world.now() {
            *due += *interval;
        }
        if *due >= Time::ZERO + world.scenario().length {
            // At the end nobody would act on it.
            *due = Time::MAX;
        }
        Some(deciding.said())
    }
}
