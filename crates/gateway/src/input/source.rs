//! What a user calls a source.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr, ToSocketAddrs as _};
use std::path::PathBuf;
use std::time::Duration;

use anabranch_media::pattern::{BadPattern, PatternConfig};
use axum::http::Uri;

/// Where video comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A URL that is read, and read again when it breaks off.
    Http(Uri),
    /// Somebody puts it in at the gateway's `/ingest`.
    Ingest,
    /// Datagrams.
    Udp(Datagrams),
    /// Standard input, as it comes.
    StandardInput,
    /// A file, as fast as it is to be played.
    File(PathBuf),
    /// A caller by SRT, whom the user's ffmpeg waits for; a URL as ffmpeg has them.
    Srt(String),
    /// Whatever the user's ffmpeg reads.
    Ffmpeg(String),
    /// A test picture that is made here.
    Pattern(PatternConfig),
}

/// Datagrams at an address, or to a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagrams {
    /// Where they come, or to which group.
    pub address: SocketAddr,
    /// By which of its addresses this machine is a member of a group of IPv4; else the system chooses.
    pub interface: Option<Ipv4Addr>,
}

/// How a source is read.
#[derive(Clone, Debug)]
pub struct SourceOptions {
    /// Whether a file begins anew at its end.
    pub is_looped: bool,
    /// Who puts in a stream must say it.
    pub ingest_token: Option<String>,
    /// A source that gives nothing for so long has stalled.
    pub stall: Duration,
    /// The user's ffmpeg.
    pub ffmpeg: PathBuf,
    /// Whether it is cut into packets that networks carry which carry 1280 bytes and no more.
    pub is_narrow: bool,
}

impl Default for SourceOptions {
    fn default() -> SourceOptions {
        SourceOptions {
            is_looped: false,
            ingest_token: None,
            stall: Duration::from_secs(10),
            ffmpeg: "ffmpeg".into(),
            is_narrow: false,
        }
    }
}

/// What is no source.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadSource {
    /// Nothing was given.
    #[error(
        "no source: give a URL, a file, - for standard input, ingest for streams that are put in, or pattern: for a test \
         picture"
    )]
    Empty,
    /// No URL.
    #[error("{url}: no URL of the form {scheme}://HOST[:PORT][/PATH]: {why}")]
    Url {
        /// What was given.
        url: String,
        /// Its kind.
        scheme: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// Nothing that ffmpeg could read.
    #[error("{name} is not read by ffmpeg: leave --via-ffmpeg out{otherwise}")]
    ViaFfmpeg {
        /// What was given.
        name: String,
        /// What else there is to do.
        otherwise: &'static str,
    },
    /// A URL of another kind.
    #[error(
        "{0}:// is not read here: http://, https://, udp:// and srt:// are, files, - for standard input, ingest and \
         pattern:; anything else by your ffmpeg, with --via-ffmpeg"
    )]
    Scheme(String),
    /// No such test picture.
    #[error("pattern:{options}: {why}")]
    Pattern {
        /// What was asked for.
        options: String,
        /// What is wrong with it.
        why: BadPattern,
    },
}

impl Source {
    /// What a user calls a source.
    ///
    /// # Errors
    ///
    /// When it is none; the words say what is.
    pub fn parse(text: &str, is_via_ffmpeg: bool) -> Result<Source, BadSource> {
        if text.is_empty() {
            return Err(BadSource::Empty);
        }
        if is_via_ffmpeg {
            return via_ffmpeg(text);
        }
        let Some((scheme, rest)) = text.split_once("://").filter(|(scheme, _)| is_scheme(scheme)) else {
            return Ok(match text {
                "-" => Source::StandardInput,
                "ingest" => Source::Ingest,
                _ => match text.strip_prefix("pattern:") {
                    Some(options) => {
                        let bad = |why| BadSource::Pattern { options: options.to_owned(), why };
                        Source::Pattern(options.parse().map_err(bad)?)
                    }
                    None => Source::File(text.into()),
                },
            });
        };
        match scheme.to_ascii_lowercase().as_str() {
            "http" => web(text, "http"),
            "https" => web(text, "https"),
            "udp" => udp(rest).map_err(|why| BadSource::Url { url: text.to_owned(), scheme: "udp", why }),
            "srt" => srt(rest).map_err(|why| BadSource::Url { url: without_secrets(text), scheme: "srt", why }),
            other => Err(BadSource::Scheme(other.to_owned())),
        }
    }
}

