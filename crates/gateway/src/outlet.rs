//! Where a peer puts what goes to its players: one window of the stream, which all of them read.
//!
//! ```text
//! peer --push--> Outlet --+-- player: /stream.ts, each from an entry point on
//!                         +-- segments: /index.m3u8, /segments/N.ts
//! ```
//!
//! Putting in never waits, needs no runtime and may come from any thread. Players share the bytes.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use anabranch_media::playout::{Cursor, FellBehind, Playout};
use anabranch_media::segments::Segments;
use tokio::sync::watch;

/// What players get at once, and what they may cost.
#[derive(Clone, Copy, Debug)]
pub struct OutletConfig {
    /// A player begins so far behind the newest packet, and holds that much against late ones.
    pub burst: Duration,
    /// A player that is later than the burst by more has fallen behind.
    pub patience: Duration,
    /// Bytes that are kept at most.
    pub most_bytes: usize,
}

impl Default for OutletConfig {
    fn default() -> OutletConfig {
        OutletConfig { burst: Duration::from_secs(3), patience: Duration::from_secs(10), most_bytes: 64 << 20 }
    }
}

/// What goes to the players of a peer.
#[derive(Clone, Debug)]
pub struct Outlet(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    start: Instant,
    burst: Duration,
    contents: Mutex<Contents>,
    /// Something has come, or all has.
    news: watch::Sender<()>,
    players: AtomicU64,
}

#[derive(Debug)]
struct Contents {
    playout: Playout,
    segments: Segments,
    has_ended: bool,
}

impl Outlet {
    /// Empty.
    pub fn new(config: OutletConfig) -> Outlet {
        let OutletConfig { burst, patience, most_bytes } = config;
        let playout = Playout::new(burst, burst + patience, most_bytes);
        let contents = Contents { playout, segments: Segments::default(), has_ended: false };
        Outlet(Arc::new(Inner {
            start: Instant::now(),
            burst,
            contents: Mutex::new(contents),
            news: watch::Sender::new(()),
            players: AtomicU64::new(0),
        }))
    }

    /// The next pieces of the stream, whole packets of a transport stream each. Those that come together are
    /// best put in together: players are woken once.
    pub fn push(&self, pieces: impl IntoIterator<Item = Arc<[u8]>>) {
        let (now, date) = (self.0.start.elapsed(), SystemTime::now());
        let mut contents = self.contents();
        for bytes in pieces {
            contents.segments.push(date, &bytes);
            contents.playout.push(now, bytes);
        }
        drop(contents);
        self.0.news.send_replace(());
    }

    /// Something of the stream is missing before what comes next.
    pub fn note_gap(&self) {
        self.contents().segments.note_gap();
    }

    /// The stream is over: players get what there is, and then the end.
    pub fn end(&self) {
        let mut contents = self.contents();
        contents.segments.end();
        contents.has_ended = true;
        drop(contents);
        self.0.news.send_replace(());
    }

    /// Whether there are pictures; none before the stream has said so.
    pub fn has_video(&self) -> Option<bool> {
        self.contents().playout.has_video()
    }

    /// What a player that comes now gets at once; none before one can begin.
    pub fn buffered(&self) -> Option<Duration> {
        self.contents().playout.buffered(self.0.start.elapsed())
    }

    /// Players that read now.
    pub fn players(&self) -> u64 {
        self.0.players.load(Ordering::Relaxed)
    }

    /// Behind the newest packet, where players begin.
    pub fn burst(&self) -> Duration {
        self.0.burst
    }

    /// A player comes, if fewer than `most` are there.
    pub(crate) fn enter(&self, most: u64) -> Option<Place> {
        let more = |players| (players < most).then_some(players + 1);
        let entered = self.0.players.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        entered.ok().map(|_| Place { outlet: self.clone(), news: self.0.news.subscribe() })
    }

    pub(crate) fn playlist(&self, folder: &str) -> Option<String> {
        self.contents().segments.playlist(folder)
    }

    pub(crate) fn segment(&self, number: u64) -> Option<Arc<[u8]>> {
        self.contents().segments.segment(number)
    }

    fn contents(&self) -> MutexGuard<'_, Contents> {
        // Nothing that is done under the lock leaves it half done.
        self.0.contents.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A player's; it is free again when this is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    outlet: Outlet,
    news: watch::Receiver<()>,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.outlet.0.players.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Place {
    /// What the player gets first, as soon as it can begin; none if the stream is over before.
    pub async fn begin(&mut self) -> Option<(Arc<[u8]>, Cursor)> {
        loop {
            self.news.mark_unchanged();
            {
                let contents = self.outlet.contents();
                if let Some(beginning) = contents.playout.begin(self.outlet.0.start.elapsed()) {
                    return Some(beginning);
                }
                if contents.has_ended {
                    return None;
                }
            }
            // The sender lives as long as the outlet.
            let _ = self.news.changed().await;
        }
    }

    /// The next piece; none if the stream is over.
    ///
    /// # Errors
    ///
    /// When the player was too slow.
    pub async fn next(&mut self, cursor: &mut Cursor) -> Result<Option<Arc<[u8]>>, FellBehind> {
        loop {
            self.news.mark_unchanged();
            {
                let contents = self.outlet.contents();
                if let Some(bytes) = contents.playout.next(cursor)? {
                    return Ok(Some(bytes));
                }
                if contents.has_ended {
                    return Ok(None);
                }
            }
            let _ = self.news.changed().await;
        }
    }
}
