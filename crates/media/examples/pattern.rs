//! Writes a test picture's stream to standard output as fast as it is made, and says what a second of it costs:
//!
//! ```sh
//! cargo run --release -p anabranch-media --example pattern -- 60 bitrate=2M,size=640x384 > pattern.ts
//! ```

use std::error::Error;
use std::io::Write as _;
use std::time::{Duration, Instant};

use anabranch_media::pattern::Pattern;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let seconds: u32 = arguments.next().ok_or("how many seconds?")?.parse()?;
    let mut pattern = Pattern::new(arguments.next().unwrap_or_default().parse()?)?;
    let (mut now, mut spent, mut output) = (Duration::ZERO, Duration::ZERO, std::io::stdout().lock());
    while now < Duration::from_secs(seconds.into()) {
        let began = Instant::now();
        let bytes = pattern.next_frame(now);
        spent += began.elapsed();
        output.write_all(&bytes)?;
        now += pattern.interval();
    }
    eprintln!("{:.3} ms of a core for a second of video", spent.as_secs_f64() * 1e3 / f64::from(seconds));
    Ok(())
}
