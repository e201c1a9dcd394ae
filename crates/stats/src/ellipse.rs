//! Two numbers for each of many runs, as one ellipse.

use core::f64::consts::TAU;

/// The Gaussian that most likely made a cloud of points: its mean, and its covariance with
/// the divisor `n`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ellipse {
    /// Mean of both numbers.
    pub mean: (f64, f64),
    /// Variance of the first, covariance, variance of the second.
    pub covariance: (f64, f64, f64),
}

impl Ellipse {
    /// Of `points`; `None` without any, or where one is not finite.
    pub fn of(points: &[(f64, f64)]) -> Option<Ellipse> {
        if points.is_empty() || points.iter().any(|(x, y)| !x.is_finite() || !y.is_finite()) {
            return None;
        }
        let count = points.len() as f64;
        let sum = points.iter().fold((0.0, 0.0), |sum, point| (sum.0 + point.0, sum.1 + point.1));
        let mean = (sum.0 / count, sum.1 / count);
        let mut covariance = (0.0, 0.0, 0.0);
        for (x, y) in points {
            let (dx, dy) = (x - mean.0, y - mean.1);
            covariance.0 += dx * dx / count;
            covariance.1 += dx * dy / count;
            covariance.2 += dy * dy / count;
        }
        Some(Ellipse { mean, covariance })
    }

    /// `corners` points of its contour at one standard deviation, the first again at the end:
    /// the mean plus the Cholesky factor of the covariance times the unit circle.
    pub fn contour(&self, corners: usize) -> Vec<(f64, f64)> {
        let (xx, xy, yy) = self.covariance;
        let a = xx.sqrt();
        let b = if a > 0.0 { xy / a } else { 0.0 };
        // Rounding may leave a little less than nothing.
        let c = (yy - b * b).max(0.0).sqrt();
        let corner = |i: usize| {
            let angle = TAU * (i % corners) as f64 / corners as f64;
            let (cos, sin) = (libm::cos(angle), libm::sin(angle));
            (self.mean.0 + a * cos, self.mean.1 + b * cos + c * sin)
        };
        (0..=corners).map(corner).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_point_of_the_contour_is_one_deviation_from_the_mean() {
        let points = [(1.0, 2.0), (2.0, 5.0), (4.0, 4.0), (7.0, 9.0)];
        let ellipse = Ellipse::of(&points).unwrap();
        assert_eq!(ellipse.mean, (3.5, 5.0));
        assert_eq!(ellipse.covariance, (5.25, 5.25, 6.5));
        let (xx, xy, yy) = ellipse.covariance;
        let contour = ellipse.contour(32);
        assert_eq!((contour.len(), contour[0]), (33, contour[32]));
        for (x, y) in contour {
            let (dx, dy) = (x - 3.5, y - 5.0);
            let distance = (yy * dx * dx - 2.0 * xy * dx * dy + xx * dy * dy) / (xx * yy - xy * xy);
            assert!((distance - 1.0).abs() < 1e-9, "({x}, {y}) is {distance} away");
        }
    }

    #[test]
    fn a_cloud_without_width_is_a_line_or_a_point() {
        let line = Ellipse::of(&[(1.0, 3.0), (1.0, 5.0)]).unwrap();
        assert!(line.contour(8).iter().all(|(x, y)| *x == 1.0 && (3.0..=5.0).contains(y)));
        assert_eq!(Ellipse::of(&[(1.0, 3.0)]).unwrap().contour(4), [(1.0, 3.0); 5]);
        assert_eq!(Ellipse::of(&[]), None);
        assert_eq!(Ellipse::of(&[(1.0, f64::NAN)]), None);
    }
}
