//! A relay with a rendezvous on loopback, and those who come to it: friends, guessers, liars, floods.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anabranch_control::time::Duration as Span;
use anabranch_control::units::Rate;
use anabranch_net::loopback::NoFiles;
use anabranch_net::runtime::Runtime;
use anabranch_net::udp::Socket;
use anabranch_proto::limiter::LimitModel;
use anabranch_proto::overlay::peer::Peer;
use anabranch_proto::overlay::relay_node::RelayNode;
use anabranch_proto::seal::PublicKey;
use anabranch_rendezvous::agreement::{Answer, Offer, Packing};
use anabranch_rendezvous::client::{Mailbox, MeetError};
use anabranch_rendezvous::code::Code;
use anabranch_rendezvous::frame::{Refusal, Side};
use anabranch_rendezvous::limits::Limits;
use anabranch_rendezvous::server::Server;

/// A relay that runs until it is dropped.
struct Relay {
    at: SocketAddr,
    server: Option<Server>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<u64>>,
}

impl Relay {
    fn start(at: &str, limits: Limits) -> Relay {
        let io = UdpSocket::bind(at).unwrap();
        let at = io.local_addr().unwrap();
        let (server, mut inlet) = Server::start(io.try_clone().unwrap(), limits).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            let mut runtime = Runtime::new(NoFiles).unwrap();
            let node = RelayNode::new(LimitModel::Window { phase: Span::ZERO }, Rate::from_bytes_per_sec(1_000_000));
            let socket = Socket::from_std(io).unwrap().serving().unwrap();
            let number = runtime.add(socket, Peer::new(node, None, None), None).unwrap();
            runtime.divert(number, Box::new(move |arrival, bytes| inlet.take(arrival, bytes)));
            while !stopped.load(Ordering::Relaxed) {
                let until = runtime.now() + Span::from_millis(20);
                runtime.run_until(until).unwrap();
            }
            runtime.counters().unreadable.foreign
        });
        Relay { at, server: Some(server), stop, thread: Some(thread) }
    }

    fn server(&self) -> &Server {
        self.server.as_ref().unwrap()
    }

    /// As if the power had gone: nothing is said to anybody. How many datagrams were foreign.
    fn kill(&mut self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        let foreign = self.thread.take().unwrap().join().unwrap();
        self.server = None;
        foreign
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        if self.thread.is_some() {
            self.kill();
        }
    }
}

fn socket(like: SocketAddr) -> UdpSocket {
    UdpSocket::bind(if like.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" }).unwrap()
}

fn code(text: &str) -> Code {
    text.parse().unwrap()
}

async fn open(at: SocketAddr, side: Side, number: Option<u32>) -> Result<Mailbox, MeetError> {
    Mailbox::open(socket(at), at, side, number).await
}

fn offer() -> Offer {
    Offer::new(PublicKey([1; 32]), Packing::Plain, [1, 5, 5], &["a".into()], &[])
}

fn run<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

/// Both sides with these codes: what the sender is answered, and what the receiver is offered.
async fn meet(
    at: SocketAddr,
    sender: &Code,
    receiver: &Code,
    first: Side,
) -> (Result<Answer, MeetError>, Result<Offer, MeetError>) {
    let yes = Answer::Yes { key: PublicKey([2; 32]), address: "192.0.2.9:4000".parse().unwrap() };
    let pause = |side| Duration::from_millis(if side == first { 0 } else { 300 });
    let sends = async {
        tokio::time::sleep(pause(Side::Sender)).await;
        let mut mailbox = open(at, Side::Sender, Some(sender.number)).await?;
        let answer = mailbox.offer(sender, &offer()).await;
        mailbox.leave().await;
        answer
    };
    let receives = async {
        tokio::time::sleep(pause(Side::Receiver)).await;
        let mut mailbox = open(at, Side::Receiver, Some(receiver.number)).await?;
        let (offer, mut channel) = mailbox.ask(receiver).await?;
        mailbox.answer(&mut channel, &yes).await?;
        mailbox.leave().await;
        Ok(offer)
    };
    tokio::join!(sends, receives)
}

#[test]
fn two_who_share_a_code_meet_whoever_comes_first_over_either_family() {
    for at in ["127.0.0.1:0", "[::1]:0", "0.0.0.0:0", "[::]:0"] {
        if UdpSocket::bind(at).is_err() {
            println!("{at} is not to be had here: skipped");
            continue;
        }
        let relay = Relay::start(at, Limits::default());
        let port = relay.at.port();
        let at = match at {
            "0.0.0.0:0" => SocketAddr::from(([127, 0, 0, 2], port)),
            "[::]:0" => SocketAddr::from(([0, 0, 0, 0, 0, 0, 0, 1], port)),
            _ => relay.at,
        };
        for first in [Side::Sender, Side::Receiver] {
            let code = code("7-crowfoot-orlando");
            let (answer, offered) = run(meet(at, &code, &code, first));
            assert!(matches!(answer, Ok(Answer::Yes { .. })), "{at} {first:?}: {answer:?}");
            assert_eq!(offered.unwrap(), offer(), "{at} {first:?}");
            // Both have left, and so has their mailbox.
            let until = Instant::now() + Duration::from_secs(5);
            while relay.server().mailboxes() > 0 && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(10));
            }
            assert_eq!(relay.server().mailboxes(), 0);
        }
    }
}

