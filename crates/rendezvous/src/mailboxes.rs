//! The mailboxes of a rendezvous, without sockets or a clock: who is where, and what waits for whom.
//!
//! A mailbox is a pipe between two sides. Each side is claimed once, by one connection, so that a guess
//! at a code's words can be tried once; when either has left, the mailbox is gone once the other has
//! left too. What one side says before the other has come waits, up to a limit.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use anabranch_control::rng::Rng;
use anabranch_control::time::{Duration, Time};
use anabranch_proto::transfer::origin_of;

use crate::frame::{Frame, Refusal, Side};
use crate::limits::Limits;

/// A connection's name, given by whoever owns the connections.
pub type Client = u64;

/// What a client is to be sent: a frame, or, after the last, that its connection is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Letter {
    /// To whom.
    pub to: Client,
    /// What.
    pub frame: Frame,
}

#[derive(Debug)]
struct Member {
    origin: IpAddr,
    place: Option<(u32, Side)>,
    /// Its messages in the second that ends at `until`.
    said: u32,
    until: Time,
}

#[derive(Debug)]
struct Mailbox {
    opened: Time,
    /// Whose share it counts against.
    origin: IpAddr,
    /// Who has claimed each side, and whether they are still there.
    sides: [Option<(Client, bool)>; 2],
    /// For the side that has not come yet.
    waiting: Vec<Vec<u8>>,
}

/// All mailboxes, and who has come to them.
#[derive(Debug)]
pub struct Mailboxes {
    limits: Limits,
    rng: Rng,
    boxes: BTreeMap<u32, Mailbox>,
    members: BTreeMap<Client, Member>,
}

impl Mailboxes {
    /// None yet; numbers are drawn from `rng`.
    pub fn new(limits: Limits, rng: Rng) -> Mailboxes {
        Mailboxes { limits, rng, boxes: BTreeMap::new(), members: BTreeMap::new() }
    }

    /// Mailboxes that are open.
    pub fn len(&self) -> usize {
        self.boxes.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.boxes.is_empty()
    }

    /// Connections that are known.
    pub fn members(&self) -> usize {
        self.members.len()
    }

    /// Whether `client` is known: it has come, and has neither left nor been sent away.
    pub fn has(&self, client: Client) -> bool {
        self.members.contains_key(&client)
    }

    /// Bytes that wait in mailboxes.
    pub fn waiting_bytes(&self) -> usize {
        self.boxes.values().flat_map(|mailbox| &mailbox.waiting).map(Vec::len).sum()
    }

    /// `client`, seen at `seen`, has come; refused if it is one too many.
    pub fn join(&mut self, client: Client, seen: SocketAddr) -> Result<(), Refusal> {
        let origin = origin_of(seen.ip());
        if self.members.len() >= self.limits.connections {
            return Err(Refusal::Full);
        }
        if self.members.values().filter(|member| member.origin == origin).count() >= self.limits.connections_of_one {
            return Err(Refusal::Share);
        }
        self.members.insert(client, Member { origin, place: None, said: 0, until: Time::ZERO });
        Ok(())
    }

    /// `client`, seen at `seen`, says `frame`: what is to be sent to whom is appended to `letters`. After a
    /// refusal the client is to leave.
    pub fn on_frame(&mut self, now: Time, client: Client, seen: SocketAddr, frame: Frame, letters: &mut Vec<Letter>) {
        if let Err(reason) = self.act(now, client, seen, frame, letters) {
            letters.push(Letter { to: client, frame: Frame::Refused(reason) });
            self.leave(client, letters);
        }
    }

    fn act(
        &mut self,
        now: Time,
        client: Client,
        seen: SocketAddr,
        frame: Frame,
        letters: &mut Vec<Letter>,
    ) -> Result<(), Refusal> {
        let limits = self.limits;
        let member = self.members.get_mut(&client).ok_or(Refusal::Unruly)?;
        if now >= member.until {
            (member.said, member.until) = (0, now + Duration::SECOND);
        }
        member.said += 1;
        if member.said > limits.messages_per_second {
            return Err(Refusal::Unruly);
        }
        match (frame, member.place) {
            (Frame::Open(side), None) => {
                let number = self.free_number();
                self.claim(now, client, number, side)?;
                letters.push(Letter { to: client, frame: Frame::Placed { number, seen } });
            }
            (Frame::Claim(side, number), None) => {
                let waiting = self.claim(now, client, number, side)?;
                letters.push(Letter { to: client, frame: Frame::Placed { number, seen } });
                letters.extend(waiting.into_iter().map(|bytes| Letter { to: client, frame: Frame::Got(bytes) }));
                let across = self.boxes[&number].sides[side.other().index()];
                if let Some((_, false)) = across {
                    letters.push(Letter { to: client, frame: Frame::Gone });
                }
            }
            (Frame::Put(bytes), Some((number, side))) => {
                if bytes.len() > limits.message_bytes {
                    return Err(Refusal::Unruly);
                }
                let mailbox = self.boxes.get_mut(&number).ok_or(Refusal::Expired)?;
                match mailbox.sides[side.other().index()] {
                    Some((other, true)) => letters.push(Letter { to: other, frame: Frame::Got(bytes) }),
                    Some((_, false)) => {}
                    None => {
                        let waiting: usize = mailbox.waiting.iter().map(Vec::len).sum();
                        if waiting + bytes.len() > limits.mailbox_bytes {
                            return Err(Refusal::TooMuch);
                        }
                        mailbox.waiting.push(bytes);
                    }
                }
            }
            _ => return Err(Refusal::Unruly),
        }
        Ok(())
    }