fn is_scheme(text: &str) -> bool {
    // RFC 3986, 3.1.
    text.starts_with(|first: char| first.is_ascii_alphabetic())
        && text.chars().all(|letter| letter.is_ascii_alphanumeric() || "+-.".contains(letter))
}

/// Whatever ffmpeg reads by itself. It is given no standard input: what comes there once would be gone when it is run
/// again.
fn via_ffmpeg(text: &str) -> Result<Source, BadSource> {
    let otherwise = match text {
        "-" | "pipe:" | "pipe:0" => {
            "; for other than a transport stream, ffmpeg -i - -c copy -f mpegts pipe:1 | anabranch stream serve -"
        }
        "ingest" => "; a file of that name is ./ingest",
        _ if text.starts_with("pattern:") => "; a file of that name begins with ./",
        _ => return Ok(Source::Ffmpeg(text.to_owned())),
    };
    Err(BadSource::ViaFfmpeg { name: text.to_owned(), otherwise })
}

/// The port that a URL names, or that of its scheme (RFC 9110, 4.2); none if it names one that does not exist.
pub(super) fn port(url: &Uri) -> Option<u16> {
    let authority = url.authority()?;
    let place = authority.as_str().rsplit('@').next()?;
    match place.strip_prefix(authority.host())?.strip_prefix(':').unwrap_or_default() {
        "" if url.scheme_str() == Some("https") => Some(443),
        "" => Some(80),
        port if port.bytes().all(|byte| byte.is_ascii_digit()) => port.parse().ok().filter(|port| *port > 0),
        _ => None,
    }
}

fn web(text: &str, scheme: &'static str) -> Result<Source, BadSource> {
    let bad = |why: String| BadSource::Url { url: without_secrets(text), scheme, why };
    let url: Uri = text.parse().map_err(|error| bad(format!("{error}")))?;
    match url.authority() {
        Some(authority) if authority.as_str().contains('@') => {
            Err(bad("names and passwords in it are not sent; let your ffmpeg read it, with --via-ffmpeg".to_owned()))
        }
        Some(authority) if !authority.host().is_empty() => match port(&url) {
            Some(_) => Ok(Source::Http(url)),
            None => Err(bad("ports are numbers from 1 to 65535".to_owned())),
        },
        _ => Err(bad("it names no host".to_owned())),
    }
}

/// `[@][HOST]:PORT[?localaddr=ADDRESS]`, with options behind it that other programs know.
fn udp(rest: &str) -> Result<Source, String> {
    let (place, options) = rest.split_once('?').unwrap_or((rest, ""));
    let place = place.trim_end_matches('/');
    let place = place.strip_prefix('@').unwrap_or(place);
    let local = options.split('&').find_map(|option| option.strip_prefix("localaddr="));
    let interface = local.map(|local| local.parse().map_err(|_| format!("{local:?} is no IPv4 address")));
    let interface = interface.transpose()?;
    let address = udp_address(place)?;
    // The system would take any port, and nobody would know where to send.
    if address.port() == 0 {
        return Err("ports are numbers from 1 on".to_owned());
    }
    Ok(Source::Udp(Datagrams { address, interface }))
}

fn udp_address(place: &str) -> Result<SocketAddr, String> {
    if let Some(port) = place.strip_prefix(':') {
        let port: u16 = port.parse().map_err(|_| "ports are numbers up to 65535".to_owned())?;
        return Ok((Ipv4Addr::UNSPECIFIED, port).into());
    }
    if let Ok(address) = place.parse() {
        return Ok(address);
    }
    if !place.contains(':') {
        return Err("it names no port".to_owned());
    }
    let mut addresses = place.to_socket_addrs().map_err(|error| error.to_string())?;
    addresses.next().ok_or_else(|| "that name has no address".to_owned())
}

