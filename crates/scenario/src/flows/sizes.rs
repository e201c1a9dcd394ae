//! Sizes of transfers from an empirical distribution: its cumulative distribution function
//! (CDF) is given as points, and holds between two of them what interpolation says. A size
//! is the inverse of the CDF at a uniform random number, which costs one draw and a binary
//! search. A vertical step of the CDF is an exact size with that probability, a flat one is
//! a gap that no size falls into.
//!
//! With points `(x_i, p_i)`, `p_{i-1} <= u < p_i` and `s = (u - p_{i-1}) / (p_i - p_{i-1})`:
//!
//! ```text
//! linear:  x = x_{i-1} + s (x_i - x_{i-1})
//! log:     ln x = ln x_{i-1} + s (ln x_i - ln x_{i-1})
//! ```
//!
//! and `x = x_0` where `u < p_0`.

use anabranch_control::rng::Rng;
use anabranch_control::units::Bytes;

/// No distribution has more points.
pub const MOST_POINTS: usize = 10_000;

/// A distribution of sizes.
#[derive(Clone, Debug, PartialEq)]
pub struct SizeDistribution {
    points: Vec<SizePoint>,
    interpolation: Interpolation,
}

/// A point of a CDF.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SizePoint {
    /// A size in bytes; may have a fraction, as bins of measurements have.
    pub bytes: f64,
    /// The probability that a size is at most this.
    pub probability: f64,
}

/// What a CDF is between two of its points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interpolation {
    /// The probability grows linearly with the size: sizes are uniform in between.
    Linear,
    /// The probability grows linearly with the size's logarithm.
    Log,
}

/// Why points are no CDF.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SizeError {
    /// There are none, one alone or too many.
    #[error("{0} points; expected 2 to {MOST_POINTS}")]
    Count(usize),
    /// One is wrong.
    #[error("{problem}")]
    Point {
        /// Which one, from 0.
        index: usize,
        /// What is wrong with it, and what would be right.
        problem: String,
    },
}

impl SizeDistribution {
    /// The distribution with these points of its CDF, in order.
    ///
    /// # Errors
    ///
    /// When a number is out of range, when sizes or probabilities fall or a point comes
    /// twice, when the last probability is not 1, and with [`Interpolation::Log`] when the
    /// first size is below a byte.
    pub fn new(points: Vec<SizePoint>, interpolation: Interpolation) -> Result<SizeDistribution, SizeError> {
        if !(2..=MOST_POINTS).contains(&points.len()) {
            return Err(SizeError::Count(points.len()));
        }
        let least = if interpolation == Interpolation::Log { 1.0 } else { 0.0 };
        let mut before: Option<SizePoint> = None;
        for (index, &point) in points.iter().enumerate() {
            let wrong = |problem: String| Err(SizeError::Point { index, problem });
            let SizePoint { bytes, probability } = point;
            if !(bytes.is_finite() && bytes >= least) {
                let why = if least > 0.0 { " (a size below a byte has no logarithm above 0)" } else { "" };
                return wrong(format!("a size of {bytes} bytes; expected {least} or more{why}"));
            }
            if !(0.0..=1.0).contains(&probability) {
                return wrong(format!("a probability of {probability}; expected 0 to 1"));
            }
            if let Some(before) = before {
                if bytes < before.bytes {
                    return wrong(format!("{bytes} bytes after {}; expected sizes that do not fall", before.bytes));
                }
                if probability < before.probability {
                    let problem = format!(
                        "a probability of {probability} after {}; expected cumulative ones, which do not fall",
                        before.probability
                    );
                    return wrong(problem);
                }
                if point == before {
                    return wrong(format!("({bytes}, {probability}) is there twice; expected it once"));
                }
            }
            before = Some(point);
        }
        match before {
            Some(SizePoint { probability: 1.0, bytes }) if bytes >= 1.0 => {
                Ok(SizeDistribution { points, interpolation })
            }
            Some(SizePoint { probability: 1.0, bytes }) => {
                let problem = format!("no transfer is larger than {bytes} bytes; expected a last size of 1 or more");
                Err(SizeError::Point { index: points.len() - 1, problem })
            }
            last => {
                let last = last.map_or(0.0, |last| last.probability);
                let problem = format!("the last probability is {last}; expected 1");
                Err(SizeError::Point { index: points.len() - 1, problem })
            }
        }
    }