    /// Gives `side` of mailbox `number`, which is opened if there is none, to `client`: what waits for it.
    fn claim(&mut self, now: Time, client: Client, number: u32, side: Side) -> Result<Vec<Vec<u8>>, Refusal> {
        let member = self.members.get_mut(&client).ok_or(Refusal::Unruly)?;
        let origin = member.origin;
        if !self.boxes.contains_key(&number) {
            if self.boxes.len() >= self.limits.mailboxes {
                return Err(Refusal::Full);
            }
            if self.boxes.values().filter(|mailbox| mailbox.origin == origin).count() >= self.limits.mailboxes_of_one {
                return Err(Refusal::Share);
            }
            self.boxes.insert(number, Mailbox { opened: now, origin, sides: [None; 2], waiting: Vec::new() });
        }
        let mailbox = self.boxes.get_mut(&number).ok_or(Refusal::Unruly)?;
        let place = &mut mailbox.sides[side.index()];
        if place.is_some() {
            return Err(Refusal::Taken);
        }
        *place = Some((client, true));
        member.place = Some((number, side));
        Ok(std::mem::take(&mut mailbox.waiting))
    }

    /// A number that no mailbox has: of one digit if there is one, else of two, and so on, so that codes
    /// stay short; which of them is drawn, so that a code that was heard late does not meet the next one.
    fn free_number(&mut self) -> u32 {
        let (mut first, mut end) = (1u32, 10u32);
        loop {
            let used = self.boxes.range(first..end).count();
            let free = (end - first) as usize - used;
            if free > 0 {
                let mut left = self.rng.below(free);
                for number in first..end {
                    if !self.boxes.contains_key(&number) {
                        if left == 0 {
                            return number;
                        }
                        left -= 1;
                    }
                }
            }
            (first, end) = (end, end.saturating_mul(10));
        }
    }

    /// `client` has gone: whoever is across is notified.
    pub fn leave(&mut self, client: Client, letters: &mut Vec<Letter>) {
        let Some(Member { place: Some((number, side)), .. }) = self.members.remove(&client) else { return };
        let Some(mailbox) = self.boxes.get_mut(&number) else { return };
        mailbox.sides[side.index()] = Some((client, false));
        match mailbox.sides[side.other().index()] {
            Some((other, true)) => letters.push(Letter { to: other, frame: Frame::Gone }),
            Some((_, false)) | None => _ = self.boxes.remove(&number),
        }
    }

