//! A coordinator that has learned, at work: at equal spans it looks at the flows that it steers and at their link, and tells
//! each host its rate.

use std::sync::Arc;

use anabranch_control::policy::Scratch;
use anabranch_control::time::Time;
use anabranch_scenario::flows::{FlowScenario, Learned};

use super::steerable::Steerable;
use super::view::View;

/// A policy that acts.
#[derive(Clone, Debug)]
pub struct Acting {
    learned: Arc<Learned>,
    view: View,
    /// When it decides next.
    due: Time,
    scratch: Scratch,
    observation: Vec<f32>,
    rates: Vec<f32>,
    /// That it has seen what no training had shown it, told once.
    note: Option<String>,
}

impl Acting {
    /// That of `scenario`, if a policy steers there. It decides for the first time at the beginning.
    pub fn new(scenario: &FlowScenario) -> Option<Acting> {
        let learned = scenario.steering.as_ref()?.policy.as_ref()?;
        let view = View::new(learned.sight.clone(), scenario);
        Some(Acting {
            due: Time::ZERO,
            scratch: Scratch::default(),
            observation: vec![0.0; view.observation_len()],
            rates: vec![0.0; view.agents().len()],
            note: None,
            view,
            learned: Arc::clone(learned),
        })
    }

    /// When it acts next: it decides, or those below divide anew what they were told.
    pub fn due(&self) -> Time {
        self.due.min(self.view.divides())
    }

    /// What is to be known of it when the run is over.
    pub fn into_note(self) -> Option<String> {
        self.note
    }

    /// A flow has begun or ended to send, or has a connection now.
    pub fn on_changed<W: Steerable>(&self, flow: usize, world: &mut W) {
        self.view.on_changed(flow, world);
    }

    /// Does what is due; the rates that it has told, if it has decided.
    pub fn act<W: Steerable>(&mut self, world: &mut W) -> Option<&[f32]> {
        let Acting { learned, view, due, scratch, observation, rates, note } = self;
        if world.now() < *due {
            // Those below divide what they were told.
            view.divide(world);
            return None;
        }
        view.look(world);
        view.observe(observation);
        let (policy, reading) = (&learned.saved.policy, learned.reading);
        if note.is_none()
            && let Some(beyond) = policy.beyond(reading, observation, scratch)
        {
            let (name, feature) = (&learned.name, learned.sight.features[reading.feature(beyond.input)].name());
            let (value, least, most) = (beyond.value, beyond.least, beyond.most);
            *note = Some(format!(
                "{name}: at {} {feature} is {value}, and was from {least} to {most} in its training: it is cut there, \
                 and what the policy says of it was never tried",
                world.now()
            ));
        }
        policy.rates(reading, observation, scratch, rates);
        view.tell(rates, world);
        // A decision that was missed is not made up for.
        while *due <= world.now() {
            *due += learned.sight.interval;
        }
        if *due >= Time::ZERO + world.scenario().length {
            // At the end nobody would act on it.
            *due = Time::MAX;
        }
        Some(rates)
    }
}
