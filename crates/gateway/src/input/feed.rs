//! What all sources have in common: bytes are cut, cuts go into the channel, and the status says how it goes.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anabranch_media::alignment::NoTransportStream;
use anabranch_media::clock::MediaClock;
use anabranch_media::cutter::{Cut, Cutter};
use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};

use crate::overview::{Input, InputState};

/// What came and fills no packet goes out after so much silence.
const FLUSH: Duration = Duration::from_millis(100);

/// A source that has given nothing for so long gives nothing now: players have by then shown all that there was.
const QUIET: Duration = Duration::from_secs(2);

/// What comes at fewer bytes a second for as long as a source may give nothing is no stream: the tables of one are twice as
/// much, ten times a second.
const LEAST_BYTES_PER_S: f64 = 1000.0;

/// A source that has given so much more than a live one would, and at that faster than twice, is a file: what live ones
/// give at once, of what was before, is shorter.
const AHEAD: Duration = Duration::from_secs(5);

/// That the programme has changed is shown for so long.
const CHANGE_SHOWN: Duration = Duration::from_secs(30);

/// How an input goes; all copies are one.
#[derive(Clone, Debug)]
pub struct Status(Arc<Mutex<Input>>);

impl Status {
    pub(super) fn new(source: String) -> Status {
        Status(Arc::new(Mutex::new(Input { source, ..Input::default() })))
    }

    /// As it is now.
    pub fn get(&self) -> Input {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn update(&self, change: impl FnOnce(&mut Input)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }

    pub(super) fn set(&self, state: InputState, detail: impl Into<Option<String>>) {
        let detail = detail.into();
        self.update(|input| (input.state, input.detail) = (state, detail));
    }
}

/// Where bytes come from. What a read that is given up would have given must come with the next.
pub(crate) trait Read {
    /// More bytes, some thousands at most; none when it is over.
    fn read(&mut self) -> impl Future<Output = io::Result<Option<Bytes>>> + Send;
}

/// Why a source gives no more.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Ending {
    #[error("the source is over")]
    Over,
    #[error("nothing has come for {} s", .0.as_secs_f64())]
    Stalled(Duration),
    #[error("fewer than {LEAST_BYTES_PER_S} bytes a second have come for {} s", .0.as_secs_f64())]
    TooSlow(Duration),
    #[error(transparent)]
    NoTransportStream(#[from] NoTransportStream),
    #[error("there is no MPEG transport stream in it; other containers are read by your ffmpeg, with --via-ffmpeg")]
    NothingInIt,
    #[error("the source broke off: {0}")]
    Broken(io::Error),
    /// Nobody reads the cuts.
    #[error("the stream is at its end here")]
    Unwanted,
}

/// Cuts the bytes of one source after another.
#[derive(Debug)]
pub(crate) struct Feed {
    cuts: mpsc::Sender<Cut>,
    status: Status,
    cutter: Cutter,
    has_begun: bool,
    is_receiving: bool,
    /// Some cut has come out of this one.
    has_sent: bool,
    /// Changes of the stream's tables that were reported, and when the last was, while that is shown.
    changes: u64,
    changed_at: Option<Instant>,
    /// How much video has come of this one, and since when.
    clock: MediaClock,
    first_at: Option<Instant>,
}

impl Feed {
    pub fn new(cuts: mpsc::Sender<Cut>, status: Status, cutter: Cutter) -> Feed {
        Feed {
            cuts,
            status,
            cutter,
            has_begun: false,
            is_receiving: false,
            has_sent: false,
            changes: 0,
            changed_at: None,
            clock: MediaClock::default(),
            first_at: None,
        }
    }

    /// How it goes.
    pub fn status(&self) -> Status {
        self.status.clone()
    }

    /// Another connection, process or sender begins.
    pub fn begin(&mut self, detail: impl Into<String>) {
        self.cutter.restart();
        self.has_sent = false;
        (self.clock, self.first_at) = (MediaClock::default(), None);
        let is_restart = std::mem::replace(&mut self.has_begun, true);
        self.status.update(|input| input.restarts += u64::from(is_restart));
        self.note_waiting(detail);
    }

