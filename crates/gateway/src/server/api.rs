//! What the peer knows, for programs and for the page.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Extension;
use axum::extract::State as Shared;
use axum::http::{StatusCode, Uri, header};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::{Stream, stream};
use tokio::sync::{Mutex, mpsc, oneshot};
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::places::{Client, Seat};
use super::{OverviewRequest, State, answer, words};
use crate::overview::Overview;

/// Listeners get this many.
const PERIOD: Duration = Duration::from_secs(1);

/// An overview that is younger is given again.
const FRESH: Duration = Duration::from_millis(900);

/// The peer is asked so long.
const PATIENCE: Duration = Duration::from_secs(3);

/// Asks the peer, and keeps what it said for others who ask right after.
pub struct Desk {
    requests: mpsc::Sender<OverviewRequest>,
    latest: Mutex<Option<(Instant, Arc<str>)>>,
}

/// The peer does not say how things stand.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the peer does not answer: it is busy, or at its end")]
struct NoAnswer;

impl Desk {
    pub fn new(requests: mpsc::Sender<OverviewRequest>) -> Desk {
        Desk { requests, latest: Mutex::new(None) }
    }

    async fn overview(&self, state: &State) -> Result<Arc<str>, NoAnswer> {
        // Who comes while the peer is asked waits for the same answer.
        let mut latest = self.latest.lock().await;
        if let Some((at, json)) = &*latest
            && at.elapsed() < FRESH
        {
            return Ok(Arc::clone(json));
        }
        let (request, reply) = oneshot::channel();
        let ask = async {
            self.requests.send(request).await.ok()?;
            reply.await.ok()
        };
        let mut overview = timeout(PATIENCE, ask).await.ok().flatten().ok_or(NoAnswer)?;
        state.complete(&mut overview);
        let json: Arc<str> = serde_json::to_string(&overview).map_err(|_| NoAnswer)?.into();
        *latest = Some((Instant::now(), Arc::clone(&json)));
        Ok(json)
    }
}

impl State {
    /// What the gateway knows better than the peer.
    fn complete(&self, overview: &mut Overview) {
        overview.here.players = self.outlet.players();
        overview.here.buffered_s = self.outlet.buffered().map(|buffered| buffered.as_secs_f64());
        overview.stream.has_video = self.outlet.has_video();
        if let Some(input) = &self.input {
            overview.input = Some(input.get());
        }
    }
}

/// `GET /api/overview`.
pub async fn overview(uri: Uri, Shared(state): Shared<Arc<State>>) -> Response {
    match state.desk.overview(&state).await {
        Ok(json) => {
            let headers = [(header::CONTENT_TYPE, "application/json"), (header::CACHE_CONTROL, "no-store")];
            (headers, json.to_string()).into_response()
        }
        Err(error) => answer(&uri, StatusCode::SERVICE_UNAVAILABLE, error),
    }
}

/// `GET /events`: an `overview` at once and once a second.
pub async fn events(Extension(client): Extension<Client>, Shared(state): Shared<Arc<State>>) -> Response {
    let Some(seat) = state.listeners.take(client) else {
        return words(StatusCode::SERVICE_UNAVAILABLE, "too many pages are open already");
    };
    Sse::new(overviews(state, seat)).keep_alive(KeepAlive::default()).into_response()
}

fn overviews(state: Arc<State>, seat: Seat) -> impl Stream<Item = Result<Event, NoAnswer>> {
    let mut ticks = interval(PERIOD);
    // A page that was not read gets one, not all that it missed.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    stream::unfold((state, seat, ticks), |(state, seat, mut ticks)| async move {
        loop {
            ticks.tick().await;
            // A peer that is busy may answer the next time.
            if let Ok(json) = state.desk.overview(&state).await {
                return Some((Ok(Event::default().event("overview").data(&*json)), (state, seat, ticks)));
            }
        }
    })
}
