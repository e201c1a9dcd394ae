//! Who is steered: hosts, each with its flows.

use crate::flows::FlowScenario;

/// The flows of each host that sends over `link`, in the order of the flows. Flows whose way begins with the same
/// link are one host's; what does not pass `link` is nobody's, and neither is what is not steered where others are.
pub fn hosts(scenario: &FlowScenario, link: usize) -> Vec<Vec<usize>> {
    let mut hosts: Vec<(usize, Vec<usize>)> = Vec::new();
    let steers_some = scenario.flows.iter().any(|flow| flow.steered);
    for (flow, spec) in scenario.flows.iter().enumerate().filter(|(_, flow)| flow.steered || !steers_some) {
        let Some(receiver) = spec.receivers.iter().find(|receiver| receiver.there.contains(&link)) else { continue };
        let first = receiver.there[0];
        match hosts.iter_mut().find(|(known, _)| *known == first && first != link) {
            Some((_, flows)) => flows.push(flow),
            None => hosts.push((first, vec![flow])),
        }
    }
    hosts.into_iter().map(|(_, flows)| flows).collect()
}

#[cfg(test)]
mod tests {
    use crate::file::parse_flows;

    use super::*;

    #[test]
    fn flows_whose_way_begins_alike_are_one_hosts_and_who_does_not_pass_the_link_is_nobodys() {
        let text = r#"
            [run]
            seconds = 1
            [dumbbell]
            pairs = 2
            rate = "5 Mbit/s"
            delay_ms = 10
            access_rate = "100 Mbit/s"
            access_delay_ms = 1
            [[flow]]
            name = "a"
            controller = "cubic"
            from = "s0"
            to = "r0"
            [[flow]]
            name = "b"
            controller = "cubic"
            from = "s1"
            to = "r1"
            [[flow]]
            name = "c"
            controller = "cubic"
            from = "s0"
            to = "r1"
        "#;
        let scenario = parse_flows(text, "hosts.toml", &[]).unwrap();
        assert_eq!(hosts(&scenario, 0), [vec![0, 2], vec![1]]);
        // An access link that only one of them passes.
        let access = scenario.flows[1].receivers[0].there[0];
        assert_eq!(hosts(&scenario, access), [vec![1]]);
        // Who says whom to steer means nobody else.
        let mut scenario = scenario;
        scenario.flows[2].steered = true;
        assert_eq!(hosts(&scenario, 0), [vec![2]]);
    }
}
