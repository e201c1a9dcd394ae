//! Who made a coordinator's decisions where there is a policy: it, or the rule in its place, and why.

use anabranch_testbed::service::Decided;
use serde::Serialize;

/// Who decided, and how often.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Decisions {
    pub by_policy: usize,
    pub by_rule: usize,
    /// Why the rule did, the most frequent first.
    pub rule_because: Vec<Because>,
    /// Each of them, in their order.
    pub periods: Vec<Period>,
}

/// A reason for which the rule decided.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Because {
    pub why: String,
    /// How often.
    pub decisions: usize,
}

/// A decision, which holds until the next.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Period {
    pub at_s: f64,
    pub decided_by: By,
    pub rule_because: Option<String>,
}

/// Who.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum By {
    Policy,
    Rule,
}

/// Decisions one after the other by the same, for the same reason.
#[derive(Clone, Debug, PartialEq)]
pub struct Span<'a> {
    pub from_s: f64,
    pub decided_by: By,
    pub rule_because: Option<&'a str>,
    pub decisions: usize,
}

impl Decisions {
    /// Those.
    pub fn of(decided: &[Decided]) -> Decisions {
        let period = |one: &Decided| Period {
            at_s: one.at.as_secs_f64(),
            decided_by: if one.by_policy { By::Policy } else { By::Rule },
            rule_because: one.rule_because.clone(),
        };
        let periods: Vec<Period> = decided.iter().map(period).collect();
        let mut rule_because: Vec<Because> = Vec::new();
        for why in periods.iter().filter_map(|period| period.rule_because.as_ref()) {
            match rule_because.iter_mut().find(|because| because.why == *why) {
                Some(because) => because.decisions += 1,
                None => rule_because.push(Because { why: why.clone(), decisions: 1 }),
            }
        }
        // Of those that are as frequent, the first stays the first.
        rule_because.sort_by_key(|because| std::cmp::Reverse(because.decisions));
        let by_policy = periods.iter().filter(|period| period.decided_by == By::Policy).count();
        Decisions { by_policy, by_rule: periods.len() - by_policy, rule_because, periods }
    }

    /// The same, in spans.
    pub fn spans(&self) -> Vec<Span<'_>> {
        let mut spans: Vec<Span<'_>> = Vec::new();
        for Period { at_s, decided_by, rule_because } in &self.periods {
            let (decided_by, rule_because) = (*decided_by, rule_because.as_deref());
            match spans.last_mut() {
                Some(last) if (last.decided_by, last.rule_because) == (decided_by, rule_because) => last.decisions += 1,
                _ => spans.push(Span { from_s: *at_s, decided_by, rule_because, decisions: 1 }),
            }
        }
        spans
    }

    /// In words, where the policy is called `policy`.
    pub fn in_words(&self, policy: &str) -> String {
        let by_rule = match self.by_rule {
            0 => "the rule none".to_owned(),
            by_rule => {
                let because =
                    self.rule_because.iter().map(|because| format!("{} ({})", because.why, because.decisions));
                format!("the rule {by_rule}: {}", because.collect::<Vec<_>>().join("; "))
            }
        };
        format!("{policy} decided {} of {} periods, {by_rule}", self.by_policy, self.periods.len())
    }
}

#[cfg(test)]
mod tests {
    use anabranch_control::time::Time;

    use super::*;

    /// A decision each second: by the policy, or by the rule because of that.
    fn decisions(whys: &[Option<&str>]) -> Decisions {
        let decided = whys.iter().enumerate().map(|(second, why)| Decided {
            at: Time::from_secs_f64(second as f64),
            by_policy: why.is_none(),
            rule_because: why.map(str::to_owned),
        });
        Decisions::of(&decided.collect::<Vec<_>>())
    }

    #[test]
    fn it_is_counted_who_decided_and_each_reason_by_itself_the_most_frequent_first() {
        let decisions = decisions(&[Some("unwatched"), None, None, Some("mute"), Some("mute"), None]);
        assert_eq!((decisions.by_policy, decisions.by_rule, decisions.periods.len()), (3, 3, 6));
        let because: Vec<(&str, usize)> =
            decisions.rule_because.iter().map(|because| (because.why.as_str(), because.decisions)).collect();
        assert_eq!(because, [("mute", 2), ("unwatched", 1)]);
        let said = "p decided 3 of 6 periods, the rule 3: mute (2); unwatched (1)";
        assert_eq!(decisions.in_words("p"), said);
    }

    #[test]
    fn a_rule_that_never_decided_has_no_reasons() {
        assert_eq!(decisions(&[None, None]).in_words("p"), "p decided 2 of 2 periods, the rule none");
    }

    #[test]
    fn decisions_by_the_same_for_the_same_reason_are_one_span() {
        let decisions = decisions(&[Some("unwatched"), Some("mute"), None, None, Some("mute")]);
        let spans: Vec<(f64, By, Option<&str>, usize)> = decisions
            .spans()
            .iter()
            .map(|span| (span.from_s, span.decided_by, span.rule_because, span.decisions))
            .collect();
        let expected = [
            (0.0, By::Rule, Some("unwatched"), 1),
            (1.0, By::Rule, Some("mute"), 1),
            (2.0, By::Policy, None, 2),
            (4.0, By::Rule, Some("mute"), 1),
        ];
        assert_eq!(spans, expected);
    }
}
