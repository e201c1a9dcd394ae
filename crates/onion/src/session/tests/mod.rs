//! Sessions over a network that does what networks do.

mod channel;

use anabranch_control::time::{Duration, Time};
use channel::{Job, Path, World};
use proptest::prelude::*;

use super::*;

const MIB: usize = 1 << 20;

fn several(count: u64, change: impl Fn(u64, &mut Path)) -> Vec<Path> {
    (0..count)
        .map(|i| {
            let mut path = Path::good(5 + 3 * i);
            change(i, &mut path);
            path
        })
        .collect()
}

fn world(seed: u64, paths: &[Path]) -> World {
    World::new(seed, Secrecy::Transparent, paths, paths, Rates::default())
}

#[test]
fn a_page_comes_whole_and_soon() {
    let paths = several(4, |_, _| {});
    let mut world = World::new(1, Secrecy::Sealed, &paths, &paths, Rates::default());
    world.start(Job { up: 300, down: 50 << 10 });
    let took = world.run(1.0);
    println!("50 KiB in {took}");
    assert!(took < Duration::from_millis(150), "{took}");
}

#[test]
fn the_handshake_says_how_long_the_way_is_unless_it_was_repeated() {
    // There and back in 200 ms, with some of jitter.
    let paths = several(4, |_, path| path.delay = Duration::from_millis(100));
    let mut world = World::new(1, Secrecy::Sealed, &paths, &paths, Rates::default());
    world.start(Job { up: 0, down: 100 });
    while !world.client.is_connected() {
        world.pass(0.001);
    }
    let round_trip = world.client.round_trip().unwrap();
    assert!((200..203).contains(&(round_trip.as_nanos() / 1_000_000)), "{round_trip}");
    assert!(world.client.rates().iter().all(|rate| (610..=620).contains(rate)), "{:?}", world.client.rates());
    // The first try is lost. Which of them was answered is known here, but not to the client.
    let none = several(1, |_, path| path.dies = Time::ZERO);
    let mut world = World::new(1, Secrecy::Sealed, &none, &paths, Rates::default());
    world.start(Job { up: 0, down: 100 });
    world.pass(0.5);
    world.heal();
    while !world.client.is_connected() {
        world.pass(0.001);
    }
    assert_eq!((world.client.round_trip(), world.client.rates()), (None, [124, 124]));
}

#[test]
fn a_service_that_answers_no_question_seems_gone_within_seconds_and_one_that_was_asked_nothing_never() {
    let paths = several(4, |_, path| path.dies = Time::ZERO + Duration::SECOND);
    let mut world = world(1, &paths);
    world.start(Job { up: 0, down: 100 });
    world.run(1.0);
    world.pass(30.0);
    assert!(world.client.is_connected() && !world.client.seems_gone(world.now), "nothing was asked");
    world.start(Job { up: 100, down: 100 });
    let asked = world.now;
    while !world.client.seems_gone(world.now) {
        world.pass(0.1);
        assert!(world.client.end().is_none() && world.now.since(asked) < Duration::from_millis(8_000));
    }
    assert!(world.now.since(asked) >= GONE);
    world.heal();
    world.pass(20.0);
    assert!(!world.client.seems_gone(world.now), "it answers again");
    // One that has never answered.
    let mut world = self::world(1, &several(4, |_, path| path.dies = Time::ZERO));
    world.start(Job { up: 0, down: 100 });
    world.pass(4.5);
    assert!(!world.client.seems_gone(world.now));
    world.pass(5.0);
    assert!(world.client.seems_gone(world.now));
}

#[test]
fn who_says_nothing_is_asked_for_ever_more_seldom_and_who_speaks_again_has_a_service_that_is_gone_found_as_soon() {
    let paths = several(4, |_, path| path.dies = Time::ZERO + Duration::SECOND * 300);
    let mut world = world(1, &paths);
    let flow = world.client.open_flow(world.now, Target::Name("example.org".into(), 53)).unwrap();
    assert_eq!(world.client.send_datagram(flow, b"once"), Ok(true));
    world.pass(100.0);
    let before = world.cells;
    world.pass(199.9);
    let cells: Vec<u64> = world.cells.iter().zip(before).map(|(now, before)| now - before).collect();
    println!("{cells:?} cells in 200 s");
    assert!(cells.iter().all(|cells| (12..=26).contains(cells)), "{cells:?}, a question each 16 s and its answer");
    world.pass(0.6);
    assert!(!world.client.seems_gone(world.now));
    assert_eq!(world.client.send_datagram(flow, b"again"), Ok(true));
    let spoke = world.now;
    while !world.client.seems_gone(world.now) {
        world.pass(0.1);
        assert!(world.now.since(spoke) < Duration::from_millis(8_000), "who speaks may not wait for the next question");
    }
    assert!(world.now.since(spoke) >= GONE && world.client.end().is_none());
}

