//! Tor's control port: what a client says of itself. Questions and answers are lines of text
//! ([control-spec](https://spec.torproject.org/control-spec/)).

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::failure::Failure;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// Tor tells once a second what circuits have carried; what is still missing then is not waited for.
const LAST_EVENTS: Duration = Duration::from_secs(3);

/// A connection that proved to be a friend's.
pub struct Control(BufReader<TcpStream>);

/// A circuit of a client's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Circuit {
    /// Whether all its relays have answered.
    pub is_built: bool,
    pub hops: usize,
    /// Whether streams to outside take it, one circuit a stream.
    pub is_for_streams: bool,
    /// The set of legs that it is one of.
    pub linked: Option<String>,
}

impl Control {
    /// Connects to a client at `at` that wrote down `cookie`.
    pub fn open(at: SocketAddr, cookie: &[u8]) -> Result<Control, Failure> {
        let stream = TcpStream::connect_timeout(&at, PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut control = Control(BufReader::new(stream));
        let cookie: String = cookie.iter().map(|byte| format!("{byte:02x}")).collect();
        control.ask(&format!("AUTHENTICATE {cookie}"))?;
        Ok(control)
    }

    /// The lines of an answer to `question`, without their codes.
    pub fn ask(&mut self, question: &str) -> Result<Vec<String>, Failure> {
        self.0.get_mut().write_all(format!("{question}\r\n").as_bytes())?;
        let (mut answer, mut is_data) = (Vec::new(), false);
        loop {
            let line = self.line()?;
            let failed = || Failure::new(format!("Tor's control port answers \"{line}\" to {}", verb(question)));
            if is_data {
                is_data = line != ".";
                answer.extend(is_data.then_some(line));
                continue;
            }
            let (code, rest) = line.split_at_checked(3).ok_or_else(failed)?;
            if code != "250" {
                return Err(failed());
            }
            is_data = rest.starts_with('+');
            answer.extend(rest.get(1..).map(str::to_owned));
            if rest.starts_with(' ') || rest.is_empty() {
                return Ok(answer);
            }
        }
    }

    fn line(&mut self) -> Result<String, Failure> {
        let mut line = String::new();
        match self.0.read_line(&mut line) {
            Ok(0) => Err(Failure::new("Tor's control port is closed")),
            Ok(_) => Ok(line.trim_end_matches(['\r', '\n']).to_owned()),
            Err(why) => Err(Failure::new(format!("Tor's control port does not answer: {why}"))),
        }
    }
}

/// A question without what may be a secret.
fn verb(question: &str) -> &str {
    if question.starts_with("AUTHENTICATE") { "AUTHENTICATE" } else { question }
}

/// How far a client says that it is.
pub fn percent(answer: &[String]) -> Option<u8> {
    answer.iter().find_map(|line| value(line, "PROGRESS")?.parse().ok())
}

/// The circuits that a client says that it has.
pub fn circuits(answer: &[String]) -> Vec<Circuit> {
    answer.iter().filter_map(|line| circuit(line)).collect()
}

/// `ID STATUS PATH KEY=VALUE …`, where a circuit that only begins has no path.
fn circuit(line: &str) -> Option<Circuit> {
    let mut words = line.split(' ');
    words.next()?.parse::<u64>().ok()?;
    let is_built = words.next()? == "BUILT";
    let hops = words.next().filter(|path| path.starts_with('$')).map_or(0, |path| path.split(',').count());
    let (purpose, flags) = (value(line, "PURPOSE"), value(line, "BUILD_FLAGS").unwrap_or_default());
    let is_inside = flags.split(',').any(|flag| flag == "IS_INTERNAL" || flag == "ONEHOP_TUNNEL");
    let linked = value(line, "CONFLUX_ID").filter(|_| purpose == Some("CONFLUX_LINKED")).map(str::to_owned);
    Some(Circuit { is_built, hops, is_for_streams: purpose == Some("GENERAL") && !is_inside, linked })
}

fn value<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    line.split(' ').find_map(|word| word.strip_prefix(key)?.strip_prefix('='))
}

/// What each circuit has carried, event by event: `650 CIRC_BW ID=… READ=… …`.
pub struct Carried(Arc<Mutex<BTreeMap<String, u64>>>);

impl Carried {
    /// Counts from now on.
    pub fn count(mut control: Control) -> Result<Carried, Failure> {
        control.ask("SETEVENTS CIRC_BW")?;
        // A client from which nothing comes for long says nothing, either.
        control.0.get_ref().set_read_timeout(None)?;
        let read: Arc<Mutex<BTreeMap<String, u64>>> = Arc::default();
        let counted = Arc::clone(&read);
        thread::spawn(move || {
            while let Ok(line) = control.line() {
                if let Some((id, bytes)) = bytes(&line) {
                    *counted.lock().unwrap_or_else(PoisonError::into_inner).entry(id.to_owned()).or_default() += bytes;
                }
            }
        });
        Ok(Carried(read))
    }

    /// Bytes of each circuit that has carried at least `share` of all, the most first, once that are `least`.
    pub fn once(&self, least: u64, share: f64) -> Vec<u64> {
        let begun = Instant::now();
        loop {
            let read: Vec<u64> = self.0.lock().unwrap_or_else(PoisonError::into_inner).values().copied().collect();
            if read.iter().sum::<u64>() >= least || begun.elapsed() > LAST_EVENTS {
                return those_that_count(read, share);
            }
            thread::sleep(Duration::from_millis(50));
        }
    }
}

