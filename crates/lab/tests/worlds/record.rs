//! Runs written down: what is in the files is what happened.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anabranch_control::flow::registry::find;
use anabranch_control::time::{Duration, Time};
use anabranch_control::units::{Bytes, Rate};
use anabranch_lab::flows::record::{Formats, RecordError, record, write_pcap, write_qlog};
use anabranch_lab::flows::{FlowScenario, FlowsMeasured, run};
use anabranch_scenario::flows::dumbbell::Bulk;
use anabranch_scenario::flows::{CrossTraffic, OnPeriod, Pattern, QueueSpec, Size, Workload};
use anabranch_sim::network::{CodelConfig, CodelLaw, Limit};
use etherparse::{IpEcn, NetHeaders, TcpOptionElement, TransportHeader};
use pcap_file::pcap::PcapReader;
use serde_json::Value;

/// Two Reno flows over 5 Mbit/s that loses 1 % of the data, with cross traffic.
fn scenario() -> FlowScenario {
    let mut scenario = Bulk {
        flows: 2,
        controller: find("reno").unwrap(),
        parameters: toml::Table::new(),
        rate: Rate::from_bits_per_sec(5_000_000),
        loss: 0.01,
        length: Duration::SECOND * 10,
        seed: 1,
    }
    .scenario();
    scenario.goodput_from = Time::ZERO;
    scenario.packets.header = Bytes::new(66);
    scenario.packets.ack = Bytes::new(66);
    scenario.cross_traffic.push(CrossTraffic {
        name: "cross".to_owned(),
        path: vec![0],
        rate: Rate::from_bits_per_sec(500_000),
        packet: Bytes::new(500),
        pattern: Pattern::Constant,
        start: Time::from_secs_f64(2.0),
        stop: None,
    });
    scenario
}

fn records(path: &Path) -> Vec<Value> {
    let bytes = fs::read(path).unwrap();
    assert_eq!(bytes[0], 0x1e);
    bytes[1..]
        .split(|byte| *byte == 0x1e)
        .map(|record| {
            assert_eq!(record.last(), Some(&b'\n'));
            serde_json::from_slice(record).unwrap()
        })
        .collect()
}

fn count(records: &[Value], name: &str) -> u64 {
    records.iter().filter(|record| record["name"] == name).count() as u64
}

#[test]
fn recording_changes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let scenario = scenario();
    let plain = run(&scenario, &()).unwrap();
    let both = Formats { qlog: true, pcap: true };
    let (recorded, files) = record(directory.path(), &scenario, both, &()).unwrap();
    assert_eq!(files.len(), 2 * 2 + 2);
    assert_eq!(plain.links, recorded.links);
    assert_eq!(plain.events, recorded.events);
    drop(files);
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0, "files that nobody commits must not stay");
}

#[test]
fn qlog_records_each_packet_once_at_each_end() {
    let directory = tempfile::tempdir().unwrap();
    let scenario = scenario();
    let measured = write_qlog(directory.path(), &scenario).unwrap();
    for (i, flow) in measured.flows.iter().enumerate() {
        let client = records(&directory.path().join(format!("{i}-flow{i}-client.sqlog")));
        let server = records(&directory.path().join(format!("{i}-flow{i}-server.sqlog")));
        for (records, end) in [(&client, "client"), (&server, "server")] {
            let head = &records[0];
            assert_eq!(head["file_schema"], "urn:ietf:params:qlog:file:sequential");
            assert_eq!(head["serialization_format"], "application/qlog+json-seq");
            assert_eq!(head["trace"]["vantage_point"]["type"], end);
            assert!(
                head["trace"]["event_schemas"][0].as_str().unwrap().starts_with("urn:ietf:params:qlog:events:quic-")
            );
            let mut before = 0.0;
            for event in &records[1..] {
                let time = event["time"].as_f64().unwrap();
                assert!(time >= before && event["name"].is_string() && event["data"].is_object(), "{event}");
                before = time;
            }
        }
        assert_eq!(count(&client, "quic:packet_sent"), flow.packets_sent);
        assert_eq!(count(&client, "quic:packet_lost"), flow.packets_lost);
        assert_eq!(count(&server, "quic:packet_received"), flow.one_way.count());
        assert!(count(&client, "quic:packet_received") <= count(&server, "quic:packet_sent"));
        assert!(count(&client, "quic:recovery_metrics_updated") > 100);
        for end in [&client, &server] {
            assert_eq!(count(end, "quic:connection_started"), 1);
            assert_eq!(count(end, "quic:connection_closed"), 1);
        }
        packets_arrive_after_they_left(&client, &server, flow.packets_sent);
    }
}

