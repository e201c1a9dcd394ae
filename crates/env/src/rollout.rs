//! A policy acts in many environments for many steps, without a word to whoever learns.
//!
//! An environment is one thread's work for all its steps: no environment waits for another.

use std::ops::Range;

use anabranch_control::time::Time;
use rayon::prelude::*;

use crate::policy::{Policy, PolicyError, Reading, Scratch};
use crate::session::Session;
use crate::vector::{Autoreset, Outcome, StepError, Vector, act, first_error};

/// Why there is no rollout.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum RolloutError {
    /// The policy is for something else.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// A step could not be taken.
    #[error(transparent)]
    Step(#[from] StepError),
    /// An episode's last observation would be nowhere.
    #[error(
        "a rollout needs environments that begin the next episode with the next step: there an episode's last observation stands"
    )]
    SameStep,
}

/// Where a rollout goes: of each environment all steps, environment by environment.
#[derive(Debug)]
pub struct Rollout<'a> {
    /// What was seen before each step. After the step that ended an episode, its last observation.
    pub observations: &'a mut [f32],
    /// The actions: what the policy said and the noise on it, before it is cut at its range.
    pub actions: &'a mut [f32],
    /// What each step was worth.
    pub rewards: &'a mut [f32],
    /// Whether all flows had sent what they had.
    pub terminated: &'a mut [bool],
    /// Whether the time was over.
    pub truncated: &'a mut [bool],
    /// What is seen after the last step.
    pub next: &'a mut [f32],
}

/// One environment's part.
struct Part<'a> {
    observations: &'a mut [f32],
    actions: &'a mut [f32],
    rewards: &'a mut [f32],
    terminated: &'a mut [bool],
    truncated: &'a mut [bool],
    next: &'a mut [f32],
}

/// Who acts.
struct Actor<'a> {
    policy: &'a Policy,
    reading: Reading,
    /// Of the noise on each rate; none if there is none.
    deviations: &'a [f32],
    autoreset: Autoreset,
}

impl Actor<'_> {
    fn play(
        &self,
        session: &mut Session,
        scratch: &mut Scratch,
        number: usize,
        steps: Range<usize>,
        part: Part<'_>,
    ) -> Result<(), StepError> {
        let (hosts, row) = (session.hosts(), session.observation_len());
        for step in steps {
            if session.now() == Time::ZERO {
                scratch.forget();
            }
            let observation = &mut part.observations[step * row..(step + 1) * row];
            session.observe(observation);
            let action = &mut part.actions[step * hosts..(step + 1) * hosts];
            self.policy.rates(self.reading, observation, scratch, action);
            for (place, rate) in action.iter_mut().enumerate() {
                if let Some(deviation) = self.deviations.get(place % self.deviations.len().max(1)) {
                    *rate += deviation * session.explorer().normal() as f32;
                }
            }
            let Outcome { reward, ended, .. } = act(session, action, self.autoreset, number)?;
            part.rewards[step] = reward;
            (part.terminated[step], part.truncated[step]) = (ended.terminated, ended.truncated);
        }
        session.observe(part.next);
        Ok(())
    }
}

impl Vector {
    /// `policy` acts for the steps `range` of `steps`, for which there is room; those before it stay as they are. What a policy
    /// with memory was shown in rollouts before counts, until an episode begins.
    /// `deviations` are of normal noise on the rates: one for each rate that the policy says, or none.
    ///
    /// # Errors
    ///
    /// When the policy is for something else, or an environment can't go on.
    ///
    /// # Panics
    ///
    /// When a part of `room` has another length than there are numbers for.
    pub fn rollout(
        &mut self,
        policy: &Policy,
        deviations: &[f32],
        steps: usize,
        range: Range<usize>,
        room: Rollout<'_>,
    ) -> Result<(), RolloutError> {
        if self.autoreset == Autoreset::SameStep {
            return Err(RolloutError::SameStep);
        }
        let (session, count) = (&self.sessions[0], self.sessions.len());
        let (hosts, row) = (session.hosts(), session.observation_len());
        let reading = policy.reading(hosts, session.spec().features.len(), session.spec().history)?;
        if !deviations.is_empty() && deviations.len() != policy.outputs() {
            let (has, must) = (deviations.len(), policy.outputs());
            return Err(PolicyError::Length { what: "deviations", has, must }.into());
        }
        let Rollout { observations, actions, rewards, terminated, truncated, next } = room;
        let has = [observations.len(), actions.len(), rewards.len(), terminated.len(), truncated.len(), next.len()];
        let all = steps * count;
        assert_eq!(has, [row * all, hosts * all, all, all, all, row * count], "there is room for all steps");
        assert!(steps > 0 && range.end <= steps, "there are these steps");
        let actor = Actor { policy, reading, deviations, autoreset: self.autoreset };
        let parts = observations.chunks_exact_mut(steps * row).zip(actions.chunks_exact_mut(steps * hosts));
        let parts = parts.zip(rewards.chunks_exact_mut(steps)).zip(terminated.chunks_exact_mut(steps));
        let parts = parts.zip(truncated.chunks_exact_mut(steps)).zip(next.chunks_exact_mut(row));
        let parts = parts.map(|(((((observations, actions), rewards), terminated), truncated), next)| Part {
            observations,
            actions,
            rewards,
            terminated,
            truncated,
            next,
        });
        let play = |(number, ((session, scratch), part)): (usize, ((&mut Session, &mut Scratch), Part<'_>))| {
            actor.play(session, scratch, number, range.clone(), part)
        };
        let Vector { sessions, memories, pool, .. } = self;
        let done = match pool {
            None => sessions.iter_mut().zip(memories).zip(parts).enumerate().map(play).collect(),
            Some(pool) => {
                let parts: Vec<Part<'_>> = parts.collect();
                pool.install(|| sessions.par_iter_mut().zip(memories).zip(parts).enumerate().map(play).collect())
            }
        };
        Ok(first_error(done)?)
    }
}
