//! What a policy is compared with: the rule of a coordinator that does not learn, and an oracle that knows what
//! cross traffic will do.

use crate::session::Session;

/// The rates of a coordinator that divides what cross traffic left in the step before among the hosts that are
/// active: what it sees is what there was.
pub fn rule(session: &Session, rates: &mut [f32]) {
    let left = 1.0 - session.cross_share();
    divide(left, |host| session.seen()[host].active > 0, rates);
}

/// The rates of one that knows what cross traffic takes in the step to come, and who begins in it. No coordinator
/// does; it is what is left to be learned.
pub fn oracle(session: &mut Session, rates: &mut [f32]) {
    let left = 1.0 - session.cross_next();
    let session = &*session;
    let next = session.now() + session.spec().interval;
    let begins = |host: usize| session.starts(host).any(|start| start >= session.now() && start < next);
    let is_active = |host: usize| session.seen()[host].active > 0 || begins(host);
    divide(left, is_active, rates);
}

fn divide(left: f64, is_active: impl Fn(usize) -> bool, rates: &mut [f32]) {
    let active = (0..rates.len()).filter(|&host| is_active(host)).count().max(1) as f64;
    for (host, rate) in rates.iter_mut().enumerate() {
        *rate = if is_active(host) { (left.max(0.0) / active) as f32 } else { 0.0 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_divided_among_those_who_are_active() {
        let mut rates = [9.0; 4];
        divide(0.6, |host| host < 2, &mut rates);
        assert_eq!(rates, [0.3, 0.3, 0.0, 0.0]);
        divide(-0.1, |_| true, &mut rates);
        assert_eq!(rates, [0.0; 4], "more than the link carries comes across");
        divide(0.6, |_| false, &mut rates);
        assert_eq!(rates, [0.0; 4]);
    }
}
