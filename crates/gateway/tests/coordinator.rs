//! The page of a coordinator, to programs, browsers, and those who mean no good.

mod common;

use std::net::{Ipv4Addr, TcpListener};

use anabranch_gateway::coordinator::{Config, Overview, start};
use anabranch_gateway::server::Access;
use common::*;
use tokio::sync::watch;

fn overview(uptime_s: f64) -> Overview {
    Overview {
        version: "1",
        uptime_s,
        link: "anabranch://".to_owned(),
        page: None,
        every_s: 0.1,
        utilisation: 0.95,
        share: "per-host",
        policy: None,
        links: Vec::new(),
        hosts: Vec::new(),
        monitors: Vec::new(),
        events: Vec::new(),
    }
}

fn serve_coordinator() -> (Served, watch::Sender<Overview>) {
    let (sender, overviews) = watch::channel(overview(1.0));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let config = Config { overviews, registry: Default::default(), access: Access::default(), bounds: short() };
    (Served { gateway: start(listener, config).unwrap(), asked: Default::default() }, sender)
}

#[test]
fn every_path_answers_what_it_is_for_and_the_newest_figures_at_once() {
    let (served, sender) = serve_coordinator();
    sender.send_replace(overview(2.5));
    for (path, code, expected) in [
        ("/", 200, "<title>Coordinator</title>"),
        ("/assets/icon.svg", 200, "image/svg+xml"),
        ("/api/overview", 200, "\"uptime_s\":2.5"),
        ("/api/other", 404, "{\"error\":\""),
        ("/metrics", 200, "anabranch_gateway_connections "),
        ("/stream.ts", 404, "nothing"),
        ("/index.html", 404, "nothing"),
        ("/assets/%2e%2e/README.md", 404, "nothing"),
    ] {
        let answer = served.get(path);
        assert_eq!(status(&answer), code, "{path}: {answer}");
        assert!(answer.contains(expected), "{path}: {answer}");
        assert!(answer.contains("x-content-type-options: nosniff") && answer.contains("frame-ancestors 'none'"));
    }
}

#[test]
fn pages_of_other_sites_learn_nothing_of_hosts_and_budgets() {
    let (served, _sender) = serve_coordinator();
    let address = served.address();
    for (host, header) in [
        ("evil.example".to_owned(), ""),
        (address.to_string(), "Origin: https://evil.example\r\n"),
        (address.to_string(), "Sec-Fetch-Site: cross-site\r\n"),
    ] {
        for path in ["/api/overview", "/events", "/metrics"] {
            let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n{header}Connection: close\r\n\r\n");
            let answer = served.ask(&request);
            assert_eq!(status(&answer), 403, "{request}: {answer}");
            assert!(!answer.contains("anabranch://"), "{answer}");
        }
    }
    let request =
        format!("POST /api/overview HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(status(&served.ask(&request)), 405);
}

#[test]
fn an_open_page_is_sent_figures_at_once_and_each_renewal_and_ends_with_the_coordinator() {
    use std::io::Read as _;
    let (served, sender) = serve_coordinator();
    let (head, mut body, mut stream) = served.open("/events");
    assert_eq!(status(&head), 200, "{head}");
    let mut read = |body: &mut Vec<u8>, what: &str| {
        let mut buffer = [0; 4096];
        while !String::from_utf8_lossy(body).contains(what) {
            let count = stream.read(&mut buffer).unwrap();
            assert!(count > 0, "ended before {what}: {}", String::from_utf8_lossy(body));
            body.extend_from_slice(&buffer[..count]);
        }
    };
    read(&mut body, "\"uptime_s\":1.0");
    sender.send_replace(overview(2.0));
    read(&mut body, "\"uptime_s\":2.0");
    drop(sender);
    stream.read_to_end(&mut body).unwrap();
}
