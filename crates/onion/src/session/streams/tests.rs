use super::super::cell::Frame;
use super::super::datagrams::MOST_EARLY;
use super::super::limits::{MAX_EARLY, MAX_KNOWN, STREAM_BUFFER, STREAM_RESERVE, STREAM_WINDOW, Violation};
use super::*;

fn data(stream: u32, offset: u64, bytes: &[u8], is_end: bool) -> Frame<'_> {
    Frame::Data { stream: StreamId(stream), offset, is_end, bytes }
}

#[test]
fn a_peer_that_breaks_the_rules_is_distinguished_from_one_that_does_not() {
    let id = StreamId(3);
    let check = |frames: &[Frame<'_>], opens: bool| {
        let mut streams = Streams::new(opens);
        frames.iter().try_for_each(|frame| streams.on_frame(frame.clone()))
    };
    let target = Target::Itself;
    assert_eq!(check(&[data(3, STREAM_WINDOW - 1, &[1], true)], false), Ok(()));
    assert_eq!(check(&[data(3, STREAM_WINDOW, &[1], false)], false), Err(Violation::Credit));
    assert_eq!(check(&[data(3, 5, &[1], true), data(3, 6, &[1], false)], false), Err(Violation::End));
    assert_eq!(check(&[data(3, 5, &[1], true), data(3, 4, &[1], true)], false), Err(Violation::End));
    assert_eq!(check(&[data(3, 5, &[1], false), data(3, 4, &[1], true)], false), Err(Violation::End));
    let reset = |end| Frame::Reset { stream: id, reason: Reason::Stopped, end };
    assert_eq!(check(&[data(3, 5, &[1], false), reset(5)], false), Err(Violation::End));
    assert_eq!(check(&[reset(STREAM_WINDOW + 1)], false), Err(Violation::Credit));
    assert_eq!(check(&[reset(7), reset(9), data(3, 1, &[1], false)], false), Ok(()));
    assert_eq!(check(&[data(3, 0, &[1], false)], true), Err(Violation::Stream));
    assert_eq!(check(&[Frame::Open { stream: id, target }], true), Err(Violation::Role));
    assert_eq!(check(&[Frame::Accepted { stream: id }], false), Err(Violation::Role));
    let all: Vec<Frame<'_>> = (0..=MAX_KNOWN as u32).map(|n| data(n, 0, &[1], false)).collect();
    assert_eq!(check(&all, false), Err(Violation::TooMany));
    let most = (SESSION_WINDOW / STREAM_WINDOW) as usize;
    let much: Vec<Frame<'_>> = (0..=most as u32).map(|n| data(n, STREAM_WINDOW - 1, &[1], false)).collect();
    assert_eq!((check(&much[..most], false), check(&much, false)), (Ok(()), Err(Violation::Credit)));
}

#[test]
fn streams_that_nobody_has_opened_yet_hold_little() {
    let piece = vec![7; 16 << 10];
    let fill = |is_opened: bool| {
        let mut streams = Streams::new(false);
        for stream in 0..16 {
            if is_opened {
                streams.on_frame(Frame::Open { stream: StreamId(stream), target: Target::Itself })?;
            }
            for offset in (0..STREAM_WINDOW).step_by(piece.len()) {
                streams.on_frame(data(stream, offset, &piece, false))?;
                assert!(is_opened || streams.memory() <= MAX_EARLY + STREAM_WINDOW as usize, "{}", streams.memory());
            }
        }
        Ok(())
    };
    assert_eq!((fill(true), fill(false)), (Ok(()), Err(Violation::Credit)));
}