#[test]
fn that_it_is_over_is_said_by_three_cells_of_which_two_may_be_lost() {
    let paths = several(4, |_, _| {});
    let mut world = world(1, &paths);
    world.start(Job { up: 0, down: 100 });
    world.run(1.0);
    world.client.close();
    let (mut cell, mut cells) = (Vec::new(), Vec::new());
    let via = Via { tag: 0, timeout: Duration::SECOND, is_trial: false };
    while world.client.poll_cell(world.now, via, &mut cell) {
        cells.push(cell.clone());
    }
    assert_eq!(cells.len(), 3);
    world.exits.on_cell(world.now, &cells[2]);
    let ends: Vec<Option<End>> = world.exits.iter_mut().map(|(_, exit)| exit.end()).collect();
    assert_eq!(ends, [Some(End::ClosedByPeer)]);
}

#[test]
fn datagrams_come_as_they_were_and_none_twice_and_what_is_lost_stays_lost() {
    let paths = several(6, |_, path| (path.loss, path.doubled) = (0.1, 0.1));
    let mut world = World::new(7, Secrecy::Sealed, &paths, &paths, Rates::default());
    let flow = world.client.open_flow(world.now, Target::Name("example.org".into(), 53)).unwrap();
    // A stream beside it gets all it wants.
    world.start(Job { up: 0, down: 2 * MIB });
    let datagram =
        |number: usize| [&number.to_be_bytes()[..], &vec![number as u8; number % (MOST_DATAGRAM - 7)]].concat();
    let count = 1000;
    for number in 0..count {
        assert_eq!(world.client.send_datagram(flow, &datagram(number)), Ok(true));
        world.pass(0.005);
    }
    world.pass(2.0);
    world.run(20.0);
    for came in &world.datagrams {
        let mut numbers: Vec<usize> =
            came.iter().map(|bytes| usize::from_be_bytes(bytes[..8].try_into().unwrap())).collect();
        numbers.iter().zip(came).for_each(|(&number, bytes)| assert_eq!(bytes[..], datagram(number)[..]));
        numbers.sort_unstable();
        assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]), "one came twice");
    }
    let [up, back] = world.datagrams.each_ref().map(Vec::len);
    // A tenth of cells is lost, and a third of these datagrams are of two.
    assert!((800..950).contains(&up) && back > up * 8 / 10 && back < up * 19 / 20, "{up}, {back} of {count}");
    // A flow that is over at both ends leaves nothing behind.
    world.client.reset(flow, Reason::Stopped);
    world.pass(2.0);
    assert_eq!((world.client.streams().len(), world.client.streams().memory()), (0, 0));
}

#[test]
fn throughput_is_near_what_the_channel_carries() {
    // 4 paths of 2500 cells a second each way.
    let paths = several(4, |_, path| path.capacity = 2500);
    for job in [Job { up: 0, down: 4 * MIB }, Job { up: 4 * MIB, down: 0 }] {
        let mut world = world(1, &paths);
        // One stream has a window of 1 MiB, which at such delays is less than the channel carries.
        (0..4).for_each(|_| _ = world.start(job));
        let took = world.run(30.0).as_secs_f64();
        let carried = 4.0 * 2500.0 * 1000.0;
        let goodput = (16 * MIB) as f64 / took;
        println!("{job:?}: {:.1} MB/s of {:.1}, {:?} cells", goodput / 1e6, carried / 1e6, world.cells);
        // The start takes a second of them.
        assert!(goodput > 0.4 * carried, "{goodput} of {carried} bytes a second");
    }
}

