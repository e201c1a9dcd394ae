//! The test picture, each when it is due.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anabranch_media::pattern::Pattern;
use tokio::time::{Instant, sleep_until};

use super::feed::{Ending, Feed};

/// Whoever reads the cuts may be so late and no picture is late for it; beyond, the next ones come later.
const LATEST: Duration = Duration::from_secs(1);

/// Makes pictures until nobody reads them.
pub async fn run(mut feed: Feed, pattern: Pattern) {
    feed.begin("the first picture is being made");
    if let Err(ending) = show(&mut feed, pattern).await {
        feed.note_failed(ending.to_string());
    }
}

async fn show(feed: &mut Feed, mut pattern: Pattern) -> Result<(), Ending> {
    let mut due = Instant::now();
    while !feed.is_unwanted() {
        // A clock that stands before 1970 is wrong anyway.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        feed.push(&pattern.next_frame(now)).await?;
        // A picture is not to wait for the next one.
        feed.flush().await?;
        due += pattern.interval();
        if due + LATEST < Instant::now() {
            due = Instant::now();
        }
        sleep_until(due).await;
    }
    Ok(())
}