    /// Nothing comes now, and some may yet.
    pub fn note_waiting(&mut self, detail: impl Into<String>) {
        (self.is_receiving, self.changed_at) = (false, None);
        self.status.set(InputState::Waiting, detail.into());
    }

    /// It is of no use as it is.
    pub fn note_failed(&mut self, detail: impl Into<String>) {
        (self.is_receiving, self.changed_at) = (false, None);
        self.status.set(InputState::Failed, detail.into());
    }

    /// Whether anything came, since the last beginning, that belongs to a transport stream.
    pub fn has_video(&self) -> bool {
        self.has_sent
    }

    /// Nobody reads the cuts any more.
    pub fn is_unwanted(&self) -> bool {
        self.cuts.is_closed()
    }

    /// More bytes of the source.
    pub async fn push(&mut self, bytes: &[u8]) -> Result<(), Ending> {
        let mut cuts = Vec::new();
        let result = self.cutter.push(bytes, |cut| cuts.push(cut));
        let skipped = self.cutter.skipped();
        self.status.update(|input| {
            input.received_bytes += bytes.len() as u64;
            input.skipped_bytes = skipped;
        });
        if !cuts.is_empty() && !std::mem::replace(&mut self.is_receiving, true) {
            self.status.set(InputState::Receiving, None);
        }
        let changes = self.cutter.entry_points().changes();
        if std::mem::replace(&mut self.changes, changes) != changes {
            let words = "the programme has changed: the stream's tables say other than before";
            self.status.set(InputState::Receiving, words.to_owned());
            self.changed_at = Some(Instant::now());
        } else if self.is_receiving && self.changed_at.take_if(|at| at.elapsed() >= CHANGE_SHOWN).is_some() {
            self.status.set(InputState::Receiving, None);
        }
        for cut in cuts {
            self.send(cut).await?;
        }
        Ok(result?)
    }

    /// What fills no packet goes out as it is.
    pub async fn flush(&mut self) -> Result<(), Ending> {
        match self.cutter.flush() {
            Some(cut) => self.send(cut).await,
            None => Ok(()),
        }
    }

    /// What to do about a source that is over, if all of it came faster than anybody can watch.
    pub fn too_fast(&self) -> Option<String> {
        let (lasts, took) = (self.clock.elapsed(), self.first_at?.elapsed());
        (lasts > took * 2 && lasts > took + AHEAD).then(|| {
            format!(
                "{:.0} s of video came within {:.1} s, faster than anybody can watch: give a file by its name, and it is \
                 played by its own clock",
                lasts.as_secs_f64(),
                took.as_secs_f64()
            )
        })
    }

    async fn send(&mut self, cut: Cut) -> Result<(), Ending> {
        self.has_sent = true;
        self.first_at.get_or_insert_with(Instant::now);
        for packet in cut.bytes.as_chunks().0 {
            self.clock.next(packet);
        }
        self.cuts.send(cut).await.map_err(|_| Ending::Unwanted)
    }

    /// Reads until the source gives no more, or nothing for `stall`, or next to nothing.
    pub async fn pump(&mut self, source: &mut impl Read, stall: Duration) -> Ending {
        match self.read(source, stall).await {
            Ok(ending) | Err(ending) => ending,
        }
    }

