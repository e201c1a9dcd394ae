//! `anabranch onion status`: what a running authority, relay or proxy says of itself.
//!
//! It reads what they serve with `--metrics` (OpenMetrics text), which holds no address and no target. Of a proxy it
//! says besides how often adversaries of several sizes see it, by the formulas of docs/onion.md.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anabranch_lab::attack::theory::exposure;
use anabranch_lab::attack::tradeoff::SHARES;
use anabranch_net::metrics_server::PATH;
use serde::Serialize;

use crate::failure::Failure;
use crate::network::socket_address;
use crate::number::short;
use crate::printer::{on_stdout, print_line};
use crate::table;

/// What names of metrics begin with.
const PREFIX: &str = "anabranch_onion_";

/// An answer that takes longer is none.
const PATIENCE: Duration = Duration::from_secs(5);

/// A longer answer is none of ours: figures of a relay take 3 kB.
const LONGEST: u64 = 1 << 20;

/// Arguments of `onion status`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Figures hold for what the authorities let into the list: nobody measures how many of the relays one person runs. For a \
proxy each share of them is shown with what it means: a guard of yours is theirs with 1 - (1 - c/n)^g, and a session is \
linked if its exit is theirs too.")]
pub struct Args {
    /// Where it serves its figures: the ADDR of its --metrics, or of a proxy's --page
    #[arg(value_parser = socket_address)]
    address: SocketAddr,
    /// Print one JSON object and nothing else
    #[arg(long)]
    json: bool,
}

/// One figure.
#[derive(Clone, Debug, PartialEq)]
struct Figure {
    name: String,
    help: String,
    /// By label; one without for a figure of its own.
    values: Vec<(Option<String>, f64)>,
}

/// What somebody sees of a proxy who runs a share of the relays, by theory.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Seen {
    /// c/n.
    share: f64,
    /// c, in this list.
    relays: u64,
    /// The probability that a guard in use is theirs.
    a_guard_is_theirs: f64,
    /// The probability that a session is linked: a guard of its user, and its exit are theirs.
    a_session_is_linked: f64,
}

#[derive(Serialize)]
struct Json<'a> {
    of: &'a str,
    figures: BTreeMap<&'a str, serde_json::Value>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    if_somebody_runs: Vec<Seen>,
}

/// Asks, and prints.
pub fn run(args: &Args) -> Result<(), Failure> {
    let text = fetch(args.address)
        .map_err(|why| Failure::new(format!("{} does not tell figures: {why}; see --metrics", args.address)))?;
    let (of, figures) = parse(&text).ok_or_else(|| {
        Failure::new(format!("what {} tells is not of an authority, a relay or a proxy of the onion", args.address))
    })?;
    let seen = seen(&figures);
    if args.json {
        let value = |figure: &Figure| match figure.values.as_slice() {
            [(None, value)] => number(*value),
            several => {
                several.iter().map(|(label, value)| (label.clone().unwrap_or_default(), number(*value))).collect()
            }
        };
        let figures = figures.iter().map(|figure| (figure.name.as_str(), value(figure))).collect();
        print_line!("{}", serde_json::to_string(&Json { of: &of, figures, if_somebody_runs: seen })?)?;
        return Ok(());
    }
    print_line!("{of} at {}", args.address)?;
    let row = |figure: &Figure, label: &Option<String>, value: f64| {
        let help = label.as_ref().map_or(figure.help.clone(), |label| format!("{}: {label}", figure.help));
        // A whole number is a count.
        let value = if value.fract() == 0.0 { format!("{value}") } else { short(value) };
        vec![value, help.trim_end_matches('.').to_owned()]
    };
    let rows: Vec<Vec<String>> = figures
        .iter()
        .flat_map(|figure| figure.values.iter().map(move |(label, value)| row(figure, label, *value)))
        .collect();
    on_stdout(|stdout| table::print(&rows, 0..1, stdout))?;
    if !seen.is_empty() {
        print_line!("")?;
        let percent = |share: f64| format!("{} %", short(100.0 * share));
        let head = ["if somebody runs", "a guard is theirs", "a session is linked"].map(str::to_owned).to_vec();
        let rows = seen.iter().map(|seen| {
            let whose = format!("{} of the relays, {}", percent(seen.share), seen.relays);
            vec![whose, percent(seen.a_guard_is_theirs), percent(seen.a_session_is_linked)]
        });
        let rows: Vec<_> = std::iter::once(head).chain(rows).collect();
        on_stdout(|stdout| table::print(&rows, 1.., stdout))?;
    }
    Ok(())
}