#[test]
fn a_side_learns_at_which_address_its_own_socket_is_seen() {
    let relay = Relay::start("127.0.0.1:0", Limits::default());
    run(async {
        let own = UdpSocket::bind("127.0.0.3:0").unwrap();
        let address = own.local_addr().unwrap();
        let mailbox = Mailbox::open(own, relay.at, Side::Receiver, None).await.unwrap();
        assert_eq!(mailbox.seen(), address);
    });
}

#[test]
fn a_wrong_guess_burns_the_code_and_both_sides_say_so() {
    // More handshakes than a person has in a second.
    let limits = Limits { handshakes_per_second_of_one: 10, ..Limits::default() };
    let relay = Relay::start("127.0.0.1:0", limits);
    run(async {
        let (right, wrong) = (code("7-crowfoot-orlando"), code("7-crowfoot-pandora"));
        let (answer, offered) = meet(relay.at, &right, &wrong, Side::Sender).await;
        assert!(matches!(answer, Err(MeetError::WrongCode)), "{answer:?}");
        assert!(matches!(offered, Err(MeetError::WrongCode)), "{offered:?}");
        // One that comes, sees the first message and goes has tried, too.
        let mut mailbox = open(relay.at, Side::Sender, Some(8)).await.unwrap();
        let (right, offer) = (code("8-crowfoot-orlando"), offer());
        let guessing = async {
            let mut guesser = open(relay.at, Side::Receiver, Some(8)).await.unwrap();
            guesser.begin(&code("8-aardvark-adviser")).await.unwrap();
            guesser.leave().await;
        };
        let (answer, ()) = tokio::join!(mailbox.offer(&right, &offer), guessing);
        assert!(matches!(answer, Err(MeetError::WrongCode)), "{answer:?}");
        // And while the sender is there, nobody gets a second try.
        let second = open(relay.at, Side::Receiver, Some(8)).await;
        assert!(matches!(second, Err(MeetError::Refused(_, Refusal::Taken))), "{second:?}");
    });
}

#[test]
fn a_rendezvous_that_plays_the_other_side_is_found_out() {
    let relay = Relay::start("127.0.0.1:0", Limits::default());
    run(async {
        // What it can do is what anybody can do that has taken a side and knows no words.
        let (right, guess) = (code("7-crowfoot-orlando"), code("7-aardvark-adviser"));
        let (answer, offered) = meet(relay.at, &right, &guess, Side::Receiver).await;
        assert!(matches!(answer, Err(MeetError::WrongCode)) && offered.is_err(), "{answer:?} {offered:?}");
        let (answer, offered) = meet(relay.at, &guess, &right, Side::Receiver).await;
        assert!(matches!(offered, Err(MeetError::WrongCode)) && answer.is_err(), "{offered:?} {answer:?}");
    });
}

