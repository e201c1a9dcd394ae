//! How long a controller takes to reach its own mean throughput.
//!
//! The thesis's footnote to its table 7.4: "Time till the average throughput
//! over 100s is the first time greater than 90% of the mean throughput."

/// Window of the thesis, in seconds.
pub const PAPER_WINDOW_S: usize = 100;

/// Share of the mean throughput that the thesis asks for.
pub const PAPER_SHARE: f64 = 0.9;

/// Start, in seconds, of the first window of `window_s` consecutive values whose
/// mean is greater than `share` times the mean of the whole run.
///
/// `per_second[t]` is the throughput in the second from `t` to `t + 1`, in any
/// unit; the window slides by one second. The thesis does not say which instant
/// of the window it reports. We take the start, since its Perfect and Random
/// controllers, which are at their mean from the first second on, are given
/// there with 0 s: the end of the window would make that 100 s.
///
/// `None` when no window qualifies, `window_s` is 0, the run is shorter than one
/// window, or a value is not finite.
pub fn time_to_convergence(per_second: &[f64], window_s: usize, share: f64) -> Option<f64> {
    if window_s == 0 || per_second.len() < window_s || per_second.iter().any(|x| !x.is_finite()) {
        return None;
    }
    // Sums from the start of the run: a sum that slides would carry its roundings along.
    let mut sums = Vec::with_capacity(per_second.len() + 1);
    let mut sum = 0.0;
    sums.push(sum);
    for value in per_second {
        sum += value;
        sums.push(sum);
    }
    let goal = share * sum / per_second.len() as f64;
    let starts = 0..=per_second.len() - window_s;
    let reached = |start: &usize| (sums[start + window_s] - sums[*start]) / window_s as f64 > goal;
    starts.into_iter().find(reached).map(|start| start as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn thesis(per_second: &[f64]) -> Option<f64> {
        time_to_convergence(per_second, PAPER_WINDOW_S, PAPER_SHARE)
    }

    #[test]
    fn good_from_the_first_second_is_zero() {
        assert_eq!(thesis(&[89_271.82; 1000]), Some(0.0));
    }

    #[test]
    fn a_step_is_found_where_its_window_reaches_the_goal() {
        // 0 for 500 s, then 1 for 500 s: the mean is 0.5 and the goal 0.45. A window
        // that starts at s has (s + 100 - 500) / 100 of ones: more than 0.45 at s = 446.
        let step: Vec<f64> = (0..1000).map(|t| f64::from(u8::from(t >= 500))).collect();
        assert_eq!(thesis(&step), Some(446.0));
    }

    #[test]
    fn equal_to_the_goal_is_not_greater() {
        // Mean 1, and the first window is exactly at the goal of 0.5.
        let values = [0.5, 0.5, 1.5, 1.5];
        assert_eq!(time_to_convergence(&values, 2, 0.5), Some(1.0));
    }

    #[test]
    fn what_never_converges_has_no_time() {
        assert_eq!(thesis(&[0.0; 1000]), None);
        assert_eq!(thesis(&[1.0; 99]), None);
        assert_eq!(time_to_convergence(&[1.0, 1.0], 0, 0.9), None);
        assert_eq!(time_to_convergence(&[1.0, 2.0], 1, 2.0), None);
        assert_eq!(time_to_convergence(&[1.0, f64::NAN], 1, 0.9), None);
    }

    proptest! {
        #[test]
        fn some_window_reaches_less_than_the_mean(
            values in prop::collection::vec(0.1f64..1e6, 20..300),
            window_s in 1usize..5,
        ) {
            // Windows that tile the run average to its mean, so one is at least there.
            let whole = values.len() / window_s * window_s;
            let values = &values[..whole];
            let start = time_to_convergence(values, window_s, 0.9).unwrap() as usize;
            let goal = 0.9 * values.iter().sum::<f64>() / whole as f64;
            let average =
                |s: usize| values[s..s + window_s].iter().sum::<f64>() / window_s as f64;
            prop_assert!(average(start) > goal * (1.0 - 1e-9));
            for earlier in 0..start {
                prop_assert!(average(earlier) <= goal * (1.0 + 1e-9));
            }
        }
    }
}
