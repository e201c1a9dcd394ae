//! The HTTP server of a coordinator of hosts: a page and figures for people, under the same guard as a stream's. Its
//! paths are those of every page that is sent [figures](crate::figures).

mod overview;

use std::net::TcpListener;

use axum::Router;

use crate::figures::{self, Front};
use crate::server::{Gateway, StartError};
pub use overview::{DecidedBy, Happening, HappeningKind, Host, Link, MOST_EVENTS, Monitor, Overview};

/// What there is, where no page was built in.
const PATHS: &str = "\
Anabranch: a coordinator of hosts\n\
\n\
/api/overview   how things stand, as JSON\n\
/events         the same each second, as server-sent events\n\
/metrics        figures for Prometheus\n";

/// What the page of a coordinator serves.
pub type Config = figures::Config<Overview>;

/// Serves on `listener` until the gateway is dropped.
///
/// # Errors
///
/// When the system has no room.
pub fn start(listener: TcpListener, config: Config) -> Result<Gateway, StartError> {
    figures::start(listener, config, Front { page: "coordinator.html", paths: PATHS, more: Router::new() })
}
