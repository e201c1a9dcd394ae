//! What would be said again and again is said once, and then once a minute with how often it was meant.

use std::collections::BTreeMap;

use anabranch_control::time::{Duration, Time};

/// The same is said again after so long at the earliest.
const PAUSE: Duration = Duration::from_millis(60_000);

/// Things that are told apart; of more, those that were said longest ago are forgotten.
const MOST: usize = 64;

struct Said {
    at: Time,
    /// How often it was meant since.
    withheld: u32,
}

/// What was said lately.
#[derive(Default)]
pub struct Repeats(BTreeMap<String, Said>);

impl Repeats {
    /// What to say for `words` now, where all of `kind` say the same; nothing for now if that was said just before.
    pub fn say(&mut self, now: Time, kind: &str, words: &str) -> Option<String> {
        let again = self.0.get_mut(kind);
        if let Some(said) = again.filter(|said| now.since(said.at) < PAUSE) {
            said.withheld += 1;
            return None;
        }
        let withheld = self.0.insert(kind.to_owned(), Said { at: now, withheld: 0 }).map_or(0, |said| said.withheld);
        if self.0.len() > MOST
            && let Some(oldest) = self.0.iter().min_by_key(|(_, said)| said.at).map(|(kind, _)| kind.clone())
        {
            self.0.remove(&oldest);
        }
        Some(match withheld {
            0 => words.to_owned(),
            times => format!("{words} ({times} more since that was said last)"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_is_said_once_a_minute_with_how_often_and_other_things_at_once() {
        let mut repeats = Repeats::default();
        let mut say =
            |s: u64, kind: &str| repeats.say(Time::from_nanos(s * 1_000_000_000), kind, "no exit leads there");
        assert_eq!(say(0, "exit").as_deref(), Some("no exit leads there"));
        assert_eq!(say(1, "other").as_deref(), Some("no exit leads there"));
        assert!((1..60).all(|s| say(s, "exit").is_none()));
        assert_eq!(say(60, "exit").as_deref(), Some("no exit leads there (59 more since that was said last)"));
        assert_eq!(say(120, "exit").as_deref(), Some("no exit leads there"));
        for kind in 0..1000 {
            say(121, &kind.to_string());
        }
        assert_eq!(repeats.0.len(), MOST);
    }
}