/// Whoever received a number, the other end had sent it before, with the same frames.
fn packets_arrive_after_they_left(client: &[Value], server: &[Value], sent: u64) {
    for (from, to) in [(client, server), (server, client)] {
        let by_number = |event: &Value| event["data"]["header"]["packet_number"].as_u64().unwrap();
        let left: BTreeMap<u64, &Value> = from
            .iter()
            .filter(|event| event["name"] == "quic:packet_sent")
            .map(|event| (by_number(event), event))
            .collect();
        for event in to.iter().filter(|event| event["name"] == "quic:packet_received") {
            let before = left[&by_number(event)];
            assert!(before["time"].as_f64() < event["time"].as_f64());
            assert_eq!(before["data"], event["data"]);
        }
    }
    let lost = client.iter().filter(|event| event["name"] == "quic:packet_lost");
    for event in lost {
        assert!(event["data"]["header"]["packet_number"].as_u64().unwrap() < sent);
        let trigger = event["data"]["trigger"].as_str().unwrap();
        assert!(["reordering_threshold", "time_threshold"].contains(&trigger));
    }
}

#[test]
fn connections_of_one_flow_are_distinguished() {
    let directory = tempfile::tempdir().unwrap();
    let mut scenario = scenario();
    scenario.flows[0].name = "on/off \u{e9}".to_owned();
    scenario.flows[0].workload = Workload::OnOff {
        on: OnPeriod::Bytes { mean: Bytes::new(50_000) },
        off_mean: Duration::from_millis(500),
        new_connections: true,
    };
    write_qlog(directory.path(), &scenario).unwrap();
    let client = records(&directory.path().join("0-on_off__-client.sqlog"));
    let begun = count(&client, "quic:connection_started");
    assert!(begun > 3);
    assert!(client[0]["trace"]["common_fields"].get("group_id").is_none());
    let mut groups: Vec<&str> = client[1..].iter().map(|event| event["group_id"].as_str().unwrap()).collect();
    groups.dedup();
    assert_eq!(groups.len() as u64, begun);
    assert_eq!(groups[1], "on/off \u{e9}/1/0");
}

#[test]
fn transfers_that_are_repeated_are_connections_of_their_own() {
    let directory = tempfile::tempdir().unwrap();
    let mut scenario = scenario();
    let size = Size::Fixed(Bytes::new(50_000));
    scenario.flows[0].workload = Workload::Repeated { size, every: Duration::SECOND * 2 };
    write_qlog(directory.path(), &scenario).unwrap();
    let client = records(&directory.path().join("0-flow0-client.sqlog"));
    let groups: BTreeSet<&str> = client[1..].iter().map(|event| event["group_id"].as_str().unwrap()).collect();
    assert_eq!(groups.into_iter().collect::<Vec<_>>(), (0..5).map(|i| format!("flow0/{i}/0")).collect::<Vec<_>>());
}

/// A captured packet.
struct Captured {
    at: std::time::Duration,
    length: u32,
    headers: Vec<u8>,
}

fn capture(path: &Path) -> Vec<Captured> {
    let mut reader = PcapReader::new(fs::File::open(path).unwrap()).unwrap();
    let mut all = Vec::new();
    while let Some(packet) = reader.next_packet() {
        let packet = packet.unwrap();
        all.push(Captured { at: packet.timestamp, length: packet.orig_len, headers: packet.data.into_owned() });
    }
    all
}

/// Calls `look` with each packet's IPv4 and transport header.
fn each(captured: &[Captured], mut look: impl FnMut(&Captured, &etherparse::Ipv4Header, &TransportHeader)) {
    for packet in captured {
        let parsed = etherparse::LaxPacketHeaders::from_ethernet(&packet.headers).unwrap();
        let Some(NetHeaders::Ipv4(ip, _)) = parsed.net else { panic!("no IPv4") };
        assert_eq!(ip.header_checksum, ip.calc_header_checksum());
        assert!(u32::from(ip.total_len) + 14 <= packet.length);
        look(packet, &ip, &parsed.transport.unwrap());
    }
}

fn captured(scenario: &FlowScenario) -> (FlowsMeasured, Vec<Captured>, Vec<Captured>) {
    let directory = tempfile::tempdir().unwrap();
    let measured = write_pcap(directory.path(), scenario).unwrap();
    (measured, capture(&directory.path().join("client.pcap")), capture(&directory.path().join("server.pcap")))
}