    /// The points of the CDF.
    pub fn points(&self) -> &[SizePoint] {
        &self.points
    }

    /// What the CDF is between them.
    pub fn interpolation(&self) -> Interpolation {
        self.interpolation
    }

    /// A size, a byte at least.
    pub fn draw(&self, rng: &mut Rng) -> Bytes {
        Bytes::new((self.quantile(rng.uniform()).round() as u64).max(1))
    }

    /// The inverse of the CDF at `u` in [0, 1), in bytes.
    pub fn quantile(&self, u: f64) -> f64 {
        let above = self.points.partition_point(|point| point.probability <= u).min(self.points.len() - 1);
        let to = self.points[above];
        let Some(from) = above.checked_sub(1).map(|below| self.points[below]) else { return to.bytes };
        let share = ((u - from.probability) / (to.probability - from.probability)).min(1.0);
        match self.interpolation {
            Interpolation::Linear => from.bytes + share * (to.bytes - from.bytes),
            Interpolation::Log => from.bytes * libm::exp(share * libm::log(to.bytes / from.bytes)),
        }
    }

    /// The mean of what [`Self::quantile`] gives, in bytes.
    pub fn mean(&self) -> f64 {
        let first = self.points[0];
        let pieces = self.points.windows(2).map(|pair| {
            let (from, to) = (pair[0].bytes, pair[1].bytes);
            let mean = match self.interpolation {
                Interpolation::Log if to > from => (to - from) / libm::log(to / from),
                _ => (from + to) / 2.0,
            };
            (pair[1].probability - pair[0].probability) * mean
        });
        first.probability * first.bytes + pieces.sum::<f64>()
    }
}

/// A distribution that many papers measured with, by its name; linear between its points.
pub fn named(name: &str) -> Option<SizeDistribution> {
    let (_, points) = NAMED.iter().find(|(known, _)| *known == name)?;
    let points = points.iter().map(|&(bytes, probability)| SizePoint { bytes, probability });
    Some(SizeDistribution::new(points.collect(), Interpolation::Linear).expect("a test reads each of them"))
}

/// The names that [`named`] knows.
pub fn names() -> impl Iterator<Item = &'static str> {
    NAMED.iter().map(|(name, _)| *name)
}

/// A name, and bytes with their cumulative probabilities.
type NamedPoints = (&'static str, &'static [(f64, f64)]);

const NAMED: &[NamedPoints] = &[("web-search", WEB_SEARCH), ("data-mining", DATA_MINING)];

/// Background flows of a web-search cluster: Alizadeh et al., "Data Center TCP (DCTCP)",
/// SIGCOMM 2010, figure 4. The paper prints a curve; these points are those of the file
/// `DCTCP_CDF` of "empirical-traffic-gen", from which later papers draw.
const WEB_SEARCH: &[(f64, f64)] = &[
    (0.0, 0.0),
    (10_000.0, 0.15),
    (20_000.0, 0.2),
    (30_000.0, 0.3),
    (50_000.0, 0.4),
    (80_000.0, 0.53),
    (200_000.0, 0.6),
    (1e6, 0.7),
    (2e6, 0.8),
    (5e6, 0.9),
    (10e6, 0.97),
    (30e6, 1.0),
];

/// Flows of a data-mining cluster: Greenberg et al., "VL2: A Scalable and Flexible Data
/// Center Network", SIGCOMM 2009, figure 2; points from the file `VL2_CDF` beside the other.
const DATA_MINING: &[(f64, f64)] = &[
    (0.0, 0.0),
    (180.0, 0.1),
    (216.0, 0.2),
    (560.0, 0.3),
    (900.0, 0.4),
    (1100.0, 0.5),
    (1870.0, 0.6),
    (3160.0, 0.7),
    (10_000.0, 0.8),
    (400_000.0, 0.9),
    (3.16e6, 0.95),
    (100e6, 0.98),
    (1e9, 1.0),
];

#[cfg(test)]
mod tests {
    use anabranch_control::rng::Rng;
    use proptest::prelude::*;

    use super::*;

    fn distribution(points: &[(f64, f64)], interpolation: Interpolation) -> Result<SizeDistribution, SizeError> {
        let points = points.iter().map(|&(bytes, probability)| SizePoint { bytes, probability }).collect();
        SizeDistribution::new(points, interpolation)
    }

