//! What waits for a link.

use anabranch_sim::network::{Capacity, CodelConfig, CodelLaw, FqCodelConfig, Limit, RedConfig, RedMeasure};

use super::super::error::{Problem, Span};
use super::super::shape::{Either, Optional, OrStandard, Said, Shape, keys, one_of, some, span};
use super::super::values::{Millis, Number, Share, Whole, Word, Words};
use super::{LARGEST_PACKET, MOST_BYTES, MOST_PACKETS, PacketBytes};
use crate::flows::QueueSpec;

/// Queues of FQ-CoDel at most.
const MOST_QUEUES: u64 = 65_536;

type Threshold = Number<0, MOST_BYTES>;

/// A queue: `"unlimited"`, or a table.
pub type Queue = Either<Word<Unlimited>, QueueKeys>;

keys! {
    /// The keys of all kinds.
    #[derive(Default)]
    pub struct QueueKeys {
        kind: Optional<Word<Kind>>,
        bytes: Optional<Whole<0, MOST_BYTES>>,
        packets: Optional<Whole<0, MOST_PACKETS>>,
        ms: Optional<Millis>,
        measure: Optional<Word<RedMeasure>>,
        min_threshold: Optional<Threshold>,
        max_threshold: Optional<Threshold>,
        weight: Optional<Number<1, 1>>,
        max_probability: Optional<Share>,
        gentle: Optional<bool>,
        full_packet_bytes: Optional<PacketBytes>,
        target_ms: Optional<Millis>,
        interval_ms: Optional<Millis>,
        mtu_bytes: Optional<PacketBytes>,
        ecn: Optional<bool>,
        queues: Optional<Whole<1, MOST_QUEUES>>,
        quantum_bytes: Optional<Whole<1, LARGEST_PACKET>>,
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    DropTail,
    Red,
    Codel,
    FqCodel,
}

impl Words for Kind {
    const WORDS: &'static [(&'static str, Self)] =
        &[("drop-tail", Kind::DropTail), ("red", Kind::Red), ("codel", Kind::Codel), ("fq-codel", Kind::FqCodel)];
}

impl Words for RedMeasure {
    const WORDS: &'static [(&'static str, Self)] = &[("packets", RedMeasure::Packets), ("bytes", RedMeasure::Bytes)];
}

/// Whatever comes may wait.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Unlimited;

impl Words for Unlimited {
    const WORDS: &'static [(&'static str, Self)] = &[("unlimited", Unlimited)];

    fn expected() -> String {
        "\"unlimited\", or a table such as { ms = 60 }, { packets = 100 } or { kind = \"codel\", packets = 1000 }"
            .to_owned()
    }
}

impl Said<Queue> {
    /// What waits for a link.
    pub fn spec(&self) -> Result<QueueSpec, Problem> {
        match &**self {
            Either::Plain(_) => Ok(QueueSpec::DropTail(Capacity::Unlimited)),
            Either::Table(keys) => keys.spec(self.span()),
        }
    }
}

impl QueueKeys {
    /// What waits for a link; this table stands at `at`.
    fn spec(&self, at: Span) -> Result<QueueSpec, Problem> {
        use Kind::{Codel, DropTail, FqCodel, Red};
        let kind = self.kind.or_standard(DropTail);
        let owners: [(Option<Span>, &[Kind]); 14] = [
            (span(&self.bytes), &[DropTail, Red, Codel]),
            (span(&self.ms), &[DropTail]),
            (span(&self.measure), &[Red]),
            (span(&self.min_threshold), &[Red]),
            (span(&self.max_threshold), &[Red]),
            (span(&self.weight), &[Red]),
            (span(&self.max_probability), &[Red]),
            (span(&self.gentle), &[Red]),
            (span(&self.full_packet_bytes), &[Red]),
            (span(&self.target_ms).or(span(&self.interval_ms)), &[Codel, FqCodel]),
            (span(&self.mtu_bytes), &[Codel, FqCodel]),
            (span(&self.ecn), &[Red, Codel, FqCodel]),
            (span(&self.queues), &[FqCodel]),
            (span(&self.quantum_bytes), &[FqCodel]),
        ];
        for (span, owners) in owners {
            if let Some(span) = span.filter(|_| !owners.contains(&kind)) {
                let owners: Vec<String> = owners.iter().map(|owner| format!("\"{}\"", owner.word())).collect();
                let kind = kind.word();
                let problem =
                    format!("this belongs to a queue of kind {}, and this one is \"{kind}\"", owners.join(" or "));
                return Err(Problem::at(span, problem));
            }
        }
        Ok(match kind {
            DropTail => QueueSpec::DropTail(self.capacity(at)?),
            Red => QueueSpec::Red(self.red(at)?),
            Codel => QueueSpec::Codel(CodelConfig { law: self.law(at.clone())?, limit: self.limit(at)? }),
            FqCodel => {
                let standard = FqCodelConfig::default();
                QueueSpec::FqCodel(FqCodelConfig {
                    law: self.law(at)?,
                    queues: self.queues.as_ref().map_or(standard.queues, |queues| **queues as u32),
                    quantum: self.quantum_bytes.as_ref().map_or(standard.quantum, |bytes| **bytes as u32),
                    limit: at_least_one(&self.packets)?.map_or(standard.limit, |packets| packets as u32),
                })
            }
        })
    }

