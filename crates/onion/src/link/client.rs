//! The client's half: it says where it is, and hears whether its guard is there.

use anabranch_control::time::{Duration, Time};
use anabranch_proto::overlay::hello::Cookie;

use super::{LIFETIME, LinkFrame, PERIOD};
use crate::packet::Label;

/// How long it waits for an answer first; doubled each time, up to [`PERIOD`] (RFC 8085, 3.1.1: one second where
/// nothing is known of the path).
const FIRST_WAIT: Duration = Duration::SECOND;

/// Once the guard has answered, three of its round trips (RFC 6298, 2.2: R + 4 R / 2) if they are no less than this: for
/// so long a host may keep an answer back (RFC 5681, 4.2).
const LEAST_WAIT: Duration = Duration::from_millis(500);

/// A client's link to one guard.
#[derive(Clone, Debug)]
pub struct Attachment {
    label: Label,
    cookie: Cookie,
    /// When to say it next, and how long it waits for the answer then.
    next: Time,
    wait: Duration,
    /// When it was said last, and what it waits for an answer first.
    said: Time,
    first_wait: Duration,
    /// The guard has answered, and keeps the link until then.
    until: Option<Time>,
    /// How often it was said since an answer came.
    unanswered: u32,
    refused: bool,
}

impl Attachment {
    /// Asks at once.
    pub fn new(label: Label) -> Attachment {
        Attachment {
            label,
            cookie: Cookie::default(),
            next: Time::ZERO,
            wait: FIRST_WAIT,
            said: Time::ZERO,
            first_wait: FIRST_WAIT,
            until: None,
            unanswered: 0,
            refused: false,
        }
    }

    /// Its name at the guard.
    pub fn label(&self) -> Label {
        self.label
    }

    /// Whether the guard sends on what comes.
    pub fn is_attached(&self, now: Time) -> bool {
        self.until.is_some_and(|until| now < until)
    }

    /// Whether the guard had no room at the last try.
    pub fn is_refused(&self) -> bool {
        self.refused
    }

    /// How often it has asked without an answer.
    pub fn unanswered(&self) -> u32 {
        self.unanswered
    }

    /// What the guard says.
    pub fn on_frame(&mut self, now: Time, frame: &LinkFrame) {
        if frame.label() != self.label {
            return;
        }
        match *frame {
            LinkFrame::Attach { .. } => {}
            // The same cookie again is no news, so that two cannot keep each other busy.
            LinkFrame::Prove { cookie, .. } if cookie != self.cookie => {
                self.cookie = cookie;
                self.next = now;
            }
            LinkFrame::Prove { .. } => {}
            LinkFrame::Attached { .. } => {
                // Of several frames it is not known which one was answered (Karn).
                if self.unanswered == 1 {
                    self.first_wait = (now.since(self.said) * 3).max(LEAST_WAIT).min(FIRST_WAIT);
                }
                self.until = Some(now + LIFETIME);
                (self.unanswered, self.refused) = (0, false);
                (self.next, self.wait) = (now + PERIOD, self.first_wait);
            }
            LinkFrame::Refused { .. } => {
                (self.until, self.refused) = (None, true);
                (self.next, self.wait) = (now + PERIOD, self.first_wait);
            }
        }
    }

    /// Asks now whether the guard is there, unless it has just been asked.
    pub fn ask(&mut self, now: Time) {
        if self.unanswered == 0 {
            self.next = self.next.min(now);
        }
    }

    /// When [`Attachment::poll`] has something to say.
    pub fn timer(&self) -> Time {
        self.next
    }

