//! TCP's recovery without RACK, segment by segment: RFC 6675, RFC 6298, RFC 5681.

use std::sync::{Arc, Mutex};

use anabranch_control::flow::registry::{Setup, find};
use anabranch_control::flow::{Bounds, Feedback, FlowController, Limits, LossCause, PeerId, TcpRecovery};
use anabranch_control::rng::Rng;
use anabranch_control::time::{Duration, Time};
use anabranch_control::units::Bytes;
use anabranch_proto::flow::{AckForm, AckPolicy, Data, FlowReceiver, FlowSender, LossRecovery, SenderConfig};

const PACKET: Bytes = Bytes::new(1000);
const RTT: Duration = Duration::from_millis(100);
const ME: PeerId = PeerId(0);

/// A window of 8 packets that never changes, and what it was told.
#[derive(Clone, Debug, Default)]
struct Told(Arc<Mutex<Vec<TcpRecovery>>>);

impl FlowController for Told {
    fn on_feedback(&mut self, _: Time, feedback: &Feedback<'_>, _: &mut Rng) {
        self.0.lock().unwrap().push(feedback.tcp.expect("TCP's recovery is at work"));
    }
    fn limits(&self) -> Limits {
        Limits::window(PACKET * 8)
    }
    fn trace(&self, _: &mut dyn FnMut(&'static str, f64)) {}
}

impl Told {
    fn count(&self, what: TcpRecovery) -> usize {
        self.0.lock().unwrap().iter().filter(|told| **told == what).count()
    }
}

/// A sender and its receiver, which answers each segment, `RTT` apart.
struct Pair {
    sender: FlowSender,
    receiver: FlowReceiver,
    now: Time,
}

impl Pair {
    fn new(controller: Box<dyn FlowController>) -> Pair {
        let config = SenderConfig {
            packet: PACKET,
            max_ack_delay: Duration::from_millis(25),
            paced: false,
            ecn: false,
            recovery: LossRecovery::Rfc6675,
        };
        let policy = AckPolicy { every: 1, max_delay: Duration::ZERO, form: AckForm::Sack, filled_gap: false };
        Pair {
            sender: FlowSender::new(config, controller, 1, Rng::stream(1, "controller")),
            receiver: FlowReceiver::new(policy),
            now: Time::ZERO,
        }
    }

    /// All that may leave now.
    fn send(&mut self) -> Vec<Data> {
        std::iter::from_fn(|| self.sender.poll(self.now)).map(|transmit| transmit.data).collect()
    }

    /// Those of `sent` but the `lost` arrive and are answered, a round trip after they left;
    /// what leaves upon each answer.
    fn deliver(&mut self, sent: &[Data], lost: &[u64]) -> Vec<Data> {
        self.now += RTT;
        let mut left = Vec::new();
        for data in sent.iter().filter(|data| !lost.contains(&data.number)) {
            self.receiver.on_data(self.now, data, false);
            let ack = self.receiver.poll_ack(self.now).expect("each segment is answered");
            self.sender.on_ack(self.now, ME, &ack).unwrap();
            left.extend(self.send());
        }
        left
    }

    fn numbers(of: &[Data]) -> Vec<u64> {
        of.iter().map(|data| data.number).collect()
    }
}

fn told() -> (Pair, Told) {
    let told = Told::default();
    let mut pair = Pair::new(Box::new(told.clone()));
    pair.sender.write(ME, u64::MAX, false);
    (pair, told)
}

#[test]
fn the_third_segment_behind_a_lost_one_has_it_sent_again_under_its_own_number() {
    let (mut pair, told) = told();
    let flight = pair.send();
    assert_eq!(Pair::numbers(&flight), [0, 1, 2, 3, 4, 5, 6, 7]);
    // Limited transmit: 9 and 10 follow the first two arrivals behind the gap (RFC 3042).
    let left = pair.deliver(&flight, &[1]);
    assert_eq!(Pair::numbers(&left), [8, 9, 10, 1, 11, 12, 13, 14]);
    assert_eq!(left[3].offset, flight[1].offset);
    assert_eq!((pair.sender.packets_lost(), pair.sender.in_flight()), (1, PACKET * 8));
    assert_eq!(told.count(TcpRecovery::FastRetransmit), 1);
    pair.deliver(&left, &[]);
    assert_eq!(told.count(TcpRecovery::FastRetransmit), 1);
    assert_eq!(pair.sender.packets_lost(), 1);
}

#[test]
fn losses_of_one_window_are_one_recovery() {
    let (mut pair, told) = told();
    let flight = pair.send();
    let left = pair.deliver(&flight, &[1, 3]);
    assert_eq!(Pair::numbers(&left)[..4], [8, 9, 10, 1]);
    assert!(Pair::numbers(&left).contains(&3));
    let (first, others): (Vec<Data>, Vec<Data>) = left.into_iter().partition(|data| data.number == 1);
    pair.sender.set_bounds(Bounds { maximum: Some(PACKET * 4), ..Bounds::default() });
    let beyond = pair.deliver(&first, &[]);
    assert_eq!(Pair::numbers(&beyond), [], "3 was sent again already: its ACK is awaited within the window");
    pair.deliver(&others, &[]);
    assert_eq!((told.count(TcpRecovery::FastRetransmit), pair.sender.packets_lost()), (1, 2));
}

#[test]
fn a_partial_ack_has_the_next_missing_segment_sent_again_though_nothing_behind_it_has_arrived() {
    let (mut pair, told) = told();
    let flight = pair.send();
    let left = pair.deliver(&flight, &[1, 7]);
    assert!(!Pair::numbers(&left).contains(&7), "nothing says that it is lost");
    let (repair, behind): (Vec<Data>, Vec<Data>) = left.into_iter().partition(|data| data.number == 1);
    let again = pair.deliver(&repair, &[]);
    assert_eq!(again.first().map(|data| (data.number, data.offset)), Some((7, flight[7].offset)));
    assert_eq!((told.count(TcpRecovery::FastRetransmit), pair.sender.packets_lost()), (1, 2));
    // What is lost again is not sent a third time before the timeout.
    let third = pair.deliver(&behind, &[]);
    assert!(!Pair::numbers(&third).contains(&7));
    assert_eq!((told.count(TcpRecovery::FastRetransmit), pair.sender.packets_lost()), (1, 2));
}

#[test]
fn a_retransmission_that_is_lost_costs_a_timeout_after_which_what_arrived_stays_known() {
    let (mut pair, told) = told();
    let flight = pair.send();
    let mut left = pair.deliver(&flight, &[1]);
    let since = pair.now;
    for _ in 0..3 {
        left = pair.deliver(&left, &[1]);
    }
    assert_eq!(told.count(TcpRecovery::FastRetransmit), 1);
    let due = pair.sender.timer().unwrap();
    // HighACK moved for the last time with segment 0, when the timer was set anew.
    assert_eq!(due, since + Duration::SECOND);
    pair.now = due;
    pair.sender.on_timer(due);
    let mut lost = pair.sender.newly_lost().iter();
    assert!(lost.len() > 0 && lost.all(|(_, _, cause)| *cause == LossCause::RetransmissionTimeout));
    let sent = pair.send();
    assert_eq!(sent[0].number, 1);
    let last = *told.0.lock().unwrap().last().unwrap();
    let TcpRecovery::Timeout { in_flight, repeated } = last else { panic!("{last:?}") };
    assert!(in_flight > Bytes::ZERO && !repeated, "{last:?}");
    // Only what was SACKed is not sent again.
    let again = pair.deliver(&sent, &[]);
    assert!(Pair::numbers(&again).iter().all(|number| !(2..11).contains(number)), "{again:?}");
}

#[test]
fn timeouts_double_up_to_a_minute_and_stay_so_until_new_data_is_acknowledged() {
    let mut pair = Pair::new(Box::new(Told::default()));
    pair.sender.write(ME, 3 * PACKET.get(), false);
    let first = pair.send();
    for seconds in [1, 2, 4, 8, 16, 32, 60, 60] {
        let due = pair.sender.timer().unwrap();
        assert_eq!(due.since(pair.now), Duration::SECOND * seconds);
        pair.now = due;
        pair.sender.on_timer(due);
        pair.send();
    }
    // Karn's algorithm: the answer to a segment that was sent twice is no sample.
    pair.deliver(&first, &[]);
    assert_eq!(pair.sender.smoothed_rtt(ME), None);
    pair.sender.write(ME, PACKET.get(), false);
    let sent = pair.send();
    assert_eq!(pair.sender.timer().unwrap().since(pair.now), Duration::SECOND * 60);
    pair.deliver(&sent, &[]);
    assert_eq!(pair.sender.smoothed_rtt(ME), Some(RTT));
    pair.sender.write(ME, PACKET.get(), false);
    pair.send();
    assert_eq!(pair.sender.timer().unwrap().since(pair.now), Duration::SECOND);
}

#[test]
fn the_last_segments_are_found_by_the_timer_alone() {
    let mut pair = Pair::new(Box::new(Told::default()));
    pair.sender.write(ME, 6 * PACKET.get(), true);
    let sent = pair.send();
    assert!(pair.deliver(&sent, &[4, 5]).is_empty());
    let due = pair.sender.timer().unwrap();
    assert_eq!(due, pair.now + Duration::SECOND);
    pair.now = due;
    pair.sender.on_timer(due);
    let again = pair.send();
    assert_eq!(Pair::numbers(&again), [4, 5]);
    pair.deliver(&again, &[]);
    assert!(pair.sender.is_done() && pair.receiver.is_complete());
}

#[test]
fn a_timeout_restarts_reno_and_cubic_from_one_packet_up_to_a_lower_threshold() {
    for (name, share) in [("reno", 0.5), ("cubic", 0.7)] {
        let build = find(name).unwrap().build;
        let setup = Setup::new(PACKET, Time::ZERO);
        let mut pair = Pair::new(build(&setup, &toml::Table::new()).unwrap());
        pair.sender.write(ME, u64::MAX, false);
        let mut sent = pair.send();
        sent = pair.deliver(&sent, &[]);
        assert_eq!(sent.len(), 20);
        let threshold = |sender: &FlowSender| {
            let mut found = None;
            sender.trace(&mut |name, value| {
                if name == "slow_start_threshold" {
                    found = Some(value)
                }
            });
            found.unwrap() / PACKET.get() as f64
        };
        for _ in 0..2 {
            // All of the window is lost; a second timeout lowers the threshold no further.
            pair.now = pair.sender.timer().unwrap();
            pair.sender.on_timer(pair.now);
            assert_eq!(pair.sender.limits().window, PACKET, "{name}");
            assert!((threshold(&pair.sender) - 20.0 * share).abs() < 1e-9, "{name}: {}", threshold(&pair.sender));
            sent = pair.send();
            assert_eq!(sent.len(), 1, "{name}");
        }
        // Slow start: an ACK adds a packet.
        sent = pair.deliver(&sent, &[]);
        assert_eq!((pair.sender.limits().window, sent.len()), (PACKET * 2, 2), "{name}");
    }
}

#[test]
fn in_a_recovery_the_window_rests_until_the_ack_that_ends_it() {
    let build = find("reno").unwrap().build;
    let mut pair = Pair::new(build(&Setup::new(PACKET, Time::ZERO), &toml::Table::new()).unwrap());
    pair.sender.write(ME, u64::MAX, false);
    let sent = pair.send();
    let left = pair.deliver(&sent, &[1]);
    // 10 packets, one more for the first ACK, halved.
    let halved = Bytes::new(5500);
    assert_eq!(pair.sender.limits().window, halved);
    let (repair, behind): (Vec<Data>, Vec<Data>) = left.into_iter().partition(|data| data.number == 1);
    pair.deliver(&behind, &[]);
    assert_eq!(pair.sender.limits().window, halved, "duplicate ACKs let it grow");
    // Segment 1 left again at the very instant of the reduction; its ACK is the first of new data
    // after the recovery: W += packet * acked / W (RFC 5681, eq. 3).
    pair.deliver(&repair, &[]);
    assert_eq!(pair.sender.limits().window, Bytes::new(5500 + 1000 * 1000 / 5500));
}
