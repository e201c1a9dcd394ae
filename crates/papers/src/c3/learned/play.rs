//! Episodes of learning environments under a policy, a rule, an oracle, or nobody.

use std::collections::VecDeque;
use std::sync::Arc;

use anabranch_control::time::Duration;
use anabranch_env::policy::Scratch;
use anabranch_env::policy_file::{Purpose, Saved};
use anabranch_env::{Session, Spec, Terms, Weights, oracle};
use anabranch_lab::monitor::Monitor;
use anabranch_lab::parallel::Job;

use crate::ExperimentError;

/// Episodes begin with seeds from here on, where no training gets.
pub const EVALUATION_SEED: u64 = 1 << 62;

/// Who tells hosts their rates.
#[derive(Clone)]
pub enum Actor {
    /// A network.
    Policy(Arc<Saved>),
    /// One that divides what was left, as it was this many steps ago.
    Rule {
        /// How old its words are.
        late: usize,
    },
    /// One that divides what will be left if cross traffic comes and goes as the last time.
    Period {
        /// How old its words are; it knows that.
        late: usize,
    },
    /// One that divides what will be left.
    Oracle,
    /// Nobody: controllers are on their own.
    Nobody,
}

impl Actor {
    pub fn policy(saved: Saved) -> Actor {
        Actor::Policy(Arc::new(saved))
    }
}

/// An episode to be played.
pub struct Play {
    pub spec: Arc<Spec>,
    pub seed: u64,
    pub actor: Actor,
}

/// A step of one.
pub struct Step {
    /// Relative rates in force, host by host.
    pub rates: Vec<f64>,
    /// What each host carried of what the link carries.
    pub throughput: Vec<f64>,
    /// Who had something to send at its end.
    pub active: Vec<bool>,
    pub terms: Terms,
}

/// An episode that was played.
pub struct Episode {
    pub interval_s: f64,
    pub steps: Vec<Step>,
}

impl Episode {
    /// The mean reward of a step.
    pub fn reward(&self, weights: &Weights) -> f64 {
        let sum: f64 = self.steps.iter().map(|step| f64::from(step.terms.reward(weights))).sum();
        sum / self.steps.len() as f64
    }

    /// The mean over the steps.
    pub fn mean(&self, of: impl Fn(&Step) -> f64) -> f64 {
        self.steps.iter().map(of).sum::<f64>() / self.steps.len() as f64
    }

    /// Seconds that have passed at the end of the step with that number.
    pub fn at(&self, step: usize) -> f64 {
        (step + 1) as f64 * self.interval_s
    }
}

/// Whether a policy sees and does what an environment has; a policy that was trained for observations of another age
/// may be tried.
pub fn check(saved: &Saved, spec: &Spec) -> Result<(), ExperimentError> {
    let purpose = Purpose { delay: spec.delay, ..saved.purpose.clone() };
    purpose.check(&spec.sight()).map_err(|error| ExperimentError::Policy(error.to_string()))
}

impl Job for Play {
    type Measured = Option<Episode>;
    type Error = ExperimentError;

    fn seconds(&self) -> u64 {
        let scenario = self.spec.source.draw(&mut anabranch_control::rng::Rng::stream(0, "episode"));
        scenario.length.as_nanos() / Duration::SECOND.as_nanos()
    }

    fn run(&self, monitor: &dyn Monitor) -> Result<Option<Episode>, ExperimentError> {
        let mut session = Session::new(Arc::clone(&self.spec), self.seed)?;
        let hosts = session.hosts();
        let (mut row, mut scratch) = (vec![0.0; session.observation_len()], Scratch::default());
        let mut words: VecDeque<Vec<f32>> = VecDeque::new();
        let mut rates = vec![0.0; hosts];
        let (mut steps, mut seconds) = (Vec::new(), 0);
        while !session.ended().is_over() {
            match &self.actor {
                Actor::Policy(saved) => {
                    session.observe(&mut row);
                    let (features, history) = (self.spec.features.len(), self.spec.history);
                    let reading = saved.policy.reading(hosts, features, history)?;
                    saved.policy.rates(reading, &row, &mut scratch, &mut rates);
                }
                &(Actor::Rule { late } | Actor::Period { late }) => {
                    match self.actor {
                        Actor::Period { .. } => oracle::period(&session, late, &mut rates),
                        _ => oracle::rule(&session, &mut rates),
                    }
                    words.push_back(rates.clone());
                    if words.len() > late + 1 {
                        words.pop_front();
                    }
                    rates.copy_from_slice(&words[0]);
                }
                Actor::Oracle => oracle::oracle(&mut session, &mut rates),
                Actor::Nobody => {}
            }
            match self.actor {
                Actor::Nobody => session.step_undirected()?,
                _ => session.step(&rates)?,
            };
            let seen = session.seen();
            steps.push(Step {
                rates: seen.iter().map(|host| host.rate).collect(),
                throughput: seen.iter().map(|host| host.throughput).collect(),
                active: seen.iter().map(|host| host.active > 0).collect(),
                terms: session.terms(),
            });
            let now = session.now().as_secs_f64() as u64;
            (seconds..now).for_each(|_| monitor.on_second());
            seconds = now;
            if monitor.is_interrupted() {
                return Ok(None);
            }
        }
        Ok(Some(Episode { interval_s: self.spec.interval.as_secs_f64(), steps }))
    }

    fn is_whole(&self, measured: &Option<Episode>) -> bool {
        measured.is_some()
    }
}
