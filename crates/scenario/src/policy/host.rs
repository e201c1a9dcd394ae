//! Who is steered in a scenario: hosts, each with its flows, and sub-domains of hosts; and what can be seen of them.

use anabranch_proto::coordination::policy::sight::{SHORTEST_INTERVAL_S, in_range};
use anabranch_proto::coordination::policy::{Agents, Sight, SightError};

use crate::flows::FlowScenario;

/// The hosts of each of these agents, by their numbers in [`hosts`].
pub fn agents_of(agents: Agents, scenario: &FlowScenario, link: usize) -> Vec<Vec<usize>> {
    let hosts = hosts(scenario, link);
    if agents == Agents::Hosts {
        return (0..hosts.len()).map(|host| vec![host]).collect();
    }
    let mut domains: Vec<(usize, Vec<usize>)> = Vec::new();
    for (host, flows) in hosts.iter().enumerate() {
        let receivers = &scenario.flows[flows[0]].receivers;
        let way = receivers.iter().map(|receiver| &receiver.there).find(|way| way.contains(&link));
        let way = way.expect("a host's flows pass the link");
        let place = way.iter().position(|&passed| passed == link).expect("it is passed");
        let uplink = way[place.saturating_sub(1)];
        match domains.iter_mut().find(|(known, _)| *known == uplink && place > 0) {
            Some((_, hosts)) => hosts.push(host),
            None => domains.push((uplink, vec![host])),
        }
    }
    domains.into_iter().map(|(_, hosts)| hosts).collect()
}

/// Whether `sight` can be seen so in `scenario`.
///
/// # Errors
///
/// What can't be.
pub fn check_in(sight: &Sight, scenario: &FlowScenario) -> Result<(), SightError> {
    sight.check()?;
    let (seconds, length) = (sight.interval.as_secs_f64(), scenario.length.as_secs_f64());
    in_range("interval in seconds", seconds, SHORTEST_INTERVAL_S, length)?;
    let links = scenario.links.len();
    let Some(link) = scenario.links.get(sight.link) else {
        return Err(SightError::NoLink { link: sight.link, links });
    };
    if link.rate.is_none() {
        return Err(SightError::NoRate(link.name.clone()));
    }
    if hosts(scenario, sight.link).is_empty() {
        return Err(SightError::NoHost(link.name.clone()));
    }
    Ok(())
}

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

    #[test]
    fn a_sub_domain_is_who_comes_over_the_same_link() {
        let link = |name: &str, from: &str, to: &str| {
            format!(
                "[[link]]\nname = \"{name}\"\nfrom = \"{from}\"\nto = \"{to}\"\nrate = \"5 Mbit/s\"\ndelay_ms = 1\n"
            )
        };
        let flow = |from: &str| format!("[[flow]]\ncontroller = \"cubic\"\nfrom = \"{from}\"\nto = \"r\"\n");
        let ways = [("a0", "a"), ("a1", "a"), ("b0", "b"), ("a", "m"), ("b", "m"), ("c", "m"), ("m", "r")];
        let mut text = "[run]\nseconds = 1\n".to_owned();
        for (from, to) in ways {
            text += &link(&format!("{from}-{to}"), from, to);
            text += &link(&format!("{to}-{from}"), to, from);
        }
        ["a0", "b0", "c", "a1", "a0"].map(flow).iter().for_each(|flow| text += flow);
        let scenario = parse_flows(&text, "domains.toml", &[]).unwrap();
        let bottleneck = scenario.links.iter().position(|link| link.name == "m-r").unwrap();
        assert_eq!(hosts(&scenario, bottleneck), [vec![0, 4], vec![1], vec![2], vec![3]]);
        assert_eq!(agents_of(Agents::Domains, &scenario, bottleneck), [vec![0, 3], vec![1], vec![2]]);
        assert_eq!(agents_of(Agents::Hosts, &scenario, bottleneck), [[0], [1], [2], [3]]);
        // Hosts for which the link is the first are one each.
        let access = scenario.flows[0].receivers[0].there[0];
        assert_eq!(agents_of(Agents::Domains, &scenario, access), [[0], [1]]);
    }
}
