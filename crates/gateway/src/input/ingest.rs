//! A stream that somebody puts in here, by a [gateway](crate::server)'s `/ingest`: one at a time.

use std::sync::Arc;

use tokio::sync::{Mutex, OwnedMutexGuard};

use super::feed::Feed;

/// Where a stream is put in.
#[derive(Clone, Debug)]
pub struct Ingest {
    feed: Arc<Mutex<Feed>>,
    /// Of the token: hashes are compared in equal time, whatever they are of.
    token: Option<blake3::Hash>,
}

impl Ingest {
    pub(super) fn new(mut feed: Feed, token: Option<&str>) -> Ingest {
        feed.note_waiting("waiting for a stream at /ingest");
        Ingest { feed: Arc::new(Mutex::new(feed)), token: token.map(|token| blake3::hash(token.as_bytes())) }
    }

    pub(crate) fn has_token(&self) -> bool {
        self.token.is_some()
    }

    pub(crate) fn is_known(&self, token: Option<&[u8]>) -> bool {
        self.token.is_none_or(|expected| token.is_some_and(|token| blake3::hash(token) == expected))
    }

    /// Somebody puts in a stream; none while another does.
    pub(crate) fn begin(&self) -> Option<OwnedMutexGuard<Feed>> {
        let mut feed = Arc::clone(&self.feed).try_lock_owned().ok()?;
        feed.begin("somebody has come, and has sent nothing yet");
        Some(feed)
    }
}
