//! What waits for a link: read from a file, and written to one.

use anabranch_sim::network::{Capacity, CodelConfig, CodelLaw, FqCodelConfig, Limit, RedConfig, RedMeasure};

use super::super::error::ScenarioError;
use super::super::section::{Entry, Section};
use super::{LARGEST_PACKET, MOST_BYTES, MOST_PACKETS};
use crate::flows::QueueSpec;

const DROP_TAIL: &[&str] = &["kind", "bytes", "packets", "ms"];
const RED: &[&str] = &[
    "kind",
    "bytes",
    "packets",
    "measure",
    "min_threshold",
    "max_threshold",
    "weight",
    "max_probability",
    "gentle",
    "ecn",
    "full_packet_bytes",
];
const CODEL: &[&str] = &["kind", "bytes", "packets", "target_ms", "interval_ms", "mtu_bytes", "ecn"];
const FQ_CODEL: &[&str] =
    &["kind", "packets", "target_ms", "interval_ms", "mtu_bytes", "ecn", "queues", "quantum_bytes"];

/// Queues of FQ-CoDel at most.
const MOST_QUEUES: u64 = 65_536;

#[derive(Clone, Copy)]
enum Kind {
    DropTail,
    Red,
    Codel,
    FqCodel,
}

const KINDS: &[(&str, Kind)] =
    &[("drop-tail", Kind::DropTail), ("red", Kind::Red), ("codel", Kind::Codel), ("fq-codel", Kind::FqCodel)];

/// What waits for a link: `"unlimited"`, or a table.
pub fn read(entry: &Entry<'_>) -> Result<QueueSpec, ScenarioError> {
    if !entry.is_table() {
        return match entry.words() {
            Some("unlimited") => Ok(QueueSpec::DropTail(Capacity::Unlimited)),
            _ => Err(entry.wrong(
                "expected \"unlimited\", or a table such as { ms = 60 }, { packets = 100 } or { kind = \"codel\", \
                 packets = 1000 }",
            )),
        };
    }
    let all: Vec<&str> = [DROP_TAIL, RED, CODEL, FQ_CODEL].concat();
    let kind = entry.open(&all)?.get("kind").map_or(Ok(KINDS[0]), |kind| kind.choice(KINDS))?.1;
    Ok(match kind {
        Kind::DropTail => QueueSpec::DropTail(capacity(&entry.open(DROP_TAIL)?)?),
        Kind::Red => QueueSpec::Red(red(&entry.open(RED)?)?),
        Kind::Codel => {
            let section = entry.open(CODEL)?;
            QueueSpec::Codel(CodelConfig { law: law(&section)?, limit: limit(&section)? })
        }
        Kind::FqCodel => QueueSpec::FqCodel(fq_codel(&entry.open(FQ_CODEL)?)?),
    })
}

/// How much may wait.
fn capacity(section: &Section<'_>) -> Result<Capacity, ScenarioError> {
    let (key, entry) = section.one_of(&["bytes", "packets", "ms"], "how much may wait")?;
    Ok(match key {
        "bytes" => Capacity::Bytes(entry.whole(0..=MOST_BYTES)?),
        "packets" => Capacity::Packets(entry.whole(0..=MOST_PACKETS)?),
        _ => Capacity::Time(entry.millis()?),
    })
}

/// How much a discipline keeps.
fn limit(section: &Section<'_>) -> Result<Limit, ScenarioError> {
    let (key, entry) = section.one_of(&["bytes", "packets"], "how much may wait")?;
    Ok(match key {
        "bytes" => Limit::Bytes(entry.whole(1..=MOST_BYTES)?),
        _ => Limit::Packets(entry.whole(1..=MOST_PACKETS)?),
    })
}