#[test]
fn a_stream_that_is_over_at_both_ends_is_forgotten_and_its_frames_mean_nothing() {
    let mut streams = Streams::new(false);
    streams.on_frame(data(0, 0, b"hello", true)).unwrap();
    assert_eq!(streams.poll_event(), Some(StreamEvent::Readable(StreamId(0))));
    let mut out = [0; 9];
    assert_eq!(streams.read(StreamId(0), &mut out), Ok(ReadOutcome::Bytes(5)));
    assert_eq!(streams.read(StreamId(0), &mut out), Ok(ReadOutcome::End));
    assert_eq!(streams.write(StreamId(0), b"bye"), Ok(3));
    streams.finish(StreamId(0));
    let carried = streams.next_data(100).unwrap();
    assert_eq!(carried, Carried::Data { stream: StreamId(0), start: 0, end: 3, is_end: true });
    assert_eq!(streams.next_data(100), None);
    streams.on_lost(&carried);
    let again = streams.next_data(100).unwrap();
    assert_eq!(again, carried);
    streams.on_delivered(&again);
    assert_eq!((streams.len(), streams.buffered), (0, 0));
    streams.on_frame(data(0, 0, b"hello", true)).unwrap();
    streams.on_lost(&carried);
    assert_eq!((streams.len(), streams.has_work(), streams.poll_event()), (0, false, None));
}

#[test]
fn whoever_reads_learns_of_the_end_before_the_stream_is_forgotten() {
    for splits in [false, true] {
        let mut streams = Streams::new(false);
        let id = StreamId(0);
        streams.on_frame(data(0, 0, b"hello", !splits)).unwrap();
        streams.finish(id);
        let end = streams.next_data(100).unwrap();
        streams.on_delivered(&end);
        let mut out = [0; 9];
        assert_eq!(streams.read(id, &mut out), Ok(ReadOutcome::Bytes(5)));
        if splits {
            assert_eq!(streams.read(id, &mut out), Ok(ReadOutcome::Pending));
            streams.on_frame(data(0, 5, b"", true)).unwrap();
        }
        assert_eq!((streams.read(id, &mut out), streams.len()), (Ok(ReadOutcome::End), 0));
    }
}

#[test]
fn a_reset_ends_both_directions_and_gives_all_credit_back() {
    let (mut client, mut exit) = (Streams::new(true), Streams::new(false));
    let id = client.open(Target::Itself).unwrap();
    client.write(id, &[7; 5000]).unwrap();
    let sent = client.next_data(1000).unwrap();
    exit.on_frame(data(0, 0, &[7; 1000], false)).unwrap();
    client.reset(id, Reason::Stopped);
    assert_eq!((client.buffered, client.write(id, &[1])), (0, Err(StreamError::Reset(Reason::Stopped))));
    client.on_lost(&sent);
    let mut bytes = vec![0; 8];
    assert_eq!(client.next_control(100, &mut bytes), Some(Carried::Reset(id)), "it needs no opening now");
    let frame = client.frame(&Carried::Reset(id)).unwrap();
    exit.on_frame(frame).unwrap();
    assert!(!client.are_resets_heard());
    client.on_delivered(&Carried::Reset(id));
    assert_eq!((client.len(), client.are_resets_heard(), exit.consumed), (1, true, 1000));
    let back = exit.next_control(100, &mut bytes).unwrap();
    client.on_frame(exit.frame(&back).unwrap()).unwrap();
    exit.on_delivered(&back);
    assert_eq!((client.len(), exit.len(), client.poll_event()), (0, 0, None));
}

fn piece(stream: u32, number: u32, bytes: &[u8]) -> Frame<'_> {
    Frame::Datagram { stream: StreamId(stream), number, length: bytes.len() as u16, offset: 0, bytes }
}