fn number(value: f64) -> serde_json::Value {
    if value.fract() == 0.0 && value.abs() < 1e15 { (value as i64).into() } else { value.into() }
}

/// The body that comes from there.
fn fetch(address: SocketAddr) -> std::io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(format!("GET {PATH} HTTP/1.0\r\nHost: {address}\r\n\r\n").as_bytes())?;
    let mut answer = String::new();
    stream.take(LONGEST).read_to_string(&mut answer).map_err(|why| match why.kind() {
        // What the system says of a time that has run out ("temporarily unavailable") is of something else.
        ErrorKind::WouldBlock | ErrorKind::TimedOut => {
            std::io::Error::other(format!("nothing comes from there within {} s", PATIENCE.as_secs()))
        }
        _ => why,
    })?;
    let (head, body) =
        answer.split_once("\r\n\r\n").ok_or_else(|| std::io::Error::other("no HTTP comes from there"))?;
    let status = head.lines().next().unwrap_or_default();
    match status.split(' ').nth(1) {
        Some("200") => Ok(body.to_owned()),
        _ => Err(std::io::Error::other(format!("it answers \"{status}\""))),
    }
}

/// Whose figures they are, and the figures in their order; none if they are of something else.
///
/// A family that counts by size (a histogram or summary) is shown by how many there were and their sum: its buckets are of
/// use to who draws them.
fn parse(text: &str) -> Option<(String, Vec<Figure>)> {
    let (mut of, mut figures, mut family) = (None, Vec::<Figure>::new(), "");
    for line in text.lines() {
        if let Some((name, help)) = line.strip_prefix("# HELP ").and_then(|rest| rest.split_once(' ')) {
            family = name;
            let Some((kind, name)) = name.strip_prefix(PREFIX).and_then(|name| name.split_once('_')) else { continue };
            of.get_or_insert(kind.to_owned());
            figures.push(Figure { name: name.to_owned(), help: help.to_owned(), values: Vec::new() });
        } else if let (false, Some(figure)) = (line.starts_with('#'), figures.last_mut()) {
            let (series, value) = line.rsplit_once(' ')?;
            let (name, labels) = series.split_once('{').unwrap_or((series, ""));
            let Some(suffix) = name.strip_prefix(family).filter(|_| family.starts_with(PREFIX)) else { continue };
            let label = match suffix {
                "" | "_total" => label(labels),
                "_count" => Some("number".to_owned()),
                "_sum" => Some("sum".to_owned()),
                _ => continue,
            };
            figure.values.push((label, value.parse().ok()?));
        }
    }
    figures.retain(|figure| !figure.values.is_empty());
    of.filter(|_| !figures.is_empty()).map(|of| (of, figures))
}

/// What the labels of a series say, without their names.
fn label(labels: &str) -> Option<String> {
    let values: Vec<&str> =
        labels.split("=\"").skip(1).filter_map(|rest| rest.split_once('"')).map(|(v, _)| v).collect();
    (!values.is_empty()).then(|| values.join(", "))
}