/// `[HOST]:PORT[?OPTIONS]`: callers are waited for, unless the options say otherwise.
fn srt(rest: &str) -> Result<Source, String> {
    let (place, options) = rest.split_once('?').unwrap_or((rest, ""));
    let port = place.trim_end_matches('/').rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok());
    if port.is_none() {
        return Err("it names no port, a number up to 65535".to_owned());
    }
    let mode = if options.split('&').any(|option| option.starts_with("mode=")) { "" } else { "mode=listener" };
    let options: Vec<&str> = [options, mode].into_iter().filter(|option| !option.is_empty()).collect();
    Ok(Source::Srt(format!("srt://{place}?{}", options.join("&"))))
}

/// `words` of a program that was given `url`, without what is secret in it.
pub(super) fn redact(words: &str, url: &str) -> String {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let place = rest.split('/').next().unwrap_or_default();
    let user = place.rsplit_once('@').map_or("", |(user, _)| user);
    // Each also alone: programs take URLs apart.
    let passwords = user.split(':').skip(1);
    let values = query.split('&').filter_map(|option| Some(option.split_once('=')?.1)).filter(|value| value.len() > 3);
    let secrets = [query, user].into_iter().chain(passwords).chain(values).filter(|secret| !secret.is_empty());
    secrets.fold(words.to_owned(), |words, secret| words.replace(secret, "***"))
}