#[test]
fn one_address_gets_its_share_of_handshakes_and_mailboxes() {
    let limits = Limits { mailboxes_of_one: 2, handshakes_per_second_of_one: 3, ..Limits::default() };
    let relay = Relay::start("127.0.0.1:0", limits);
    run(async {
        let mut kept = Vec::new();
        for _ in 0..2 {
            kept.push(open(relay.at, Side::Sender, None).await.unwrap());
        }
        let third = open(relay.at, Side::Sender, None).await;
        assert!(matches!(third, Err(MeetError::Refused(_, Refusal::Share))), "{third:?}");
        let fourth = open(relay.at, Side::Sender, None).await;
        assert!(matches!(fourth, Err(MeetError::Busy(_))), "one handshake too many: {fourth:?}");
        assert_ne!(kept[0].number(), kept[1].number());
        tokio::time::sleep(Duration::from_millis(1_100)).await;
        kept.pop().unwrap().leave().await;
        tokio::time::sleep(Duration::from_millis(200)).await;
        open(relay.at, Side::Sender, None).await.unwrap();
    });
}

#[test]
fn a_flood_of_initials_leaves_nothing_and_friends_meet_when_it_is_over() {
    let relay = Relay::start("127.0.0.1:0", Limits::default());
    let flood = socket(relay.at);
    let mut initial = vec![0xc3, 0, 0, 0, 1, 8, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0];
    initial.resize(1200, 0x5a);
    for number in 0..20_000u32 {
        initial[6..10].copy_from_slice(&number.to_be_bytes());
        let _ = flood.send_to(&initial, relay.at);
    }
    std::thread::sleep(Duration::from_millis(1_500));
    assert_eq!(relay.server().counters().connections, 0);
    let code = code("7-crowfoot-orlando");
    let (answer, _) = run(meet(relay.at, &code, &code, Side::Sender));
    assert!(matches!(answer, Ok(Answer::Yes { .. })), "{answer:?}");
    assert_eq!(relay.server().counters().connections, 2);
}

#[test]
fn who_waits_at_a_rendezvous_that_dies_learns_so_and_nobody_is_there_to_answer() {
    let mut relay = Relay::start("127.0.0.1:0", Limits::default());
    let at = relay.at;
    run(async {
        let mut mailbox = open(at, Side::Sender, Some(7)).await.unwrap();
        let killed = tokio::task::spawn_blocking(move || relay.kill());
        let began = Instant::now();
        let error = mailbox.offer(&code("7-crowfoot-orlando"), &offer()).await.unwrap_err();
        assert!(matches!(error, MeetError::Lost(_)), "{error:?}");
        assert!(began.elapsed() < Duration::from_secs(35), "{:?}", began.elapsed());
        assert_eq!(killed.await.unwrap(), 0, "nothing of it was taken for the overlay's");
        let error = open(at, Side::Sender, Some(7)).await.unwrap_err();
        assert!(matches!(error, MeetError::NobodyAnswers(_)), "{error:?}");
    });
}

#[test]
fn a_code_that_nobody_comes_for_expires() {
    let relay = Relay::start("127.0.0.1:0", Limits { age: Span::from_millis(500), ..Limits::default() });
    run(async {
        let mut mailbox = open(relay.at, Side::Sender, None).await.unwrap();
        let code = Code::draw(mailbox.number());
        let error = mailbox.offer(&code, &offer()).await.unwrap_err();
        assert!(matches!(error, MeetError::Refused(_, Refusal::Expired)), "{error:?}");
    });
}
