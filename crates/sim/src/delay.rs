//! How long a packet takes from one node to another.
//!
//! Nodes stand in a unit square and a link's delay grows with the distance, or a
//! matrix or a constant says it. Each packet's delay is jittered on its own by a
//! normal factor, so packets may overtake each other.

use std::sync::Arc;

use anabranch_control::rng::Rng;
use anabranch_control::time::Duration;

/// Where mean delays come from.
#[derive(Clone, Debug, PartialEq)]
pub enum DelayModel {
    /// Positions uniform in the unit square; `access` at either end plus the
    /// Euclidean distance times `span`.
    Plane {
        /// The delay across one side of the square.
        span: Duration,
        /// The delay of each node's access link.
        access: Duration,
        /// Distances are raised to this power: 1 for the plane as it is, more for a
        /// geography with many near nodes and a few that are far from all.
        stretch: f64,
    },
    /// The one-way delay from row to column, row by row.
    Matrix(Vec<Duration>),
    /// The same between any two nodes.
    Constant(Duration),
}

/// Above this many nodes, delays are computed when they are needed, not stored.
const TABLE_NODES: usize = 512;

/// The delays of one run.
#[derive(Clone, Debug)]
pub struct Delays {
    model: DelayModel,
    seed: u64,
    nodes: usize,
    source: Source,
}

/// No normal factor is further below 1 than this many standard deviations: one draw in 8e11 would be,
/// and is drawn again. Delays then have a least value, unless they vary by more than a seventh.
const MOST_DEVIATIONS: f64 = 7.0;

/// How the factors that jitter delays are distributed around 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum JitterTail {
    /// Normal.
    #[default]
    Normal,
    /// Pareto with the shape 3, as `tc-netem` has it: most are a little less than 1, and some many
    /// times as much.
    Pareto,
}

/// The shape of [`JitterTail::Pareto`], with its mean and standard deviation above a scale of 1.
const PARETO_SHAPE: f64 = 3.0;
const PARETO_MEAN: f64 = 1.5;
const PARETO_DEVIATION: f64 = 0.866_025_403_784_438_6;

/// What factors are drawn from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Law {
    Constant,
    Normal,
    Pareto,
}

/// A stream of factors that jitter delays, drawn again while below their least value.
///
/// Always one is drawn ahead: a delay does not wait for its factor then, and a stream is small,
/// for every node has one.
#[derive(Clone, Debug)]
pub struct Jitter {
    rng: Rng,
    deviation: f64,
    law: Law,
    /// None is drawn below.
    least: f64,
    next: f64,
}

impl Jitter {
    /// The least factor where their standard deviation is `deviation`; none is below zero.
    #[inline]
    pub fn least(deviation: f64, tail: JitterTail) -> f64 {
        let standard = match tail {
            JitterTail::Normal => -MOST_DEVIATIONS,
            JitterTail::Pareto => (1.0 - PARETO_MEAN) / PARETO_DEVIATION,
        };
        (1.0 + deviation * standard).max(0.0)
    }

    /// Factors with a standard deviation of `deviation` (0.1 for 10 %) from `rng`.
    pub fn new(deviation: f64, tail: JitterTail, rng: Rng) -> Jitter {
        let law = match tail {
            _ if deviation == 0.0 => Law::Constant,
            JitterTail::Normal => Law::Normal,
            JitterTail::Pareto => Law::Pareto,
        };
        let mut jitter = Jitter { rng, deviation, law, least: Jitter::least(deviation, tail), next: 1.0 };
        jitter.draw();
        jitter
    }

    #[inline(always)]
    fn factor(&mut self) -> f64 {
        let factor = self.next;
        self.draw();
        factor
    }

    /// A normal factor is drawn in line: each packet of an overlay needs one.
    #[inline(always)]
    fn draw(&mut self) {
        if self.law == Law::Normal {
            self.next = 1.0 + self.deviation * self.rng.normal();
        }
        if self.law != Law::Normal || self.next < self.least {
            self.draw_seldom();
        }
    }
}

impl Jitter {
    /// Draws by another law, or again what was below the least.
    #[inline(never)]
    fn draw_seldom(&mut self) {
        self.next = loop {
            let standard = match self.law {
                Law::Constant => return,
                Law::Normal => self.rng.normal(),
                Law::Pareto => self.pareto(),
            };
            let drawn = 1.0 + self.deviation * standard;
            if drawn >= self.least {
                break drawn;
            }
        };
    }