#[test]
fn captures_hold_each_packet_with_its_length_on_the_wire() {
    let scenario = scenario();
    let (measured, client, server) = captured(&scenario);
    let mut sent = 0;
    let mut cross = 0;
    let mut bytes = 0;
    let mut next = BTreeMap::new();
    let mut again = 0;
    let mut before = std::time::Duration::ZERO;
    each(&client, |packet, ip, transport| {
        assert!(packet.at >= before);
        before = packet.at;
        match transport {
            TransportHeader::Tcp(tcp) if tcp.destination_port == 5001 => {
                assert_eq!(packet.length, 1448 + 66);
                assert_eq!(u32::from(ip.total_len), packet.length - 14);
                sent += 1;
                bytes += u64::from(packet.length);
                let next = next.entry(ip.source).or_insert(1);
                if tcp.sequence_number < *next {
                    again += 1;
                } else {
                    assert_eq!(tcp.sequence_number, *next, "new data must follow on what was sent");
                    *next += 1448;
                }
            }
            TransportHeader::Udp(udp) => {
                assert_eq!((packet.length, udp.length), (500, 500 - 34));
                cross += 1;
            }
            _ => {}
        }
    });
    assert_eq!(sent, measured.flows.iter().map(|flow| flow.packets_sent).sum::<u64>());
    assert_eq!(cross, measured.cross_traffic[0].sent);
    let lost: u64 = measured.flows.iter().map(|flow| flow.packets_lost).sum();
    assert!(again > 0 && again <= lost + 10, "{again} repaired, {lost} lost");
    let mut arrived = 0;
    each(&server, |_, _, transport| {
        let to_server = matches!(transport, TransportHeader::Tcp(tcp) if tcp.destination_port == 5001);
        arrived += u64::from(to_server);
    });
    assert_eq!(arrived, measured.flows.iter().map(|flow| flow.one_way.count()).sum::<u64>());
    // No packet is on the wire that the link did not carry, and none is missing.
    let link = measured.links[0].count;
    assert!(bytes + cross * 500 >= link.bytes && link.bytes > 0);
}

/// A field of each frame as tshark reads it; none if it is not installed.
fn tshark(capture: &Path, fields: &[&str]) -> Option<Vec<Vec<String>>> {
    let mut command = std::process::Command::new("tshark");
    command.args(["-n", "-o", "ip.check_checksum:TRUE", "-T", "fields", "-r"]).arg(capture);
    for field in fields {
        command.args(["-e", field]);
    }
    let output = match command.output() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return None,
        other => other.unwrap(),
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    Some(text.lines().map(|line| line.split('\t').map(str::to_owned).collect()).collect())
}

/// Our tests of captures read with the crates that wrote them. Wireshark's dissector knows
/// nothing of either, and finds the same packets and the same losses.
#[test]
fn an_independent_reader_finds_what_the_run_counted() {
    const FIELDS: [&str; 7] = [
        "ip.src",
        "frame.len",
        "ip.checksum.status",
        "_ws.malformed",
        "tcp.len",
        // A repaired segment is one or the other, by how soon it comes.
        "tcp.analysis.retransmission",
        "tcp.analysis.out_of_order",
    ];
    const GOOD: &str = "1";
    let directory = tempfile::tempdir().unwrap();
    let measured = write_pcap(directory.path(), &scenario()).unwrap();
    let Some(client) = tshark(&directory.path().join("client.pcap"), &FIELDS) else {
        println!("skipped: tshark is not installed");
        return;
    };
    let server = tshark(&directory.path().join("server.pcap"), &FIELDS).expect("it was there a moment ago");
    for frame in client.iter().chain(&server) {
        assert_eq!((frame[2].as_str(), frame[3].as_str()), (GOOD, ""), "{frame:?}");
    }
    let from = |frames: &[Vec<String>], source: &str| frames.iter().filter(|frame| frame[0] == source).count() as u64;
    for (flow, source) in measured.flows.iter().zip(["10.0.0.1", "10.0.0.2"]) {
        assert_eq!(from(&client, source), flow.packets_sent);
        assert_eq!(from(&server, source), flow.one_way.count());
        let of_flow = || client.iter().filter(|frame| frame[0] == source);
        assert!(of_flow().all(|frame| (frame[1].as_str(), frame[4].as_str()) == ("1514", "1448")));
        // Each packet that its sender declared lost is sent again, but for those at the end.
        let again = of_flow().filter(|frame| !(frame[5].is_empty() && frame[6].is_empty())).count() as u64;
        assert!(
            again > 0 && (flow.packets_lost - 2..=flow.packets_lost).contains(&again),
            "{again} of {}",
            flow.packets_lost
        );
    }
    assert_eq!(from(&client, "10.64.0.1"), measured.cross_traffic[0].sent);
    assert_eq!(from(&server, "10.64.0.1"), measured.cross_traffic[0].arrived);
}

