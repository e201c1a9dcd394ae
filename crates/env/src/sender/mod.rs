//! One flow from end to end as an agent: what it may have in flight and its pace are decided by whoever learns, as
//! three papers have it. The link, its queue and its losses are simulated packet by packet, and the agent sees what a
//! sender sees: its ACKs and its losses.
//!
//! A preset is a paper's observations, actions and rewards ([`aurora`], [`learningcc`], [`xavier`]).

pub mod aurora;
pub mod learningcc;
mod line;
pub mod xavier;

use std::sync::Arc;

use anabranch_control::rng::Rng;
use anabranch_control::time::Time;
use anabranch_lab::flows::FlowRunError;
use anabranch_scenario::flows::FlowScenario;
use anabranch_scenario::policy::flow::FlowPurpose;

use crate::spec::{Source, SpecError};
use crate::steps::{Ended, Steps};
use aurora::Aurora;
use learningcc::LearningCc;
use line::Line;
use xavier::Xavier;

/// Whose setting it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preset {
    /// Of a rate, by monitor intervals.
    Aurora,
    /// Of the window's growth, by congestion events.
    LearningCc,
    /// Of the window, by ACKs.
    Xavier,
}

/// What an action is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Actions {
    /// A number in a range; what lies beyond counts as the nearest.
    Range(f32, f32),
    /// One of this many, by its number from 0 on.
    Choice(usize),
}

/// One number of an observation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Seen {
    /// Its name.
    pub name: &'static str,
    /// What it measures, in which unit.
    pub unit: &'static str,
    /// The least: what lies below is cut off.
    pub low: f32,
    /// The most.
    pub high: f32,
}

/// What a preset is made of.
#[derive(Debug)]
pub struct Setting {
    /// What an action is.
    pub actions: Actions,
    /// What is seen after a step.
    pub seen: &'static [Seen],
    /// Steps in an observation, the newest first.
    pub history: usize,
    /// The terms of a reward.
    pub terms: &'static [&'static str],
    /// The most steps of an episode.
    pub most_steps: u64,
    draw: fn(&mut Rng) -> FlowScenario,
}

impl Preset {
    /// All, with their names.
    pub const ALL: [(&'static str, Preset); 3] =
        [("aurora", Preset::Aurora), ("learningcc", Preset::LearningCc), ("xavier", Preset::Xavier)];

    /// That of the name.
    pub fn named(name: &str) -> Option<Preset> {
        Preset::ALL.iter().find(|(known, _)| *known == name).map(|&(_, preset)| preset)
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        Preset::ALL.iter().find(|(_, preset)| *preset == self).map_or("", |(name, _)| name)
    }

    /// What it is made of.
    pub fn setting(self) -> &'static Setting {
        match self {
            Preset::Aurora => &aurora::SETTING,
            Preset::LearningCc => &learningcc::SETTING,
            Preset::Xavier => &xavier::SETTING,
        }
    }

    /// What a policy is for that was trained with it; none where an action is a choice, which the controller `policy` does
    /// not take.
    pub fn purpose(self) -> Option<FlowPurpose> {
        let setting = self.setting();
        match self {
            Preset::Aurora => Some(FlowPurpose {
                features: setting.seen.iter().map(|seen| seen.name.to_owned()).collect(),
                history: setting.history,
                interval_rtts: aurora::INTERVAL_RTTS,
            }),
            Preset::LearningCc | Preset::Xavier => None,
        }
    }

    /// The links that its paper trains or runs over.
    pub fn source(self) -> Source {
        Source::Drawn(self.setting().draw)
    }
}

/// What decides, after a paper.
#[derive(Clone, Debug)]
enum Law {
    Aurora(Aurora),
    LearningCc(LearningCc),
    Xavier(Xavier),
}

/// What each law does.
trait Decide {
    /// Before the first action: what the sender does by itself until there is something to decide.
    fn begin(&mut self, line: &mut Line, rng: &mut Rng) -> Result<(), FlowRunError>;
    /// An action, and what follows until the next one is to be chosen.
    fn act(&mut self, action: f32, line: &mut Line) -> Result<(), FlowRunError>;
    /// What is seen of the last step, in the setting's order.
    fn seen(&self) -> Vec<f64>;
    /// The last step's terms, in the setting's order, and what they are worth.
    fn terms(&self) -> (Vec<f64>, f64);
}

impl Law {
    fn of(preset: Preset) -> Law {
        match preset {
            Preset::Aurora => Law::Aurora(Aurora::default()),
            Preset::LearningCc => Law::LearningCc(LearningCc::default()),
            Preset::Xavier => Law::Xavier(Xavier::default()),
        }
    }

    fn decide(&mut self) -> &mut dyn Decide {
        match self {
            Law::Aurora(law) => law,
            Law::LearningCc(law) => law,
            Law::Xavier(law) => law,
        }
    }
}

/// Why there is no such environment.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SenderError {
    /// The flow can't be an agent.
    #[error(
        "the agent is the scenario's first flow, \"{0}\": it must have one receiver, and send without end from the start"
    )]
    NoBulk(String),
    /// It can't be run.
    #[error(transparent)]
    Run(#[from] FlowRunError),
}

