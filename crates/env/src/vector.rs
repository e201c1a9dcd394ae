//! Many environments, stepped together on several threads.
//!
//! Environment `i` of a vector seeded `s` is the single environment seeded `s + i`, byte for byte, whatever the
//! number of threads: a session is one thread's work, and shares nothing with another.

use std::sync::Arc;

use anabranch_lab::flows::FlowRunError;
use rayon::prelude::*;

use crate::policy::Scratch;
use crate::session::Session;
use crate::spec::{Spec, SpecError};
use crate::steps::{Ended, Steps};

/// The most environments of a vector.
pub const MOST_ENVIRONMENTS: usize = 1 << 16;

/// When an environment whose episode is over begins the next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Autoreset {
    /// With the next step, whose action counts for nothing, and whose reward is 0.
    #[default]
    NextStep,
    /// In the same step: what is observed is the beginning of the next episode.
    SameStep,
    /// When it is told to.
    Disabled,
}

/// Where episodes begin anew.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Seeds<'a> {
    /// With the next episode of the seed before.
    #[default]
    Next,
    /// With the first of this seed in environment 0, of the one after it in the next, and so on.
    From(u64),
    /// With the first of its own seed; where there is none, with the next of the seed before.
    Each(&'a [Option<u64>]),
}

impl Seeds<'_> {
    fn of(self, environment: usize) -> Option<u64> {
        match self {
            Seeds::Next => None,
            Seeds::From(seed) => Some(seed.wrapping_add(environment as u64)),
            Seeds::Each(seeds) => seeds[environment],
        }
    }
}

/// Why a step could not be taken.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum StepError {
    /// A controller can't go on.
    #[error("environment {environment}: {error}")]
    Run {
        /// Which.
        environment: usize,
        /// Why.
        error: FlowRunError,
    },
    /// An episode can't begin.
    #[error("environment {environment}: {error}")]
    Reset {
        /// Which.
        environment: usize,
        /// Why.
        error: SpecError,
    },
}

/// Why there is no vector of environments.
#[derive(Debug, thiserror::Error)]
pub enum VectorError<E> {
    /// An environment can't be made.
    #[error("{0}")]
    Environment(E),
    /// The system gives no threads.
    #[error("{threads} threads can't be started ({why}): ask for fewer, or for one, which needs none of its own")]
    Threads {
        /// That were asked for.
        threads: usize,
        /// What it says.
        why: String,
    },
}

/// Where a step's results go: one of each for each environment.
#[derive(Debug)]
pub struct Results<'a> {
    /// Observations, environment by environment.
    pub observations: &'a mut [f32],
    /// What the step was worth.
    pub rewards: &'a mut [f32],
    /// The terms of the rewards, one of each for each, in their order ([`Terms::NAMES`](crate::Terms::NAMES)).
    pub terms: &'a mut [f32],
    /// Whether all flows have sent what they had.
    pub terminated: &'a mut [bool],
    /// Whether the time was over.
    pub truncated: &'a mut [bool],
    /// With [`Autoreset::SameStep`], the last observation of each episode that is over; nothing else is written.
    pub last: Option<&'a mut [f32]>,
}

/// Many environments.
#[derive(Debug)]
pub struct Vector<S = Session> {
    pub(crate) sessions: Vec<S>,
    /// What a policy with memory remembers of each, between two rollouts.
    pub(crate) memories: Vec<Scratch>,
    pub(crate) autoreset: Autoreset,
    /// The threads; none if there is one.
    pub(crate) pool: Option<rayon::ThreadPool>,
    /// What each thread takes at least.
    each: usize,
}

/// One environment's part of [`Results`].
struct Part<'a> {
    action: &'a [f32],
    observation: &'a mut [f32],
    reward: &'a mut f32,
    terms: &'a mut [f32],
    terminated: &'a mut bool,
    truncated: &'a mut bool,
    last: Option<&'a mut [f32]>,
}