fn red(section: &Section<'_>) -> Result<RedConfig, ScenarioError> {
    const MEASURES: &[(&str, RedMeasure)] = &[("packets", RedMeasure::Packets), ("bytes", RedMeasure::Bytes)];
    let mut config = RedConfig { limit: limit(section)?, ..RedConfig::packets(1) };
    if let Some(entry) = section.get("measure") {
        config.measure = entry.choice(MEASURES)?.1;
    }
    let number = |key: &str, range, standard: f64| section.get(key).map_or(Ok(standard), |entry| entry.number(range));
    config.min_threshold = number("min_threshold", 0.0..=MOST_BYTES as f64, config.min_threshold)?;
    config.max_threshold = number("max_threshold", 0.0..=MOST_BYTES as f64, config.max_threshold)?;
    config.weight = number("weight", 1e-9..=1.0, config.weight)?;
    config.max_probability = number("max_probability", 0.0..=1.0, config.max_probability)?;
    if config.min_threshold >= config.max_threshold {
        let problem = format!("expected more than the min_threshold of {}", config.min_threshold);
        return Err(section.blame(&["max_threshold", "min_threshold"], problem));
    }
    if let Some(entry) = section.get("gentle") {
        config.gentle = entry.flag()?;
    }
    if let Some(entry) = section.get("ecn") {
        config.ecn = entry.flag()?;
    }
    if let Some(entry) = section.get("full_packet_bytes") {
        config.full_packet = entry.whole(1..=LARGEST_PACKET)? as u32;
    }
    Ok(config)
}

fn law(section: &Section<'_>) -> Result<CodelLaw, ScenarioError> {
    let mut law = CodelLaw::default();
    if let Some(entry) = section.get("target_ms") {
        law.target = entry.millis()?;
    }
    if let Some(entry) = section.get("interval_ms") {
        law.interval = entry.millis()?;
    }
    if law.interval <= law.target {
        let problem = format!("expected more than the target of {}", law.target);
        return Err(section.blame(&["interval_ms", "target_ms"], problem));
    }
    if let Some(entry) = section.get("mtu_bytes") {
        law.mtu = entry.whole(1..=LARGEST_PACKET)? as u32;
    }
    if let Some(entry) = section.get("ecn") {
        law.ecn = entry.flag()?;
    }
    Ok(law)
}

fn fq_codel(section: &Section<'_>) -> Result<FqCodelConfig, ScenarioError> {
    let standard = FqCodelConfig::default();
    let whole = |key: &str, most: u64, standard: u32| match section.get(key) {
        Some(entry) => Ok(entry.whole(1..=most)? as u32),
        None => Ok(standard),
    };
    Ok(FqCodelConfig {
        law: law(section)?,
        queues: whole("queues", MOST_QUEUES, standard.queues)?,
        quantum: whole("quantum_bytes", LARGEST_PACKET, standard.quantum)?,
        limit: whole("packets", MOST_PACKETS, standard.limit)?,
    })
}

/// `spec` as it is written in a file.
pub fn text(spec: QueueSpec) -> String {
    match spec {
        QueueSpec::DropTail(Capacity::Unlimited) => "\"unlimited\"".to_owned(),
        QueueSpec::DropTail(Capacity::Bytes(bytes)) => format!("{{ bytes = {bytes} }}"),
        QueueSpec::DropTail(Capacity::Packets(packets)) => format!("{{ packets = {packets} }}"),
        QueueSpec::DropTail(Capacity::Time(wait)) => format!("{{ ms = {} }}", wait.as_millis_f64()),
        QueueSpec::Red(red) => {
            let measure = match red.measure {
                RedMeasure::Packets => "packets",
                RedMeasure::Bytes => "bytes",
            };
            format!(
                "{{ kind = \"red\", {}, measure = \"{measure}\", min_threshold = {}, max_threshold = {}, weight = {}, \
                 max_probability = {}, gentle = {}, ecn = {}, full_packet_bytes = {} }}",
                limit_text(red.limit),
                red.min_threshold,
                red.max_threshold,
                red.weight,
                red.max_probability,
                red.gentle,
                red.ecn,
                red.full_packet
            )
        }
        QueueSpec::Codel(codel) => {
            format!("{{ kind = \"codel\", {}, {} }}", limit_text(codel.limit), law_text(&codel.law))
        }
        QueueSpec::FqCodel(fq) => format!(
            "{{ kind = \"fq-codel\", packets = {}, {}, queues = {}, quantum_bytes = {} }}",
            fq.limit,
            law_text(&fq.law),
            fq.queues,
            fq.quantum
        ),
    }
}

fn limit_text(limit: Limit) -> String {
    match limit {
        Limit::Bytes(bytes) => format!("bytes = {bytes}"),
        Limit::Packets(packets) => format!("packets = {packets}"),
    }
}

fn law_text(law: &CodelLaw) -> String {
    let (target, interval) = (law.target.as_millis_f64(), law.interval.as_millis_f64());
    format!("target_ms = {target}, interval_ms = {interval}, mtu_bytes = {}, ecn = {}", law.mtu, law.ecn)
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
            assert_eq!(queue(&text(spec)), Ok(spec), "{written}");
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