    /// What is to be said now.
    pub fn poll(&mut self, now: Time) -> Option<LinkFrame> {
        if now < self.next {
            return None;
        }
        self.said = now;
        self.next = now + self.wait;
        self.wait = (self.wait * 2).min(PERIOD);
        self.unanswered = self.unanswered.saturating_add(1);
        Some(LinkFrame::Attach { label: self.label, cookie: self.cookie })
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::super::Links;
    use super::*;

    const HERE: &str = "192.0.2.1:5";

    fn here() -> SocketAddr {
        HERE.parse().expect("an address")
    }

    fn at(seconds: f64) -> Time {
        Time::from_secs_f64(seconds)
    }

    /// All that the two say to each other at `now`.
    fn talk(now: Time, client: &mut Attachment, guard: &mut Links) -> usize {
        let mut said = 0;
        while let Some(frame) = client.poll(now) {
            said += 1;
            if let Some(answer) = guard.on_frame(now, here(), &frame) {
                client.on_frame(now, &answer);
            }
            assert!(said < 10, "they go on for ever");
        }
        said
    }

    #[test]
    fn a_guard_that_has_answered_is_waited_for_by_its_round_trip_within_bounds() {
        // The time from the first question in vain to the third, after an answer that took so long.
        let vain = |answer_s: f64| {
            let (mut client, mut guard) = (Attachment::new(Label([3; 8])), Links::default());
            talk(at(1.0), &mut client, &mut guard);
            let mut now = client.timer();
            // The cookie is known: one question, one answer.
            let asked = client.poll(now).expect("it is time");
            let answer = guard.on_frame(now, here(), &asked).expect("an answer");
            client.on_frame(now + Duration::from_secs_f64(answer_s), &answer);
            now += Duration::SECOND * 2;
            client.ask(now);
            let first = now;
            while client.unanswered() < 3 {
                now = client.timer().max(now);
                client.poll(now);
            }
            now.since(first).as_secs_f64()
        };
        assert_eq!((vain(0.05), vain(0.25), vain(1.5)), (1.5, 2.25, 3.0));
    }

    #[test]
    fn it_attaches_in_two_round_trips_and_stays() {
        let (mut client, mut guard) = (Attachment::new(Label([3; 8])), Links::default());
        assert_eq!(talk(at(1.0), &mut client, &mut guard), 2);
        assert!(client.is_attached(at(1.0)) && guard.address(at(1.0), Label([3; 8])) == Some(here()));
        let mut now = at(1.0);
        while now < at(600.0) {
            now = client.timer();
            // The cookie's key changes: then it takes one round trip more.
            assert!((1..=2).contains(&talk(now, &mut client, &mut guard)));
            assert!(client.is_attached(now + PERIOD) && guard.address(now + PERIOD, Label([3; 8])).is_some());
        }
    }

    #[test]
    fn it_asks_ever_more_seldom_while_nobody_answers_and_knows_when_its_link_is_over() {
        let (mut client, mut guard) = (Attachment::new(Label([3; 8])), Links::default());
        talk(at(1.0), &mut client, &mut guard);
        let mut asked = Vec::new();
        while client.timer() < at(120.0) {
            let now = client.timer();
            assert!(client.poll(now).is_some() && client.poll(now).is_none());
            asked.push(now.since(at(1.0)).as_secs_f64());
        }
        assert_eq!(asked[..5], [15.0, 16.0, 18.0, 22.0, 30.0]);
        assert!(asked.windows(2).all(|pair| pair[1] - pair[0] <= 15.0), "{asked:?}");
        assert!(client.is_attached(at(60.9)) && !client.is_attached(at(61.0)));
        assert_eq!(client.unanswered() as usize, asked.len());
    }

    #[test]
    fn who_is_suspected_is_asked_at_once_and_not_ever_again() {
        let (mut client, mut guard) = (Attachment::new(Label([3; 8])), Links::default());
        talk(at(1.0), &mut client, &mut guard);
        client.ask(at(4.0));
        assert!(client.timer() == at(4.0) && client.poll(at(4.0)).is_some());
        client.ask(at(4.1));
        assert_eq!(client.timer(), at(5.0));
        assert!(client.poll(at(5.0)).is_some() && client.timer() == at(7.0) && client.unanswered() == 2);
    }

    #[test]
    fn another_link_and_a_cookie_that_comes_twice_change_nothing() {
        let mut client = Attachment::new(Label([3; 8]));
        client.poll(at(1.0));
        let next = client.timer();
        client.on_frame(at(1.0), &LinkFrame::Attached { label: Label([4; 8]) });
        assert!(!client.is_attached(at(1.0)));
        let prove = LinkFrame::Prove { label: Label([3; 8]), cookie: [9; 16] };
        client.on_frame(at(1.1), &prove);
        assert_eq!(client.timer(), at(1.1));
        client.poll(at(1.1));
        client.on_frame(at(1.2), &prove);
        assert!(client.timer() > at(1.2) && client.timer() >= next, "it is asked once");
        client.on_frame(at(1.3), &LinkFrame::Refused { label: Label([3; 8]) });
        assert!(client.is_refused() && client.timer() == at(1.3) + PERIOD);
    }
}