impl Vector {
    /// `count` environments on `threads` threads, seeded from `seed` on.
    ///
    /// # Errors
    ///
    /// What can't be, or can't be run, and where threads can't be started.
    ///
    /// # Panics
    ///
    /// When there are no environments or threads, or more than [`MOST_ENVIRONMENTS`].
    pub fn new(
        spec: &Arc<Spec>,
        count: usize,
        seed: u64,
        threads: usize,
        autoreset: Autoreset,
    ) -> Result<Vector, VectorError<SpecError>> {
        Vector::making(|seed| Session::new(Arc::clone(spec), seed), count, seed, threads, autoreset)
    }
}

impl<S: Steps> Vector<S> {
    /// `count` environments that `make` makes, each of its seed, on `threads` threads.
    ///
    /// # Errors
    ///
    /// What `make` says, and where threads can't be started.
    ///
    /// # Panics
    ///
    /// When there are no environments or threads, or more than [`MOST_ENVIRONMENTS`].
    pub fn making<E>(
        make: impl FnMut(u64) -> Result<S, E>,
        count: usize,
        seed: u64,
        threads: usize,
        autoreset: Autoreset,
    ) -> Result<Vector<S>, VectorError<E>> {
        assert!((1..=MOST_ENVIRONMENTS).contains(&count) && threads > 0, "there is something to step");
        let threads = threads.min(count);
        let seeds = (0..count as u64).map(|number| seed.wrapping_add(number));
        let sessions: Vec<S> = seeds.map(make).collect::<Result<_, _>>().map_err(VectorError::Environment)?;
        let begin = || {
            let builder = rayon::ThreadPoolBuilder::new().num_threads(threads);
            builder.thread_name(|number| format!("environments {number}")).build()
        };
        let pool = (threads > 1).then(begin).transpose();
        let pool = pool.map_err(|error| VectorError::Threads { threads, why: error.to_string() })?;
        let memories = vec![Scratch::default(); sessions.len()];
        Ok(Vector { sessions, memories, autoreset, pool, each: count.div_ceil(threads) })
    }

    /// The environments.
    pub fn sessions(&self) -> &[S] {
        &self.sessions
    }

    /// The environments, to ask an oracle of.
    pub fn sessions_mut(&mut self) -> &mut [S] {
        &mut self.sessions
    }

    /// When an environment whose episode is over begins the next.
    pub fn autoreset(&self) -> Autoreset {
        self.autoreset
    }

    /// Numbers in an action of all.
    pub fn action_len(&self) -> usize {
        self.sessions.len() * self.sessions[0].action_len()
    }

    /// Numbers in an observation of all.
    pub fn observation_len(&self) -> usize {
        self.sessions.len() * self.sessions[0].observation_len()
    }

    /// Begins episodes anew, in those environments that `mask` names, or in all.
    ///
    /// # Errors
    ///
    /// When a drawn scenario can't be run.
    ///
    /// # Panics
    ///
    /// When `seeds`, `mask` or `observations` has another length than there are environments or numbers.
    pub fn reset(
        &mut self,
        seeds: Seeds<'_>,
        mask: Option<&[bool]>,
        observations: &mut [f32],
    ) -> Result<(), StepError> {
        assert!(mask.is_none_or(|mask| mask.len() == self.sessions.len()), "a mask has a bit for each environment");
        if let Seeds::Each(seeds) = seeds {
            assert_eq!(seeds.len(), self.sessions.len(), "there is a seed for each environment");
        }
        let row = self.sessions[0].observation_len();
        assert_eq!(observations.len(), row * self.sessions.len(), "there is room for all observations");
        let reset = |(environment, (session, observation)): (usize, (&mut S, &mut [f32]))| {
            if mask.is_none_or(|mask| mask[environment]) {
                session.reset(seeds.of(environment)).map_err(|error| StepError::Reset { environment, error })?;
            }
            session.observe(observation);
            Ok(())
        };
        let Vector { sessions, pool, each, .. } = self;
        match pool {
            None => sessions.iter_mut().zip(observations.chunks_exact_mut(row)).enumerate().try_for_each(reset),
            Some(pool) => pool.install(|| {
                let all = sessions.par_iter_mut().zip(observations.par_chunks_exact_mut(row)).enumerate();
                first_error(all.with_min_len(*each).map(reset).collect())
            }),
        }
    }

