//! What a policy is compared with: the rule of a coordinator that does not learn, and an oracle that knows what
//! cross traffic will do, and who will begin.
//!
//! Where rates are told, they divide the link. Where initial windows are, they divide what the link carries in a round
//! trip among those that send: `window = rate RTT_min / flows`, the parametrisation of [C3].

use anabranch_scenario::policy::Actuator;

use crate::session::Session;

/// The window that a connection begins with when nobody knows better, in packets (RFC 6928).
const USUAL_INITIAL: f64 = 10.0;

/// The rates of a coordinator that divides what cross traffic left in the step before among the hosts that are
/// active: what it sees is what there was. It tells initial windows by the round trips that it has seen, for one flow
/// more than there are.
pub fn rule(session: &Session, rates: &mut [f32]) {
    if session.spec().actuator == Actuator::Initial {
        let flows = session.seen().iter().map(|host| host.active).sum::<usize>() + 1;
        for (rate, host) in rates.iter_mut().zip(session.seen()) {
            *rate = initial(if host.pipe > 0.0 { host.pipe / flows as f64 } else { USUAL_INITIAL });
        }
        return;
    }
    let left = 1.0 - session.cross_share();
    tell(session, left, |host| session.seen()[host].active > 0, rates);
}

/// The rates of one that knows what cross traffic takes in the step to come, and who begins in it. No coordinator
/// does; it is what is left to be learned. It knows round trips before they were measured.
pub fn oracle(session: &mut Session, rates: &mut [f32]) {
    let (now, next) = (session.now(), session.now() + session.spec().interval);
    if session.spec().actuator == Actuator::Initial {
        let begin = |host| session.starts(host).filter(|&start| start >= now && start < next).count();
        let active: usize = session.seen().iter().map(|host| host.active).sum();
        let flows = (active + (0..rates.len()).map(begin).sum::<usize>()).max(1);
        for (host, rate) in rates.iter_mut().enumerate() {
            *rate = initial(session.true_pipe(host) / flows as f64);
        }
        return;
    }
    let left = 1.0 - session.cross_next();
    let session = &*session;
    let begins = |host: usize| session.starts(host).any(|start| start >= now && start < next);
    let is_active = |host: usize| session.seen()[host].active > 0 || begins(host);
    tell(session, left, is_active, rates);
}

/// What makes `left` of the link come to those who are active, in equal parts.
fn tell(session: &Session, left: f64, is_active: impl Fn(usize) -> bool, rates: &mut [f32]) {
    divide(left, is_active, rates);
    if session.spec().actuator == Actuator::Share {
        // Those who are active now divide it by themselves.
        let active = session.seen().iter().filter(|host| host.active > 0).count().max(1);
        rates.iter_mut().for_each(|rate| *rate *= active as f32);
    }
}

/// A window of so many packets, as an action.
fn initial(packets: f64) -> f32 {
    libm::log2(packets.max(1.0)) as f32
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

    #[test]
    fn a_window_is_told_by_its_power_of_two() {
        assert_eq!((initial(8.0), initial(1.0), initial(0.2)), (3.0, 0.0, 0.0));
    }
}
