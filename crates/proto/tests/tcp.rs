//! TCP's recovery without RACK, segment by segment: RFC 6675, RFC 6582, RFC 6298, RFC 5681.

use std::sync::{Arc, Mutex};

use anabranch_control::flow::registry::{Setup, find};
use anabranch_control::flow::{Bounds, Feedback, FlowController, Limits, LossCause, PeerId, TcpRecovery};
use anabranch_control::rng::Rng;
use anabranch_control::time::{Duration, Time};
use anabranch_control::units::Bytes;
use anabranch_proto::flow::{
    Ack, AckForm, AckPolicy, AckRanges, Data, FlowReceiver, FlowSender, LossRecovery, PartialAck, Reduction,
    SenderConfig, TcpOptions,
};

const PACKET: Bytes = Bytes::new(1000);
const RTT: Duration = Duration::from_millis(100);
const ME: PeerId = PeerId(0);

/// A window of 8 packets that never changes, and notes what recovery did.
#[derive(Clone, Debug, Default)]
struct FixedWindow(Arc<Mutex<Vec<TcpRecovery>>>);

impl FlowController for FixedWindow {
    fn on_feedback(&mut self, _: Time, feedback: &Feedback<'_>, _: &mut Rng) {
        self.0.lock().unwrap().push(feedback.tcp.expect("TCP's recovery is at work"));
    }
    fn limits(&self) -> Limits {
        Limits::window(PACKET * 8)
    }
    fn trace(&self, _: &mut dyn FnMut(&'static str, f64)) {}
}

impl FixedWindow {
    fn count(&self, what: TcpRecovery) -> usize {
        self.0.lock().unwrap().iter().filter(|recovery| **recovery == what).count()
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
        Pair::under(LossRecovery::Rfc6675, AckForm::Sack, TcpOptions::default(), controller)
    }

    /// Under NewReno without selective ACKs, whatever the receiver would tell.
    fn without_sack(form: AckForm, controller: Box<dyn FlowController>) -> Pair {
        Pair::under(LossRecovery::Rfc6582, form, TcpOptions::default(), controller)
    }

    fn under(recovery: LossRecovery, form: AckForm, tcp: TcpOptions, controller: Box<dyn FlowController>) -> Pair {
        let config = SenderConfig {
            packet: PACKET,
            max_ack_delay: Duration::from_millis(25),
            paced: false,
            ecn: false,
            recovery,
            tcp,
        };
        let policy = AckPolicy { every: 1, max_delay: Duration::ZERO, form, filled_gap: false };
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

fn bulk() -> (Pair, FixedWindow) {
    let controller = FixedWindow::default();
    let mut pair = Pair::new(Box::new(controller.clone()));
    pair.sender.write(ME, u64::MAX, false);
    (pair, controller)
}

#[test]
fn the_third_segment_behind_a_lost_one_has_it_sent_again_under_its_own_number() {
    let (mut pair, controller) = bulk();
    let flight = pair.send();
    assert_eq!(Pair::numbers(&flight), [0, 1, 2, 3, 4, 5, 6, 7]);
    // Limited transmit: 9 and 10 follow the first two arrivals behind the gap (RFC 3042).
    let left = pair.deliver(&flight, &[1]);
    assert_eq!(Pair::numbers(&left), [8, 9, 10, 1, 11, 12, 13, 14]);
    assert_eq!(left[3].offset, flight[1].offset);
    assert_eq!((pair.sender.packets_lost(), pair.sender.in_flight()), (1, PACKET * 8));
    assert_eq!(controller.count(TcpRecovery::FastRetransmit), 1);
    pair.deliver(&left, &[]);
    assert_eq!(controller.count(TcpRecovery::FastRetransmit), 1);
    assert_eq!(pair.sender.packets_lost(), 1);
}

#[test]
fn the_ack_that_ends_a_recovery_tells_how_far_the_cumulative_point_has_moved() {
    let (mut pair, controller) = bulk();
    let flight = pair.send();
    let left = pair.deliver(&flight, &[1]);
    assert_eq!(Pair::numbers(&left[..4]), [8, 9, 10, 1]);
    pair.deliver(&left[..4], &[]);
    // Segment 0; then 1, behind which 2 to 10 had arrived.
    assert_eq!(advances(&controller), [(false, 1), (true, 10)]);
}

/// What moved the cumulative point outside of recoveries, in segments, and what the ACK of their end told.
fn advances(controller: &FixedWindow) -> Vec<(bool, u64)> {
    let of = |recovery: &TcpRecovery| match recovery {
        TcpRecovery::Open { advanced } => Some((false, advanced.get() / PACKET.get())),
        TcpRecovery::Ended { advanced } => Some((true, advanced.get() / PACKET.get())),
        _ => None,
    };
    controller.0.lock().unwrap().iter().filter_map(of).collect()
}

#[test]
fn an_ack_that_reports_data_behind_a_new_gap_counts_as_a_duplicate_though_it_moves_the_cumulative_point() {
    let (mut pair, controller) = bulk();
    pair.send();
    // 0 has arrived, and 2 behind the lost 1, in one answer.
    let ranges = AckRanges::new([(2, 2), (0, 0)]);
    pair.sender.on_ack(Time::ZERO + RTT, ME, &Ack { ranges, delay: Duration::ZERO, ce_count: 0 }).unwrap();
    assert_eq!(advances(&controller), [(false, 0)]);
}

#[test]
fn after_a_timeout_what_had_arrived_counts_no_more() {
    let (mut pair, controller) = bulk();
    let flight = pair.send();
    // 1 and 4 are lost, and again with all that leaves until the timer expires.
    pair.deliver(&flight, &[1, 4]);
    let due = pair.sender.timer().unwrap();
    pair.now = due;
    pair.sender.on_timer(due);
    let before = advances(&controller).len();
    let again = pair.send();
    assert_eq!(again[0].number, 1);
    // 1 fills a gap before 2 and 3, 4 one before 5 to 7: the repair of each counts for itself.
    let (first, others): (Vec<Data>, Vec<Data>) = again.into_iter().partition(|data| data.number == 1);
    let left = pair.deliver(&first, &[]);
    let (second, _): (Vec<Data>, Vec<Data>) = left.into_iter().chain(others).partition(|data| data.number == 4);
    pair.deliver(&second, &[]);
    assert_eq!(advances(&controller)[before..], [(false, 1), (false, 1)]);
}

#[test]
fn losses_of_one_window_are_one_recovery() {
    let (mut pair, controller) = bulk();
    let flight = pair.send();
    let left = pair.deliver(&flight, &[1, 3]);
    assert_eq!(Pair::numbers(&left)[..4], [8, 9, 10, 1]);
    assert!(Pair::numbers(&left).contains(&3));
    let (first, others): (Vec<Data>, Vec<Data>) = left.into_iter().partition(|data| data.number == 1);
    pair.sender.set_bounds(Bounds { maximum: Some(PACKET * 4), ..Bounds::default() });
    let beyond = pair.deliver(&first, &[]);
    assert_eq!(Pair::numbers(&beyond), [], "3 was sent again already: its ACK is awaited within the window");
    pair.deliver(&others, &[]);
    assert_eq!((controller.count(TcpRecovery::FastRetransmit), pair.sender.packets_lost()), (1, 2));
}

#[test]
fn a_partial_ack_has_the_next_missing_segment_sent_again_though_nothing_behind_it_has_arrived() {
    let (mut pair, controller) = bulk();
    let flight = pair.send();
    let left = pair.deliver(&flight, &[1, 7]);
    assert!(!Pair::numbers(&left).contains(&7), "nothing says that it is lost");
    let (repair, behind): (Vec<Data>, Vec<Data>) = left.into_iter().partition(|data| data.number == 1);
    let again = pair.deliver(&repair, &[]);
    assert_eq!(again.first().map(|data| (data.number, data.offset)), Some((7, flight[7].offset)));
    assert_eq!((controller.count(TcpRecovery::FastRetransmit), pair.sender.packets_lost()), (1, 2));
    // What is lost again is not sent a third time before the timeout.
    let third = pair.deliver(&behind, &[]);
    assert!(!Pair::numbers(&third).contains(&7));
    assert_eq!((controller.count(TcpRecovery::FastRetransmit), pair.sender.packets_lost()), (1, 2));
}

#[test]
fn a_retransmission_that_is_lost_costs_a_timeout_after_which_what_arrived_stays_known() {
    let (mut pair, controller) = bulk();
    let flight = pair.send();
    let mut left = pair.deliver(&flight, &[1]);
    let since = pair.now;
    for _ in 0..3 {
        left = pair.deliver(&left, &[1]);
    }
    assert_eq!(controller.count(TcpRecovery::FastRetransmit), 1);
    let due = pair.sender.timer().unwrap();
    // HighACK moved for the last time with segment 0, when the timer was set anew.
    assert_eq!(due, since + Duration::SECOND);
    pair.now = due;
    pair.sender.on_timer(due);
    let mut lost = pair.sender.newly_lost().iter();
    assert!(lost.len() > 0 && lost.all(|(_, _, cause)| *cause == LossCause::RetransmissionTimeout));
    let sent = pair.send();
    assert_eq!(sent[0].number, 1);
    let last = *controller.0.lock().unwrap().last().unwrap();
    let TcpRecovery::Timeout { in_flight, repeated } = last else { panic!("{last:?}") };
    assert!(in_flight > Bytes::ZERO && !repeated, "{last:?}");
    // Only what was SACKed is not sent again.
    let again = pair.deliver(&sent, &[]);
    assert!(Pair::numbers(&again).iter().all(|number| !(2..11).contains(number)), "{again:?}");
}

#[test]
fn timeouts_double_up_to_a_minute_and_stay_so_until_new_data_is_acknowledged() {
    let mut pair = Pair::new(Box::new(FixedWindow::default()));
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
    let mut pair = Pair::new(Box::new(FixedWindow::default()));
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
        let entry = find(name).unwrap();
        let setup = Setup::new(PACKET, Time::ZERO);
        let mut pair = Pair::new(entry.make(&setup, &toml::Table::new()).unwrap());
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
    let reno = find("reno").unwrap();
    let mut pair = Pair::new(reno.make(&Setup::new(PACKET, Time::ZERO), &toml::Table::new()).unwrap());
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

fn bulk_without_sack() -> (Pair, FixedWindow) {
    let controller = FixedWindow::default();
    let mut pair = Pair::without_sack(AckForm::Cumulative, Box::new(controller.clone()));
    pair.sender.write(ME, u64::MAX, false);
    (pair, controller)
}

#[test]
fn without_selective_acks_n_losses_of_a_window_take_n_round_trips_and_a_retransmission_each() {
    for losses in 1..=4 {
        let lost: Vec<u64> = (1..=losses).collect();
        let (mut pair, controller) = bulk_without_sack();
        let flight = pair.send();
        let mut left = pair.deliver(&flight, &lost);
        for number in &lost {
            let again: Vec<u64> = Pair::numbers(&left).into_iter().filter(|number| lost.contains(number)).collect();
            assert_eq!(again, [*number], "of {losses} losses");
            assert!(pair.sender.in_flight() <= PACKET * 8, "of {losses} losses");
            left = pair.deliver(&left, &[]);
        }
        assert!(Pair::numbers(&left).iter().all(|number| *number >= 8), "{losses} losses take more");
        let is_end = |recovery: &TcpRecovery| {
            matches!(recovery, TcpRecovery::Ended { .. } | TcpRecovery::Jumped { ended: true })
        };
        let ends = controller.0.lock().unwrap().iter().filter(|recovery| is_end(recovery)).count();
        assert_eq!((controller.count(TcpRecovery::FastRetransmit), ends), (1, 1));
        assert_eq!((pair.sender.packets_lost(), pair.sender.in_flight()), (losses, PACKET * 8));
    }
}

#[test]
fn a_recovery_reduces_what_is_in_flight_at_once_or_in_proportion_to_what_arrives() {
    let left = |reduction| {
        let setup = Setup { initial_window: PACKET * 20, ..Setup::new(PACKET, Time::ZERO) };
        let reno = find("reno").unwrap().make(&setup, &toml::Table::new()).unwrap();
        let tcp = TcpOptions { reduction, ..TcpOptions::RFC };
        let mut pair = Pair::under(LossRecovery::Rfc6675, AckForm::Sack, tcp, reno);
        pair.sender.write(ME, u64::MAX, false);
        let flight = pair.send();
        assert_eq!(flight.len(), 20);
        // The first is lost. Two follow the first two behind it, the lost one the third: then 22 are outstanding, 18 in
        // flight, and the window is 10. Nine ACKs, then the other ten.
        [&flight[..10], &flight[10..]].map(|half| pair.deliver(half, &[0]).len())
    };
    // At once: with the lost one 19 in flight, so that the 10th ACK after the third lets the next leave.
    assert_eq!(left(Reduction::Rfc6675), [3, 7]);
    // By the n-th ACK from the third on n 10 / 22 may have left: 3 by the 7th and 5 by the 13th; then 10 are in flight,
    // and one leaves for each of the last three.
    assert_eq!(left(Reduction::Rfc6937), [5, 5]);
    // 2 n 10 / 18, 7 by the 7th, until 18 have been counted, then (n + 9) 10 / 18, 14 by the 17th.
    assert_eq!(left(Reduction::Ns3), [9, 7]);
}

#[test]
fn a_partial_ack_sends_the_first_segment_of_the_gap_or_what_next_seg_names() {
    let left = |partial_ack| {
        let tcp = TcpOptions { partial_ack, ..TcpOptions::RFC };
        let mut pair = Pair::under(LossRecovery::Rfc6675, AckForm::Sack, tcp, Box::<FixedWindow>::default());
        pair.sender.write(ME, u64::MAX, false);
        let flight = pair.send();
        let left = pair.deliver(&flight, &[1, 7]);
        let (repair, behind): (Vec<Data>, Vec<Data>) = left.into_iter().partition(|data| data.number == 1);
        // It moves the cumulative point to 7, behind which nothing has arrived.
        let upon_partial = Pair::numbers(&pair.deliver(&repair, &[]));
        let newest = behind.last().unwrap().number;
        (upon_partial[0], newest, Pair::numbers(&pair.deliver(&behind, &[])))
    };
    let (first, _, later) = left(PartialAck::Rfc6582);
    assert!(first == 7 && !later.contains(&7), "{first}, {later:?}");
    // 7 is sent again once three have arrived behind it.
    let (first, newest, later) = left(PartialAck::NextSeg);
    assert!(first == newest + 1 && later[..4].contains(&7), "{first} after {newest}, {later:?}");
}

#[test]
fn each_duplicate_ack_lets_a_segment_leave_in_a_recovery_and_two_before_it() {
    let (mut pair, _) = bulk_without_sack();
    let flight = pair.send();
    let left = pair.deliver(&flight, &[1]);
    // 8 follows the ACK of 0; 9 and 10 the first two duplicates (RFC 3042); 1 is sent again upon the third, in place of
    // the one that was lost, and the others follow one by one.
    assert_eq!(Pair::numbers(&left), [8, 9, 10, 1, 11, 12, 13, 14]);
}

#[test]
fn only_the_first_partial_ack_of_a_recovery_sets_the_timer_anew() {
    let (mut pair, _) = bulk_without_sack();
    let flight = pair.send();
    let mut left = pair.deliver(&flight, &[1, 2, 3]);
    let begun = pair.now;
    assert_eq!(pair.sender.timer(), Some(begun + Duration::SECOND));
    for partial in 1..=2 {
        left = pair.deliver(&left, &[]);
        assert_eq!(pair.sender.timer(), Some(begun + RTT + Duration::SECOND), "partial ACK {partial}");
    }
    pair.deliver(&left, &[]);
    assert_eq!(pair.sender.timer(), Some(pair.now + Duration::SECOND), "the recovery is over");
}

#[test]
fn an_ack_that_jumps_over_what_arrived_behind_a_gap_lets_a_window_grow_by_a_packet() {
    for name in ["reno", "cubic", "bic", "westwood", "compound", "vegas"] {
        let entry = find(name).unwrap_or_else(|error| panic!("{error}"));
        let controller = entry.make(&Setup::new(PACKET, Time::ZERO), &toml::Table::new()).unwrap();
        let mut pair = Pair::without_sack(AckForm::Cumulative, controller);
        pair.sender.write(ME, u64::MAX, false);
        let sent = pair.send();
        let sent = pair.deliver(&sent, &[]);
        // All but the first arrive, too late for their answers: the timer expires before.
        let before = pair.now;
        pair.now = pair.sender.timer().unwrap();
        pair.sender.on_timer(pair.now);
        let again = pair.send();
        assert_eq!((again.len(), again[0].number), (1, sent[0].number), "{name}");
        let window = pair.sender.limits().window;
        for data in &sent[1..] {
            pair.receiver.on_data(before + RTT, data, false);
        }
        pair.deliver(&again, &[]);
        let grown = pair.sender.limits().window;
        // Vegas grows every other round trip.
        assert!((grown > window || name == "vegas") && grown <= window + PACKET, "{name}: {window:?}, then {grown:?}");
    }
}

#[test]
fn duplicate_acks_of_what_a_timeout_sent_again_begin_no_recovery() {
    let (mut pair, controller) = bulk_without_sack();
    let flight = pair.send();
    pair.now = pair.sender.timer().unwrap();
    pair.sender.on_timer(pair.now);
    let copies = pair.send();
    assert_eq!(Pair::numbers(&copies), Pair::numbers(&flight), "go-back-N");
    // Both arrive: the timeout was spurious. Each copy is answered by a duplicate ACK.
    let behind = pair.deliver(&flight, &[]);
    pair.deliver(&copies, &[]);
    pair.deliver(&behind, &[]);
    assert_eq!(controller.count(TcpRecovery::FastRetransmit), 0);
    assert_eq!(pair.sender.packets_lost(), 8);
}

/// What leaves and when of 200 packets, of which a fifth is lost at random.
fn everything_sent(form: AckForm, seed: u64) -> Vec<(Time, u64)> {
    let reno = find("reno").unwrap();
    let mut pair = Pair::without_sack(form, reno.make(&Setup::new(PACKET, Time::ZERO), &toml::Table::new()).unwrap());
    let mut luck = Rng::stream(seed, "losses");
    pair.sender.write(ME, 200 * PACKET.get(), true);
    let mut left = pair.send();
    let mut all = Vec::new();
    for _ in 0..2000 {
        if pair.sender.is_done() {
            assert_eq!(pair.sender.in_flight(), Bytes::ZERO, "seed {seed}");
            assert!(pair.receiver.is_complete(), "seed {seed}");
            return all;
        }
        if left.is_empty() {
            pair.now = pair.now.max(pair.sender.timer().expect("something is outstanding"));
            pair.sender.on_timer(pair.now);
            left = pair.send();
        }
        all.extend(left.iter().map(|data| (pair.now, data.number)));
        let arrived: Vec<Data> = left.into_iter().filter(|_| luck.uniform() > 0.2).collect();
        left = pair.deliver(&arrived, &[]);
    }
    panic!("seed {seed}: it does not finish: {:?}", pair.sender.metrics(ME));
}

#[test]
fn what_selective_acks_report_is_not_heard_and_all_arrives() {
    for seed in 0..100 {
        let heard = everything_sent(AckForm::Cumulative, seed);
        assert!(heard.len() > 200, "nothing was lost");
        assert_eq!(heard, everything_sent(AckForm::Sack, seed), "seed {seed}");
    }
}

#[test]
fn the_least_timeout_is_what_it_is_set_to() {
    let tcp = TcpOptions { least_timeout: Duration::from_millis(200), ..TcpOptions::default() };
    for recovery in [LossRecovery::Rfc6675, LossRecovery::Rfc6582] {
        let mut pair = Pair::under(recovery, recovery.ack_form(), tcp, Box::new(FixedWindow::default()));
        pair.sender.write(ME, u64::MAX, false);
        let mut left = pair.send();
        assert_eq!(pair.sender.timer(), Some(pair.now + Duration::SECOND), "before a sample (RFC 6298, 2.1)");
        for _ in 0..20 {
            left = pair.deliver(&left, &[]);
        }
        // Round trips that do not vary.
        assert_eq!(pair.sender.timer(), Some(pair.now + Duration::from_millis(200)));
    }
}

#[test]
fn after_an_idle_time_of_a_timeout_a_window_is_the_first_one_again_below_the_same_threshold() {
    for name in ["reno", "cubic", "bic", "westwood", "compound", "vegas"] {
        for (recovery, restarts) in [
            (LossRecovery::Rfc6675, true),
            (LossRecovery::Rfc6582, true),
            (LossRecovery::Rfc6675, false),
            (LossRecovery::Rfc6582, false),
        ] {
            let tcp = TcpOptions { restart_after_idle: restarts, ..TcpOptions::default() };
            let entry = find(name).unwrap_or_else(|error| panic!("{error}"));
            let controller = entry.make(&Setup::new(PACKET, Time::ZERO), &toml::Table::new()).unwrap();
            let mut pair = Pair::under(recovery, recovery.ack_form(), tcp, controller);
            pair.sender.write(ME, 100 * PACKET.get(), false);
            let mut left = pair.send();
            left = pair.deliver(&left, &[]);
            // A loss lowers the threshold.
            let lost = left[0].number;
            left = pair.deliver(&left, &[lost]);
            while !left.is_empty() {
                left = pair.deliver(&left, &[]);
            }
            assert!(pair.sender.is_done(), "{name}");
            let state = |sender: &FlowSender| {
                let mut threshold = None;
                sender.trace(&mut |name, value| {
                    if name == "slow_start_threshold" {
                        threshold = Some(value)
                    }
                });
                (sender.limits().window, threshold)
            };
            let before = state(&pair.sender);
            assert!(before.0 > PACKET * 10 && before.1.is_none_or(f64::is_finite), "{name}: {before:?}");
            assert!(before.1.is_some() || !["reno", "cubic"].contains(&name), "{name}: its threshold is traced");
            if restarts {
                assert_eq!(pair.sender.timer(), Some(pair.now + Duration::SECOND), "{name}");
                pair.now += Duration::SECOND;
                pair.sender.on_timer(pair.now);
                assert_eq!(state(&pair.sender), (PACKET * 10, before.1), "{name}");
                // Of a segment that leaves then, the timer begins anew.
                pair.now += RTT;
                pair.sender.write(ME, PACKET.get(), false);
                pair.send();
                assert_eq!(pair.sender.timer(), Some(pair.now + Duration::SECOND), "{name}");
            } else {
                assert_eq!((pair.sender.timer(), state(&pair.sender)), (None, before), "{name}");
            }
        }
    }
}