    /// With a mean of 0 and a standard deviation of 1.
    fn pareto(&mut self) -> f64 {
        let drawn = libm::pow(1.0 - self.rng.uniform(), -1.0 / PARETO_SHAPE);
        (drawn - PARETO_MEAN) / PARETO_DEVIATION
    }
}

#[derive(Clone, Debug)]
enum Source {
    /// Nanoseconds from row to column.
    Table {
        nodes: usize,
        nanos: Arc<[f64]>,
    },
    Positions {
        positions: Arc<[[f32; 2]]>,
        span_nanos: f64,
        access_nanos: f64,
        stretch: f64,
    },
    Constant {
        nanos: f64,
    },
}

impl Delays {
    /// Delays for `nodes` nodes; positions are drawn from `seed`.
    ///
    /// Panics if a matrix is not `nodes` by `nodes`.
    pub fn new(model: &DelayModel, nodes: usize, seed: u64) -> Delays {
        let source = match model {
            DelayModel::Constant(delay) => Source::Constant { nanos: delay.as_nanos() as f64 },
            DelayModel::Matrix(delays) => {
                assert_eq!(delays.len(), nodes * nodes, "a delay matrix has a row and a column for each node");
                Source::Table { nodes, nanos: delays.iter().map(|delay| delay.as_nanos() as f64).collect() }
            }
            DelayModel::Plane { span, access, stretch } => {
                let mut rng = Rng::stream(seed, "positions");
                let positions = (0..nodes).map(|_| [rng.uniform() as f32, rng.uniform() as f32]).collect();
                let source = Source::Positions {
                    positions,
                    span_nanos: span.as_nanos() as f64,
                    access_nanos: access.as_nanos() as f64,
                    stretch: *stretch,
                };
                if nodes <= TABLE_NODES { source.tabulate(nodes) } else { source }
            }
        };
        Delays { model: model.clone(), seed, nodes, source }
    }

    /// How many nodes there are delays for.
    pub fn nodes(&self) -> usize {
        self.nodes
    }

    /// Delays for `nodes` nodes or more; those that are there keep theirs.
    ///
    /// Panics if a matrix has fewer rows.
    pub fn reserve(&mut self, nodes: usize) {
        if nodes > self.nodes {
            *self = Delays::new(&self.model, nodes.max(self.nodes + self.nodes / 2), self.seed);
        }
    }

    /// The mean one-way delay.
    pub fn mean(&self, from: u32, to: u32) -> Duration {
        Duration::from_nanos(self.source.nanos(from, to) as u64)
    }

    /// No delay between two nodes is shorter, for factors of this least value.
    pub fn shortest(&self, least_factor: f64) -> Duration {
        let mean = match &self.source {
            Source::Table { nodes, nanos } => {
                let between = nanos.iter().enumerate().filter(|(place, _)| place / nodes != place % nodes);
                between.map(|(_, nanos)| *nanos).fold(f64::INFINITY, f64::min)
            }
            Source::Constant { nanos } => *nanos,
            Source::Positions { access_nanos, .. } => 2.0 * access_nanos,
        };
        Duration::from_nanos((mean * least_factor) as u64)
    }

    /// No mean delay is longer.
    pub fn longest(&self) -> Duration {
        Duration::from_nanos(match &self.source {
            Source::Table { nanos, .. } => nanos.iter().copied().fold(0.0, f64::max),
            Source::Constant { nanos } => *nanos,
            Source::Positions { span_nanos, access_nanos, stretch, .. } => {
                2.0 * access_nanos + span_nanos * libm::pow(2.0, stretch / 2.0)
            }
        } as u64)
    }

    /// One packet's delay: the mean times a factor of `jitter`.
    #[inline(always)]
    pub fn sample(&self, from: u32, to: u32, jitter: &mut Jitter) -> Duration {
        // Delays are far below 2^63 ns, and a signed conversion is the cheaper one.
        Duration::from_nanos((self.source.nanos(from, to) * jitter.factor()) as i64 as u64)
    }
}