#[test]
fn acks_report_what_the_receiver_has_and_never_less_than_before() {
    let (measured, client, server) = captured(&scenario());
    let mut last: BTreeMap<[u8; 4], u32> = BTreeMap::new();
    let mut with_blocks = 0;
    each(&server, |packet, ip, transport| {
        let TransportHeader::Tcp(tcp) = transport else { return };
        if tcp.source_port != 5001 {
            return;
        }
        let last = last.entry(ip.source).or_insert(1);
        assert!(tcp.acknowledgment_number >= *last);
        *last = tcp.acknowledgment_number;
        let mut blocks = Vec::new();
        for option in tcp.options_iterator() {
            if let TcpOptionElement::SelectiveAcknowledgement(first, rest) = option.unwrap() {
                blocks.push(first);
                blocks.extend(rest.into_iter().flatten());
            }
        }
        assert!(blocks.iter().all(|(start, end)| *start > tcp.acknowledgment_number && start < end));
        assert!(blocks.windows(2).all(|pair| pair[1].1 < pair[0].0));
        with_blocks += usize::from(!blocks.is_empty());
        // Each block takes 8 bytes behind the 4 of its option; nothing else is longer.
        let blocks = blocks.len() as u32;
        assert_eq!(packet.length, 66 + if blocks > 0 { 4 + 8 * blocks } else { 0 });
    });
    assert!(with_blocks > 100, "{with_blocks}");
    let acked: u64 = last.values().map(|last| u64::from(last - 1)).sum();
    let delivered: u64 = measured.flows.iter().map(|flow| flow.delivered_bytes).sum();
    assert!(acked <= delivered && acked > delivered * 9 / 10, "{acked} of {delivered}");
    // What left as an ACK arrives with the same bytes.
    let acks = |captured: &[Captured]| -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        each(captured, |packet, _, transport| {
            if matches!(transport, TransportHeader::Tcp(tcp) if tcp.source_port == 5001) {
                all.push(packet.headers.clone());
            }
        });
        all
    };
    let (left, arrived) = (acks(&server), acks(&client));
    assert!(!arrived.is_empty() && arrived.len() <= left.len());
    let left: BTreeSet<Vec<u8>> = left.into_iter().collect();
    assert!(arrived.iter().all(|ack| left.contains(ack)));
}

#[test]
fn marks_are_in_the_frames_that_bear_them() {
    let mut scenario = scenario();
    scenario.packets.ecn = true;
    scenario.links[0].queue = QueueSpec::Codel(CodelConfig { law: CodelLaw::default(), limit: Limit::Packets(1000) });
    scenario.links[0].loss = anabranch_sim::loss::LossModel::None;
    let (measured, client, server) = captured(&scenario);
    let marked = |captured: &[Captured]| {
        let mut count = 0;
        each(captured, |_, ip, _| count += u64::from(ip.ecn == IpEcn::CongestionExperienced));
        count
    };
    assert_eq!(marked(&client), 0);
    let (seen, counted) = (marked(&server), measured.links[0].count.marked);
    // Those marked last may still be on their way.
    assert!(seen > 10 && seen <= counted && counted < seen + 5, "{seen} {counted}");
}

#[test]
fn headers_without_room_for_ethernet_are_captured_as_ip() {
    let mut scenario = scenario();
    (scenario.packets.header, scenario.packets.ack) = (Bytes::new(40), Bytes::new(40));
    let (_, client, _) = captured(&scenario);
    let mut segments = 0;
    for packet in &client {
        let parsed = etherparse::LaxPacketHeaders::from_ip(&packet.headers).unwrap();
        let Some(TransportHeader::Tcp(tcp)) = parsed.transport else { continue };
        if tcp.destination_port == 5001 {
            assert_eq!((packet.length, tcp.options.len()), (1448 + 40, 0));
            segments += 1;
        }
    }
    assert!(segments > 1000);
}

#[test]
fn packets_that_ip_cannot_hold_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let mut scenario = scenario();
    scenario.packets.data = Bytes::new(100_000);
    let error = write_pcap(directory.path(), &scenario).unwrap_err();
    assert!(matches!(error, RecordError::TooLarge { bytes: 100_080 }), "{error}");
    assert!(error.to_string().contains("65535"));
}

#[test]
fn equal_seeds_give_equal_bytes() {
    let scenario = scenario();
    let files = [0, 1].map(|_| {
        let directory = tempfile::tempdir().unwrap();
        let both = Formats { qlog: true, pcap: true };
        let (_, files) = record(directory.path(), &scenario, both, &()).unwrap();
        files.into_iter().for_each(|file| file.commit().unwrap());
        let entries = fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().path());
        let named = |path: std::path::PathBuf| (path.file_name().unwrap().to_owned(), fs::read(&path).unwrap());
        entries.map(named).collect::<BTreeMap<_, _>>()
    });
    assert_eq!(files[0].len(), 6);
    assert!(files[0] == files[1]);
}

#[cfg(target_os = "linux")]
#[test]
fn a_directory_that_is_missing_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let error = write_qlog(&directory.path().join("absent"), &scenario()).unwrap_err();
    assert!(error.to_string().contains("absent"), "{error}");
}
