//! The HTTP server of a peer: video for players, a page and figures for people.
//!
//! | path | what |
//! |---|---|
//! | `/` `/assets/*` | the page |
//! | `/stream.ts` | the stream as it comes, for players, from an entry point on |
//! | `/index.m3u8` `/segments/N.ts` | the stream as HTTP Live Streaming (RFC 8216) |
//! | `/api/overview` | what the peer knows ([`Overview`]) |
//! | `/events` | the same once a second, as server-sent events |
//! | `/metrics` | for Prometheus |
//! | `/ingest` | takes a stream by PUT or POST, where the source is one |
//!
//! What clients may cost is bounded by [`Bounds`], and who may ask by [`guard`]. It has a thread of its own, so
//! that nobody who asks delays a packet.

mod api;
mod bounds;
mod guard;
mod ingest;
pub(crate) mod listen;
pub(crate) mod metrics;
pub(crate) mod page;
pub(crate) mod places;
mod player;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use axum::Router;
use axum::http::{HeaderName, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, put};
use prometheus_client::registry::Registry;
use tokio::sync::{mpsc, oneshot};

pub use bounds::Bounds;
pub use guard::Access;

use crate::input::{Ingest, InputHandle, Status};
use crate::outlet::Outlet;
use crate::overview::Overview;
use metrics::Metrics;
use places::{Places, Seats};

/// Somebody wants to know how things stand: whoever holds the other end answers with what it knows, and the
/// gateway adds what it knows better (players, buffer, video, input).
pub type OverviewRequest = oneshot::Sender<Overview>;

/// What a gateway serves.
pub struct Config {
    /// What players get.
    pub outlet: Outlet,
    /// Where overviews come from; asked once a second at most, and only while somebody listens.
    pub overviews: mpsc::Sender<OverviewRequest>,
    /// Where the video comes from, if it comes in here.
    pub input: Option<InputHandle>,
    /// More figures for `/metrics`.
    pub registry: Registry,
    /// Who may ask.
    pub access: Access,
    /// What clients may cost.
    pub bounds: Bounds,
}

/// A gateway cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Everybody could put in a stream.
    #[error(
        "{0} is reached from other machines, so that anybody could put in a stream by PUT: set an ingest token, or listen at 127.0.0.1"
    )]
    OpenIngest(SocketAddr),
    /// No thread or descriptor is left.
    #[error("the HTTP server cannot run: {0}")]
    Io(#[from] io::Error),
}

/// A running HTTP server; it ends when this is dropped.
#[derive(Debug)]
pub struct Gateway {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Gateway {
    /// Serves on `listener`.
    ///
    /// # Errors
    ///
    /// When everybody could put in a stream, or the system has no room.
    pub fn start(listener: TcpListener, config: Config) -> Result<Gateway, StartError> {
        let address = listener.local_addr()?;
        let Config { outlet, overviews, input, mut registry, access, bounds } = config;
        let (input, ingest) = input.map(|input| (input.status, input.ingest)).unzip();
        let ingest: Option<Ingest> = ingest.flatten();
        if ingest.as_ref().is_some_and(|ingest| !ingest.has_token()) && !address.ip().is_loopback() {
            return Err(StartError::OpenIngest(address));
        }
        let door = Arc::new(listen::Door::register(bounds, &mut registry));
        let metrics = Metrics::register(&mut registry);
        let state = Arc::new(State {
            desk: api::Desk::new(overviews),
            listeners: Seats::new(bounds.listeners, bounds.listeners_per_address),
            players: Places::of_each(bounds.players_per_address),
            ingest,
            outlet,
            input,
            registry,
            metrics,
            bounds,
        });
        Gateway::spawn(listener, guarded(router(state), access), door)
    }

    /// Serves `app` in a thread of its own.
    pub(crate) fn spawn(listener: TcpListener, app: Router, door: Arc<listen::Door>) -> Result<Gateway, StartError> {
        let address = listener.local_addr()?;
        listener.set_nonblocking(true)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::Builder::new().name("gateway".into()).spawn(move || {
            runtime.block_on(async move {
                // It was made non-blocking and there is a runtime, which is all that this needs.
                let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
                tokio::select! {
                    () = listen::accept(listener, app, door) => {}
                    _ = stopped => {}
                }
            });
        })?;
        Ok(Gateway { address, stop: Some(stop), thread: Some(thread) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // Had it panicked, it would have said so.
            let _ = thread.join();
        }
    }
}

/// What all requests share.
struct State {
    outlet: Outlet,
    desk: api::Desk,
    input: Option<Status>,
    ingest: Option<Ingest>,
    /// Places of those who listen to events.
    listeners: Seats,
    /// Places of players by where they are.
    players: Places,
    registry: Registry,
    metrics: Metrics,
    bounds: Bounds,
}

/// `app` for those who may ask.
pub(crate) fn guarded(app: Router, access: Access) -> Router {
    app.method_not_allowed_fallback(async |uri: Uri| {
        answer(&uri, StatusCode::METHOD_NOT_ALLOWED, "this path does not take that method")
    })
    .layer(axum::middleware::from_fn_with_state(Arc::new(access), guard::guard))
}

fn router(state: Arc<State>) -> Router {
    Router::new()
        .route("/", get(page::index))
        .route("/assets/{*path}", get(page::asset))
        .route("/stream.ts", get(player::stream))
        .route("/index.m3u8", get(player::playlist))
        .route("/segments/{name}", get(player::segment))
        .route("/api/overview", get(api::overview))
        .route("/events", get(api::events))
        .route("/metrics", get(metrics::metrics))
        .route("/ingest", put(ingest::ingest).post(ingest::ingest))
        .fallback(page::other)
        .with_state(state)
}

/// How long a client is asked to wait that came when there was no room, or nothing to show.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// An answer in plain words.
pub(crate) fn words(status: StatusCode, words: impl std::fmt::Display) -> Response {
    const PLAIN: [(HeaderName, &str); 2] =
        [(header::CONTENT_TYPE, "text/plain; charset=utf-8"), (header::CACHE_CONTROL, "no-store")];
    let mut response = (status, PLAIN, format!("{words}\n")).into_response();
    if status == StatusCode::SERVICE_UNAVAILABLE {
        response.headers_mut().insert(header::RETRY_AFTER, RETRY_AFTER.as_secs().into());
    }
    response
}

/// The same, as JSON where programs ask.
pub(crate) fn answer(uri: &Uri, status: StatusCode, what: impl std::fmt::Display) -> Response {
    let mut response = words(status, &what);
    if uri.path().starts_with("/api") {
        let json = serde_json::json!({ "error": what.to_string() }).to_string();
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        *response.body_mut() = json.into();
        response.headers_mut().remove(header::CONTENT_LENGTH);
    }
    response
}
