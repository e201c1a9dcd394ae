//! The stream that a server is given: whole packets at the stream's bitrate, one by one, as a simulation has them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anabranch_control::time::{Duration, Time};
use anabranch_control::units::Bytes;
use anabranch_lab::stream::script::KEYFRAMES;
use anabranch_net::clock::{Clock, std_duration};
use anabranch_net::stream::{Input, InputError, Video};
use anabranch_proto::stream::packet::{MAX_PACKET, TS_PACKET};
use anabranch_scenario::stream::StreamScenario;

use super::unix_s;
use crate::failure::TestbedFailure;
use crate::realtime;

/// Packets without a programme (ISO/IEC 13818-1, 2.4.3.2): the sync byte, identifier 0x1fff, payload alone.
const NULL_HEADER: [u8; 4] = [0x47, 0x1f, 0xff, 0x10];

/// Feeds `video` from `begun` until the scenario's end or `stop`; when each packet went in, in seconds since 1970.
pub fn feed(
    scenario: &StreamScenario,
    video: &Input,
    begun: Time,
    clock: Clock,
    stop: &AtomicBool,
) -> Result<Vec<f64>, TestbedFailure> {
    realtime::sleep_exactly();
    let interval = Bytes::new(MAX_PACKET as u64) / scenario.stream.bitrate;
    let end = begun + scenario.duration;
    let (mut due, mut next_keyframe) = (begun, begun);
    let mut sent = Vec::new();
    while due < end && !stop.load(Ordering::Relaxed) {
        let now = clock.now();
        if now < due {
            std::thread::sleep(std_duration(due.since(now).min(LONGEST_SLEEP)));
            continue;
        }
        let is_entry_point = due >= next_keyframe;
        if is_entry_point {
            next_keyframe += KEYFRAMES;
        }
        let number = sent.len() as u64;
        sent.push(unix_s());
        let fed = video.push(Video { bytes: packet(number), is_entry_point });
        fed.map_err(|error| match error {
            InputError::Full(_) => TestbedFailure::Scenario("the server does not keep up with its source".into()),
            error => TestbedFailure::Scenario(error.to_string()),
        })?;
        due += interval;
    }
    Ok(sent)
}

/// So soon a stop is seen.
const LONGEST_SLEEP: Duration = Duration::from_millis(20);

/// Packet `number` of the stream: seven of a transport stream, each with that number.
fn packet(number: u64) -> Arc<[u8]> {
    let mut bytes = [0xff; MAX_PACKET];
    for part in bytes.chunks_mut(TS_PACKET) {
        part[..4].copy_from_slice(&NULL_HEADER);
        part[4..12].copy_from_slice(&number.to_be_bytes());
    }
    bytes.into()
}
