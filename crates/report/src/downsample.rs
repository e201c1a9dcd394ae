//! Fewer points, the same picture.
//!
//! Of all points in one column of pixels a line needs four: the first and the
//! last, where it enters and leaves, and the lowest and the highest, between
//! which it covers everything. Source: Jugel, Jerzak, Hackenbroich, Markl, "M4:
//! A Visualization-Oriented Time Series Data Aggregation", VLDB 2014.

/// Thins `points` (in units of one column, `x` never falling) to at most four in
/// every column, in their order. Points that run backwards are returned as they are.
pub(super) fn downsample(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    if !points.is_sorted_by(|a, b| a.0 <= b.0) {
        return points.to_vec();
    }
    let columns = points.chunk_by(|a, b| libm::floor(a.0) == libm::floor(b.0));
    columns.flat_map(extremes).collect()
}

fn extremes(column: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let (mut low, mut high) = (0, 0);
    for (i, point) in column.iter().enumerate() {
        if point.1 < column[low].1 {
            low = i;
        }
        if point.1 > column[high].1 {
            high = i;
        }
    }
    let mut kept = vec![0, low, high, column.len() - 1];
    kept.sort_unstable();
    kept.dedup();
    kept.into_iter().map(|i| column[i]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn one_spike_among_many_points_survives() {
        let mut points: Vec<(f64, f64)> = (0..300_000).map(|i| (f64::from(i) * 400.0 / 300_000.0, 1.0)).collect();
        points[123_456].1 = 99.0;
        let kept = downsample(&points);
        assert!(kept.contains(&points[123_456]));
        assert!(kept.len() <= 1600, "{}", kept.len());
    }

    #[test]
    fn a_line_that_runs_backwards_is_left_alone() {
        let loops = [(0.0, 0.0), (2.0, 1.0), (1.0, 3.0)];
        assert_eq!(downsample(&loops), loops);
        assert!(downsample(&[]).is_empty());
    }

    proptest! {
        #[test]
        fn every_column_keeps_its_ends_and_extremes(
            steps in prop::collection::vec((0.0f64..0.4, -1e3f64..1e3), 1..400),
        ) {
            let mut x = 0.0;
            let points: Vec<(f64, f64)> = steps
                .iter()
                .map(|(step, y)| {
                    x += step;
                    (x, *y)
                })
                .collect();
            let kept = downsample(&points);
            let mut rest = points.iter();
            prop_assert!(kept.iter().all(|k| rest.any(|p| p == k)), "not in order");
            for column in 0..=(x as usize) {
                let here = |p: &&(f64, f64)| p.0 as usize == column;
                let (all, some): (Vec<_>, Vec<_>) =
                    (points.iter().filter(here).collect(), kept.iter().filter(here).collect());
                prop_assert!(some.len() <= 4);
                prop_assert_eq!(all.first(), some.first());
                prop_assert_eq!(all.last(), some.last());
                let low = |v: &[&(f64, f64)]| v.iter().map(|p| p.1).fold(f64::INFINITY, f64::min);
                let high =
                    |v: &[&(f64, f64)]| v.iter().map(|p| p.1).fold(f64::NEG_INFINITY, f64::max);
                prop_assert_eq!(low(&all), low(&some));
                prop_assert_eq!(high(&all), high(&some));
            }
        }
    }
}