/// A report on sixteen cells is 17 bytes a cell, one in each cell would be 90.
#[test]
fn reports_take_little_room_of_data_where_both_ends_have_much_to_say() {
    let mut world = world(1, &several(4, |_, _| {}));
    world.start(Job { up: 4 * MIB, down: 4 * MIB });
    world.run(30.0);
    let format = CellFormat::new(1050, Secrecy::Transparent).unwrap();
    let room = format.plain() - cell::PLAIN_HEADER - cell::DATA_HEADER;
    let least = (4 * MIB).div_ceil(room) as u64;
    let [_, back] = world.cells;
    assert!((least..least * 104 / 100).contains(&back), "{back} cells, of {least}");
}

#[test]
fn a_quarter_of_all_paths_dies_and_the_download_goes_on() {
    for seed in 0..2 {
        let paths = several(12, |i, path| {
            path.capacity = 2500;
            path.loss = 0.01;
            if i % 4 == 0 {
                path.dies = Time::ZERO + Duration::SECOND;
            }
        });
        let mut world = world(seed, &paths);
        world.start(Job { up: 0, down: 16 * MIB });
        let took = world.run(30.0);
        println!("40 MiB in {took}, longest stall {}", world.longest_stall);
        assert!(
            took > Duration::SECOND && world.longest_stall < Duration::from_millis(2000),
            "{}",
            world.longest_stall
        );
    }
}

#[test]
fn all_paths_but_one_die_and_the_download_goes_on() {
    let paths = several(4, |i, path| {
        if i > 0 {
            path.dies = Time::ZERO + Duration::from_millis(400);
        }
    });
    let mut world = world(3, &paths);
    world.start(Job { up: 0, down: 8 * MIB });
    let took = world.run(60.0);
    println!("8 MiB in {took}, longest stall {}", world.longest_stall);
    assert!(world.longest_stall < Duration::from_millis(5000), "{}", world.longest_stall);
}

#[test]
fn a_network_that_comes_back_finds_the_session_there() {
    let paths = several(4, |_, path| path.dies = Time::ZERO + Duration::from_millis(300));
    let mut world = world(3, &paths);
    world.start(Job { up: 0, down: 8 * MIB });
    world.pass(10.0);
    assert!(!world.is_done());
    world.heal();
    let took = world.run(60.0);
    println!("8 MiB {took} after the network came back");
}

#[test]
fn equal_seeds_give_equal_traces() {
    let run = |seed, secrecy| {
        let paths = several(5, |i, path| (path.loss, path.doubled) = (0.02 * i as f64, 0.02));
        let mut world = World::new(seed, secrecy, &paths, &paths, Rates::default());
        world.start(Job { up: 200_000, down: MIB });
        world.run(30.0);
        (world.trace(), world.now, world.cells)
    };
    assert_eq!(run(1, Secrecy::Transparent), run(1, Secrecy::Transparent));
    assert_ne!(run(1, Secrecy::Transparent).0, run(2, Secrecy::Transparent).0);
    assert_eq!(run(1, Secrecy::Sealed), run(1, Secrecy::Transparent), "encryption is time and nothing else");
}

#[test]
fn a_reader_that_does_not_read_holds_its_sender_up_and_nobody_elses_memory() {
    let paths = several(4, |_, path| path.loss = 0.05);
    let mut world = world(1, &paths);
    world.is_slow = true;
    world.start(Job { up: 8 * MIB, down: 0 });
    world.pass(20.0);
    assert_eq!(world.read_by_exit(), 0);
    // A stream's window and the pool of blocks.
    assert!(world.most_memory < 4 * MIB, "{} bytes", world.most_memory);
    world.is_slow = false;
    world.run(60.0);
    assert_eq!(world.read_by_exit(), 8 * MIB);
}

#[test]
fn many_streams_share_a_session() {
    let paths = several(6, |i, path| (path.loss, path.doubled) = (0.01 * i as f64, 0.05));
    let mut world = world(4, &paths);
    for round in 0..4 {
        (0..60).for_each(|i| _ = world.start(Job { up: i * 100, down: i * 1000 + round }));
        world.run(60.0);
        assert!(world.failed().is_empty());
    }
    world.pass(2.0);
    assert_eq!(world.client.streams().len(), 0, "all are forgotten");
    assert!(world.exits.iter_mut().all(|(_, exit)| exit.streams().is_empty()));
}

