use anabranch_control::units::Rate;

use super::super::testing::{Tested, server_config};
use super::*;

fn at(millis: u64) -> Time {
    Time::ZERO + Duration::from_millis(millis)
}

#[test]
fn a_server_is_overrun_where_the_stream_waits_and_messages_take_much_of_the_line() {
    let config = server_config(Mode::Hybrid, Rate::from_bits_per_sec(8_000_000));
    let mut server: Server<u32, Tested> = Server::new(config, 0, Time::ZERO, Rng::stream(1, "server"));
    server.uplink.push(at(0), SessionId(1), PacketId(0));
    assert!(!server.is_overrun(at(300)), "some have died, and messages take next to nothing");
    // 120 newcomers in a tenth of a second: 1.2 megabits of handshakes, where an eighth is one.
    (0..120).for_each(|number| server.control.on_session(at(200 + number / 2)));
    assert!(!server.is_overrun(at(249)), "nobody misses anything yet");
    assert!(server.is_overrun(at(300)));
    assert!(!server.is_overrun(at(200) + SILENCE * 8), "viewers may be moved again");
    server.uplink.forget(SessionId(1));
    assert!(!server.is_overrun(at(300)), "nothing waits");
}
