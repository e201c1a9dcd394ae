//! What the parts of a private Tor network are told, and what they leave in files and lines.
//!
//! `TestingTorNetwork` allows private addresses, several relays of one network on a path, and short votes; the rest of
//! what makes a network of loopback is here. What is not said is as Tor's authors chose it.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

/// Authorities; all vote.
pub const AUTHORITIES: u8 = 3;

/// Relays on a circuit.
pub const HOPS: usize = 3;

/// The file by which a client knows who may ask it, in its folder.
pub const COOKIE: &str = "control_auth_cookie";

/// What those that have begun take to make themselves known to authorities, beyond what is allowed for a busy machine.
const BEGIN_S: u64 = 4;

/// Seconds between first votes, one of which has to leave enough time: they must divide a day.
const INTERVALS_S: [u64; 5] = [20, 30, 40, 60, 120];

/// How many relays there are, and which of them are exits.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    pub relays: u8,
    pub is_exit: fn(u8) -> bool,
}

impl Size {
    /// The exits' numbers.
    pub fn exits(self) -> impl Iterator<Item = u8> {
        (0..self.relays).filter(move |number| (self.is_exit)(*number))
    }

    /// All whom a list must name: authorities can be relays as well, and Tor lists them.
    pub fn listed(self) -> usize {
        usize::from(AUTHORITIES) + usize::from(self.relays)
    }
}

/// An authority, as all others know it.
#[derive(Clone, Debug)]
pub struct Authority {
    /// Where it talks with relays.
    pub or: SocketAddr,
    /// Where it hands out lists.
    pub dir: SocketAddr,
    /// Of the key by which it votes.
    pub vote_key: String,
    /// Of its key as a relay.
    pub identity: String,
}

/// When authorities vote for the first time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vote {
    /// Seconds between votes while there is no list.
    pub interval_s: u64,
    /// When they are, in seconds after multiples of the interval.
    pub offset_s: u64,
    /// The two parts of a vote, each.
    pub part_s: u64,
}

impl Vote {
    /// A first list for the instant `now_s` (Unix time), on a machine that `took` so long for all keys. No list is for an
    /// instant before: it would lack relays.
    pub fn after(now_s: u64, took: Duration) -> Vote {
        let begin_s = BEGIN_S + took.as_secs();
        let enough = |interval_s: &u64| 2 * part(*interval_s) + begin_s <= *interval_s;
        let interval_s = INTERVALS_S.into_iter().find(enough).unwrap_or(INTERVALS_S[INTERVALS_S.len() - 1]);
        let part_s = part(interval_s);
        let lead_s = (2 * part_s + begin_s).min(interval_s);
        Vote { interval_s, offset_s: (now_s + lead_s) % interval_s, part_s }
    }

    /// By when there is a list, if not after the first vote, then after the next.
    pub fn patience(self) -> Duration {
        Duration::from_secs(2 * self.interval_s + 30)
    }
}

/// Both parts of a vote must be over in less than half an interval.
fn part(interval_s: u64) -> u64 {
    interval_s / 5
}

/// What is said to all.
pub fn common(authorities: &[Authority]) -> String {
    // Whose demo is gone, ends. Nothing is to be kept from anybody here, least of all for 30 s before the end.
    let mut text = format!(
        "TestingTorNetwork 1\nAssumeReachable 1\nShutdownWaitLength 0\nLog notice stdout\n__OwningControllerProcess {}\n",
        std::process::id()
    );
    for (number, authority) in authorities.iter().enumerate() {
        let Authority { or, dir, vote_key, identity } = authority;
        let _ = writeln!(text, "DirAuthority a{number} orport={} no-v2 v3ident={vote_key} {dir} {identity}", or.port());
    }
    text
}

/// What is said to an authority.
pub fn authority(of: &Authority, number: usize, relays: &[SocketAddr], size: Size, vote: Vote) -> String {
    let (guards, exits): (Vec<_>, Vec<_>) =
        (0..).zip(relays).partition(|(number, _): &(u8, _)| !(size.is_exit)(*number));
    let list = |relays: Vec<(u8, &SocketAddr)>| {
        relays.into_iter().map(|(_, at)| at.ip().to_string()).collect::<Vec<_>>().join(",")
    };
    let Vote { interval_s, offset_s, part_s } = vote;
    // One list is enough: with an hour between votes the next is hardly ever made while pages come.
    format!(
        "{}DirPort {}\nContactInfo none\nExitPolicy reject *:*\nAuthoritativeDirectory 1\nV3AuthoritativeDirectory 1\n\
         TestingV3AuthInitialVotingInterval {interval_s}\nTestingV3AuthInitialVoteDelay {part_s}\n\
         TestingV3AuthInitialDistDelay {part_s}\nTestingV3AuthVotingStartOffset {offset_s}\nV3AuthVotingInterval 3600\n\
         TestingDirAuthVoteGuard {}\nTestingDirAuthVoteExit {}\n",
        listens(&format!("a{number}"), of.or),
        of.dir,
        list(guards),
        list(exits),
    )
}

