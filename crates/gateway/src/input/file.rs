//! Files, as fast as they are to be played, and standard input and other pipes, as they come.

use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::time::Duration;

use anabranch_media::alignment::{Alignment, PACKET};
use anabranch_media::clock::{MediaClock, Tick};
use anabranch_media::repetition::Repetition;
use tokio::time::{Instant, sleep_until};

use super::feed::{Ending, Feed, Read as _};
use super::reading::Reading;

/// A file of which this many bytes have no clock has none: in a transport stream, it comes ten times a second.
const WITHOUT_CLOCK: u64 = 8 << 20;

/// Whoever reads the cuts may be so late and the file is still played on time; beyond, it goes on from there.
const LATEST: Duration = Duration::from_secs(1);

/// Plays a file by its own clock, again and again if `is_looped`.
pub async fn run_paced(mut feed: Feed, file: File, is_looped: bool) {
    let mut player = Player {
        feed: &mut feed,
        clock: MediaClock::default(),
        repetition: Repetition::default(),
        start: Instant::now(),
        without_clock: 0,
    };
    let ending = player.play(file, is_looped).await.unwrap_or_else(|ending| ending);
    match ending {
        Ending::Over => feed.note_waiting("the file is over"),
        ending => feed.note_failed(ending.to_string()),
    }
}

/// Plays one file.
struct Player<'a> {
    feed: &'a mut Feed,
    clock: MediaClock,
    repetition: Repetition,
    /// When the clock was at zero.
    start: Instant,
    /// Bytes before the clock was read.
    without_clock: u64,
}

impl Player<'_> {
    async fn play(&mut self, file: File, is_looped: bool) -> Result<Ending, Ending> {
        self.feed.begin("reading");
        loop {
            let mut rewound = file.try_clone().map_err(Ending::Broken)?;
            rewound.seek(SeekFrom::Start(0)).map_err(Ending::Broken)?;
            let packets = self.play_once(rewound).await?;
            if packets == 0 {
                return Err(Ending::NothingInIt);
            }
            if !is_looped {
                self.feed.flush().await?;
                return Ok(Ending::Over);
            }
            self.repetition.rewind();
        }
    }

    /// How many packets there were.
    async fn play_once(&mut self, file: File) -> Result<u64, Ending> {
        let mut reading = Reading::start(file).map_err(Ending::Broken)?;
        let (mut alignment, mut count) = (Alignment::default(), 0);
        while let Some(bytes) = reading.read().await.map_err(Ending::Broken)? {
            let mut packets = Vec::new();
            alignment.push(&bytes, |packet| packets.push(*packet))?;
            count += packets.len() as u64;
            self.play_packets(&mut packets).await?;
        }
        Ok(count)
    }

    async fn play_packets(&mut self, packets: &mut [[u8; PACKET]]) -> Result<(), Ending> {
        let mut begin = 0;
        for number in 0..packets.len() {
            self.repetition.next(&mut packets[number]);
            if let Some(Tick::At(time) | Tick::Jump(time)) = self.clock.next(&packets[number]) {
                // What comes before is due.
                self.feed.push(packets[begin..number].as_flattened()).await?;
                begin = number;
                self.wait(time).await?;
            }
        }
        let rest = packets[begin..].as_flattened();
        self.feed.push(rest).await?;
        if !self.clock.is_running() {
            self.without_clock += rest.len() as u64;
            if self.without_clock > WITHOUT_CLOCK {
                let words = "the file has no programme clock, so that nobody knows when to play what";
                return Err(Ending::Broken(io::Error::new(io::ErrorKind::InvalidData, words)));
            }
        }
        Ok(())
    }

    /// Until the clock is at `time`.
    async fn wait(&mut self, time: Duration) -> Result<(), Ending> {
        let (due, now) = (self.start + time, Instant::now());
        if due + LATEST < now {
            self.start = now - time;
        } else if due > now {
            self.feed.flush().await?;
            sleep_until(due).await;
        }
        Ok(())
    }
}

/// Reads what comes when it is due: standard input, a FIFO, a device. `name` is what it is called.
pub async fn run_unpaced<R: io::Read>(
    mut feed: Feed,
    name: String,
    open: impl FnOnce() -> io::Result<R> + Send + 'static,
    stall: Duration,
) {
    let mut reading = match Reading::open(open) {
        Ok(reading) => reading,
        Err(error) => return feed.note_failed(error.to_string()),
    };
    feed.begin("nothing has come yet");
    loop {
        match feed.pump(&mut reading, stall).await {
            ending @ (Ending::Stalled(_) | Ending::TooSlow(_)) => feed.note_waiting(ending.to_string()),
            ending @ Ending::Over if feed.has_video() => {
                let words = feed.too_fast().map_or(ending.to_string(), |too_fast| format!("{ending}: {too_fast}"));
                return feed.note_waiting(words);
            }
            Ending::Over => return feed.note_failed(format!("{name} is over: {}", Ending::NothingInIt)),
            ending @ (Ending::NoTransportStream(_) | Ending::NothingInIt | Ending::Broken(_)) => {
                return feed.note_failed(ending.to_string());
            }
            Ending::Unwanted => return,
        }
    }
}