impl From<SenderError> for SpecError {
    fn from(error: SenderError) -> SpecError {
        match error {
            SenderError::Run(error) => SpecError::Scenario(error),
            other => SpecError::Sender(other.to_string()),
        }
    }
}

/// One environment: a flow that is directed what it may send.
#[derive(Clone, Debug)]
pub struct Sender {
    preset: Preset,
    source: Source,
    line: Line,
    law: Law,
    seed: u64,
    episode: u64,
    steps: u64,
    /// What was seen, the newest first.
    frames: Vec<f32>,
    terms: Vec<f32>,
    reward: f32,
    ended: Ended,
}

impl Sender {
    /// An environment before the first step of its first episode.
    ///
    /// # Errors
    ///
    /// What can't be, or can't be run.
    pub fn new(preset: Preset, source: Source, seed: u64) -> Result<Sender, SpecError> {
        let scenario = source.draw(&mut Rng::indexed(seed, "episode", 0));
        let setting = preset.setting();
        let mut sender = Sender {
            line: Line::new(scenario, seed)?,
            law: Law::of(preset),
            frames: vec![0.0; setting.seen.len() * setting.history],
            terms: vec![0.0; setting.terms.len()],
            reward: 0.0,
            ended: Ended::default(),
            steps: 0,
            episode: 0,
            preset,
            source,
            seed,
        };
        sender.begin()?;
        Ok(sender)
    }

    /// Whose setting it is.
    pub fn preset(&self) -> Preset {
        self.preset
    }

    /// The time in the episode.
    pub fn now(&self) -> Time {
        self.line.now()
    }

    /// What the present episode runs.
    pub fn scenario(&self) -> &Arc<FlowScenario> {
        self.line.scenario()
    }

    /// What it may have in flight now, in packets, and its pace in packets a second, if it has one.
    pub fn limits(&self) -> (f64, Option<f64>) {
        self.line.limits()
    }

    fn begin(&mut self) -> Result<(), SpecError> {
        self.law = Law::of(self.preset);
        self.law.decide().begin(&mut self.line, &mut Rng::indexed(self.seed, "start", self.episode))?;
        (self.steps, self.reward, self.ended) = (0, 0.0, Ended::default());
        self.terms.fill(0.0);
        // Before the first step each frame is what is known by then.
        let row = self.preset.setting().seen.len();
        for frame in (0..self.frames.len()).step_by(row) {
            self.note(frame);
        }
        Ok(())
    }

    /// Writes what is seen now into the frame that begins at `from`.
    fn note(&mut self, from: usize) {
        let seen = self.law.decide().seen();
        for (value, (raw, is)) in self.frames[from..].iter_mut().zip(seen.into_iter().zip(self.preset.setting().seen)) {
            *value = (raw as f32).clamp(is.low, is.high);
        }
    }
}

impl Steps for Sender {
    fn action_len(&self) -> usize {
        1
    }

    fn observation_len(&self) -> usize {
        self.frames.len()
    }

    fn terms_len(&self) -> usize {
        self.terms.len()
    }

    fn reset(&mut self, seed: Option<u64>) -> Result<(), SpecError> {
        (self.seed, self.episode) = seed.map_or((self.seed, self.episode + 1), |seed| (seed, 0));
        let world = match self.episode {
            0 => self.seed,
            episode => Rng::indexed(self.seed, "world", episode).bits(),
        };
        let scenario = self.source.draw(&mut Rng::indexed(self.seed, "episode", self.episode));
        self.line = Line::new(scenario, world)?;
        self.begin()
    }

    fn step(&mut self, action: &[f32]) -> Result<Ended, FlowRunError> {
        assert_eq!(action.len(), 1, "an action is one number");
        if self.ended.is_over() {
            return Ok(self.ended);
        }
        let action = match self.preset.setting().actions {
            Actions::Range(low, high) if !action[0].is_nan() => action[0].clamp(low, high),
            Actions::Choice(count) if !action[0].is_nan() => action[0].round().clamp(0.0, (count - 1) as f32),
            Actions::Range(..) | Actions::Choice(_) => 0.0,
        };
        if let Err(error) = self.law.decide().act(action, &mut self.line) {
            self.ended.truncated = true;
            return Err(error);
        }
        self.steps += 1;
        self.frames.rotate_right(self.preset.setting().seen.len());
        self.note(0);
        let (terms, reward) = self.law.decide().terms();
        self.terms.iter_mut().zip(terms).for_each(|(held, term)| *held = term as f32);
        self.reward = reward as f32;
        self.ended.truncated = self.line.is_over() || self.steps >= self.preset.setting().most_steps;
        Ok(self.ended)
    }

    fn ended(&self) -> Ended {
        self.ended
    }

    fn observe(&self, into: &mut [f32]) {
        into.copy_from_slice(&self.frames);
    }

    fn reward(&self) -> f32 {
        self.reward
    }

    fn write_terms(&self, into: &mut [f32]) {
        into.copy_from_slice(&self.terms);
    }
}
