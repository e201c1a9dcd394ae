//! A stream that somebody puts in here, by a [gateway](crate::server)'s `/ingest`: one at a time.

use std::ops::{Deref, DerefMut};
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
    pub(crate) fn begin(&self) -> Option<Turn> {
        let mut feed = Arc::clone(&self.feed).try_lock_owned().ok()?;
        feed.begin("somebody has come, and has sent nothing yet");
        Some(Turn { feed, ended: None })
    }
}

/// The feed in the hands of one who puts in a stream. A request whose connection breaks is dropped where it stands, so
/// that its end is noted here, whatever way it ends.
#[derive(Debug)]
pub(crate) struct Turn {
    feed: OwnedMutexGuard<Feed>,
    ended: Option<String>,
}

impl Turn {
    /// It is over, and why.
    pub fn end(mut self, why: impl ToString) {
        self.ended = Some(why.to_string());
    }
}

impl Deref for Turn {
    type Target = Feed;

    fn deref(&self) -> &Feed {
        &self.feed
    }
}

impl DerefMut for Turn {
    fn deref_mut(&mut self) -> &mut Feed {
        &mut self.feed
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let why = self.ended.take().unwrap_or_else(|| "the connection to who sent a stream broke".to_owned());
        self.feed.note_waiting(format!("{why}; waiting for the next stream at /ingest"));
    }
}

#[cfg(test)]
mod tests {
    use anabranch_media::cutter::Cutter;
    use tokio::sync::mpsc;

    use super::super::feed::Status;
    use super::*;
    use crate::overview::InputState;

    const CLIP: &[u8] = include_bytes!("../../../media/tests/clip.ts");

    #[tokio::test]
    async fn a_sender_whose_request_is_dropped_is_gone_and_another_may_send() {
        let (sender, _cuts) = mpsc::channel(1000);
        let status = Status::new("ingest".into());
        let ingest = Ingest::new(Feed::new(sender, status.clone(), Cutter::default()), None);
        let mut turn = ingest.begin().unwrap();
        turn.push(CLIP).await.unwrap();
        assert_eq!(status.get().state, InputState::Receiving);
        assert!(ingest.begin().is_none(), "one at a time");
        drop(turn);
        assert_eq!(status.get().state, InputState::Waiting);
        assert!(status.get().detail.unwrap().contains("waiting for the next stream"));
        ingest.begin().unwrap().end("the source is over");
        assert!(status.get().detail.unwrap().starts_with("the source is over; waiting"));
    }
}
