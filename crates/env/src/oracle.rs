//! What a policy is compared with: the rule of a coordinator that does not learn, one that takes cross traffic to come and go
//! as the last time, and an oracle that knows what it will do, and who will begin.
//!
//! Where rates are directed, they divide the link: evenly among hosts, so that a sub-domain has as many parts as hosts
//! that send. Where initial windows are, they divide what the link carries in a round
//! trip among those that send: `window = rate RTT_min / flows`, the parametrisation of [C3].

use anabranch_scenario::policy::Actuator;

use crate::session::Session;

/// The window that a connection begins with when nobody knows better, in packets (RFC 6928).
const USUAL_INITIAL: f64 = 10.0;

/// The rates of a coordinator that divides what cross traffic left in the step before among the hosts that are
/// active: what it sees is what there was. It directs initial windows by the round trips that it has seen, for one flow
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
    actions(session, left, |agent| session.active_hosts(agent), rates);
}

/// The rates of one that divides what cross traffic will leave in the step that begins `late` steps from now, if it comes
/// and goes as the last time. It directs initial windows as the [`rule`] does.
pub fn period(session: &Session, late: usize, rates: &mut [f32]) {
    if session.spec().actuator == Actuator::Initial {
        return rule(session, rates);
    }
    let left = 1.0 - session.cross_expected(late);
    actions(session, left, |agent| session.active_hosts(agent), rates);
}

/// The rates of one that knows what cross traffic takes in the step to come, and who begins in it. No coordinator
/// does; it is what is left to be learned. It knows round trips before they were measured.
pub fn oracle(session: &mut Session, rates: &mut [f32]) {
    let (now, next) = (session.now(), session.now() + session.spec().interval);
    if session.spec().actuator == Actuator::Initial {
        let active: usize = session.seen().iter().map(|host| host.active).sum();
        let begin = |host| session.beginning_flows(host, now, next);
        let flows = (active + (0..session.seen().len()).map(begin).sum::<usize>()).max(1);
        for (host, rate) in rates.iter_mut().enumerate() {
            *rate = initial(session.true_pipe(host) / flows as f64);
        }
        return;
    }
    let left = 1.0 - session.cross_next();
    let session = &*session;
    actions(session, left, |agent| session.active_hosts(agent) + session.beginning(agent, now, next), rates);
}

/// What makes `left` of the link come to those who are active, in equal parts.
fn actions(session: &Session, left: f64, active: impl Fn(usize) -> usize, rates: &mut [f32]) {
    divide(left, active, rates);
    if session.spec().actuator == Actuator::Share {
        // Those who are active now divide it by themselves.
        let all = session.seen().iter().filter(|host| host.active > 0).count().max(1);
        for (agent, rate) in rates.iter_mut().enumerate() {
            *rate *= all as f32 / session.active_hosts(agent).max(1) as f32;
        }
    }
}

/// A window of this many packets, as an action.
fn initial(packets: f64) -> f32 {
    libm::log2(packets.max(1.0)) as f32
}

fn divide(left: f64, active: impl Fn(usize) -> usize, rates: &mut [f32]) {
    let all = (0..rates.len()).map(&active).sum::<usize>().max(1) as f64;
    for (agent, rate) in rates.iter_mut().enumerate() {
        let of_agent = active(agent);
        // Rounded as ever where an agent is a host.
        *rate = if of_agent > 0 { (left.max(0.0) / all) as f32 * of_agent as f32 } else { 0.0 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_divided_among_those_who_are_active() {
        let mut rates = [9.0; 4];
        divide(0.6, |host| usize::from(host < 2), &mut rates);
        assert_eq!(rates, [0.3, 0.3, 0.0, 0.0]);
        divide(-0.1, |_| 1, &mut rates);
        assert_eq!(rates, [0.0; 4], "more than the link carries comes across");
        divide(0.6, |_| 0, &mut rates);
        assert_eq!(rates, [0.0; 4]);
        divide(0.75, |domain| domain, &mut rates);
        assert_eq!(rates, [0.0, 0.125, 0.25, 0.375], "a sub-domain has a part for each host");
    }

    #[test]
    fn a_window_is_given_by_its_power_of_two() {
        assert_eq!((initial(8.0), initial(1.0), initial(0.2)), (3.0, 0.0, 0.0));
    }
}