impl Source {
    #[inline(always)]
    fn nanos(&self, from: u32, to: u32) -> f64 {
        match self {
            Source::Table { nodes, nanos } => nanos[from as usize * nodes + to as usize],
            Source::Constant { nanos } => *nanos,
            Source::Positions { positions, span_nanos, access_nanos, stretch } => {
                let ([x0, y0], [x1, y1]) = (positions[from as usize], positions[to as usize]);
                let (dx, dy) = (f64::from(x1 - x0), f64::from(y1 - y0));
                let distance = libm::sqrt(dx * dx + dy * dy);
                let stretched = if *stretch == 1.0 { distance } else { libm::pow(distance, *stretch) };
                2.0 * access_nanos + span_nanos * stretched
            }
        }
    }

    fn tabulate(&self, nodes: usize) -> Source {
        let pairs = (0..nodes as u32).flat_map(|from| (0..nodes as u32).map(move |to| (from, to)));
        Source::Table { nodes, nanos: pairs.map(|(from, to)| self.nanos(from, to)).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    fn plane(nodes: usize) -> Delays {
        Delays::new(&DelayModel::Plane { span: MS(100), access: MS(5), stretch: 1.0 }, nodes, 1)
    }

    #[test]
    fn delays_in_the_plane_are_symmetric_and_within_the_square() {
        let delays = plane(50);
        let mut sum = 0.0;
        for (from, to) in (0..50).flat_map(|from| (0..50).map(move |to| (from, to))) {
            let delay = delays.mean(from, to);
            assert_eq!(delay, delays.mean(to, from));
            assert!(delay >= MS(10) && delay <= MS(152), "{delay}");
            sum += delay.as_millis_f64();
        }
        // The mean distance of two points in a unit square is 0.5214; a node's to itself is 0.
        let mean = sum / 2500.0;
        assert!((mean - (10.0 + 52.14 * 49.0 / 50.0)).abs() < 6.0, "{mean}");
    }

    #[test]
    fn a_large_plane_gives_the_same_delays_as_its_table() {
        let (small, large) = (plane(TABLE_NODES), plane(TABLE_NODES + 1));
        for (from, to) in [(0, 1), (17, 400), (511, 3)] {
            assert_eq!(small.mean(from, to), large.mean(from, to));
        }
    }

    #[test]
    fn jitter_has_the_stated_deviation_and_keeps_the_mean() {
        let delays = Delays::new(&DelayModel::Constant(MS(100)), 2, 1);
        let mut jitter = Jitter::new(0.1, JitterTail::Normal, Rng::stream(1, "jitter"));
        let samples: Vec<f64> = (0..50_000).map(|_| delays.sample(0, 1, &mut jitter).as_millis_f64()).collect();
        let mean = samples.iter().sum::<f64>() / 50_000.0;
        let variance = samples.iter().map(|s| (s - mean) * (s - mean)).sum::<f64>() / 50_000.0;
        assert!((mean - 100.0).abs() < 0.2 && (variance.sqrt() - 10.0).abs() < 0.2, "{mean} {variance}");
    }

    #[test]
    fn no_delay_is_shorter_than_the_shortest() {
        let normal = |deviation| Jitter::least(deviation, JitterTail::Normal);
        let matrix = DelayModel::Matrix(vec![MS(0), MS(10), MS(20), MS(0)]);
        assert_eq!(Delays::new(&matrix, 2, 1).shortest(1.0), MS(10));
        // Both access links and a factor of 0.3, which binary fractions miss by a little.
        let nanos = plane(TABLE_NODES + 1).shortest(normal(0.1)).as_nanos();
        assert!((2_999_999..=3_000_000).contains(&nanos), "{nanos}");
        assert_eq!(plane(10).shortest(normal(0.2)), Duration::ZERO, "a seventh and more has no least value");
        for (deviation, tail) in [(0.14, JitterTail::Normal), (1.0, JitterTail::Pareto)] {
            let (delays, shortest) = (plane(600), plane(600).shortest(Jitter::least(deviation, tail)));
            assert!(shortest > Duration::ZERO);
            let mut jitter = Jitter::new(deviation, tail, Rng::stream(1, "jitter"));
            for sample in 0..200_000u32 {
                let (from, to) = (sample % 600, (sample / 600 + sample + 1) % 600);
                assert!(delays.sample(from, to, &mut jitter) >= shortest);
            }
        }
    }

    #[test]
    fn a_matrix_may_differ_by_direction() {
        let delays = Delays::new(&DelayModel::Matrix(vec![MS(0), MS(10), MS(20), MS(0)]), 2, 1);
        assert_eq!((delays.mean(0, 1), delays.mean(1, 0)), (MS(10), MS(20)));
    }
}