#[test]
fn a_flow_is_no_stream_and_a_stream_no_flow() {
    let check = |frames: &[Frame<'_>]| {
        let mut streams = Streams::new(false);
        frames.iter().try_for_each(|frame| streams.on_frame(frame.clone()))
    };
    let open = Frame::Open { stream: StreamId(0), target: Target::Itself };
    let flow = Frame::OpenFlow { stream: StreamId(0), target: Target::Itself };
    let reset = Frame::Reset { stream: StreamId(0), reason: Reason::Stopped, end: 0 };
    let (bytes, end, datagram) = (data(0, 0, &[1], false), data(0, 0, &[], true), piece(0, 0, &[1]));
    assert_eq!(check(&[datagram.clone(), flow.clone(), datagram.clone(), reset.clone(), datagram.clone()]), Ok(()));
    assert_eq!(check(&[reset, flow.clone(), datagram.clone()]), Ok(()), "overtaken by its end");
    for wrong in
        [[&bytes, &flow], [&end, &flow], [&flow, &bytes], [&flow, &end], [&datagram, &open], [&open, &datagram]]
    {
        assert_eq!(check(&wrong.map(Clone::clone)), Err(Violation::Stream), "{wrong:?}");
    }
    let mut client = Streams::new(true);
    assert_eq!(client.on_frame(flow.clone()), Err(Violation::Role));
    assert_eq!(client.on_frame(datagram), Err(Violation::Stream), "nobody opened it");
    let (stream, flow) = (client.open(Target::Itself).unwrap(), client.open_flow(Target::Itself).unwrap());
    assert_eq!(client.send_datagram(stream, &[1]), Err(StreamError::Kind));
    assert_eq!(client.write(flow, &[1]), Err(StreamError::Kind));
    assert_eq!(client.send_datagram(flow, &[0; MOST_DATAGRAM + 1]), Err(StreamError::TooLong));
    assert_eq!(client.send_datagram(flow, &[0; MOST_DATAGRAM]), Ok(true));
    client.reset(flow, Reason::Stopped);
    assert_eq!(client.send_datagram(flow, &[1]), Err(StreamError::Reset(Reason::Stopped)));
    assert!(client.flows.departing.is_empty(), "what waited goes with its flow");
}

#[test]
fn datagrams_that_overtake_their_flows_opening_are_few_and_come_after_it() {
    let mut exit = Streams::new(false);
    for number in 0..1000 {
        exit.on_frame(piece(number % 3, number, &[number as u8])).unwrap();
    }
    assert_eq!((exit.flows.early(), exit.poll_event()), (MOST_EARLY, None));
    exit.on_frame(Frame::OpenFlow { stream: StreamId(1), target: Target::Itself }).unwrap();
    assert_eq!(exit.poll_event(), Some(StreamEvent::FlowOpened(StreamId(1), Target::Itself)));
    let mut came = 0;
    while let Some(event) = exit.poll_event() {
        assert!(matches!(event, StreamEvent::Datagram(StreamId(1), _)), "{event:?}");
        came += 1;
    }
    assert_eq!((came, exit.flows.early()), (MOST_EARLY / 3, MOST_EARLY - MOST_EARLY / 3));
}

#[test]
fn datagrams_and_bytes_of_streams_share_cells_evenly() {
    let mut streams = Streams::new(true);
    let (stream, flow) = (streams.open(Target::Itself).unwrap(), streams.open_flow(Target::Itself).unwrap());
    streams.write(stream, &vec![0; 200_000]).unwrap();
    while streams.send_datagram(flow, &[0; 900]).unwrap() {}
    let mut shares = [0; 2];
    for _ in 0..100 {
        let (mut cell, mut carried) = (Vec::new(), Vec::new());
        streams.fill(1000, 1000, &mut cell, &mut carried);
        assert!(cell.len() <= 1000);
        carried.iter().for_each(|what| shares[usize::from(matches!(what, Carried::Datagram(_)))] += 1);
    }
    assert!(shares[1] == 50 && shares[0] >= 50, "{shares:?}");
    // What is lost does not leave again.
    let waiting = streams.flows.departing.memory();
    streams.on_lost(&Carried::Datagram(flow));
    assert_eq!(streams.flows.departing.memory(), waiting);
}