/// What is said to a relay, which is an exit to `site` if it is one.
pub fn relay(number: u8, at: SocketAddr, exit_to: Option<SocketAddr>) -> String {
    // Lists tell of an exit's policy by ports alone, and of a policy that is for an address nothing. Nobody but the
    // demo's client is there to ask for more.
    let exit = exit_to.map_or_else(
        || "ExitRelay 0\n".to_owned(),
        |site| format!("ExitRelay 1\nContactInfo none\nExitPolicy accept *:{}\n", site.port()),
    );
    format!("{}{exit}ExitPolicy reject *:*\n", listens(&format!("r{number}"), at))
}

fn listens(name: &str, at: SocketAddr) -> String {
    format!("Nickname {name}\nAddress {}\nORPort {at}\nSocksPort 0\n", at.ip())
}

/// What is said to a client: with legs, without, or nothing where its `tor` knows of none.
pub fn client(authorities: &[Authority], conflux_enabled: Option<u8>) -> String {
    // In our overlay authorities are no relays.
    let identities = authorities.iter().map(|authority| format!("${}", authority.identity)).collect::<Vec<_>>();
    let conflux = conflux_enabled.map_or_else(String::new, |enabled| format!("ConfluxEnabled {enabled}\n"));
    format!(
        "ClientOnly 1\nSocksPort auto\nControlPort auto\nCookieAuthentication 1\nExcludeNodes {}\n{conflux}",
        identities.join(",")
    )
}

/// The folder of a part, as it is told of it: names of folders can have anything in them.
pub fn folder(at: &Path) -> String {
    let quoted = at.display().to_string().replace('\\', "\\\\").replace('"', "\\\"");
    format!("DataDirectory \"{quoted}\"\n")
}

/// The fingerprint of the key in an authority's certificate.
pub fn of_certificate(text: &str) -> Option<&str> {
    text.lines().find_map(|line| line.strip_prefix("fingerprint ")).filter(|print| is_fingerprint(print))
}

/// The fingerprint that a relay writes down beside its name.
pub fn of_relay(text: &str) -> Option<&str> {
    text.split_whitespace().nth(1).filter(|print| is_fingerprint(print))
}

fn is_fingerprint(text: &str) -> bool {
    text.len() == 40 && text.bytes().all(|digit| digit.is_ascii_hexdigit())
}

/// The sign that an authority has a list.
pub const HAS_LIST: &str = "Published microdesc consensus";

/// Whether a line of an authority's is that.
pub fn has_list(line: &str) -> bool {
    line.contains(HAS_LIST)
}

/// The sign that a relay knows all others, and can tell clients of them. It need not come to 100 %, which is for
/// circuits of its own: an exit that is the only one finds no other for them.
pub const KNOWS_RELAYS: &str = "Bootstrapped 75%";

/// Whether a line of a relay's is that, or comes after it.
pub fn knows_relays(line: &str) -> bool {
    let percent = line.split_once("Bootstrapped ").and_then(|(_, rest)| rest.split_once('%'));
    percent.is_some_and(|(percent, _)| percent.parse::<u8>().is_ok_and(|percent| percent >= 75))
}

/// How many relays a list names.
pub fn relays_in(list: &str) -> usize {
    list.lines().filter(|line| line.starts_with("r ")).count()
}

