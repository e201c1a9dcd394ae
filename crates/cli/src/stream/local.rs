//! What a server of a stream and its viewers have alike: the HTTP server for this machine, and options.

use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use anabranch_control::flow::registry::{self, Entry};
use anabranch_control::units::Rate;
use anabranch_gateway::input::{InputHandle, Status};
use anabranch_gateway::outlet::{Outlet, OutletConfig};
use anabranch_gateway::overview::{Here, Overview, Stream};
use anabranch_gateway::server::{Access, Bounds, Config, Gateway, OverviewRequest};
use anabranch_net::stream::node::{StreamError, StreamNode};
use tokio::sync::mpsc;

use super::metrics;
use crate::failure::Failure;
use crate::network::socket_address;
use crate::stderr::eprint_line;

/// Requests for an overview that wait at most: the gateway sends one at a time.
const MOST_REQUESTS: usize = 4;

/// Where players and pages of this machine get the stream.
#[derive(Debug, clap::Args)]
pub struct HttpArgs {
    /// Where players and the page are served [default: the first free port from 127.0.0.1:8080 on]
    #[arg(long, value_name = "ADDRESS", value_parser = socket_address)]
    http: Option<SocketAddr>,
    /// A name by which the page is reached, besides addresses and localhost
    #[arg(long, value_name = "NAME", value_parser = host_name)]
    http_name: Vec<String>,
    /// A site whose pages may read the stream, as https://example.org
    #[arg(long, value_name = "ORIGIN", value_parser = origin)]
    http_origin: Vec<String>,
}

/// The ports that are tried if none is given.
const PORTS: std::ops::RangeInclusive<u16> = 8080..=8179;

impl HttpArgs {
    /// Serves `outlet`, and what `node` tells.
    pub fn start(&self, outlet: &Outlet, node: &StreamNode, input: Option<InputHandle>) -> Result<Http, Failure> {
        let listener = self.listen()?;
        let (requests, overviews) = mpsc::channel(MOST_REQUESTS);
        let config = Config {
            outlet: outlet.clone(),
            overviews: requests,
            input,
            registry: metrics::registry(node.snapshots()),
            access: Access { names: self.http_name.clone(), origins: self.http_origin.clone() },
            bounds: Bounds::default(),
        };
        Ok(Http { gateway: Gateway::start(listener, config)?, overviews })
    }

    fn listen(&self) -> Result<TcpListener, Failure> {
        let (address, listener) = match self.http {
            None => ("127.0.0.1".to_owned(), first_free_port()),
            Some(address) => (address.to_string(), TcpListener::bind(address)),
        };
        listener.map_err(|error| Failure::new(format!("players cannot be served at {address}: {error}; see --http")))
    }
}

/// The first of the usual ports for pages of this machine that is free, or else any.
pub fn first_free_port() -> std::io::Result<TcpListener> {
    let local = |port| SocketAddr::from(([127, 0, 0, 1], port));
    let free = PORTS.filter_map(|port| TcpListener::bind(local(port)).ok()).next();
    free.map_or_else(|| TcpListener::bind(local(0)), Ok)
}

/// A running HTTP server, and what it asks.
pub struct Http {
    gateway: Gateway,
    /// Pages that want to know how things stand.
    pub overviews: mpsc::Receiver<OverviewRequest>,
}

impl Http {
    /// Its page.
    pub fn page(&self) -> String {
        format!("http://{}/", self.gateway.address())
    }

    /// What players open.
    pub fn stream(&self) -> String {
        format!("{}stream.ts", self.page())
    }
}

/// What is wrong with a running stream, said once on standard error, and again when it was right meanwhile.
#[derive(Debug, Default)]
pub struct Trouble {
    is_said: bool,
}

impl Trouble {
    /// Looks how things are.
    pub fn look(&mut self, node: &StreamNode) {
        let words = super::overview::trouble(&node.snapshot());
        if let (Some(words), false) = (&words, self.is_said) {
            eprint_line!("{words}");
        }
        self.is_said = words.is_some();
    }
}

/// A peer that was begun, or why not and what to do.
pub fn listening<T>(begun: Result<T, StreamError>) -> Result<T, Failure> {
    begun.map_err(|error| match error {
        StreamError::Listen { .. } => Failure::new(format!("{error}; --listen says where else")),
        error => error.into(),
    })
}

/// What players of a stream get, with so much in hand.
pub fn outlet(buffer: Duration) -> Outlet {
    Outlet::new(OutletConfig { burst: buffer, ..OutletConfig::default() })
}

/// A number of seconds that players can hold.
pub fn buffer(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.5..=60.0).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err("expected a number of seconds from 0.5 to 60".to_owned()),
    }
}

/// A name that a browser may ask by, without its port.
fn host_name(text: &str) -> Result<String, String> {
    let is_name = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_".contains(&byte));
    is_name.then(|| text.to_owned()).ok_or_else(|| "expected a name such as tv.example.org".to_owned())
}

/// A site as browsers write one (RFC 6454, 6.2): any other spelling would match none.
fn origin(text: &str) -> Result<String, String> {
    let host = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://")).unwrap_or_default();
    let is_host = |byte: u8| !byte.is_ascii_uppercase() && byte.is_ascii_graphic() && !b"/?#@\\".contains(&byte);
    let is_origin = !host.is_empty() && host.bytes().all(is_host);
    let expected = || "expected a site such as https://example.org, in small letters and without a path".to_owned();
    is_origin.then(|| text.to_owned()).ok_or_else(expected)
}

/// How long a peer has run.
pub fn uptime(node: &StreamNode) -> Duration {
    Duration::from_secs_f64(node.snapshot().uptime.as_secs_f64())
}

/// The same span, as machines have it.
pub fn span(duration: Duration) -> anabranch_control::time::Duration {
    anabranch_control::time::Duration::from_secs_f64(duration.as_secs_f64())
}

/// What pages are sent and the peer's machines do not know: players here, and the input.
pub fn complete(overview: Overview, outlet: &Outlet, input: Option<&Status>) -> Overview {
    let here = Here {
        players: outlet.players(),
        buffered_s: outlet.buffered().map(|buffered| buffered.as_secs_f64()),
        ..overview.here
    };
    let stream = Stream { has_video: outlet.has_video(), ..overview.stream };
    Overview { here, stream, input: input.map(Status::get), ..overview }
}

/// A flow controller by its name.
pub fn controller(name: &str) -> Result<&'static Entry, String> {
    registry::find(name).map_err(|unknown| unknown.to_string())
}

/// What this machine can send.
pub fn upload(text: &str) -> Result<Rate, String> {
    match text.parse::<Rate>() {
        Ok(rate) if rate >= Rate::from_bits_per_sec(10_000) => Ok(rate),
        Ok(_) => Err("expected at least \"10 kbit/s\"".to_owned()),
        Err(problem) => Err(problem.to_string()),
    }
}
