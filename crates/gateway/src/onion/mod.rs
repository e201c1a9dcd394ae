//! The HTTP server of a user's edge of the onion overlay: a page and figures for that user, under the same guard as a
//! stream's. Its paths are those of every page that is sent [figures](crate::figures), and
//! `/figures/onion-tradeoff.svg`: goodput against the chance of being linked.

mod overview;

use std::net::TcpListener;

use axum::Router;
use axum::http::header;
use axum::routing::get;

use crate::figures::{self, Front};
use crate::server::{Gateway, StartError};
pub use overview::{
    Guard, Happening, HappeningKind, MOST_EVENTS, MOST_RELAYS, Network, Overview, Place, PlaceKind, Relay, RoundTrip,
    Settings, Streams, Traffic,
};

/// What there is, where no page was built in.
const PATHS: &str = "\
Anabranch: a user of an onion overlay\n\
\n\
It does not hide you from whoever runs relays that you use at both ends, nor from anybody who sees your line and your\n\
destination's: if somebody runs c of the n relays, a user with g guards enters by one of theirs with probability\n\
1 - (1 - c/n)^g.\n\
\n\
/api/overview                 how things stand, as JSON\n\
/events                       the same each second, as server-sent events\n\
/figures/onion-tradeoff.svg   goodput against the chance of being linked\n\
/metrics                      figures for Prometheus\n";

/// What `anabranch onion attack --tradeoff` has drawn.
static TRADEOFF: &str = include_str!("../../../../docs/figures/onion-tradeoff.svg");

/// What the page of a user serves.
pub type Config = figures::Config<Overview>;

/// Serves on `listener` until the gateway is dropped.
///
/// # Errors
///
/// When the system has no room.
pub fn start(listener: TcpListener, config: Config) -> Result<Gateway, StartError> {
    let headers = [(header::CONTENT_TYPE, "image/svg+xml"), (header::CACHE_CONTROL, "no-cache")];
    let more = Router::new().route("/figures/onion-tradeoff.svg", get(async move || (headers, TRADEOFF)));
    figures::start(listener, config, Front { page: "onion.html", paths: PATHS, more })
}