/// URLs as they may be shown: without passwords, and without queries, which often hold keys.
fn without_secrets(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let rest = rest.split(['?', '#']).next().unwrap_or_default();
    let (place, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let host = place.rsplit('@').next().unwrap_or_default();
    format!("{scheme}://{host}{path}")
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Http(url) => f.write_str(&without_secrets(&url.to_string())),
            Source::Ingest => f.write_str("ingest"),
            Source::Udp(Datagrams { address, .. }) => write!(f, "udp://{address}"),
            Source::StandardInput => f.write_str("standard input"),
            Source::File(path) => path.display().fmt(f),
            Source::Srt(url) => f.write_str(&without_secrets(url)),
            Source::Ffmpeg(source) => write!(f, "ffmpeg: {}", without_secrets(source)),
            Source::Pattern(config) => write!(f, "test picture, {config}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shown(text: &str) -> String {
        Source::parse(text, false).map_or_else(|error| error.to_string(), |source| source.to_string())
    }

    #[test]
    fn sources_are_what_users_call_them() {
        let parse = |text| Source::parse(text, false).unwrap();
        let udp = |address: &str, interface| Source::Udp(Datagrams { address: address.parse().unwrap(), interface });
        assert_eq!(parse("-"), Source::StandardInput);
        assert_eq!(parse("ingest"), Source::Ingest);
        assert_eq!(parse("pattern:"), Source::Pattern(PatternConfig::default()));
        let pattern = PatternConfig { bits_per_s: 2_000_000, ..PatternConfig::default() };
        assert_eq!(parse("pattern:2Mbit/s"), Source::Pattern(pattern));
        assert_eq!(parse("pattern:bitrate=2M,fps=25"), Source::Pattern(pattern));
        assert_eq!(shown("pattern:2M"), "test picture, 320x192, 25 frames/s, 2 Mbit/s");
        assert_eq!(parse("./pattern:"), Source::File("./pattern:".into()));
        assert_eq!(parse("./clip.ts"), Source::File("./clip.ts".into()));
        assert_eq!(parse("C:\\clip.ts"), Source::File("C:\\clip.ts".into()));
        assert!(matches!(parse("HTTPS://tv.example/live.ts"), Source::Http(_)));
        for text in ["udp://:1234", "udp://@:1234", "udp://0.0.0.0:1234?pkt_size=1316", "udp://0.0.0.0:1234/"] {
            assert_eq!(parse(text), udp("0.0.0.0:1234", None), "{text}");
        }
        assert_eq!(parse("udp://@239.1.2.3:5000"), udp("239.1.2.3:5000", None));
        assert_eq!(
            parse("udp://239.1.2.3:5000?ttl=1&localaddr=127.0.0.1"),
            udp("239.1.2.3:5000", Some(Ipv4Addr::LOCALHOST))
        );
        assert_eq!(parse("udp://[::1]:5000"), udp("[::1]:5000", None));
        for (text, url) in [
            ("srt://:9000", "srt://:9000?mode=listener"),
            ("srt://[::]:9000?latency=1", "srt://[::]:9000?latency=1&mode=listener"),
            ("SRT://host:9000?mode=caller", "srt://host:9000?mode=caller"),
        ] {
            assert_eq!(parse(text), Source::Srt(url.to_owned()), "{text}");
        }
        assert_eq!(Source::parse("rtsp://camera/1", true), Ok(Source::Ffmpeg("rtsp://camera/1".into())));
    }

    #[test]
    fn what_is_no_source_is_answered_with_what_is() {
        for (text, expected) in [
            ("", "no source"),
            ("rtmp://host/app", "--via-ffmpeg"),
            ("http://", "http://HOST"),
            ("http://user:secret@host/", "--via-ffmpeg"),
            ("udp://127.0.0.1", "names no port"),
            ("udp://:99999", "up to 65535"),
            ("udp://:0", "from 1 on"),
            ("udp://127.0.0.1:0", "from 1 on"),
            ("udp://239.1.2.3:5000?localaddr=eth0", "\"eth0\" is no IPv4 address"),
            ("srt://host?passphrase=secret", "names no port"),
            ("http://exa mple/", "no URL"),
            ("pattern:fps=100", "pattern:fps=100: 100 frames a second: test pictures have 10 to 60"),
        ] {
            let words = shown(text);
            assert!(words.contains(expected), "{text}: {words}");
            assert!(!words.contains("secret"), "{words}");
        }
    }

    #[test]
    fn ports_that_do_not_exist_are_not_taken_for_the_schemes_own() {
        for (text, expected) in [
            ("http://host/a", Some(80)),
            ("http://host:/a", Some(80)),
            ("https://host/a", Some(443)),
            ("https://host:65535/a", Some(65535)),
            ("http://[::1]:81/a", Some(81)),
            ("http://[::1]/a", Some(80)),
            ("http://host:65536/a", None),
            ("http://host:0/a", None),
            ("http://[::1]:99999/", None),
        ] {
            let parsed = text.parse().ok().and_then(|url| port(&url));
            assert_eq!(parsed, expected, "{text}");
            let words = shown(text);
            assert_eq!(words.contains("ports are numbers from 1 to 65535"), expected.is_none(), "{text}: {words}");
        }
        assert!(Source::parse("http://host:x/", false).is_err());
    }

    #[test]
    fn what_ffmpeg_cannot_read_is_refused_with_what_to_do() {
        for (text, expected) in [
            ("-", "pipe:1 | anabranch stream serve -"),
            ("pipe:0", "pipe:1 | anabranch stream serve -"),
            ("ingest", "./ingest"),
            ("pattern:2M", "leave --via-ffmpeg out"),
        ] {
            let words = Source::parse(text, true).unwrap_err().to_string();
            assert!(words.starts_with(text) && words.contains(expected), "{words}");
        }
        for text in ["./ingest", "clip.mkv", "rtsp://camera/1"] {
            assert_eq!(Source::parse(text, true), Ok(Source::Ffmpeg(text.to_owned())));
        }
    }

    #[test]
    fn what_may_be_secret_is_not_shown() {
        assert_eq!(shown("http://host:80/a/b.ts?token=abc"), "http://host:80/a/b.ts");
        assert_eq!(shown("srt://:9000?passphrase=abc"), "srt://:9000");
        let source = Source::parse("rtsp://user:pass@camera/1?key=2", true).unwrap();
        assert_eq!(source.to_string(), "ffmpeg: rtsp://camera/1");
    }

    proptest! {
        #[test]
        fn any_words_are_a_source_or_refused_with_a_reason(text in "[ -~]{0,60}") {
            // Names are not resolved here.
            prop_assume!(!text.to_ascii_lowercase().starts_with("udp"));
            let _ = shown(&text);
        }

        #[test]
        fn no_password_is_shown(user in "[a-z]{1,8}", secret in "[A-Z]{6,12}", path in "[a-z/]{0,9}") {
            for url in [format!("rtsp://{user}:{secret}@host/{path}"), format!("https://host/{path}?key={secret}")] {
                prop_assert!(!without_secrets(&url).contains(&secret));
                let words = format!("[srt] Connection to {url} failed with {secret}: no");
                let words = redact(&words, &url);
                prop_assert!(!words.contains(&secret) && words.contains("Connection to "), "{}", words);
            }
        }
    }
}