    /// The CDF by its definition: the forward direction of what is drawn.
    fn cdf(sizes: &SizeDistribution, x: f64) -> f64 {
        let points = sizes.points();
        let Some(below) = points.iter().rposition(|point| point.bytes <= x) else { return 0.0 };
        let (from, Some(to)) = (points[below], points.get(below + 1)) else { return 1.0 };
        let share = match sizes.interpolation() {
            Interpolation::Linear => (x - from.bytes) / (to.bytes - from.bytes),
            Interpolation::Log => (x / from.bytes).ln() / (to.bytes / from.bytes).ln(),
        };
        from.probability + share * (to.probability - from.probability)
    }

    /// The largest distance between the CDF and that of `count` draws (Kolmogorov and
    /// Smirnov), where sizes are continuous.
    fn distance(sizes: &SizeDistribution, seed: u64, count: usize) -> f64 {
        let mut rng = Rng::stream(seed, "sizes");
        let mut drawn: Vec<f64> = (0..count).map(|_| sizes.quantile(rng.uniform())).collect();
        drawn.sort_by(f64::total_cmp);
        let n = count as f64;
        let gap = |(i, &x): (usize, &f64)| {
            let p = cdf(sizes, x);
            (p - i as f64 / n).abs().max((p - (i + 1) as f64 / n).abs())
        };
        drawn.iter().enumerate().map(gap).fold(0.0, f64::max)
    }

    #[test]
    fn what_is_drawn_has_the_distribution_that_was_given() {
        // The distance of n draws exceeds 1.95 / sqrt(n) once in a thousand seeds.
        let count = 20_000;
        let most = 1.95 / (count as f64).sqrt();
        for name in names() {
            let sizes = named(name).expect("its name is listed");
            assert!(distance(&sizes, 1, count) < most, "{name}");
        }
        let log = distribution(&[(100.0, 0.0), (1e4, 0.5), (1e7, 1.0)], Interpolation::Log).unwrap();
        assert!(distance(&log, 1, count) < most);
        // The test can tell the two interpolations apart.
        let linear = distribution(&[(100.0, 0.0), (1e4, 0.5), (1e7, 1.0)], Interpolation::Linear).unwrap();
        let mut rng = Rng::stream(1, "sizes");
        let share_below = (0..count).filter(|_| linear.quantile(rng.uniform()) < 1e5).count() as f64 / count as f64;
        assert!((share_below - cdf(&linear, 1e5)).abs() < most && (share_below - cdf(&log, 1e5)).abs() > 0.1);
    }

    #[test]
    fn quantiles_lie_where_the_interpolation_says() {
        let points = [(100.0, 0.2), (1000.0, 0.6), (100_000.0, 1.0)];
        let linear = distribution(&points, Interpolation::Linear).unwrap();
        let log = distribution(&points, Interpolation::Log).unwrap();
        for sizes in [&linear, &log] {
            assert_eq!((sizes.quantile(0.0), sizes.quantile(0.1999)), (100.0, 100.0), "an atom at the first size");
            assert_eq!((sizes.quantile(0.2), sizes.quantile(0.6)), (100.0, 1000.0));
        }
        assert!((linear.quantile(0.4) - 550.0).abs() < 1e-9);
        assert!((log.quantile(0.8) - 10_000.0).abs() < 1e-6, "halfway between 10^3 and 10^5");
    }

    #[test]
    fn a_vertical_step_is_an_exact_size_and_a_flat_one_a_gap() {
        let sizes =
            distribution(&[(0.0, 0.0), (10.0, 0.5), (20.0, 0.5), (20.0, 0.9), (30.0, 1.0)], Interpolation::Linear)
                .unwrap();
        assert_eq!((sizes.quantile(0.5), sizes.quantile(0.7), sizes.quantile(0.89)), (20.0, 20.0, 20.0));
        let mut rng = Rng::stream(3, "gap");
        let drawn: Vec<f64> = (0..10_000).map(|_| sizes.quantile(rng.uniform())).collect();
        assert!(!drawn.iter().any(|x| (10.0..20.0).contains(x)));
        let exact = drawn.iter().filter(|&&x| x == 20.0).count();
        assert!((3800..4200).contains(&exact), "{exact} of 10000, expected 4000");
    }

