//! Figures for Prometheus: those of the peer, and what players and the input do.

use std::sync::Arc;

use axum::extract::State as Shared;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

use super::{State, words};

/// OpenMetrics 1.0, which Prometheus asks for first.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// What is counted of clients and the input.
#[derive(Debug, Default)]
pub(super) struct Metrics {
    players: Gauge,
    pub players_in_all: Counter,
    pub refused_players: Counter,
    pub fell_behind: Counter,
    pub sent: Counter,
    received: Gauge,
    skipped: Gauge,
    restarts: Gauge,
}

impl Metrics {
    pub fn register(registry: &mut Registry) -> Metrics {
        let metrics = Metrics::default();
        let http = registry.sub_registry_with_prefix("anabranch_gateway");
        http.register("players", "Players that read the stream now", metrics.players.clone());
        http.register("players_begun", "Players that began to read the stream", metrics.players_in_all.clone());
        http.register("refused_players", "Players for whom there was no place", metrics.refused_players.clone());
        let behind = "Players closed since they read more slowly than the stream comes";
        http.register("slow_players", behind, metrics.fell_behind.clone());
        http.register_with_unit("sent", "Video handed out to players", Unit::Bytes, metrics.sent.clone());
        let input = registry.sub_registry_with_prefix("anabranch_input");
        input.register_with_unit("received", "Bytes from the source", Unit::Bytes, metrics.received.clone());
        let skipped = "Bytes from the source that belonged to no transport stream";
        input.register_with_unit("skipped", skipped, Unit::Bytes, metrics.skipped.clone());
        input.register("restarts", "How often the source began again", metrics.restarts.clone());
        metrics
    }
}

/// `GET /metrics`.
pub(super) async fn metrics(Shared(state): Shared<Arc<State>>) -> Response {
    let gauge = |gauge: &Gauge, value: u64| _ = gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
    gauge(&state.metrics.players, state.outlet.players());
    if let Some(input) = state.input.as_ref().map(|input| input.get()) {
        gauge(&state.metrics.received, input.received_bytes);
        gauge(&state.metrics.skipped, input.skipped_bytes);
        gauge(&state.metrics.restarts, input.restarts);
    }
    written(&state.registry)
}

/// What is registered, as Prometheus reads it.
pub fn written(registry: &Registry) -> Response {
    let mut text = String::new();
    match encode(&mut text, registry) {
        Ok(()) => ([(header::CONTENT_TYPE, OPEN_METRICS)], text).into_response(),
        Err(error) => words(StatusCode::INTERNAL_SERVER_ERROR, error),
    }
}
