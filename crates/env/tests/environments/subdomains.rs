//! Budgets of sub-domains: a rule below divides them among hosts, and what is idle is lent.

use std::sync::Arc;

use anabranch_env::oracle::rule;
use anabranch_env::{Actuator, Agents, Session, Spec, catalogue};

fn spec() -> Spec {
    catalogue::find("C3-Subdomains").unwrap().spec()
}

/// Goes through an episode; after each step what was directed, and what is seen.
fn play(spec: Spec, seed: u64, mut decide: impl FnMut(&Session, &mut [f32]), mut look: impl FnMut(&Session)) {
    let mut session = Session::new(Arc::new(spec), seed).unwrap();
    let mut rates = vec![0.0; session.hosts()];
    while !session.ended().is_over() {
        decide(&session, &mut rates);
        session.step(&rates).unwrap();
        look(&session);
    }
}

#[test]
fn a_sub_domain_has_a_row_and_a_number_and_its_hosts_are_seen() {
    let session = Session::new(Arc::new(spec()), 1).unwrap();
    assert_eq!((session.hosts(), session.seen().len(), session.of_agents().len()), (4, 16, 4));
    assert_eq!(session.observation_len(), 4 * 7);
    let flat = Session::new(Arc::new(Spec { agents: Agents::Hosts, ..spec() }), 1).unwrap();
    assert_eq!((flat.hosts(), flat.seen().len()), (16, 16));
}

/// What the hosts of a sub-domain carry together is no more than it holds, and alike.
#[test]
fn a_budget_is_divided_evenly_among_those_who_send() {
    let (mut judged, mut before) = (0, [(0, false); 4]);
    let kept = Spec { actuator: Actuator::Rate, ..spec() };
    let look = |session: &Session| {
        for (hosts, (senders, is_steady)) in session.seen().chunks(4).zip(&mut before) {
            let sending: Vec<f64> = hosts.iter().filter(|host| host.active > 0).map(|host| host.throughput).collect();
            // Nobody began or ended in this step, nor in the one before: no slow start in it.
            let was_steady = std::mem::replace(is_steady, *senders == sending.len());
            *senders = sending.len();
            if !(was_steady && *is_steady) || sending.is_empty() {
                continue;
            }
            let all: f64 = sending.iter().sum();
            let mean = all / sending.len() as f64;
            judged += 1;
            assert!((0.17..0.23).contains(&all), "{all} of a budget of 0.2 at {}", session.now());
            assert!(sending.iter().all(|one| (one / mean - 1.0).abs() < 0.2), "{sending:?} at {}", session.now());
        }
    };
    play(kept, 3, |_, rates| rates.fill(0.2), look);
    assert!(judged > 40, "{judged} seconds were judged");
}

/// Two policies that say the same: who lends fills the link where others leave the room of the idle.
#[test]
fn what_the_idle_hold_is_lent() {
    let carried = |actuator| {
        let (mut sum, mut seconds, mut held) = (0.0, 0.0, 0.0);
        play(
            Spec { actuator, ..spec() },
            5,
            |_, rates| rates.fill(0.23),
            |session| {
                let idle = session.of_agents().iter().filter(|domain| domain.active == 0).count();
                if idle == 2 {
                    sum += f64::from(session.terms().throughput);
                    seconds += 1.0;
                    held += session.of_agents().iter().map(|domain| domain.rate).sum::<f64>();
                }
            },
        );
        assert!(seconds > 5.0, "two of four are idle for {seconds} s");
        assert!((held / seconds - 0.92).abs() < 1e-6, "it is told what it is told");
        sum / seconds
    };
    let (kept, lent) = (carried(Actuator::Rate), carried(Actuator::Lent));
    assert!(kept < 0.6 && lent > 0.8, "{kept} kept, {lent} lent");
}

/// All of the link is told to be divided evenly: who begins or ends is known in a tenth of a second, and not in one.
#[test]
fn shares_follow_who_sends() {
    let (mut directed, mut alike) = (0.0, 0);
    let mut before = Vec::new();
    play(spec(), 7, rule, |session| {
        let active: Vec<usize> = (0..4).map(|domain| session.active_hosts(domain)).collect();
        let all = active.iter().sum::<usize>();
        let of_active = session.seen().iter().filter(|host| host.active > 0).map(|host| host.rate);
        directed += of_active.clone().sum::<f64>();
        // What was directed at the second's beginning, by those who sent then, is divided by those who send at its end.
        let level =
            session.of_agents().iter().zip(&before).find(|&(_, &active)| active > 0).map(|(domain, _)| domain.rate);
        if let Some(level) = level.filter(|_| all > 0) {
            assert!((level - 1.0).abs() < 1e-6, "{level}");
            let share = level / all as f64;
            alike += of_active.filter(|rate| (rate / share - 1.0).abs() < 1e-5).count();
        }
        before = active;
    });
    assert!(alike > 150, "{alike} shares are even, {directed} were directed");
}

/// Budgets are for sub-domains as they were when it was heard of them.
#[test]
fn a_rule_over_sub_domains_divides_budgets_by_their_hosts() {
    let (mut before, mut budgets) = (vec![0; 4], 0);
    play(Spec { actuator: Actuator::Lent, ..spec() }, 7, rule, |session| {
        let all = before.iter().sum::<usize>();
        for (domain, &active) in before.iter().enumerate().filter(|_| all > 0) {
            let wanted = active as f64 / all as f64;
            budgets += 1;
            assert!((session.of_agents()[domain].rate - wanted).abs() < 1e-6, "at {}", session.now());
        }
        before = (0..4).map(|domain| session.active_hosts(domain)).collect();
    });
    assert!(budgets > 150, "{budgets}");
}
