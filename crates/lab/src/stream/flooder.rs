//! A host that floods a stream's server together with others of its network: it begins one session, and answers
//! whatever keeps that. Each has a key of its own, so that nothing that the server remembers of one holds for the next.

use anabranch_control::time::{Duration, Time};
use anabranch_control::units::Rate;
use anabranch_proto::session::{Remote, SessionId, Sessions};
use anabranch_proto::stream::message::Message;

use super::content::Simulated;
use super::liar::Viewer;

/// What it does with its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flood {
    /// It claims a gigabit a second, takes whomever it gets as children, and passes nothing on; it leaves so long
    /// after it was let in.
    Claims(Duration),
    /// It claims nothing, and stays.
    Takes,
    /// It never asks to be let in.
    Waits,
    /// It asks to be fed by the server alone, and again and again whatever the answer is.
    Asks,
}

/// How often it does something.
const TURN: Duration = Duration::from_millis(50);

/// How often one that asks again does so in a turn: as many questions as a packet has room for.
const QUESTIONS: usize = 100;

/// Who does so.
#[derive(Clone, Debug)]
pub struct Flooder {
    flood: Flood,
    /// With the server, while there is one, and whether it stands.
    session: Option<SessionId>,
    is_open: bool,
    let_in: Option<Time>,
    next: Time,
    has_begun: bool,
}

impl Flooder {
    pub fn new(flood: Flood) -> Flooder {
        Flooder { flood, session: None, is_open: false, let_in: None, next: Time::ZERO, has_begun: false }
    }

    fn question(&self) -> Option<Message<u32, Simulated>> {
        match self.flood {
            Flood::Claims(_) => Some(Message::Join { upload: Rate::from_bits_per_sec(1_000_000_000) }),
            Flood::Takes => Some(Message::Join { upload: Rate::ZERO }),
            Flood::Asks => Some(Message::JoinPrivately),
            Flood::Waits => None,
        }
    }

    pub fn on_open(&mut self, session: SessionId, remote: &Remote<u32>, sessions: &mut impl Sessions<Viewer>) {
        // Others are its children.
        if remote.is_initiator {
            return;
        }
        self.is_open = true;
        if let Some(question) = self.question() {
            sessions.send(session, question);
        }
    }

    pub fn on_message(
        &mut self,
        now: Time,
        session: SessionId,
        message: &Message<u32, Simulated>,
        sessions: &mut impl Sessions<Viewer>,
    ) {
        match message {
            Message::Ping => sessions.send(session, Message::Pong),
            Message::Welcome(_) => self.let_in = Some(now),
            Message::Overloaded => self.let_in = None,
            _ => {}
        }
    }

    pub fn on_closed(&mut self, session: SessionId) {
        if self.session == Some(session) {
            (self.session, self.is_open, self.let_in) = (None, false, None);
        }
    }

    pub fn on_timer(&mut self, now: Time, sessions: &mut impl Sessions<Viewer>) {
        if now < self.next {
            return;
        }
        self.next = now + TURN;
        if !std::mem::replace(&mut self.has_begun, true) {
            self.session = sessions.open(0, None);
        }
        let Some(session) = self.session else { return };
        match (self.let_in, self.flood) {
            (Some(since), Flood::Claims(stay)) if now >= since + stay => {
                sessions.close(session);
                self.on_closed(session);
            }
            // It is there.
            (Some(_), _) => sessions.send(session, Message::Pong),
            (None, Flood::Asks) if self.is_open => {
                (0..QUESTIONS).for_each(|_| sessions.send(session, Message::JoinPrivately));
            }
            (None, _) => {}
        }
    }

    pub fn timer(&self) -> Time {
        self.next
    }
}
