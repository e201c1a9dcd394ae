//! What links are said to have carried does not depend on how they are computed: one that is looked at while a run goes on
//! counts a packet when it comes, another long before.

use anabranch_control::flow::registry::find;
use anabranch_control::time::{Duration, Time};
use anabranch_control::units::Rate;
use anabranch_lab::flows::{FlowScenario, FlowsMeasured, run};
use anabranch_scenario::flows::dumbbell::Bulk;
use anabranch_sim::varying::{Change, Course};

fn scenario(loss: f64, rate: Course<Rate>) -> FlowScenario {
    let mut scenario = Bulk {
        flows: 2,
        controller: find("cubic").unwrap(),
        parameters: toml::Table::new(),
        rate: rate.first,
        loss,
        length: Duration::from_millis(7_770),
        seed: 1,
    }
    .scenario();
    scenario.goodput_from = Time::ZERO + Duration::from_millis(2_345);
    scenario.links[0].rate = Some(rate);
    scenario
}

const MBIT: fn(u64) -> Rate = |megabits| Rate::from_bits_per_sec(megabits * 1_000_000);

fn scenarios() -> Vec<FlowScenario> {
    let change = Change::Uniform { every: Duration::from_millis(300), low: MBIT(1), high: MBIT(20) };
    let changing = Course { first: MBIT(10), change };
    vec![
        scenario(0.0, Course::constant(MBIT(10))),
        scenario(0.01, Course::constant(MBIT(10))),
        scenario(0.0, changing.clone()),
        scenario(0.01, changing),
    ]
}

fn measure(scenario: &FlowScenario, sample_every: Option<Duration>) -> FlowsMeasured {
    run(&FlowScenario { sample_every, ..scenario.clone() }, &()).unwrap()
}

#[test]
fn a_links_counts_do_not_depend_on_whether_it_is_looked_at() {
    for scenario in scenarios() {
        let [unseen, seen] = [None, Some(Duration::from_millis(100))].map(|every| measure(&scenario, every));
        for ((unseen, seen), link) in unseen.links.iter().zip(&seen.links).zip(&scenario.links) {
            assert_eq!(unseen.count, seen.count, "{}", link.name);
            // Parts of a packet are whole bytes.
            assert!(unseen.counted_bytes.abs_diff(seen.counted_bytes) <= 2, "{}: {unseen:?}, {seen:?}", link.name);
        }
    }
}

#[test]
fn no_link_carries_more_than_it_can_and_behind_a_bottleneck_none_more_than_that() {
    for scenario in scenarios() {
        let measured = measure(&scenario, None);
        let span = (Time::ZERO + scenario.length).since(scenario.goodput_from).as_secs_f64();
        let most = |link: usize| match &scenario.links[link].rate.as_ref().unwrap().change {
            Change::Uniform { high, .. } => *high,
            _ => scenario.links[link].rate.as_ref().unwrap().first,
        };
        let mut behind = 0;
        for (number, link) in measured.links.iter().enumerate() {
            let possible = most(number).bytes_per_sec() * span;
            assert!(link.counted_bytes as f64 <= possible + 1.0, "{}", scenario.links[number].name);
            if scenario.links[number].name.starts_with("right-r") {
                behind += link.counted_bytes;
            }
        }
        // What is under way when counting begins is some packets.
        assert!(behind > 0 && behind <= measured.links[0].counted_bytes + 20 * 1_502, "{behind}");
    }
}
