//! The HTTP server of a coordinator of hosts: a page and figures for people, under the same guard as a stream's.
//!
//! | path | what |
//! |---|---|
//! | `/` `/assets/*` | the page |
//! | `/api/overview` | what the coordinator knows and what it has told ([`Overview`]) |
//! | `/events` | the same once a second, as server-sent events |
//! | `/metrics` | for Prometheus |

mod overview;

use std::net::TcpListener;
use std::sync::Arc;

use axum::Router;
use axum::extract::State as Shared;
use axum::http::{StatusCode, Uri, header};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use futures_util::{Stream, stream};
use prometheus_client::registry::Registry;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use crate::server::listen::Door;
use crate::server::{Access, Bounds, Gateway, StartError, answer, guarded, metrics, page, words};
pub use overview::{Happening, HappeningKind, Host, Link, MOST_EVENTS, Monitor, Overview};

/// What there is, where no page was built in.
const PATHS: &str = "\
Anabranch: a coordinator of hosts\n\
\n\
/api/overview   how things stand, as JSON\n\
/events         the same each second, as server-sent events\n\
/metrics        figures for Prometheus\n";

/// What the page of a coordinator serves.
pub struct Config {
    /// The latest figures; whoever holds the other end renews them once a second.
    pub overviews: watch::Receiver<Overview>,
    /// Figures for `/metrics`.
    pub registry: Registry,
    /// Who may ask.
    pub access: Access,
    /// What clients may cost.
    pub bounds: Bounds,
}

/// Serves on `listener` until the gateway is dropped.
///
/// # Errors
///
/// When the system has no room.
pub fn start(listener: TcpListener, config: Config) -> Result<Gateway, StartError> {
    let Config { overviews, mut registry, access, bounds } = config;
    let door = Arc::new(Door::register(bounds, &mut registry));
    let listeners = Arc::new(Semaphore::new(bounds.listeners));
    let state = Arc::new(State { overviews, registry, listeners });
    let app = Router::new()
        .route("/", get(async || page::front("coordinator.html", PATHS)))
        .route("/assets/{*path}", get(page::asset))
        .route("/api/overview", get(overview))
        .route("/events", get(events))
        .route("/metrics", get(async |Shared(state): Shared<Arc<State>>| metrics::written(&state.registry)))
        .fallback(async |uri: Uri| {
            answer(&uri, StatusCode::NOT_FOUND, "there is nothing at this path; / says what there is")
        })
        .with_state(state);
    Gateway::spawn(listener, guarded(app, access), door)
}

/// What all requests share.
struct State {
    overviews: watch::Receiver<Overview>,
    registry: Registry,
    /// Places of those who listen to events.
    listeners: Arc<Semaphore>,
}

/// The newest figures, as JSON.
fn latest(overviews: &mut watch::Receiver<Overview>) -> String {
    // Numbers and texts alone, which JSON can say.
    serde_json::to_string(&*overviews.borrow_and_update()).unwrap_or_default()
}

/// `GET /api/overview`.
async fn overview(Shared(state): Shared<Arc<State>>) -> Response {
    let headers = [(header::CONTENT_TYPE, "application/json"), (header::CACHE_CONTROL, "no-store")];
    (headers, latest(&mut state.overviews.clone())).into_response()
}

/// `GET /events`: an `overview` at once, and each new one.
async fn events(Shared(state): Shared<Arc<State>>) -> Response {
    let Ok(permit) = Arc::clone(&state.listeners).try_acquire_owned() else {
        return words(StatusCode::SERVICE_UNAVAILABLE, "too many pages are open already");
    };
    Sse::new(overviews(state.overviews.clone(), permit)).keep_alive(KeepAlive::default()).into_response()
}

/// A page that was not read gets the newest, not all that it missed.
fn overviews(
    mut figures: watch::Receiver<Overview>,
    permit: OwnedSemaphorePermit,
) -> impl Stream<Item = Result<Event, axum::Error>> {
    figures.mark_changed();
    stream::unfold((figures, permit), |(mut figures, permit)| async move {
        figures.changed().await.ok()?;
        let event = Event::default().event("overview").data(latest(&mut figures));
        Some((Ok(event), (figures, permit)))
    })
}
