//! Video for players: the stream as it comes, and in segments.

use std::sync::Arc;

use anabranch_media::playout::Cursor;
use axum::Extension;
use axum::body::Body;
use axum::extract::{Path, State as Shared};
use axum::http::{Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream;

use super::places::{self, Client};
use super::{State, words};
use crate::outlet::Place;

/// MPEG transport streams, whole or in segments (RFC 3555, 4.2.9; RFC 8216, 4).
const TRANSPORT_STREAM: &str = "video/mp2t";

/// Playlists (RFC 8216, 4).
const PLAYLIST: &str = "application/vnd.apple.mpegurl";

/// `GET /stream.ts`: the tables, a burst from an entry point, and then what comes.
pub async fn stream(
    method: Method,
    Extension(client): Extension<Client>,
    Shared(state): Shared<Arc<State>>,
) -> Response {
    let headers = [(header::CONTENT_TYPE, TRANSPORT_STREAM), (header::CACHE_CONTROL, "no-store")];
    if method == Method::HEAD {
        return headers.into_response();
    }
    let Some(part) = state.players.take_from_afar(client) else {
        state.metrics.refused_players.inc();
        return words(
            StatusCode::SERVICE_UNAVAILABLE,
            format_args!("{} players of your network read already, and no more may", state.bounds.players_per_address),
        );
    };
    let Some(mut place) = state.outlet.enter(state.bounds.players) else {
        state.metrics.refused_players.inc();
        return words(
            StatusCode::SERVICE_UNAVAILABLE,
            format_args!("{} players read already, and no more may", state.bounds.players),
        );
    };
    let beginning = match tokio::time::timeout(state.bounds.first_picture, place.begin()).await {
        Ok(Some(beginning)) => beginning,
        Ok(None) => return words(StatusCode::GONE, "the stream is over"),
        Err(_) => return words(StatusCode::SERVICE_UNAVAILABLE, "no video has come yet that a player can begin with"),
    };
    state.metrics.players_in_all.inc();
    let (tables, cursor) = beginning;
    let player = Player { place, _part: part, cursor, tables: Some(tables), state };
    (headers, Body::from_stream(stream::unfold(player, Player::next))).into_response()
}

/// One that reads.
struct Player {
    place: Place,
    /// Of what its network may have.
    _part: Option<places::Place>,
    cursor: Cursor,
    /// What it gets first.
    tables: Option<Arc<[u8]>>,
    state: Arc<State>,
}

impl Player {
    async fn next(mut self) -> Option<(Result<Bytes, anabranch_media::playout::FellBehind>, Player)> {
        let next = match self.tables.take() {
            Some(tables) => Ok(Some(tables)),
            None => self.place.next(&mut self.cursor).await,
        };
        match next {
            Ok(bytes) => {
                let bytes = bytes?;
                self.state.metrics.sent.inc_by(bytes.len() as u64);
                // The window's own bytes: players share them.
                Some((Ok(Bytes::from_owner(bytes)), self))
            }
            Err(behind) => {
                self.state.metrics.fell_behind.inc();
                Some((Err(behind), self))
            }
        }
    }
}

/// `GET /index.m3u8`.
pub async fn playlist(Shared(state): Shared<Arc<State>>) -> Response {
    match state.outlet.playlist("segments/") {
        Some(text) => ([(header::CONTENT_TYPE, PLAYLIST), (header::CACHE_CONTROL, "no-store")], text).into_response(),
        None => words(StatusCode::SERVICE_UNAVAILABLE, "no segment is whole yet"),
    }
}

/// `GET /segments/N.ts`.
pub async fn segment(Path(name): Path<String>, Shared(state): Shared<Arc<State>>) -> Response {
    let Some(number) = name.strip_suffix(".ts").and_then(|number| number.parse().ok()) else {
        return words(StatusCode::NOT_FOUND, "segments have numbers: /segments/7.ts");
    };
    match state.outlet.segment(number) {
        Some(bytes) => {
            state.metrics.sent.inc_by(bytes.len() as u64);
            // Another run's segment may have the same number, and would be taken for this one.
            let headers = [(header::CONTENT_TYPE, TRANSPORT_STREAM), (header::CACHE_CONTROL, "no-store")];
            (headers, Bytes::from_owner(bytes)).into_response()
        }
        None => words(StatusCode::NOT_FOUND, "that segment is not here yet, or not any more"),
    }
}