fn those_that_count(mut read: Vec<u64>, share: f64) -> Vec<u64> {
    let least = read.iter().sum::<u64>() as f64 * share;
    read.retain(|bytes| *bytes as f64 >= least);
    read.sort_by_key(|bytes| std::cmp::Reverse(*bytes));
    read
}

/// The circuit of an event, and what was read over it.
fn bytes(event: &str) -> Option<(&str, u64)> {
    let event = event.strip_prefix("650 CIRC_BW ")?;
    Some((value(event, "ID")?, value(event, "READ")?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// An answer as one of a client's, whose relays have shorter names.
    fn answer() -> Vec<String> {
        [
            "circuit-status=",
            "1 BUILT $AA~a0 BUILD_FLAGS=ONEHOP_TUNNEL,IS_INTERNAL PURPOSE=GENERAL TIME_CREATED=2026-01-01T00:00:00.1",
            "5 BUILT $AB~r1,$AC~r17,$AD~r23 BUILD_FLAGS=NEED_CAPACITY PURPOSE=GENERAL",
            "6 BUILT $AB~r1,$AC~r17,$AD~r23 BUILD_FLAGS=IS_INTERNAL,NEED_UPTIME PURPOSE=HS_VANGUARDS",
            "7 EXTENDED $AB~r1 BUILD_FLAGS=NEED_CAPACITY PURPOSE=GENERAL",
            "8 LAUNCHED BUILD_FLAGS=NEED_CAPACITY PURPOSE=CONFLUX_UNLINKED CONFLUX_ID=29",
            "9 BUILT $AB~r1,$AE~r8,$AF~r5 BUILD_FLAGS=NEED_UPTIME PURPOSE=CONFLUX_LINKED CONFLUX_ID=29 CONFLUX_RTT=6828",
            "OK",
        ]
        .map(str::to_owned)
        .to_vec()
    }

    #[test]
    fn circuits_are_read_with_what_they_are_for() {
        let of = |is_built, hops, is_for_streams, linked: Option<&str>| Circuit {
            is_built,
            hops,
            is_for_streams,
            linked: linked.map(str::to_owned),
        };
        let expected = [
            of(true, 1, false, None),
            of(true, 3, true, None),
            of(true, 3, false, None),
            of(false, 1, true, None),
            of(false, 0, false, None),
            of(true, 3, false, Some("29")),
        ];
        assert_eq!(circuits(&answer()), expected);
        assert_eq!(circuits(&["".to_owned(), "x BUILT".to_owned(), "1".to_owned()]), []);
    }

    #[test]
    fn progress_is_read_as_a_client_says_it() {
        let of = |line: &str| percent(&[line.to_owned(), "OK".to_owned()]);
        let said = "status/bootstrap-phase=NOTICE BOOTSTRAP PROGRESS=50 TAG=loading_descriptors SUMMARY=\"Loading\"";
        assert_eq!(of(said), Some(50));
        assert_eq!(of("status/bootstrap-phase=NOTICE BOOTSTRAP PROGRESS=many"), None);
    }

    #[test]
    fn events_tell_what_circuits_have_read() {
        let event = "650 CIRC_BW ID=6 READ=67743319 WRITTEN=1018 TIME=2026-01-01T00:00:00.1 DELIVERED_READ=6";
        assert_eq!(bytes(event), Some(("6", 67_743_319)));
        assert_eq!(bytes("650 BW 1 2"), None);
        assert_eq!(bytes("650 CIRC_BW ID=6 WRITTEN=1018"), None);
    }

    #[test]
    fn only_circuits_that_carried_something_count() {
        assert_eq!(those_that_count(vec![3, 300, 0, 700], 0.01), [700, 300]);
        assert!(those_that_count(Vec::new(), 0.01).is_empty());
    }

    /// What a client asks when its questions are answered by these lines.
    fn asked(answers: &'static str) -> Result<Vec<String>, Failure> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        thread::spawn(move || {
            let mut stream = listener.accept().unwrap().0;
            stream.write_all(answers.as_bytes()).unwrap();
            // Until the other end goes.
            BufReader::new(stream).lines().map_while(Result::ok).for_each(drop);
        });
        Control::open(at, &[0xab, 0x01])?.ask("GETINFO circuit-status")
    }

    #[test]
    fn answers_end_with_their_last_line_and_refusals_are_said() {
        let answer =
            asked("250 OK\r\n250+circuit-status=\r\n1 BUILT $AA\r\n250 is data here\r\n.\r\n250 OK\r\n250 no\r\n");
        assert_eq!(answer.unwrap(), ["circuit-status=", "1 BUILT $AA", "250 is data here", "OK"]);
        let refused = asked("515 Authentication failed\r\n").unwrap_err();
        assert!(refused.words().ends_with("\"515 Authentication failed\" to AUTHENTICATE"), "{}", refused.words());
        let refused = asked("250 OK\r\n\r\n").unwrap_err();
        assert!(refused.words().ends_with("\"\" to GETINFO circuit-status"), "{}", refused.words());
    }
}
