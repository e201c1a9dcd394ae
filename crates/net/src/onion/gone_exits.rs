//! Which exits a user leaves alone, since they answered nothing while guards did.
//!
//! An exit that is silent may be gone, or what is before it: the own line, or the guards. So the guards are asked as
//! well, and an exit is to blame only once they have answered for some time.

use std::collections::BTreeMap;

use anabranch_control::time::{Duration, Time};
use anabranch_onion::directory::PublicKey;

/// Guards that have not answered for so long while they are asked may be what is gone, or the own line: one second is
/// what a link waits for an answer at first, and another is for the next question.
const LINE_SILENT: Duration = Duration::from_millis(2_500);

/// Guards must have answered for so long before an exit is to blame that does not: a session whose guards come back asks
/// its exit within this.
const LINE_PROVED: Duration = Duration::from_millis(3_000);

/// A session whose exit seems to be gone is given up, and what is open in it with it, after so long: three times what it
/// takes to seem so. Until then an exit that is back is gone on with.
const GIVEN_UP: Duration = Duration::from_millis(15_000);

/// For so long an exit that was gone is chosen only where no other leads: longer than it takes to start a relay again,
/// and a part of the time for which a list that has it is good.
const LEFT_ALONE: Duration = Duration::from_millis(300_000);

/// Exits that are remembered as gone; of more, those whose time ends first are not.
const MOST_GONE: usize = 64;

/// Exits that were gone, and whether the own line could have been to blame.
#[derive(Debug, Default)]
pub(super) struct GoneExits {
    /// When guards were last silent, as far as they were asked.
    line_since: Time,
    /// Until when each is left alone.
    until: BTreeMap<PublicKey, Time>,
}

impl GoneExits {
    /// Guards were last heard at `heard`; without one that `is_attached` there is no line.
    pub(super) fn note_guards(&mut self, now: Time, heard: Time, is_attached: bool) {
        if now.since(heard) > LINE_SILENT || !is_attached {
            self.line_since = now;
        }
    }

    /// Whether an exit that answers nothing is to blame for it.
    pub(super) fn may_blame(&self, now: Time) -> bool {
        now.since(self.line_since) >= LINE_PROVED
    }

    /// Whether nothing is to be hoped any more of a session whose exit seems to be gone, and was last heard at `heard`.
    pub(super) fn is_hopeless(&self, now: Time, heard: Time) -> bool {
        now.since(heard.max(self.line_since)) >= GIVEN_UP
    }

    /// `exit` is gone.
    pub(super) fn note(&mut self, now: Time, exit: PublicKey) {
        self.until.insert(exit, now + LEFT_ALONE);
        if self.until.len() > MOST_GONE
            && let Some(first) = self.until.iter().min_by_key(|(_, until)| **until).map(|(exit, _)| *exit)
        {
            self.until.remove(&first);
        }
    }

    /// `exit` was heard again.
    pub(super) fn note_back(&mut self, exit: &PublicKey) {
        self.until.remove(exit);
    }

    /// Whether `exit` is left alone, where another leads to the same place.
    pub(super) fn is_left_alone(&self, now: Time, exit: &PublicKey) -> bool {
        self.until.get(exit).is_some_and(|until| now < *until)
    }
}

#[cfg(test)]
mod tests {
    use anabranch_onion::directory::SecretKey;

    use super::*;

    fn at(ms: u64) -> Time {
        Time::ZERO + Duration::from_millis(ms)
    }

    fn exit(number: u8) -> PublicKey {
        SecretKey::from_seed(&[number; 32]).public()
    }

    #[test]
    fn nobody_is_blamed_before_guards_have_answered_for_some_time() {
        let mut exits = GoneExits::default();
        exits.note_guards(at(10_000), at(9_000), true);
        assert!(exits.may_blame(at(10_000)));
        // Not heard for too long; then heard again.
        exits.note_guards(at(11_501), at(9_000), true);
        exits.note_guards(at(12_000), at(11_900), true);
        assert!(!exits.may_blame(at(14_500)) && exits.may_blame(at(14_501)));
        exits.note_guards(at(20_000), at(20_000), false);
        assert!(!exits.may_blame(at(22_999)) && exits.may_blame(at(23_000)), "without a guard there is no line");
    }

    #[test]
    fn a_session_is_given_up_after_silence_for_which_the_line_is_not_to_blame() {
        let mut exits = GoneExits::default();
        assert!(!exits.is_hopeless(at(34_999), at(20_000)) && exits.is_hopeless(at(35_000), at(20_000)));
        exits.note_guards(at(30_000), at(20_000), true);
        assert!(!exits.is_hopeless(at(44_999), at(20_000)) && exits.is_hopeless(at(45_000), at(20_000)));
    }

    #[test]
    fn an_exit_is_left_alone_for_its_time_or_until_it_is_heard() {
        let mut exits = GoneExits::default();
        exits.note(at(1_000), exit(1));
        exits.note(at(1_000), exit(2));
        exits.note_back(&exit(2));
        assert!(exits.is_left_alone(at(300_999), &exit(1)) && !exits.is_left_alone(at(301_000), &exit(1)));
        assert!(!exits.is_left_alone(at(1_000), &exit(2)) && !exits.is_left_alone(at(1_000), &exit(3)));
    }

    #[test]
    fn of_more_than_can_be_remembered_the_latest_are() {
        let mut exits = GoneExits::default();
        for number in 0..=MOST_GONE as u8 {
            exits.note(at(u64::from(number)), exit(number));
        }
        assert_eq!(exits.until.len(), MOST_GONE);
        assert!(!exits.is_left_alone(at(100), &exit(0)) && exits.is_left_alone(at(100), &exit(MOST_GONE as u8)));
    }
}