#[test]
fn streams_take_turns_and_whoever_had_no_room_is_notified_when_there_is() {
    let mut streams = Streams::new(true);
    let ids: Vec<StreamId> = (0..3).map(|_| streams.open(Target::Itself).unwrap()).collect();
    ids.iter().for_each(|&id| assert_eq!(streams.write(id, &vec![0; STREAM_BUFFER + 1]), Ok(STREAM_BUFFER)));
    let first: Vec<Carried> = (0..6).map(|_| streams.next_data(1000).unwrap()).collect();
    let turns: Vec<u32> = first
        .iter()
        .map(|carried| match carried {
            Carried::Data { stream, .. } => stream.0,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(turns, [0, 1, 2, 0, 1, 2]);
    assert_eq!(streams.poll_event(), None);
    streams.on_delivered(&first[1]);
    assert_eq!(streams.poll_event(), Some(StreamEvent::Writable(StreamId(1))));
    assert_eq!(streams.write(StreamId(1), &[0; 5000]), Ok(1000));
}

/// All that `from` may send comes to `to`, and what `to` says of credit comes back, until there is nothing more.
fn pass_all(from: &mut Streams, to: &mut Streams) {
    let controls = |from: &mut Streams, to: &mut Streams| {
        let mut is_busy = false;
        while let Some(carried) = from.next_control(1000, &mut Vec::new()) {
            to.on_frame(from.frame(&carried).unwrap()).unwrap();
            from.on_delivered(&carried);
            is_busy = true;
        }
        is_busy
    };
    loop {
        let mut is_busy = controls(from, to) | controls(to, from);
        while let Some(carried) = from.next_data(1000) {
            let Carried::Data { stream, start, end, is_end } = carried else { panic!("{carried:?}") };
            let mut bytes = Vec::new();
            from.streams[&stream].outgoing.append(start, end, &mut bytes);
            to.on_frame(Frame::Data { stream, offset: start, is_end, bytes: &bytes }).unwrap();
            from.on_delivered(&carried);
            is_busy = true;
        }
        if !is_busy {
            return;
        }
    }
}

/// RFC 9113 5.2.2 and RFC 9000 4.1 warn of it: what one reader leaves must not take the credit of the others.
#[test]
fn streams_that_nobody_reads_hold_up_no_other() {
    let piece = vec![7; 32 << 10];
    for stalled in [1, 8, 60, MAX_STREAMS - 1] {
        let (mut client, mut exit) = (Streams::new(true), Streams::new(false));
        for _ in 0..stalled {
            let id = client.open(Target::Itself).unwrap();
            pass_all(&mut client, &mut exit);
            // As much as ever finds room, and again.
            for _ in 0..10 {
                while exit.write(id, &piece).unwrap() > 0 {}
                pass_all(&mut exit, &mut client);
            }
        }
        assert!(client.counted - client.consumed <= SESSION_WINDOW && exit.buffered <= SESSION_BUFFER);
        let id = client.open(Target::Itself).unwrap();
        pass_all(&mut client, &mut exit);
        let (mut written, mut read, mut out) = (0, 0, vec![0; 64 << 10]);
        for round in 0.. {
            assert!(round < 200, "{read} bytes came beside {stalled} streams that nobody reads");
            if read >= 2 << 20 {
                break;
            }
            while let Ok(count @ 1..) = exit.write(id, &piece) {
                written += count;
            }
            pass_all(&mut exit, &mut client);
            while let Ok(ReadOutcome::Bytes(count)) = client.read(id, &mut out) {
                read += count;
            }
        }
        assert!(read <= written);
        // And whoever reads after all gets what was left.
        let mut rest = 0;
        while let Ok(ReadOutcome::Bytes(count)) = client.read(StreamId(0), &mut out) {
            rest += count;
            pass_all(&mut exit, &mut client);
        }
        assert!(rest >= STREAM_RESERVE as usize, "{rest}");
    }
}

#[test]
fn a_single_stream_has_its_whole_window_however_little_is_read_at_once() {
    let (mut client, mut exit) = (Streams::new(true), Streams::new(false));
    let id = client.open(Target::Itself).unwrap();
    pass_all(&mut client, &mut exit);
    let mut out = vec![0; 1000];
    for _ in 0..500 {
        while exit.write(id, &[3; 32 << 10]).unwrap() > 0 {}
        pass_all(&mut exit, &mut client);
        let held = client.counted - client.consumed;
        assert!((STREAM_WINDOW - AMPLE_STEP..=STREAM_WINDOW).contains(&held), "{held}");
        for _ in 0..50 {
            client.read(id, &mut out).unwrap();
        }
    }
}