    /// Time has passed: mailboxes that are too old are closed.
    pub fn expire(&mut self, now: Time, letters: &mut Vec<Letter>) {
        let is_old = |mailbox: &Mailbox| now.since(mailbox.opened) >= self.limits.age;
        let old: Vec<u32> =
            self.boxes.iter().filter(|(_, mailbox)| is_old(mailbox)).map(|(number, _)| *number).collect();
        for number in old {
            let Some(mailbox) = self.boxes.remove(&number) else { continue };
            for (client, _) in mailbox.sides.into_iter().flatten().filter(|(_, is_there)| *is_there) {
                self.members.remove(&client);
                letters.push(Letter { to: client, frame: Frame::Refused(Refusal::Expired) });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use anabranch_control::rng::Rng;

    fn seen(host: u8) -> SocketAddr {
        SocketAddr::from(([192, 0, 2, host], 4000))
    }

    fn mailboxes(limits: Limits) -> Mailboxes {
        Mailboxes::new(limits, Rng::stream(1, "mailboxes"))
    }

    /// What the client, at the host of its number, is sent.
    fn say(post: &mut Mailboxes, now: Time, client: Client, frame: Frame) -> Vec<Letter> {
        let mut letters = Vec::new();
        if !post.members.contains_key(&client) {
            post.join(client, seen(client as u8)).unwrap();
        }
        post.on_frame(now, client, seen(client as u8), frame, &mut letters);
        letters
    }

    fn letter(to: Client, frame: Frame) -> Letter {
        Letter { to, frame }
    }

    fn placed(to: Client, number: u32) -> Letter {
        letter(to, Frame::Placed { number, seen: seen(to as u8) })
    }

    #[test]
    fn what_is_said_before_the_other_side_has_come_waits_for_it() {
        let now = Time::ZERO;
        for (first, second) in [(Side::Sender, Side::Receiver), (Side::Receiver, Side::Sender)] {
            let mut post = mailboxes(Limits::default());
            let opened = say(&mut post, now, 1, Frame::Open(first));
            let Frame::Placed { number, .. } = opened[0].frame else { panic!("{opened:?}") };
            assert!((1..10).contains(&number), "short to say");
            assert!(say(&mut post, now, 1, Frame::Put(b"a".to_vec())).is_empty());
            let letters = say(&mut post, now, 2, Frame::Claim(second, number));
            assert_eq!(letters, [placed(2, number), letter(2, Frame::Got(b"a".to_vec()))]);
            assert_eq!(say(&mut post, now, 2, Frame::Put(b"b".to_vec())), [letter(1, Frame::Got(b"b".to_vec()))]);
            let mut letters = Vec::new();
            post.leave(2, &mut letters);
            assert_eq!(letters, [letter(1, Frame::Gone)]);
            post.leave(1, &mut letters);
            assert_eq!((post.len(), post.members()), (0, 0));
        }
    }

    #[test]
    fn each_side_is_claimed_once_even_after_its_first_has_left() {
        let now = Time::ZERO;
        let mut post = mailboxes(Limits::default());
        say(&mut post, now, 1, Frame::Claim(Side::Sender, 7));
        say(&mut post, now, 2, Frame::Claim(Side::Receiver, 7));
        post.leave(2, &mut Vec::new());
        for late in [Side::Receiver, Side::Sender] {
            let letters = say(&mut post, now, 3, Frame::Claim(late, 7));
            assert_eq!(letters, [letter(3, Frame::Refused(Refusal::Taken))], "a second guess");
            assert_eq!(post.members(), 1, "it is sent away");
        }
    }

    #[test]
    fn a_mailbox_has_an_end_and_takes_its_members_with_it() {
        let limits = Limits::default();
        let mut post = mailboxes(limits);
        say(&mut post, Time::ZERO, 1, Frame::Claim(Side::Sender, 7));
        let mut letters = Vec::new();
        let nearly = Time::ZERO + (limits.age - Duration::from_nanos(1));
        post.expire(nearly, &mut letters);
        assert!(letters.is_empty());
        post.expire(Time::ZERO + limits.age, &mut letters);
        assert_eq!(letters, [letter(1, Frame::Refused(Refusal::Expired))]);
        assert_eq!((post.len(), post.members()), (0, 0));
    }

    #[test]
    fn one_address_gets_its_share_and_all_together_no_more_than_there_is() {
        let limits =
            Limits { mailboxes: 5, mailboxes_of_one: 2, connections: 8, connections_of_one: 3, ..Limits::default() };
        let mut post = mailboxes(limits);
        let mut open = |client: Client, host: u8| {
            post.join(client, seen(host))?;
            let mut letters = Vec::new();
            post.on_frame(Time::ZERO, client, seen(host), Frame::Open(Side::Sender), &mut letters);
            match letters[0].frame {
                Frame::Refused(reason) => Err(reason),
                _ => Ok(()),
            }
        };
        assert_eq!([open(1, 1), open(2, 1), open(3, 1)], [Ok(()), Ok(()), Err(Refusal::Share)]);
        assert_eq!([open(4, 2), open(5, 2), open(6, 3), open(7, 4)], [Ok(()), Ok(()), Ok(()), Err(Refusal::Full)]);
        let mut post = mailboxes(limits);
        let joined: Vec<bool> = (0..4).map(|client| post.join(client, seen(1)).is_ok()).collect();
        assert_eq!(joined, [true, true, true, false]);
        let joined = (4..20).filter(|&client| post.join(client, seen(client as u8)).is_ok()).count();
        assert_eq!(joined, 5);
    }

    #[test]
    fn a_host_with_a_network_of_ipv6_addresses_has_one_share() {
        let limits = Limits { connections_of_one: 1, ..Limits::default() };
        let mut post = mailboxes(limits);
        let at = |last: u16| SocketAddr::from(([0x2001, 0xdb8, 0, 7, 0, 0, 0, last], 4000));
        assert!(post.join(1, at(1)).is_ok());
        assert_eq!(post.join(2, at(2)), Err(Refusal::Share));
    }

    #[test]
    fn who_says_too_much_or_nonsense_is_sent_away() {
        let limits = Limits { messages_per_second: 3, ..Limits::default() };
        let mut post = mailboxes(limits);
        say(&mut post, Time::ZERO, 1, Frame::Claim(Side::Sender, 7));
        say(&mut post, Time::ZERO, 1, Frame::Put(vec![1]));
        assert!(say(&mut post, Time::ZERO, 1, Frame::Put(vec![1])).is_empty());
        let letters = say(&mut post, Time::ZERO, 1, Frame::Put(vec![1]));
        assert_eq!(letters, [letter(1, Frame::Refused(Refusal::Unruly))]);
        for nonsense in [Frame::Gone, Frame::Put(vec![1]), Frame::Got(vec![])] {
            assert_eq!(say(&mut post, Time::ZERO, 2, nonsense), [letter(2, Frame::Refused(Refusal::Unruly))]);
        }
        say(&mut post, Time::ZERO, 3, Frame::Open(Side::Sender));
        let letters = say(&mut post, Time::ZERO, 3, Frame::Claim(Side::Sender, 9));
        assert_eq!(letters, [letter(3, Frame::Refused(Refusal::Unruly))], "one mailbox for each");
    }

    #[test]
    fn what_waits_is_bounded() {
        let limits = Limits { mailbox_bytes: 10, ..Limits::default() };
        let mut post = mailboxes(limits);
        say(&mut post, Time::ZERO, 1, Frame::Claim(Side::Sender, 7));
        say(&mut post, Time::ZERO, 1, Frame::Put(vec![1; 10]));
        assert_eq!(post.waiting_bytes(), 10);
        let letters = say(&mut post, Time::ZERO, 1, Frame::Put(vec![1]));
        assert_eq!(letters, [letter(1, Frame::Refused(Refusal::TooMuch))]);
        assert_eq!(post.len(), 0, "nothing stays of who was sent away alone");
    }

    #[test]
    fn numbers_stay_as_short_as_there_is_room() {
        let mut post =
            mailboxes(Limits { mailboxes_of_one: usize::MAX, connections_of_one: usize::MAX, ..Limits::default() });
        let digits: Vec<usize> = (0..100u64)
            .map(|client| match say(&mut post, Time::ZERO, client, Frame::Open(Side::Sender))[0].frame {
                Frame::Placed { number, .. } => number.to_string().len(),
                ref other => panic!("{other:?}"),
            })
            .collect();
        assert!(digits[..9].iter().all(|&digits| digits == 1));
        assert!(digits[9..99].iter().all(|&digits| digits == 2) && digits[99] == 3);
    }

    proptest! {
        #[test]
        fn whatever_strangers_do_what_is_held_is_bounded(
            steps in prop::collection::vec((0u64..12, 0u8..6, 1u32..5, 0usize..20), 1..300)
        ) {
            let limits = Limits {
                mailboxes: 4, mailboxes_of_one: 2, mailbox_bytes: 30, connections: 6, connections_of_one: 2,
                messages_per_second: 5, ..Limits::default()
            };
            let mut post = mailboxes(limits);
            let mut letters = Vec::new();
            for (step, &(client, what, number, length)) in steps.iter().enumerate() {
                let (now, at) = (Time::from_nanos(step as u64 * 50_000_000), seen((client / 3) as u8));
                let frame = match what {
                    0 => { if !post.members.contains_key(&client) { let _ = post.join(client, at); } continue; }
                    1 => { post.leave(client, &mut letters); continue; }
                    2 => Frame::Open(Side::Receiver),
                    3 => Frame::Claim(Side::Sender, number),
                    4 => Frame::Claim(Side::Receiver, number),
                    _ => Frame::Put(vec![0; length]),
                };
                post.on_frame(now, client, at, frame, &mut letters);
                prop_assert!(post.len() <= 4 && post.members() <= 6 && post.waiting_bytes() <= 4 * 30);
                // No mailbox without somebody in it.
                for (number, mailbox) in &post.boxes {
                    let there = mailbox.sides.iter().flatten().filter(|(_, is_there)| *is_there);
                    prop_assert!(there.clone().count() > 0, "{} is empty", number);
                    for (client, _) in there {
                        prop_assert!(post.members.contains_key(client));
                    }
                }
            }
            for client in 0..12 {
                post.leave(client, &mut letters);
            }
            prop_assert!(post.is_empty() && post.members() == 0);
        }
    }
}