    /// How much may wait.
    fn capacity(&self, at: Span) -> Result<Capacity, Problem> {
        let keys = [("bytes", span(&self.bytes)), ("packets", span(&self.packets)), ("ms", span(&self.ms))];
        let chosen = one_of(&keys, at, "how much may wait")?;
        Ok(match (chosen, &self.bytes, &self.packets, &self.ms) {
            (0, Some(bytes), ..) => Capacity::Bytes(**bytes),
            (1, _, Some(packets), _) => Capacity::Packets(**packets),
            (_, _, _, wait) => wait.as_ref().map_or(Capacity::Unlimited, |wait| Capacity::Time(**wait)),
        })
    }

    /// How much a discipline keeps.
    fn limit(&self, at: Span) -> Result<Limit, Problem> {
        let keys = [("bytes", span(&self.bytes)), ("packets", span(&self.packets))];
        Ok(match one_of(&keys, at, "how much may wait")? {
            0 => Limit::Bytes(at_least_one(&self.bytes)?.unwrap_or(MOST_BYTES)),
            _ => Limit::Packets(at_least_one(&self.packets)?.unwrap_or(MOST_PACKETS)),
        })
    }

    fn red(&self, at: Span) -> Result<RedConfig, Problem> {
        let standard = RedConfig::packets(1);
        let config = RedConfig {
            limit: self.limit(at.clone())?,
            measure: self.measure.or_standard(standard.measure),
            min_threshold: self.min_threshold.or_standard(standard.min_threshold),
            max_threshold: self.max_threshold.or_standard(standard.max_threshold),
            weight: self.weight.or_standard(standard.weight),
            max_probability: self.max_probability.or_standard(standard.max_probability),
            gentle: self.gentle.or_standard(standard.gentle),
            ecn: self.ecn.or_standard(standard.ecn),
            full_packet: self.full_packet_bytes.as_ref().map_or(standard.full_packet, |bytes| **bytes as u32),
        };
        match (&self.max_threshold, &self.min_threshold) {
            _ if config.min_threshold < config.max_threshold => Ok(config),
            (Some(most), _) => {
                Err(most.wrong(format!("expected more than the min_threshold of {}", config.min_threshold)))
            }
            (None, least) => {
                let problem = format!("expected less than the max_threshold of {}", config.max_threshold);
                Err(Problem::at(span(least).unwrap_or(at), problem))
            }
        }
    }

    fn law(&self, at: Span) -> Result<CodelLaw, Problem> {
        let standard = CodelLaw::default();
        let law = CodelLaw {
            target: self.target_ms.or_standard(standard.target),
            interval: self.interval_ms.or_standard(standard.interval),
            mtu: self.mtu_bytes.as_ref().map_or(standard.mtu, |bytes| **bytes as u32),
            ecn: self.ecn.or_standard(standard.ecn),
        };
        match (&self.interval_ms, &self.target_ms) {
            _ if law.interval > law.target => Ok(law),
            (Some(interval), _) => Err(interval.wrong(format!("expected more than the target of {}", law.target))),
            (None, target) => {
                let problem = format!("expected less than the interval of {}", law.interval);
                Err(Problem::at(span(target).unwrap_or(at), problem))
            }
        }
    }
}