    /// Takes a step in each environment.
    ///
    /// # Errors
    ///
    /// Of the first environment that can't go on. The others have taken their step.
    ///
    /// # Panics
    ///
    /// When `actions`, or a part of `results`, has another length than there are numbers for.
    pub fn step(&mut self, actions: &[f32], results: Results<'_>) -> Result<(), StepError> {
        let (numbers, row) = (self.sessions[0].action_len(), self.sessions[0].observation_len());
        let of_terms = self.sessions[0].terms_len();
        let count = self.sessions.len();
        assert_eq!(actions.len(), numbers * count, "there is an action for each environment");
        let Results { observations, rewards, terms, terminated, truncated, last } = results;
        let lengths = [observations.len(), terms.len(), rewards.len(), terminated.len(), truncated.len()];
        assert_eq!(lengths, [row * count, of_terms * count, count, count, count], "there is room for all results");
        let mut lasts = last.map(|last| {
            assert_eq!(last.len(), row * count, "there is room for all last observations");
            last.chunks_exact_mut(row)
        });
        let parts = actions.chunks_exact(numbers).zip(observations.chunks_exact_mut(row)).zip(rewards);
        let parts = parts.zip(terms.chunks_exact_mut(of_terms)).zip(terminated).zip(truncated);
        let parts = parts.map(|(((((action, observation), reward), terms), terminated), truncated)| Part {
            action,
            observation,
            reward,
            terms,
            terminated,
            truncated,
            last: lasts.as_mut().and_then(Iterator::next),
        });
        let autoreset = self.autoreset;
        let step =
            |(environment, (session, part)): (usize, (&mut S, Part<'_>))| take(session, part, autoreset, environment);
        let Vector { sessions, pool, each, .. } = self;
        match pool {
            None => {
                let done: Vec<_> = sessions.iter_mut().zip(parts).enumerate().map(step).collect();
                first_error(done)
            }
            Some(pool) => {
                let parts: Vec<Part<'_>> = parts.collect();
                pool.install(|| {
                    let all = sessions.par_iter_mut().zip(parts).enumerate();
                    first_error(all.with_min_len(*each).map(step).collect())
                })
            }
        }
    }
}

pub(crate) fn first_error(all: Vec<Result<(), StepError>>) -> Result<(), StepError> {
    all.into_iter().collect()
}

/// What a step came to.
pub(crate) struct Outcome {
    pub reward: f32,
    pub ended: Ended,
    /// Whether a step was taken: an episode that was over was not stepped.
    was_taken: bool,
}

/// One environment's step, or with [`Autoreset::NextStep`] the beginning of its next episode.
pub(crate) fn act(
    session: &mut impl Steps,
    action: &[f32],
    autoreset: Autoreset,
    environment: usize,
) -> Result<Outcome, StepError> {
    if session.ended().is_over() {
        // What an action does to an episode that is over is nothing.
        if autoreset == Autoreset::NextStep {
            session.reset(None).map_err(|error| StepError::Reset { environment, error })?;
        }
        return Ok(Outcome { reward: 0.0, ended: session.ended(), was_taken: false });
    }
    let ended = session.step(action).map_err(|error| StepError::Run { environment, error })?;
    Ok(Outcome { reward: session.reward(), ended, was_taken: true })
}

fn take(session: &mut impl Steps, part: Part<'_>, autoreset: Autoreset, environment: usize) -> Result<(), StepError> {
    let Outcome { reward, ended, was_taken } = act(session, part.action, autoreset, environment)?;
    *part.reward = reward;
    if was_taken {
        session.write_terms(part.terms)
    } else {
        part.terms.fill(0.0)
    }
    (*part.terminated, *part.truncated) = (ended.terminated, ended.truncated);
    if ended.is_over() && autoreset == Autoreset::SameStep {
        if let Some(last) = part.last {
            session.observe(last);
        }
        session.reset(None).map_err(|error| StepError::Reset { environment, error })?;
    }
    session.observe(part.observation);
    Ok(())
}
