//! `PUT /ingest` and `POST /ingest`: takes a stream, one at a time.

use std::io;
use std::sync::Arc;

use axum::body::{Body, BodyDataStream};
use axum::extract::State as Shared;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::StreamExt as _;

use super::{State, words};
use crate::input::{Ending, Ingest, Read};

impl Read for BodyDataStream {
    async fn read(&mut self) -> io::Result<Option<Bytes>> {
        self.next().await.transpose().map_err(io::Error::other)
    }
}

/// How a program says who it is (RFC 6750, 2.1).
const SCHEME: &[u8] = b"Bearer ";

/// Takes a stream until it is over.
pub async fn ingest(Shared(state): Shared<Arc<State>>, headers: HeaderMap, body: Body) -> Response {
    let Some(ingest) = &state.ingest else {
        return words(
            StatusCode::NOT_FOUND,
            "nothing is taken here: the video comes from elsewhere, or this is no server",
        );
    };
    if !is_known(ingest, &headers) {
        let challenge = [(header::WWW_AUTHENTICATE, "Bearer")];
        let words = words(StatusCode::UNAUTHORIZED, "send the ingest token: Authorization: Bearer TOKEN");
        return (challenge, words).into_response();
    }
    let Some(mut feed) = ingest.begin() else {
        return words(StatusCode::CONFLICT, "somebody sends a stream already: one at a time");
    };
    let ending = match feed.pump(&mut body.into_data_stream(), state.bounds.ingest).await {
        Ending::Over if !feed.has_video() => Ending::NothingInIt,
        ending => ending,
    };
    let status = match &ending {
        Ending::Over => StatusCode::OK,
        Ending::Stalled(_) | Ending::TooSlow(_) => StatusCode::REQUEST_TIMEOUT,
        Ending::NoTransportStream(_) | Ending::NothingInIt => StatusCode::UNSUPPORTED_MEDIA_TYPE,
        Ending::Broken(_) => StatusCode::BAD_REQUEST,
        Ending::Unwanted => StatusCode::SERVICE_UNAVAILABLE,
    };
    feed.end(&ending);
    words(status, ending)
}

fn is_known(ingest: &Ingest, headers: &HeaderMap) -> bool {
    let token = headers.get(header::AUTHORIZATION).and_then(|value| value.as_bytes().strip_prefix(SCHEME));
    ingest.is_known(token)
}
