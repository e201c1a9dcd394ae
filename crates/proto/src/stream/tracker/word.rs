//! What a viewer's word is worth that its parent has died.
//!
//! By such a word all are asked of whom nothing was heard meanwhile, and trees get no better before they have answered.
//! A liar could say so each second, and who has a parent that passes nothing on and is there all the same says so as
//! well. So a word that turned out wrong, since its parent was heard of afterwards, has its speaker not believed for a
//! while, twice as long each time in a row. Where many die at once there is always somebody who is believed.

use anabranch_control::time::{Duration, Time};

use crate::stream::content::ClientId;

/// Who was wrong once is not believed for so long.
const DISTRUST: Duration = Duration::from_millis(10_000);

/// Each time in a row doubles that, but no more often: 21 minutes.
const MOST_DOUBLINGS: u32 = 7;

/// One viewer's.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Word {
    /// Who has died by it, and when it said so, if that has not been looked into.
    given: Option<(ClientId, Time)>,
    /// How often in a row it was wrong, and until when it is not believed.
    wrong: u32,
    distrusted_until: Time,
}

impl Word {
    /// Who has died by it.
    pub(super) fn missed(&self) -> Option<ClientId> {
        self.given.map(|(missed, _)| missed)
    }

    /// It is believed that `missed` has died.
    pub(super) fn give(&mut self, now: Time, missed: ClientId) {
        self.given = Some((missed, now));
    }

    /// Whether it is believed now, where whoever has died by its last word was last heard of at `heard`; none if that
    /// one is gone.
    pub(super) fn is_trusted(&mut self, now: Time, heard: Option<Time>) -> bool {
        if let Some((_, given)) = self.given.take() {
            if heard.is_some_and(|heard| heard > given) {
                self.distrusted_until = now + DISTRUST * (1 << self.wrong);
                self.wrong = (self.wrong + 1).min(MOST_DOUBLINGS);
            } else {
                self.wrong = 0;
            }
        }
        now >= self.distrusted_until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Time {
        Time::ZERO + Duration::from_millis(1000 * seconds)
    }

    /// When the word of somebody who gives it each second is believed in ten minutes, where those whom it misses are
    /// `heard` of half a second later or gone.
    fn believed(heard: bool) -> Vec<u64> {
        let (mut word, mut believed) = (Word::default(), Vec::new());
        for second in 1..600 {
            let last = at(second - 1) + Duration::from_millis(500);
            if word.is_trusted(at(second), heard.then_some(last)) {
                word.give(at(second), ClientId(7));
                believed.push(second);
            }
        }
        believed
    }

    #[test]
    fn who_is_wrong_again_and_again_is_believed_ever_more_seldom() {
        assert_eq!(believed(true), [1, 12, 33, 74, 155, 316]);
    }

    #[test]
    fn who_is_right_is_always_believed() {
        assert_eq!(believed(false).len(), 599);
    }
}