    #[test]
    fn no_transfer_is_empty() {
        let sizes = distribution(&[(0.0, 0.9), (5.0, 1.0)], Interpolation::Linear).unwrap();
        let mut rng = Rng::stream(1, "empty");
        let drawn: Vec<u64> = (0..1000).map(|_| sizes.draw(&mut rng).get()).collect();
        assert_eq!((drawn.iter().min(), drawn.iter().max()), (Some(&1), Some(&5)));
    }

    #[test]
    fn the_named_distributions_have_the_means_of_their_points() {
        // By hand: sums of (p_i - p_{i-1}) (x_i + x_{i-1}) / 2.
        let mean = |name: &str| named(name).expect("its name is listed").mean();
        assert!((mean("web-search") - 1_711_250.0).abs() < 1e-3, "{}", mean("web-search"));
        assert!((mean("data-mining") - 12_658_198.6).abs() < 1e-1, "{}", mean("data-mining"));
        assert!(named("web").is_none());
    }

    #[test]
    fn what_is_no_cdf_is_refused_at_its_point() {
        let refused = |points: &[(f64, f64)], interpolation| match distribution(points, interpolation) {
            Err(SizeError::Point { index, problem }) => (index, problem),
            other => panic!("{points:?}: {other:?}"),
        };
        let linear = Interpolation::Linear;
        for (points, index, says) in [
            (&[(0.0, 0.0), (5.0, 0.5), (4.0, 1.0)][..], 2, "4 bytes after 5"),
            (&[(0.0, 0.0), (5.0, 0.5), (6.0, 0.4), (7.0, 1.0)], 2, "a probability of 0.4 after 0.5"),
            (&[(0.0, 0.0), (5.0, 0.5), (5.0, 0.5), (7.0, 1.0)], 2, "twice"),
            (&[(0.0, 0.0), (5.0, 0.99)], 1, "the last probability is 0.99; expected 1"),
            (&[(0.0, 0.0), (5.0, 1.01)], 1, "expected 0 to 1"),
            (&[(-1.0, 0.0), (5.0, 1.0)], 0, "expected 0 or more"),
            (&[(f64::NAN, 0.0), (5.0, 1.0)], 0, "expected 0 or more"),
            (&[(0.0, f64::NAN), (5.0, 1.0)], 0, "expected 0 to 1"),
            (&[(0.0, 0.0), (0.5, 1.0)], 1, "expected a last size of 1 or more"),
        ] {
            let (at, problem) = refused(points, linear);
            assert!(at == index && problem.contains(says), "{points:?}: {at}: {problem}");
        }
        assert_eq!(refused(&[(0.0, 0.0), (5.0, 1.0)], Interpolation::Log).0, 0);
        assert_eq!(distribution(&[(5.0, 1.0)], linear), Err(SizeError::Count(1)));
    }

    proptest! {
        /// Quantiles never fall, stay between the points, and are the CDF's inverse.
        #[test]
        fn quantiles_invert_the_cdf(
            steps in proptest::collection::vec((1.0..1e6f64, 0.001..1.0f64), 2..20),
            log in any::<bool>(),
            us in proptest::collection::vec(0.0..1.0f64, 1..50),
        ) {
            let total: f64 = steps.iter().map(|step| step.1).sum();
            let (mut x, mut sum) = (0.0, 0.0);
            let mut points: Vec<(f64, f64)> = Vec::new();
            for (width, weight) in &steps {
                (x, sum) = (x + width, sum + weight);
                points.push((x, (sum / total).min(1.0)));
            }
            points.last_mut().expect("there are two").1 = 1.0;
            let interpolation = if log { Interpolation::Log } else { Interpolation::Linear };
            let sizes = distribution(&points, interpolation).unwrap();
            let mut us = us;
            us.sort_by(f64::total_cmp);
            let mut before = 0.0;
            for u in us {
                let x = sizes.quantile(u);
                prop_assert!(x >= before && x >= points[0].0 && x <= points[points.len() - 1].0 * (1.0 + 1e-12));
                before = x;
                let expected = u.max(points[0].1);
                prop_assert!((cdf(&sizes, x) - expected).abs() < 1e-6, "{u}: {x} has {}", cdf(&sizes, x));
            }
        }
    }
}