/// The number, which must not be 0 where a discipline drops packets.
fn at_least_one<const MOST: u64>(number: &Optional<Whole<0, MOST>>) -> Result<Option<u64>, Problem> {
    match number {
        Some(none) if **none == 0 => Err(none.wrong(format!("expected {}", Whole::<1, MOST>::expected()))),
        number => Ok(number.as_ref().map(|number| **number)),
    }
}

/// What is written of a queue.
pub fn written(spec: QueueSpec) -> Queue {
    let limited = |kind: Kind, limit: Limit| {
        let kind = some(kind);
        match limit {
            Limit::Bytes(bytes) => QueueKeys { kind, bytes: some(bytes), ..QueueKeys::default() },
            Limit::Packets(packets) => QueueKeys { kind, packets: some(packets), ..QueueKeys::default() },
        }
    };
    let under_law = |keys: QueueKeys, law: CodelLaw| QueueKeys {
        target_ms: some(law.target),
        interval_ms: some(law.interval),
        mtu_bytes: some(law.mtu.into()),
        ecn: some(law.ecn),
        ..keys
    };
    Either::Table(match spec {
        QueueSpec::DropTail(Capacity::Unlimited) => return Either::Plain(Unlimited),
        QueueSpec::DropTail(Capacity::Bytes(bytes)) => QueueKeys { bytes: some(bytes), ..QueueKeys::default() },
        QueueSpec::DropTail(Capacity::Packets(packets)) => QueueKeys { packets: some(packets), ..QueueKeys::default() },
        QueueSpec::DropTail(Capacity::Time(wait)) => QueueKeys { ms: some(wait), ..QueueKeys::default() },
        QueueSpec::Red(red) => QueueKeys {
            measure: some(red.measure),
            min_threshold: some(red.min_threshold),
            max_threshold: some(red.max_threshold),
            weight: some(red.weight),
            max_probability: some(red.max_probability),
            gentle: some(red.gentle),
            ecn: some(red.ecn),
            full_packet_bytes: some(red.full_packet.into()),
            ..limited(Kind::Red, red.limit)
        },
        QueueSpec::Codel(codel) => under_law(limited(Kind::Codel, codel.limit), codel.law),
        QueueSpec::FqCodel(fq) => QueueKeys {
            queues: some(fq.queues.into()),
            quantum_bytes: some(fq.quantum.into()),
            ..under_law(limited(Kind::FqCodel, Limit::Packets(fq.limit.into())), fq.law)
        },
    })
}
#[cfg(test)]
mod tests {
    use super::super::super::parse_flows;
    use super::*;

    fn queue(queue: &str) -> Result<QueueSpec, String> {
        let text = format!(
            "[dumbbell]\nrate = \"5 Mbit/s\"\ndelay_ms = 5\nqueue = {queue}\n[[flow]]\ncontroller = \"reno\"\n"
        );
        parse_flows(&text, "test.toml", &[]).map(|scenario| scenario.links[0].queue).map_err(|error| error.to_string())
    }

    #[test]
    fn every_kind_reads_as_it_was_written() {
        for written in [
            "{ kind = \"red\", packets = 90, min_threshold = 7, gentle = false, measure = \"packets\" }",
            "{ kind = \"codel\", bytes = 90000, target_ms = 7, ecn = false }",
            "{ kind = \"fq-codel\", queues = 16, interval_ms = 50 }",
            "{ kind = \"drop-tail\", ms = 60 }",
            "\"unlimited\"",
        ] {
            let spec = queue(written).unwrap();
            let mut text = String::new();
            Queue::write(&super::written(spec), &mut text);
            assert_eq!(queue(&text), Ok(spec), "{written}");
        }
        assert!(matches!(queue("{ kind = \"codel\", packets = 9 }"), Ok(QueueSpec::Codel(_))));
    }

    #[test]
    fn a_key_of_another_kind_and_impossible_thresholds_are_refused_with_their_line() {
        for (wrong, expected) in [
            ("{ kind = \"codel\", packets = 9, quantum_bytes = 3 }", "quantum_bytes"),
            ("{ kind = \"red\", packets = 9, min_threshold = 20 }", "min_threshold"),
            ("{ kind = \"codel\", packets = 9, target_ms = 200 }", "target"),
            ("{ kind = \"codle\", packets = 9 }", "codel"),
            ("{ kind = \"codel\" }", "how much may wait"),
        ] {
            let message = queue(wrong).unwrap_err();
            assert!(message.contains(expected) && message.contains("test.toml:4"), "{wrong}: {message}");
        }
    }
}