#[test]
fn nobody_answers_and_the_session_says_so() {
    let paths = several(3, |_, path| path.dies = Time::ZERO);
    let mut world = world(1, &paths);
    world.start(Job { up: 10, down: 10 });
    world.run(60.0);
    assert_eq!(world.end, Some(End::Unanswered));
}

#[test]
fn a_network_that_dies_for_good_ends_the_session_in_time() {
    let paths = several(3, |_, path| path.dies = Time::ZERO + Duration::from_millis(200));
    let mut world = world(1, &paths);
    world.start(Job { up: 0, down: 64 * MIB });
    world.run(120.0);
    assert_eq!((world.end, world.now.as_secs_f64() as u64), (Some(End::Silent), 60));
    let sent = world.cells;
    world.pass(400.0);
    assert_eq!(world.cells, sent, "and is silent");
    assert!(world.exits.is_empty(), "the service has forgotten it");
}

#[test]
fn a_session_without_streams_falls_silent_and_ends() {
    let mut world = world(1, &several(3, |_, _| {}));
    world.start(Job { up: 1000, down: 1000 });
    world.run(5.0);
    world.pass(3.0);
    let sent = world.cells;
    world.pass(100.0);
    assert_eq!(world.cells, sent, "there is nothing to say");
    world.pass(30.0);
    assert_eq!((world.end, world.exits.len()), (Some(End::Idle), 0));
}

#[test]
fn the_constant_class_sends_at_its_rate_whatever_is_said() {
    let rates = || Rates {
        forward: Box::new(total_rate::Constant::new(200)),
        backward: Box::new(total_rate::Constant::new(300)),
    };
    let paths = several(3, |_, path| path.loss = 0.02);
    let cells = |jobs: usize| {
        let mut world = World::new(1, Secrecy::Transparent, &paths, &paths, rates());
        // One that never ends keeps the session.
        world.is_slow = true;
        world.start(Job { up: 10, down: 10 });
        world.pass(5.0);
        (0..jobs).for_each(|_| _ = world.start(Job { up: 0, down: 100_000 }));
        let before = world.cells;
        world.pass(10.0);
        [world.cells[0] - before[0], world.cells[1] - before[1]]
    };
    let (idle, busy) = (cells(0), cells(3));
    println!("{idle:?} cells in 10 s when idle, {busy:?} when busy");
    for cells in [idle, busy] {
        assert!((1990..=2010).contains(&cells[0]) && (2950..=3030).contains(&cells[1]), "{cells:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// Whatever the network does, as long as it does something: all bytes come, and they are the right ones.
    #[test]
    fn bytes_are_equal_over_any_network(
        seed in 0u64..1000,
        delays in prop::collection::vec((0u64..200, 0u64..100, 0.0f64..0.25, 0.0f64..0.3), 1..6),
        jobs in prop::collection::vec((0usize..200_000, 0usize..300_000), 1..5),
        dies in prop::option::of(0u64..3000),
    ) {
        let mut paths: Vec<Path> = delays.iter().map(|&(delay, jitter, loss, doubled)| Path {
            jitter: Duration::from_millis(jitter), loss, doubled, ..Path::good(delay)
        }).collect();
        if let (Some(ms), true) = (dies, paths.len() > 1) {
            paths[0].dies = Time::ZERO + Duration::from_millis(ms);
        }
        let mut world = world(seed, &paths);
        jobs.iter().for_each(|&(up, down)| _ = world.start(Job { up, down }));
        world.run(600.0);
        // Over one bad path of two, ten tries of two halves and an answer may all fail.
        prop_assume!(world.end != Some(End::Unanswered));
        prop_assert_eq!((world.end, world.failed()), (None, vec![]));
        world.pass(30.0);
        prop_assert!(world.client.streams().is_empty(), "streams are left: {:?}", world.client);
    }
}

#[test]
fn who_learned_short_delays_learns_the_long_ones_that_are_left() {
    // The fast path dies; an answer over the other takes far longer than its deadline, and than it is remembered.
    let good = Path { jitter: Duration::from_millis(3), ..Path::good(0) };
    let dies = Path { dies: Time::ZERO + Duration::from_millis(110), ..good };
    let left = Path { loss: 0.14, doubled: 0.24, ..Path::good(54) };
    let mut world = world(719, &[dies, left]);
    world.start(Job { up: 42_686, down: 140_922 });
    world.run(60.0);
    assert_eq!((world.end, world.failed()), (None, vec![]));
}
