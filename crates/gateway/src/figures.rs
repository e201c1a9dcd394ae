//! A page of figures that are renewed once a second: what every server of one has alike, whatever it shows.
//!
//! | path | what |
//! |---|---|
//! | `/` `/assets/*` | the page |
//! | `/api/overview` | the figures |
//! | `/events` | the same once a second, as server-sent events |
//! | `/metrics` | for Prometheus |

use std::net::TcpListener;
use std::sync::Arc;

use axum::extract::State as Shared;
use axum::http::{StatusCode, Uri, header};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Extension, Router};
use futures_util::{Stream, stream};
use prometheus_client::registry::Registry;
use serde::Serialize;
use tokio::sync::watch;

use crate::server::listen::Door;
use crate::server::places::{Client, Seat, Seats};
use crate::server::{Access, Bounds, Gateway, StartError, answer, guarded, metrics, page, words};

/// What such a page serves.
pub struct Config<T> {
    /// The latest figures; whoever holds the other end renews them once a second.
    pub overviews: watch::Receiver<T>,
    /// Figures for `/metrics`.
    pub registry: Registry,
    /// Who may ask.
    pub access: Access,
    /// What clients may cost.
    pub bounds: Bounds,
}

/// Which page it is.
pub(crate) struct Front {
    /// The file.
    pub page: &'static str,
    /// What there is, where no page was built in.
    pub paths: &'static str,
    /// What else it serves.
    pub more: Router,
}

/// Serves on `listener` until the gateway is dropped.
///
/// # Errors
///
/// When the system has no room.
pub(crate) fn start<T: Serialize + Send + Sync + 'static>(
    listener: TcpListener,
    config: Config<T>,
    front: Front,
) -> Result<Gateway, StartError> {
    let Config { overviews, mut registry, access, bounds } = config;
    let Front { page, paths, more } = front;
    let door = Arc::new(Door::register(bounds, &mut registry));
    let listeners = Seats::new(bounds.listeners, bounds.listeners_per_address);
    let state = Arc::new(State { overviews, registry, listeners });
    let app = Router::new()
        .route("/", get(async move || page::front(page, paths)))
        .route("/assets/{*path}", get(page::asset))
        .route("/api/overview", get(overview::<T>))
        .route("/events", get(events::<T>))
        .route("/metrics", get(async |Shared(state): Shared<Arc<State<T>>>| metrics::written(&state.registry)))
        .fallback(async |uri: Uri| {
            answer(&uri, StatusCode::NOT_FOUND, "there is nothing at this path; / says what there is")
        })
        .with_state(state)
        .merge(more);
    Gateway::spawn(listener, guarded(app, access), door)
}

/// What all requests share.
struct State<T> {
    overviews: watch::Receiver<T>,
    registry: Registry,
    /// Places of those who listen to events.
    listeners: Seats,
}

/// The newest figures, as JSON.
fn latest<T: Serialize>(overviews: &mut watch::Receiver<T>) -> String {
    // Numbers and texts alone, which JSON can say.
    serde_json::to_string(&*overviews.borrow_and_update()).unwrap_or_default()
}

/// `GET /api/overview`.
async fn overview<T: Serialize>(Shared(state): Shared<Arc<State<T>>>) -> Response {
    let headers = [(header::CONTENT_TYPE, "application/json"), (header::CACHE_CONTROL, "no-store")];
    (headers, latest(&mut state.overviews.clone())).into_response()
}

/// `GET /events`: an `overview` at once, and each new one.
async fn events<T: Serialize + Send + Sync + 'static>(
    Extension(client): Extension<Client>,
    Shared(state): Shared<Arc<State<T>>>,
) -> Response {
    let Some(seat) = state.listeners.take(client) else {
        return words(StatusCode::SERVICE_UNAVAILABLE, "too many pages are open already");
    };
    Sse::new(overviews(state.overviews.clone(), seat)).keep_alive(KeepAlive::default()).into_response()
}

/// A page that was not read gets the newest, not all that it missed.
fn overviews<T: Serialize + Send + Sync + 'static>(
    mut figures: watch::Receiver<T>,
    seat: Seat,
) -> impl Stream<Item = Result<Event, axum::Error>> {
    figures.mark_changed();
    stream::unfold((figures, seat), |(mut figures, seat)| async move {
        figures.changed().await.ok()?;
        let event = Event::default().event("overview").data(latest(&mut figures));
        Some((Ok(event), (figures, seat)))
    })
}