    async fn read(&mut self, source: &mut impl Read, stall: Duration) -> Result<Ending, Ending> {
        let mut last = Instant::now();
        let (mut begun, mut came) = (last, 0.0);
        loop {
            let span = begun.elapsed();
            if span >= stall && came > 0.0 {
                if came < LEAST_BYTES_PER_S * stall.as_secs_f64() && last.elapsed() < stall {
                    self.flush().await?;
                    return Ok(Ending::TooSlow(stall));
                }
                (begun, came) = (Instant::now(), 0.0);
            }
            match timeout(FLUSH.min(stall), source.read()).await {
                Ok(Ok(Some(bytes))) => {
                    self.push(&bytes).await?;
                    last = Instant::now();
                    if came == 0.0 {
                        begun = last;
                    }
                    came += bytes.len() as f64;
                }
                Ok(Ok(None)) => {
                    self.flush().await?;
                    return Ok(Ending::Over);
                }
                Ok(Err(error)) => {
                    self.flush().await?;
                    return Ok(Ending::Broken(error));
                }
                Err(_) => {
                    self.flush().await?;
                    if self.is_unwanted() {
                        return Ok(Ending::Unwanted);
                    }
                    if last.elapsed() >= stall {
                        return Ok(Ending::Stalled(stall));
                    }
                    if self.is_receiving && last.elapsed() >= QUIET {
                        self.note_waiting(format!("nothing has come for {} s", QUIET.as_secs()));
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use anabranch_media::pattern::{Pattern, PatternConfig};

    use super::*;

    const CLIP: &[u8] = include_bytes!("../../../media/tests/clip.ts");

    /// Gives these, and then nothing.
    struct Pieces(Vec<&'static [u8]>);

    impl Read for Pieces {
        async fn read(&mut self) -> io::Result<Option<Bytes>> {
            match self.0.pop() {
                Some(piece) => Ok(Some(piece.into())),
                None => std::future::pending().await,
            }
        }
    }

    fn feed() -> (Feed, mpsc::Receiver<Cut>, Status) {
        let (sender, cuts) = mpsc::channel(1000);
        let status = Status::new("here".into());
        (Feed::new(sender, status.clone(), Cutter::default()), cuts, status)
    }

    #[tokio::test(start_paused = true)]
    async fn a_source_that_stalls_is_reported_after_all_that_came() {
        let (mut feed, mut cuts, status) = feed();
        feed.begin("connected");
        assert_eq!(status.get().state, InputState::Waiting);
        let ending = feed.pump(&mut Pieces(vec![&CLIP[5000..], &CLIP[..5000]]), Duration::from_secs(7)).await;
        assert_eq!(ending.to_string(), "nothing has come for 7 s");
        assert_eq!(status.get().state, InputState::Waiting);
        drop(feed);
        let mut bytes = Vec::new();
        while let Some(cut) = cuts.recv().await {
            bytes.extend_from_slice(&cut.bytes);
        }
        assert_eq!(bytes, CLIP);
        assert_eq!(status.get().received_bytes, CLIP.len() as u64);
    }

    /// Gives half of a clip, and the other half after so long.
    struct Pauses(Duration, u8);

    impl Read for Pauses {
        async fn read(&mut self) -> io::Result<Option<Bytes>> {
            let half = CLIP.len() / 2;
            match self.1 {
                0 => {
                    self.1 = 1;
                    Ok(Some(Bytes::from_static(&CLIP[..half])))
                }
                1 => {
                    let before = self.0;
                    self.0 = self.0.saturating_sub(FLUSH);
                    tokio::time::sleep(before.min(FLUSH)).await;
                    if self.0 > Duration::ZERO {
                        return std::future::pending().await;
                    }
                    self.1 = 2;
                    Ok(Some(Bytes::from_static(&CLIP[half..])))
                }
                _ => std::future::pending().await,
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_source_that_gives_nothing_is_waited_for_until_it_gives_again() {
        let (mut feed, _cuts, status) = feed();
        feed.begin("connected");
        let watched = async {
            tokio::time::sleep(QUIET / 2).await;
            assert_eq!(status.get().state, InputState::Receiving);
            tokio::time::sleep(QUIET).await;
            assert_eq!(
                (status.get().state, status.get().detail.as_deref()),
                (InputState::Waiting, Some("nothing has come for 2 s"))
            );
            tokio::time::sleep(QUIET).await;
            assert_eq!((status.get().state, status.get().detail), (InputState::Receiving, None));
        };
        let mut source = Pauses(QUIET * 2, 0);
        let (ending, ()) = tokio::join!(feed.pump(&mut source, Duration::from_secs(7)), watched);
        assert!(matches!(ending, Ending::Stalled(_)), "{ending}");
    }

    /// Gives twenty bytes a second.
    struct Drips;

    impl Read for Drips {
        async fn read(&mut self) -> io::Result<Option<Bytes>> {
            tokio::time::sleep(FLUSH / 2).await;
            Ok(Some(Bytes::from_static(&[0x47])))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_source_that_gives_next_to_nothing_is_no_stream() {
        let (mut feed, _cuts, _) = feed();
        feed.begin("connected");
        let begun = Instant::now();
        let ending = feed.pump(&mut Drips, Duration::from_secs(7)).await;
        assert_eq!(ending.to_string(), "fewer than 1000 bytes a second have come for 7 s");
        assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
    }

    #[tokio::test]
    async fn what_is_no_transport_stream_is_said() {
        let (mut feed, _cuts, status) = feed();
        let ending = feed.push(&[b'x'; 100_000]).await.unwrap_err();
        assert!(ending.to_string().contains("no MPEG transport stream"), "{ending}");
        assert!(status.get().skipped_bytes >= 65_536);
    }

    #[tokio::test]
    async fn a_source_that_begins_again_is_counted_and_cut_from_its_beginning() {
        let (mut feed, mut cuts, status) = feed();
        feed.begin("one");
        feed.push(&CLIP[..1000]).await.unwrap();
        feed.begin("two");
        feed.push(CLIP).await.unwrap();
        assert_eq!((status.get().restarts, status.get().state), (1, InputState::Receiving));
        assert_eq!(status.get().detail, None, "the programme is the same");
        let first = cuts.recv().await.unwrap();
        assert!(CLIP.starts_with(&first.bytes));
    }

    #[tokio::test(start_paused = true)]
    async fn another_programme_is_said_for_a_while() {
        let (mut feed, _cuts, status) = feed();
        feed.begin("connected");
        feed.push(CLIP).await.unwrap();
        assert_eq!(status.get().detail, None);
        let mut pattern = Pattern::new(PatternConfig::default()).unwrap();
        for second in 0..2 {
            feed.push(&pattern.next_frame(Duration::from_secs(second))).await.unwrap();
        }
        assert!(status.get().detail.unwrap().contains("the programme has changed"));
        tokio::time::advance(CHANGE_SHOWN / 2).await;
        feed.push(&pattern.next_frame(Duration::from_secs(2))).await.unwrap();
        assert!(status.get().detail.is_some());
        tokio::time::advance(CHANGE_SHOWN / 2).await;
        feed.push(&pattern.next_frame(Duration::from_secs(3))).await.unwrap();
        assert_eq!((status.get().state, status.get().detail), (InputState::Receiving, None));
    }

    #[tokio::test(start_paused = true)]
    async fn a_source_that_is_over_before_it_can_be_watched_is_said() {
        let (mut feed, mut cuts, _) = feed();
        tokio::spawn(async move { while cuts.recv().await.is_some() {} });
        let mut pattern = Pattern::new(PatternConfig::default()).unwrap();
        let frames = 20 * u64::from(PatternConfig::default().frames_per_s);
        feed.begin("at once");
        for _ in 0..frames {
            feed.push(&pattern.next_frame(Duration::ZERO)).await.unwrap();
        }
        let words = feed.too_fast().unwrap();
        assert!(words.starts_with("20 s of video came within 0.0 s") && words.contains("by its name"), "{words}");
        // A live one may begin with what was before.
        feed.begin("live");
        for frame in 0..frames {
            if frame * 5 > frames {
                tokio::time::advance(pattern.interval()).await;
            }
            feed.push(&pattern.next_frame(Duration::ZERO)).await.unwrap();
        }
        assert_eq!(feed.too_fast(), None);
    }

    #[tokio::test]
    async fn nobody_who_reads_is_an_ending() {
        let (mut feed, cuts, _) = feed();
        drop(cuts);
        assert!(matches!(feed.push(CLIP).await, Err(Ending::Unwanted)));
    }
}
