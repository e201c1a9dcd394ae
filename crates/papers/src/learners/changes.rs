//! Settings in which something changes on the way: limits, who sends, who relays; and senders who
//! take what they want.

use anabranch_control::path::registry::{self as path, Entry};
use anabranch_control::time::{Duration, Time};
use anabranch_control::units::Rate;
use anabranch_lab::overlay::Measured;
use anabranch_scenario::overlay::{LimitChange, Misbehaviour, Scenario, Sender};
use anabranch_stats as stats;

use super::settings::{Setting, possible, setting, windows};
use super::{ROUND_TRIP_S, varied};
use crate::runs::OfRuns;
use crate::{ExperimentError, Lab, Row};

/// Limits that change places, at relays with a queue and at those with windows (the thesis's).
pub const SWAPPED: [Setting; 2] = [setting("limits swapped", &[]), setting("limits swapped, windows", &[windows])];

/// What the other settings are called.
pub const JOINED: &str = "joined one after another";
pub const ONE_RELAY: [(&str, bool); 2] = [("a relay joins", true), ("a relay dies", false)];
pub const GREEDY: &str = "half are greedy";

/// Limits change places at the middle: how much of what is possible is received soon after. With the runs,
/// what is possible in bytes a second.
pub fn swapped(
    lab: &Lab,
    setting: &Setting,
    controllers: &[&'static Entry],
    seeds: u64,
    rows: &mut Vec<Row>,
) -> Result<(Vec<Vec<Measured>>, f64), ExperimentError> {
    let exchange = |entry: &&'static Entry| {
        let mut scenario = varied(lab, entry, setting.changes);
        let (low, high) = (Rate::from_bytes_per_sec(200_000), Rate::from_bytes_per_sec(400_000));
        let change = |second: u64, peers: std::ops::Range<u32>, limit| LimitChange {
            at: Time::ZERO + Duration::SECOND * second,
            peers: peers.collect(),
            limit,
        };
        let middle = scenario.seconds / 2;
        scenario.overlay.limit_changes =
            vec![change(0, 10..20, low), change(middle, 0..10, low), change(middle, 10..20, high)];
        scenario
    };
    let scenarios: Vec<Scenario> = controllers.iter().map(exchange).collect();
    let measured = lab.run_seeds(&scenarios, seeds)?;
    // Destinations are drawn from all alike, so the mean limit says what is possible.
    let mut mean = lab.scenario.overlay.clone();
    mean.limit = Rate::from_bytes_per_sec(300_000);
    let most = possible(&mean);
    let twenty = (20.0 * ROUND_TRIP_S) as usize;
    for runs in &measured {
        let share = OfRuns::of(runs, |run| {
            let after: Vec<f64> = run.received_bytes_per_s().skip(run.seconds.len() / 2 + twenty).take(10).collect();
            Some(stats::mean(&after)? / most)
        });
        let metric = format!("share_after_20_round_trips[{}]", setting.name);
        rows.push(lab.mean_row(runs[0].controller, &metric, "", share.values()));
    }
    Ok((measured, most))
}

/// Peers begin to send one after another: how equal their shares are once all do.
pub fn joined(
    lab: &Lab,
    controllers: &[&'static Entry],
    seeds: u64,
    rows: &mut Vec<Row>,
) -> Result<(), ExperimentError> {
    let joining = |entry: &&'static Entry| {
        let mut scenario = varied(lab, entry, &[]);
        scenario.overlay.join_every =
            Duration::from_millis(1000 * scenario.seconds / 3 / scenario.overlay.peers as u64);
        scenario
    };
    let scenarios: Vec<Scenario> = controllers.iter().map(joining).collect();
    for runs in &lab.run_seeds(&scenarios, seeds)? {
        let fairness = OfRuns::of(runs, Measured::fairness);
        rows.push(lab.mean_row(runs[0].controller, &format!("fairness[{JOINED}]"), "", fairness.values()));
    }
    Ok(())
}

/// One of the relays begins to relay at the middle, or no longer does: how much of what is possible
/// then is received soon after.
pub fn one_relay(
    lab: &Lab,
    controllers: &[&'static Entry],
    seeds: u64,
    rows: &mut Vec<Row>,
) -> Result<(), ExperimentError> {
    for (name, joins) in ONE_RELAY.into_iter().filter(|(name, _)| lab.wants(name)) {
        let changing = |entry: &&'static Entry| {
            let mut scenario = varied(lab, entry, &[]);
            let middle = Time::ZERO + Duration::SECOND * (scenario.seconds / 2);
            let gone = Misbehaviour { drop: 1.0, ..Misbehaviour::default() };
            let gone =
                if joins { Misbehaviour { until: middle, ..gone } } else { Misbehaviour { from: middle, ..gone } };
            scenario.overlay.misbehaving = vec![(vec![0], gone)];
            scenario
        };
        let scenarios: Vec<Scenario> = controllers.iter().map(changing).collect();
        let mut after = lab.scenario.overlay.clone();
        if !joins {
            after.misbehaving = vec![(vec![0], Misbehaviour { drop: 1.0, ..Misbehaviour::default() })];
        }
        let most = possible(&after);
        let twenty = (20.0 * ROUND_TRIP_S) as usize;
        for runs in &lab.run_seeds(&scenarios, seeds)? {
            let share = OfRuns::of(runs, |run| {
                let after = run.received_bytes_per_s().skip(run.seconds.len() / 2 + twenty).take(10);
                Some(stats::mean(&after.collect::<Vec<_>>())? / most)
            });
            let metric = format!("share_after_20_round_trips[{name}]");
            rows.push(lab.mean_row(runs[0].controller, &metric, "", share.values()));
        }
    }
    Ok(())
}

/// Half of the senders offer twice their share whatever becomes of it, at relays with fair shares: what
/// the others have of theirs.
pub fn greedy(
    lab: &Lab,
    controllers: &[&'static Entry],
    seeds: u64,
    rows: &mut Vec<Row>,
) -> Result<(), ExperimentError> {
    let most = possible(&lab.scenario.overlay);
    let half = lab.scenario.overlay.peers / 2;
    let among_greedy = |entry: &&'static Entry| {
        let mut scenario = varied(lab, entry, &[]);
        let controller = path::find("random").expect("a registered controller");
        let offered = Some(Rate::from_bytes_per_sec_f64(2.0 * most));
        scenario.overlay.senders = vec![((0..half as u32).collect(), Sender { controller, offered })];
        scenario.overlay.fair_shares = true;
        scenario
    };
    // All senders have to be of the manager's.
    let controllers: Vec<&'static Entry> =
        controllers.iter().copied().filter(|entry| !matches!(entry.build, path::Build::Omniscient)).collect();
    let scenarios: Vec<Scenario> = controllers.iter().map(among_greedy).collect();
    for runs in &lab.run_seeds(&scenarios, seeds)? {
        let share = OfRuns::of(runs, |run| {
            let seconds = run.seconds.len() - run.seconds.len() / 2;
            let acked: Vec<f64> = run.acked_by_sender[half..].iter().map(|&acked| f64::from(acked)).collect();
            Some(stats::mean(&acked)? * run.packet.get() as f64 / seconds as f64 / most)
        });
        rows.push(lab.mean_row(runs[0].controller, &format!("share_of_fair_share[{GREEDY}]"), "", share.values()));
    }
    Ok(())
}