/// What adversaries of several sizes see of a proxy; nothing of what has no guards in its figures.
fn seen(figures: &[Figure]) -> Vec<Seen> {
    let value = |name: &str| figures.iter().find(|figure| figure.name == name)?.values.first().map(|(_, value)| *value);
    let (Some(guards), Some(relays)) = (value("guards"), value("relays")) else { return Vec::new() };
    let seen = |share: f64| {
        let a_guard_is_theirs = exposure(share, guards as u64);
        // Without guards every packet enters elsewhere, and some packet by theirs: it is the exit that counts.
        let enters = if guards == 0.0 { 1.0 } else { a_guard_is_theirs };
        let relays = (share * relays).round() as u64;
        Seen { share, relays, a_guard_is_theirs, a_session_is_linked: enters * share }
    };
    SHARES.into_iter().map(seen).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# HELP anabranch_onion_proxy_guards Guards of its user.\n# TYPE anabranch_onion_proxy_guards gauge\n\
                        anabranch_onion_proxy_guards 2.0\n# HELP anabranch_onion_proxy_relays Relays in that list.\n\
                        # TYPE anabranch_onion_proxy_relays gauge\nanabranch_onion_proxy_relays 200.0\n\
                        # HELP anabranch_onion_proxy_dropped_packets Packets dropped.\n\
                        anabranch_onion_proxy_dropped_packets_total{reason=\"header\"} 3\n\
                        anabranch_onion_proxy_dropped_packets_total{reason=\"replayed\"} 4\n# EOF\n";

    #[test]
    fn figures_are_read_with_their_labels_and_nothing_else_is() {
        let (of, figures) = parse(TEXT).unwrap();
        assert_eq!((of.as_str(), figures.len()), ("proxy", 3));
        assert_eq!(figures[0].values, [(None, 2.0)]);
        assert_eq!(figures[2].values, [(Some("header".to_owned()), 3.0), (Some("replayed".to_owned()), 4.0)]);
        for other in
            ["", "# EOF\n", "<html>", "# HELP go_threads Threads.\ngo_threads 3\n", &TEXT.replace("200.0", "many")]
        {
            assert_eq!(parse(other), None, "{other}");
        }
    }

    #[test]
    fn what_is_counted_by_size_is_shown_by_number_and_sum_and_other_programs_figures_are_not() {
        let sizes = "# HELP anabranch_onion_proxy_delay_seconds How long.\n# TYPE anabranch_onion_proxy_delay_seconds histogram\n\
                     anabranch_onion_proxy_delay_seconds_sum 1.5\nanabranch_onion_proxy_delay_seconds_count 7\n\
                     anabranch_onion_proxy_delay_seconds_bucket{le=\"0.1\"} 3\n\
                     anabranch_onion_proxy_delay_seconds_bucket{le=\"+Inf\"} 7\n\
                     # HELP anabranch_page_seconds Of a page.\n# TYPE anabranch_page_seconds summary\n\
                     anabranch_page_seconds{quantile=\"0.5\"} 9\nanabranch_page_seconds_count 9\n";
        let (_, figures) = parse(&TEXT.replace("# EOF\n", sizes)).unwrap();
        assert_eq!(figures.len(), 4);
        let (number, sum) = ((Some("number".to_owned()), 7.0), (Some("sum".to_owned()), 1.5));
        assert_eq!((&*figures[3].name, &figures[3].values), ("delay_seconds", &vec![sum, number]));
        assert_eq!(figures[2].values.len(), 2, "what is not its own is in no figure");
        let two = TEXT.replace("{reason=\"header\"}", "{reason=\"header\",at=\"guard\"}");
        assert_eq!(parse(&two).unwrap().1[2].values[0], (Some("header, guard".to_owned()), 3.0));
    }

    #[test]
    fn a_port_from_which_nothing_comes_is_said_in_words() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let said = fetch(listener.local_addr().unwrap()).unwrap_err().to_string();
        assert_eq!(said, "nothing comes from there within 5 s");
    }

    #[test]
    fn a_proxy_shows_for_which_share_of_the_relays_its_figures_hold() {
        let seen = seen(&parse(TEXT).unwrap().1);
        let ten = seen.iter().find(|seen| seen.share == 0.1).unwrap();
        assert_eq!(ten.relays, 20);
        assert!((ten.a_guard_is_theirs - 0.19).abs() < 1e-12 && (ten.a_session_is_linked - 0.019).abs() < 1e-12);
        let without = super::seen(&parse(&TEXT.replace("guards 2.0", "guards 0.0")).unwrap().1);
        assert!((without[2].a_session_is_linked - 0.1).abs() < 1e-12 && without[2].a_guard_is_theirs == 0.0);
        assert_eq!(super::seen(&[]), []);
    }
}