/// The address at the end of a line.
pub fn address_of(line: &str) -> Option<SocketAddr> {
    line.rsplit(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_list_is_for_when_all_have_begun_and_none_is_before() {
        for took_s in 0..100 {
            for now_s in 1_800_000_000..1_800_000_130 {
                let vote = Vote::after(now_s, Duration::from_secs(took_s));
                assert!(86_400 % vote.interval_s == 0 && vote.offset_s < vote.interval_s, "{vote:?}");
                assert!(vote.part_s >= 2 && 4 * vote.part_s < 2 * vote.interval_s, "{vote:?}");
                let first = (now_s + 1..).find(|at| at % vote.interval_s == vote.offset_s).unwrap();
                // A machine that takes longer than a minute for its keys has to hope for the second vote.
                let lead_s = (2 * vote.part_s + BEGIN_S + took_s).min(120);
                assert_eq!(first - now_s, lead_s, "{now_s} {took_s} {vote:?}");
            }
        }
    }

    fn authorities() -> Vec<Authority> {
        (1..=3u8)
            .map(|number| Authority {
                or: ([127, 1, number, 1], 5000).into(),
                dir: ([127, 1, number, 1], 5001).into(),
                vote_key: "A".repeat(40),
                identity: number.to_string().repeat(40),
            })
            .collect()
    }

    #[test]
    fn all_is_on_loopback_and_all_know_the_same_authorities() {
        let (all, site) = (authorities(), SocketAddr::from(([127, 0, 0, 1], 8000)));
        let relays: Vec<SocketAddr> = (20..26u8).map(|number| ([127, 1, number, 1], 6000).into()).collect();
        let size = Size { relays: 6, is_exit: |number| number == 5 };
        let vote = Vote::after(1_800_000_000, Duration::ZERO);
        let texts = [
            common(&all),
            authority(&all[0], 0, &relays, size, vote),
            relay(0, relays[0], None),
            relay(5, relays[5], Some(site)),
            client(&all, Some(1)),
        ];
        assert_eq!(texts[0].matches("\nDirAuthority ").count(), 3);
        let identity = "2".repeat(40);
        assert!(texts[0].contains(&format!("v3ident={} 127.1.2.1:5001 {identity}\n", "A".repeat(40))), "{}", texts[0]);
        assert!(
            texts[1].contains("VoteGuard 127.1.20.1,127.1.21.1,127.1.22.1,127.1.23.1,127.1.24.1\n"),
            "{}",
            texts[1]
        );
        assert!(texts[1].contains("VoteExit 127.1.25.1\n"), "{}", texts[1]);
        assert!(texts[2].contains("ExitRelay 0\nExitPolicy reject *:*\n"), "{}", texts[2]);
        assert!(texts[3].contains("ExitPolicy accept *:8000\nExitPolicy reject *:*\n"), "{}", texts[3]);
        assert!(texts[4].contains("ConfluxEnabled 1\n") && texts[4].contains(&format!("${identity}")), "{}", texts[4]);
        assert!(!client(&all, None).contains("Conflux"));
        // Whatever has four numbers is an address, and is on loopback.
        let words = texts.iter().flat_map(|text| text.split([' ', ',', '\n', ':']));
        let addresses: Vec<std::net::Ipv4Addr> = words.filter_map(|word| word.parse().ok()).collect();
        assert!(addresses.len() > 10 && addresses.iter().all(std::net::Ipv4Addr::is_loopback), "{addresses:?}");
    }

    #[test]
    fn fingerprints_are_read_from_what_tor_writes() {
        let print = "8A9D423BA8CE56EF62A41727A3DCEC3F20921512";
        let certificate = format!("dir-key-certificate-version 3\nfingerprint {print}\ndir-key-published 2026\n");
        assert_eq!(of_certificate(&certificate), Some(print));
        assert_eq!(of_relay(&format!("a0 {print}\n")), Some(print));
        assert_eq!(of_relay("a0 8A9D\n"), None);
        assert_eq!(of_certificate(&certificate.replace("8A", "XY")), None);
        assert_eq!(of_relay(""), None);
    }

    #[test]
    fn a_relay_that_is_the_only_exit_is_ready_without_circuits_of_its_own() {
        let says = |rest: &str| knows_relays(&format!("Nov 27 18:49:27.000 [notice] {rest}"));
        assert!(says("Bootstrapped 75% (enough_dirinfo): Loaded enough directory info to build circuits"));
        assert!(says("Bootstrapped 95% (circuit_create): Establishing a Tor circuit") && says(KNOWS_RELAYS));
        assert!(!says("Bootstrapped 50% (loading_descriptors): Loading relay descriptors"));
        assert!(!says("Bootstrapped to 100%") && !says("The current consensus contains exit nodes."));
    }

    #[test]
    fn a_list_names_relays_by_lines() {
        assert_eq!(relays_in("valid-after 2026\nr a0 abc\nm x\ns Running\nr r1 abc\nr\n"), 2);
    }

    #[test]
    fn the_address_of_a_port_that_tor_chose_stands_at_the_end() {
        let line = "Nov 27 17:00:13.414 [notice] Opened Socks listener connection (ready) on 127.0.0.1:54953";
        assert_eq!(address_of(line), Some(([127, 0, 0, 1], 54953).into()));
        assert_eq!(address_of("Opened Socks listener connection (ready)"), None);
    }

    #[test]
    fn a_folder_is_told_with_whatever_its_name_has() {
        assert_eq!(folder(Path::new("/tmp/a \"b\\c")), "DataDirectory \"/tmp/a \\\"b\\\\c\"\n");
    }
}
