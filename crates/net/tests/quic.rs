//! Real QUIC over loopback: every controller carries data, through quinn and through noq.

use std::sync::Arc;

use anabranch_control::flow::Bounds;
use anabranch_control::flow::registry::CONTROLLERS;
use anabranch_control::units::Bytes;
use anabranch_net::quic::bulk::{Bulk, Library};
use anabranch_net::quic::{self, ControllerError};

#[path = "../examples/quinn.rs"]
mod example;

/// 1 MB; where only one packet may be in flight each waits for a delayed ACK, so less.
fn bytes(controller: &str) -> u64 {
    if controller == "min-delay" { 100_000 } else { 1_000_000 }
}

/// Remy alone needs a parameter: a table, here with one rule for all that may happen.
fn parameters(needs: Option<&str>) -> toml::Table {
    let Some(needs) = needs else { return toml::Table::new() };
    assert!(needs.starts_with("rules"), "a controller has come that needs something else");
    let bound = [f64::from(u32::MAX); 3];
    let rule = "{ from = [0.0, 0.0, 0.0], to = BOUND, multiple = 1.0, increment = 1.0, intersend_ms = 0.05 }";
    format!("rules = [{}]", rule.replace("BOUND", &format!("{bound:?}"))).parse().unwrap()
}

fn every_controller_carries(library: Library) {
    for entry in CONTROLLERS {
        let factory = Arc::new(quic::controller_with(entry.name, &parameters(entry.needs())).unwrap().with_seed(1));
        let steering = factory.steering();
        let bulk = Bulk { library, factory: Some(factory), bytes: bytes(entry.name), link: None };
        let measured = bulk.run().unwrap();
        assert_eq!(measured.arrived, bulk.bytes, "{}", entry.name);
        let flow = measured.flow.expect("our controller ran");
        assert!(flow.delivered >= Bytes::new(bulk.bytes), "{}: {flow:?}", entry.name);
        assert!(flow.smoothed_rtt.is_some(), "{}: {flow:?}", entry.name);
        assert!(steering.flows().is_empty(), "{}: the connection is over", entry.name);
    }
}

#[test]
fn every_controller_carries_data_over_quinn() {
    every_controller_carries(Library::Quinn);
}

#[test]
fn every_controller_carries_data_over_noq() {
    every_controller_carries(Library::Noq);
}

#[test]
fn the_example_runs() {
    example::main().unwrap();
}

#[test]
fn a_fixed_window_holds_on_a_real_connection() {
    let factory = Arc::new(quic::controller("cubic").unwrap());
    let fixed = Bounds { fixed: Some(Bytes::new(6000)), ..Bounds::default() };
    factory.steering().set(fixed);
    for library in [Library::Quinn, Library::Noq] {
        let bulk = Bulk { library, factory: Some(factory.clone()), bytes: 300_000, link: None };
        let measured = bulk.run().unwrap();
        assert_eq!(measured.arrived, bulk.bytes);
        assert_eq!(measured.flow.unwrap().window, Bytes::new(6000), "{library}");
    }
}

#[test]
fn a_wrong_name_or_parameter_is_refused_with_what_was_expected() {
    let unknown = quic::controller("cobic").unwrap_err();
    assert!(matches!(unknown, ControllerError::Unknown(_)));
    assert!(unknown.to_string().contains("did you mean \"cubic\"?"), "{unknown}");
    let wrong = quic::controller_with("cubic", &"beta = 3".parse().unwrap()).unwrap_err();
    assert!(wrong.to_string().contains("controller \"cubic\": beta = 3 is not between"), "{wrong}");
    assert!(quic::controller("remy").unwrap_err().to_string().contains("rules"));
}
