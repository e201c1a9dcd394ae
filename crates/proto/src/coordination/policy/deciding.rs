//! A policy that decides: at equal spans it looks at hosts and their link, and directs each host's rate.

use anabranch_control::policy::{Policy, Reading, Scratch};
use anabranch_control::time::Time;

use super::view::View;

/// A policy, and what it has seen and directed.
#[derive(Clone, Debug)]
pub struct Deciding {
    /// What messages call it.
    name: String,
    policy: Policy,
    reading: Reading,
    view: View,
    scratch: Scratch,
    observation: Vec<f32>,
    rates: Vec<f32>,
    /// That it has seen what no training had shown it, reported once.
    note: Option<String>,
}

impl Deciding {
    /// A policy that messages call `name`, before it has seen anything through `view`, which it reads so.
    pub fn new(name: String, policy: Policy, reading: Reading, view: View) -> Deciding {
        Deciding {
            scratch: Scratch::default(),
            observation: vec![0.0; view.observation_len()],
            rates: vec![0.0; view.agents().len()],
            note: None,
            name,
            policy,
            reading,
            view,
        }
    }

    /// What messages call it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it sees.
    pub fn view(&self) -> &View {
        &self.view
    }

    /// The same, to look and to direct.
    pub fn view_mut(&mut self) -> &mut View {
        &mut self.view
    }

    /// That it has seen what no training had shown it, if it has.
    pub fn note(&self) -> Option<&str> {
        self.note.as_deref()
    }

    /// What it has said to each agent at last.
    pub fn said(&self) -> &[f32] {
        &self.rates
    }

    /// Decides at `now` by what was seen, and directs so. Those hosts have something to send of which `is_active` says
    /// so.
    pub fn decide(&mut self, now: Time, is_active: impl Fn(usize) -> bool) {
        let Deciding { name, policy, reading, view, scratch, observation, rates, note } = self;
        view.observe(observation);
        if note.is_none()
            && let Some(beyond) = policy.beyond(*reading, observation, scratch)
        {
            let feature = view.sight().features[reading.feature(beyond.input)].name();
            let (value, least, most) = (beyond.value, beyond.least, beyond.most);
            *note = Some(format!(
                "{name}: at {now} {feature} is {value}, and was from {least} to {most} in its training: it is cut there, \
                 and what the policy says of it was never tried"
            ));
        }
        policy.rates(*reading, observation, scratch, rates);
        view.direct(now, rates, is_active);
    }
}
