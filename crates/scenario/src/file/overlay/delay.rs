//! `[overlay.delay]`: where delays come from.

use anabranch_control::time::Duration;
use anabranch_sim::delay::{DelayModel, JitterTail};

use super::super::error::Problem;
use super::super::shape::{Many, Optional, OrStandard, Said, Section, keys, said, some, span};
use super::super::values::{Millis, Number, Share, Word, Words};
use super::chosen;
use crate::overlay::Overlay;

/// A shorter delay would let a controller send without end in no time.
const SHORTEST_DELAY: Duration = Duration::from_nanos(1000);

keys! {
    /// `[overlay.delay]`.
    #[derive(Default)]
    pub struct Delay {
        model: Optional<Word<Model>>,
        span_ms: Optional<Millis>,
        access_ms: Optional<Millis>,
        stretch: Optional<Number<10_000_000, 100>>,
        matrix_ms: Optional<Many<Many<Millis>>>,
        constant_ms: Optional<Millis>,
        pub jitter: Optional<Share>,
        pub jitter_tail: Optional<Word<JitterTail>>,
    }
}

/// Where delays come from.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Model {
    Plane,
    Matrix,
    Constant,
}

impl Words for Model {
    const WORDS: &'static [(&'static str, Self)] =
        &[("plane", Model::Plane), ("matrix", Model::Matrix), ("constant", Model::Constant)];
}

impl Words for JitterTail {
    const WORDS: &'static [(&'static str, Self)] = &[("normal", JitterTail::Normal), ("pareto", JitterTail::Pareto)];
}

impl Section<Delay> {
    /// The model, in place of that of `overlay`.
    pub fn delays(&self, overlay: &Overlay) -> Result<DelayModel, Problem> {
        let keys = [
            (span(&self.span_ms), Model::Plane),
            (span(&self.access_ms), Model::Plane),
            (span(&self.stretch), Model::Plane),
            (span(&self.matrix_ms), Model::Matrix),
            (span(&self.constant_ms), Model::Constant),
        ];
        match chosen("overlay.delay.model", &self.model, &keys)? {
            Model::Plane => self.plane(&overlay.delay),
            Model::Matrix => self.matrix(overlay.peers),
            Model::Constant => match &self.constant_ms {
                Some(delay) => long_enough(delay).map(DelayModel::Constant),
                None => Err(self.missing("constant_ms", "the delay between any two peers in milliseconds")),
            },
        }
    }

    fn plane(&self, standard: &DelayModel) -> Result<DelayModel, Problem> {
        let &DelayModel::Plane { span: standard_span, access, stretch } = standard else {
            unreachable!("the standard scenario stands in the plane");
        };
        let across = self.span_ms.or_standard(standard_span);
        let access = self.access_ms.or_standard(access);
        if across + access < SHORTEST_DELAY {
            let blamed = span(&self.span_ms).or(span(&self.access_ms)).unwrap_or(self.span());
            let problem = "packets would take no time at all; expected a span_ms or an access_ms of at least 0.001";
            return Err(Problem::at(blamed, problem));
        }
        let stretch = self.stretch.or_standard(stretch);
        Ok(DelayModel::Plane { span: across, access, stretch })
    }

    fn matrix(&self, peers: usize) -> Result<DelayModel, Problem> {
        let what = format!("{peers} rows of {peers} delays in milliseconds, one for each peer");
        let Some(rows) = &self.matrix_ms else { return Err(self.missing("matrix_ms", what)) };
        if rows.len() != peers {
            return Err(rows.wrong(format!("expected {what}, not {} rows", rows.len())));
        }
        let mut delays = Vec::with_capacity(peers * peers);
        for (from, row) in rows.iter().enumerate() {
            if row.len() != peers {
                return Err(row.wrong(format!("expected {what}, not {} delays in row {from}", row.len())));
            }
            for (to, delay) in row.iter().enumerate() {
                delays.push(if from == to { **delay } else { long_enough(delay)? });
            }
        }
        Ok(DelayModel::Matrix(delays))
    }
}

fn long_enough(delay: &Said<Millis>) -> Result<Duration, Problem> {
    match **delay >= SHORTEST_DELAY {
        true => Ok(**delay),
        false => Err(delay.wrong("packets would take no time at all; expected at least 0.001")),
    }
}

impl Delay {
    /// What is written of an overlay's delays.
    pub fn written(overlay: &Overlay) -> Delay {
        let keys = match &overlay.delay {
            &DelayModel::Plane { span, access, stretch } => Delay {
                model: some(Model::Plane),
                span_ms: some(span),
                access_ms: some(access),
                stretch: some(stretch),
                ..Delay::default()
            },
            DelayModel::Matrix(delays) => {
                let row = |row: &[Duration]| row.iter().copied().map(said).collect();
                let rows = delays.chunks(overlay.peers).map(row).map(said).collect();
                Delay { model: some(Model::Matrix), matrix_ms: some(rows), ..Delay::default() }
            }
            &DelayModel::Constant(delay) => {
                Delay { model: some(Model::Constant), constant_ms: some(delay), ..Delay::default() }
            }
        };
        Delay { jitter: some(overlay.jitter), jitter_tail: some(overlay.jitter_tail), ..keys }
    }
}
