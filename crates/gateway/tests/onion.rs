//! The page of a user of the onion overlay, to that user, and to pages of others.

mod common;

use std::net::{Ipv4Addr, TcpListener};

use anabranch_gateway::onion::{Config, Overview, Settings, Streams, Traffic, start};
use anabranch_gateway::server::Access;
use common::*;
use tokio::sync::watch;

fn overview() -> Overview {
    let placement = "timeouts".to_owned();
    Overview {
        version: "1",
        uptime_s: 2.5,
        socks: "127.0.0.1:1080".to_owned(),
        network: None,
        settings: Settings { guards: 2, hops: 3, placement, packets_per_key: 64, packet_bytes: 1400 },
        traffic: Traffic::default(),
        round_trip: None,
        streams: Streams::default(),
        guards: Vec::new(),
        places: Vec::new(),
        relays: Vec::new(),
        events: Vec::new(),
    }
}

fn serve_user() -> (Served, watch::Sender<Overview>) {
    let (sender, overviews) = watch::channel(overview());
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let config = Config { overviews, registry: Default::default(), access: Access::default(), bounds: short() };
    (Served { gateway: start(listener, config).unwrap(), asked: Default::default() }, sender)
}

#[test]
fn every_path_answers_what_it_is_for_and_the_figure_is_the_one_of_the_book() {
    let (served, _sender) = serve_user();
    for (path, code, expected) in [
        ("/", 200, "<title>Onion overlay</title>"),
        // What it does not protect against is said also where there is no script.
        ("/", 200, "does not hide you from whoever runs relays"),
        ("/api/overview", 200, "\"uptime_s\":2.5"),
        ("/metrics", 200, "anabranch_gateway_connections "),
        ("/figures/onion-tradeoff.svg", 200, "image/svg+xml"),
        ("/figures/other.svg", 404, "nothing"),
        ("/stream.ts", 404, "nothing"),
    ] {
        let answer = served.get(path);
        assert_eq!(status(&answer), code, "{path}: {answer}");
        assert!(answer.contains(expected), "{path}: {answer}");
        assert!(answer.contains("x-content-type-options: nosniff") && answer.contains("frame-ancestors 'none'"));
    }
    let figure = include_str!("../../../docs/figures/onion-tradeoff.svg");
    assert!(served.get("/figures/onion-tradeoff.svg").ends_with(figure));
}

#[test]
fn a_page_that_was_fetched_through_the_overlay_learns_nothing_of_its_user() {
    let (served, _sender) = serve_user();
    let address = served.address();
    for (host, header) in [
        ("evil.example".to_owned(), ""),
        (address.to_string(), "Origin: https://evil.example\r\n"),
        (address.to_string(), "Sec-Fetch-Site: cross-site\r\n"),
    ] {
        for path in ["/api/overview", "/events", "/metrics", "/figures/onion-tradeoff.svg"] {
            let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n{header}Connection: close\r\n\r\n");
            let answer = served.ask(&request);
            assert_eq!(status(&answer), 403, "{request}: {answer}");
            assert!(!answer.contains("1080"), "{answer}");
        }
    }
}
