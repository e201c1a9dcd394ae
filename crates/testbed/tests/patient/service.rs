//! A coordinator and agents over QUIC steer flows of real packets. Skipped, with a word, where there are no namespaces.

use anabranch_control::time::Duration;
use anabranch_control::units::Rate;
use anabranch_proto::coordination::coordinator::Share;
use anabranch_proto::coordination::forecast::Expected;
use anabranch_scenario::file::parse_flows;
use anabranch_testbed::emulator::testbed_available;
use anabranch_testbed::service::{Coordination, ServiceConfig, run_coordinated};

const MEGABIT: fn(f64) -> Rate = |megabits| Rate::from_bits_per_sec((megabits * 1e6) as u64);

/// Two hosts, of one flow and of two, over 10 Mbit/s beside cross traffic of 4: one under QUIC, the other over UDP.
const SCENARIO: &str = r#"
[run]
seconds = 6
sample_every_s = 0.1
[dumbbell]
pairs = 3
rate = "10 Mbit/s"
delay_ms = 10
queue = { ms = 300 }
access_rate = "1 Gbit/s"
access_delay_ms = 1
[[flow]]
name = "alpha"
controller = "quic:cubic"
from = "s0"
to = "r0"
[[flow]]
name = "beta{i}"
count = 2
controller = "cubic"
from = "s1"
to = "r1"
[[cross_traffic]]
from = "s2"
to = "r2"
rate = "4 Mbit/s"
"#;

#[test]
fn flows_keep_to_budgets_that_a_coordinator_directs_their_hosts() {
    if let Err(reason) = testbed_available() {
        eprintln!("skipped: {reason}");
        return;
    }
    let scenario = parse_flows(SCENARIO, "service.toml", &[]).unwrap();
    let every = Duration::from_millis(100);
    let config = ServiceConfig {
        link: 0,
        every,
        utilisation: 0.9,
        share: Share::PerHost,
        expected: Expected::LastSpan,
        policy: None,
    };
    let (emulated, Coordination { believed, decided, beyond }) = run_coordinated(&scenario, &config, &()).unwrap();
    assert!(!decided.is_empty() && beyond.is_none());
    assert!(decided.iter().all(|one| !one.by_policy && one.rule_because.is_none()), "there is no policy: {decided:?}");
    // Whatever the machine is busy with, no more is given than there is.
    assert!(!believed.is_empty());
    for one in &believed {
        assert_eq!(one.budgets.len(), 2);
        assert!(one.given <= MEGABIT(9.0), "{one:?}");
    }
    let both: Vec<_> = believed.iter().filter(|one| one.budgets.iter().all(Option::is_some)).collect();
    assert!(!both.is_empty(), "the hosts were told nothing: {believed:?}");
    // Equal shares for hosts, whatever their flows are.
    let equal = |one: &&&anabranch_testbed::service::Believed| one.budgets[0] == one.budgets[1];
    assert!(both.iter().filter(equal).count() * 2 > both.len(), "{both:?}");
    assert!(both.iter().any(|one| one.other > MEGABIT(2.0)), "cross traffic was never seen: {both:?}");
    // Cubic has no rate of its own: what paces it is its budget, a half of its host's for each of two.
    let most = |flow: usize| {
        let rates = emulated.measured.series.flows[flow].rate_mbit_s.iter();
        rates.copied().filter(|rate| rate.is_finite()).fold(f64::NAN, f64::max)
    };
    for flow in 0..3 {
        assert!(emulated.measured.flows[flow].delivered_bytes > 0);
        assert!(most(flow) <= 9.0, "{} Mbit/s", most(flow));
    }
}
