//! A policy that was trained controls one flow from end to end: at the end of each monitor interval, about a round trip,
//! a network sees what the sender knows of the last intervals and says by how much the rate rises or falls. Between two
//! decisions nothing changes but the window, which only bounds what a silent path is sent.
//!
//! ```text
//! x_(t+1) = x_t (1 + α a)      a >= 0
//!         = x_t / (1 - α a)    else                    α = 0.025, |a| at most 40: twice or half the rate
//! x_0     = initial window / smoothed round trip       once that is known; until then the initial window holds
//! W       = 2 x max(smoothed, latest round trip)
//! ```
//!
//! Jay, Rotman, Godfrey, Schapira, Tamar (Aurora), ICML 2019, section 4.1. Departures. Its rates begin at random near the
//! link's, which no sender knows; here as slow start's first round trip does. Its actions have no bound. While
//! the application or a bound from outside holds the sender back, the rate does not rise (RFC 9002, 7.8). After persistent
//! congestion all begins anew from the least rate (RFC 9002, 7.6).
//!
//! What no training showed the network is cut at what it saw (see [`crate::policy`]), and said once.

pub mod feature;
pub mod interval;

pub use feature::{FlowFeature, History};
pub use interval::{Seen, Watch};

/// α: what an action of 1 adds to the rate.
pub const STEP: f64 = 0.025;

/// The largest action: it doubles the rate, or halves it.
pub const MOST_ACTION: f32 = 40.0;

/// The highest rate, in bits a second.
pub const MOST_RATE: f64 = 1e12;

/// Packets a round trip of the least rate (PCC, NSDI 2015, 3.2).
pub const LEAST_PACKETS: f64 = 2.0;

/// The rate after one of `rate`, in any unit, and `action`; one that is no number changes nothing.
pub fn stepped(rate: f64, action: f32) -> f64 {
    if action.is_nan() {
        return rate;
    }
    let action = f64::from(action.clamp(-MOST_ACTION, MOST_ACTION));
    if action >= 0.0 { rate * (1.0 + STEP * action) } else { rate / (1.0 - STEP * action) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_action_and_its_opposite_leave_the_rate_as_it_was() {
        assert!((stepped(100.0, 1.0) - 102.5).abs() < 1e-9);
        assert_eq!(stepped(100.0, -40.0), 50.0);
        assert_eq!(stepped(100.0, 1e9), 200.0);
        assert_eq!((stepped(100.0, f32::NAN), stepped(100.0, 0.0)), (100.0, 100.0));
        for action in [0.5, 3.0, 40.0] {
            assert!((stepped(stepped(100.0, action), -action) - 100.0).abs() < 1e-9);
        }
    }
}
