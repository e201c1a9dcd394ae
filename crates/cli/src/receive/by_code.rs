//! `anabranch receive` by code: finds the sender at a rendezvous, shows what it offers, and takes it at
//! the very socket from which it was there.

use std::fs;
use std::io::{self, IsTerminal, Write};
use std::net::{SocketAddr, UdpSocket};
use std::path::Path;

use anabranch_control::time::{Duration, Time};
use anabranch_net::archive::{self, Bounds};
use anabranch_net::disk::{DiskStore, is_hidden};
use anabranch_net::runtime::Runtime;
use anabranch_net::udp::Socket;
use anabranch_proto::overlay::peer::Peer;
use anabranch_proto::overlay::relay_node::RelayNode;
use anabranch_proto::overlay::wire;
use anabranch_proto::printable::printable;
use anabranch_proto::seal::Identity;
use anabranch_proto::transfer::{Limits, Receiver};
use anabranch_rendezvous::KEEPALIVE;
use anabranch_rendezvous::agreement::{Answer, Offer, Packing};
use anabranch_rendezvous::client::{Mailbox, MeetError};
use anabranch_rendezvous::code::Code;
use anabranch_rendezvous::frame::Side;
use indicatif::ProgressBar;
use serde_json::json;

use super::arrivals::LINGER;
use super::over_relays::OverRelays;
use super::resumption::{Agreed, Archive, OF_USE, Resumption};
use super::taking::{Manner, take};
use super::{Args, store};
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::meeting;
use crate::network::{self, Amount};
use crate::printer::print_line;
use crate::relays::Named;
use crate::stderr::eprint_line;

/// So long the sender has to come over the relays: longer than it tries.
const ARRIVAL: Duration = Duration::from_millis(45_000);

/// A sender that was not heard of for so long has gone, and may come again by another code: six times as
/// long as it waits before it says anything again.
const GONE: Duration = Duration::from_millis(3_000);

/// Each relay is sent a byte as often, so that a NAT lets it through: ICE's interval (RFC 8445, 11).
const KEEP_OPEN: Duration = Duration::from_millis(15_000);

/// A sender that is there still greets a receiver that has lost its session within ten seconds, over relays of which
/// some may fail.
const GOES_ON: Duration = Duration::from_millis(20_000);

/// Takes what the code is for.
pub fn run(args: &Args, interrupt: &Interrupt) -> Result<(), Failure> {
    let named = args.relays.load()?;
    let relays = named.relays.preferred();
    if let Some(listen) = args.listen
        && wire::canonical(listen).is_ipv4() != relays[0].is_ipv4()
        && !listen.ip().is_unspecified()
    {
        return Err(Failure::new(format!("--listen {listen}: the relays of {} are of the other family", named.by)));
    }
    args.address.map_or(Ok(()), |address| check_address(address, &named))?;
    check_folder(&args.out)?;
    // It can be done without; whoever has no folder for it receives all the same.
    let without = |why: Failure| {
        eprint_line!("anabranch: a receiver that is killed will not go on by this code: {}", why.words())
    };
    let resumption = match &args.code {
        Some(code) => Resumption::of(code, &args.out),
        None => Resumption::drawn(relays, &args.out),
    };
    let mut resumption = resumption.map_err(without).ok();
    let key = args.identity.is_named().then(|| args.identity.load_or_make()).transpose()?;
    let recall = |resumption: &mut Resumption| resumption.recall(key.clone()).map_err(without).ok()?;
    let before = resumption.as_mut().and_then(recall);
    if let Some(agreed) = before {
        if let Some(reason) = refusal(args, &agreed.offer) {
            return Err(Failure::new(format!("nothing was received: {reason}")));
        }
        let which = if args.code.is_some() { "with this code" } else { "of this folder" };
        let (offer, archive) = (agreed.offer.clone(), agreed.archive.clone());
        let has_sender = archive.as_ref().is_none_or(|archive| !archive.is_over);
        let happened = if has_sender { "was killed; this one goes on" } else { "could not unpack it; trying again" };
        network::say(args.json, &format!("a receiver {which} {happened}: {}", shown(&offer)));
        if has_sender && receive(args, relays, agreed, GOES_ON, &mut resumption, interrupt)? {
            return Ok(());
        }
        if let Some(archive) = archive
            && unpack_kept(args, &offer, &archive, &mut resumption, interrupt)?
        {
            return Ok(());
        }
        // A drawn code is not used again at the rendezvous: its number may be that of others by now.
        let then = match args.code {
            Some(_) => "waiting for one that comes with this code again",
            None => "here is a new code",
        };
        network::say(args.json, &format!("its sender is not there any more; {then}"));
    }
    let agreed = agree(args, &named, key.clone(), interrupt)?;
    if let Some(resumption) = &mut resumption {
        resumption.keep(&agreed, key.is_some()).unwrap_or_else(without);
    }
    let address = agreed.address;
    match receive(args, relays, agreed, ARRIVAL, &mut resumption, interrupt)? {
        true => Ok(()),
        false => Err(Failure::new(format!(
            "the sender did not come: do the relays reach {address}? Behind a NAT that gives each relay another \
             port they do not; see --address, and docs/codes.md"
        ))),
    }
}

/// Whether the relays that are named can send to `address`: the sender refuses another only once the code is spent.
fn check_address(address: SocketAddr, named: &Named) -> Result<(), Failure> {
    let canonical = wire::canonical(address);
    if let Some(problem) = wire::problem_of_address(canonical) {
        return Err(Failure::new(format!(
            "--address {address} has {problem}; expected the IP:PORT at which the relays reach this machine"
        )));
    }
    if named.relays.like(canonical).is_none() {
        return Err(Failure::new(format!("--address {address}: the relays of {} are of the other family", named.by)));
    }
    Ok(())
}

/// Whether files could be kept in `folder`, which is not made: a code is good for one try, and would be spent.
fn check_folder(folder: &Path) -> Result<(), Failure> {
    let mut above = folder.ancestors().map(|path| if path.as_os_str().is_empty() { Path::new(".") } else { path });
    // A link that leads nowhere is there, too: no folder can be made in its place.
    let there = above.find(|path| path.symlink_metadata().is_ok()).unwrap_or(Path::new("."));
    let cannot =
        |why: &dyn std::fmt::Display| Failure::new(format!("cannot keep files in {}: {why}", folder.display()));
    if !there.exists() {
        return Err(cannot(&format_args!("{} is a link that leads nowhere; expected a folder", there.display())));
    }
    if !there.is_dir() {
        return Err(cannot(&format_args!("{} is a file; expected a folder", there.display())));
    }
    tempfile::tempfile_in(there).map(drop).map_err(|error| cannot(&error))
}

/// Takes what was agreed on; false if nobody has come within `patience`.
fn receive(
    args: &Args,
    relays: &[SocketAddr],
    agreed: Agreed,
    patience: Duration,
    resumption: &mut Option<Resumption>,
    interrupt: &Interrupt,
) -> Result<bool, Failure> {
    let Agreed { offer, identity, address, socket, .. } = agreed;
    let keeper = socket.try_clone()?;
    let open = to_open(relays, &offer, address);
    let limits = Limits { file_bytes: offer.travelling, ..Limits::default() };
    let store = store_of(args, &offer, interrupt)?;
    let receiver = Receiver::new(identity, limits).by_code(offer.key).with_kept(store.kept()?);
    let peer = Peer::new(RelayNode::end(), Some(receiver), None);
    let socket = Socket::from_std(socket)?.serving()?;
    let (mut next, mut nobody_came) = (Time::ZERO, false);
    let (mut is_noted, mut says_unpacking) = (false, true);
    let mut go_on = |now: Time, has_come: bool, display: &ProgressBar| {
        if now >= next {
            next = now + KEEP_OPEN;
            keep_open(&keeper, &open);
            resumption.as_ref().inspect(|resumption| resumption.is_of_use());
        }
        if let Some(archive) = store.offered_archive().filter(|_| !std::mem::replace(&mut is_noted, true)) {
            keep_archive(resumption.as_ref(), Archive::of(&archive, false));
        }
        if store.has_whole_archive() && std::mem::take(&mut says_unpacking) {
            display.suspend(|| network::say(args.json, "all of it has come; unpacking"));
        }
        nobody_came = !has_come && now.since(Time::ZERO) >= patience;
        !nobody_came
    };
    let mut runtime = Runtime::new(store.clone())?;
    let number = runtime.add_gathering(socket, peer)?;
    let mut carrier = OverRelays::new(runtime, number, GONE);
    let quiet = offer.packing == Packing::Tar;
    let manner = Manner { once: true, alone: true, linger: LINGER, folder: &args.out, quiet, json: args.json };
    let taken = take(&mut carrier, manner, interrupt, &mut go_on)?;
    if let Some(failure) = taken.refusal() {
        return Err(failure);
    }
    if nobody_came {
        return Ok(false);
    }
    let seconds = taken.arrived.seconds();
    match (store.unpacked_names(), taken.failure()) {
        (Some(names), _) => report(args, &offer, &names, seconds)?,
        // What was being unpacked failed because of that.
        (None, Some(_)) if interrupt.is_raised() => return Err(Failure::interrupted("no file has arrived")),
        (None, Some(failure)) => return Err(kept_if_whole(args, failure, &store, resumption)),
        (None, None) => {
            let names: Vec<String> = taken.arrived.files.iter().map(|(name, _)| name.clone()).collect();
            report(args, &offer, &names, seconds)?;
        }
    }
    Ok(true)
}

/// What keeps what is offered.
fn store_of(args: &Args, offer: &Offer, interrupt: &Interrupt) -> Result<DiskStore, Failure> {
    // What travels beside the files is no part of what the folder may have.
    let store = store(args, offer.travelling.saturating_sub(offer.bytes))?;
    if offer.packing != Packing::Tar {
        return Ok(store);
    }
    let (announced, interrupt) = (Bounds { files: offer.files, bytes: offer.bytes }, interrupt.clone());
    Ok(store.unpacking(announced, move || interrupt.is_raised()))
}

/// Unpacks what a receiver that was killed has kept whole; false if it has not.
fn unpack_kept(
    args: &Args,
    offer: &Offer,
    archive: &Archive,
    resumption: &mut Option<Resumption>,
    interrupt: &Interrupt,
) -> Result<bool, Failure> {
    let mut store = store_of(args, offer, interrupt)?;
    match store.unpack_kept(&archive.offer()) {
        Ok(is_whole) => {
            if let Some(names) = store.unpacked_names() {
                report(args, offer, &names, 0.0)?;
            }
            Ok(is_whole)
        }
        Err(_) if interrupt.is_raised() => Err(Failure::interrupted("nothing was received")),
        Err(error) => {
            let failure = Failure::new(format!("nothing was received: {}", printable(&error.to_string())));
            Err(kept_if_whole(args, failure, &store, resumption))
        }
    }
}

/// `failure`, after which an archive that is there whole may be unpacked by another try: without its sender, who was told
/// that it has failed.
fn kept_if_whole(args: &Args, failure: Failure, store: &DiskStore, resumption: &mut Option<Resumption>) -> Failure {
    let Some(archive) = store.offered_archive().filter(|_| store.keeps_archive()) else { return failure };
    keep_archive(resumption.as_ref(), Archive::of(&archive, true));
    let again = match resumption.take() {
        Some(resumption) => {
            resumption.leave();
            format!("the same command within {} minutes unpacks it without its sender", OF_USE.as_secs() / 60)
        }
        None => "whoever has it sent again goes on from there".to_owned(),
    };
    failure.with(format!("; all of it is kept in {}: {again}", args.out.display()))
}

/// Writes down which archive comes: without that, a receiver that is killed needs its sender again.
fn keep_archive(resumption: Option<&Resumption>, archive: Archive) {
    if let Some(Err(why)) = resumption.map(|resumption| resumption.keep_archive(archive)) {
        eprint_line!("anabranch: a receiver that is killed will not unpack by itself what it has: {}", why.words());
    }
}

/// Those that are to reach a socket that is seen at `address`, each once.
fn to_open(own: &[SocketAddr], offer: &Offer, address: SocketAddr) -> Vec<SocketAddr> {
    let mut relays: Vec<SocketAddr> = own.iter().chain(&offer.relays).map(|&relay| wire::canonical(relay)).collect();
    relays.retain(|&relay| wire::problem_of_address(relay).is_none() && relay.is_ipv4() == address.is_ipv4());
    relays.sort();
    relays.dedup();
    relays
}

/// Has NATs let in what `relays` send to `socket`.
fn keep_open(socket: &UdpSocket, relays: &[SocketAddr]) {
    // One that can't be sent is as one that is lost.
    relays.iter().for_each(|&relay| _ = socket.send_to(&KEEPALIVE, spelt(relay, socket)));
}

/// `to` as `socket`'s family spells it.
fn spelt(to: SocketAddr, socket: &UdpSocket) -> SocketAddr {
    match to {
        SocketAddr::V4(v4) if socket.local_addr().is_ok_and(|own| own.is_ipv6()) => {
            (v4.ip().to_ipv6_mapped(), v4.port()).into()
        }
        to => to,
    }
}

fn agree(args: &Args, named: &Named, key: Option<Identity>, interrupt: &Interrupt) -> Result<Agreed, Failure> {
    let identity = key.unwrap_or_else(Identity::generate);
    let number = args.code.as_ref().map(|code| code.number);
    let socket = |relay| socket_for(args.listen, relay);
    let work = async {
        let found = meeting::first_that_answers(named.relays.preferred(), Side::Receiver, number, socket).await;
        let (mut mailbox, rendezvous, socket) = found.map_err(not_received)?;
        let code = match &args.code {
            Some(code) => {
                network::say(args.json, "waiting for the sender");
                code.clone()
            }
            None => {
                let code = Code::draw(mailbox.number());
                let relays = if named.by_option { format!(" --relays {rendezvous}") } else { String::new() };
                network::say(args.json, &format!("code: {code}"));
                network::say(args.json, &format!("on the other machine: anabranch send FILE --code {code}{relays}"));
                code
            }
        };
        let (offer, mut channel) = match mailbox.ask(&code).await {
            Ok(asked) => asked,
            Err(error) => {
                mailbox.leave().await;
                return Err(not_received(error));
            }
        };
        let address = args.address.unwrap_or(mailbox.seen());
        let refusal = match refusal(args, &offer) {
            Some(refusal) => Some(refusal),
            None => ask_user(args, &offer, &mut mailbox).await?,
        };
        let answer = match &refusal {
            Some(reason) => Answer::No { reason: reason.clone() },
            None => Answer::Yes { key: identity.public(), address },
        };
        if let Answer::Yes { .. } = answer {
            // Before the sender tries: a relay that fails it at first is not tried again soon.
            keep_open(&socket, &to_open(named.relays.preferred(), &offer, address));
        }
        mailbox.answer(&mut channel, &answer).await.map_err(not_received)?;
        mailbox.leave().await;
        match refusal {
            Some(reason) => Err(Failure::new(format!("nothing was received: {reason}"))),
            None => Ok((offer, address, socket)),
        }
    };
    let (offer, address, socket) = meeting::run(interrupt, "nothing was received", work)??;
    Ok(Agreed { offer, identity, address, socket, archive: None })
}

/// A socket from which `relay` is reached, where it is said where it is to be.
fn socket_for(listen: Option<SocketAddr>, relay: SocketAddr) -> io::Result<UdpSocket> {
    let Some(listen) = listen else { return meeting::any_socket(relay) };
    UdpSocket::bind(listen).map_err(|error| io::Error::new(error.kind(), format!("--listen {listen}: {error}")))
}

fn not_received(error: MeetError) -> Failure {
    Failure::new(format!("nothing was received: {error}"))
}

/// Why the offer is not taken, whatever the user says.
fn refusal(args: &Args, offer: &Offer) -> Option<String> {
    let bytes = offer.bytes.max(offer.travelling);
    if bytes > args.max_bytes {
        return Some(format!("it has {bytes} bytes; {} are taken (--max-bytes)", args.max_bytes));
    }
    if offer.packing == Packing::Tar && offer.files > archive::MOST_ENTRIES as u64 {
        return Some(format!("it has {} files; {} are taken", offer.files, archive::MOST_ENTRIES));
    }
    let most = args.max_total?;
    // What can't be counted is refused by who writes there.
    let kept = bytes_in(&args.out).unwrap_or(0);
    (kept.saturating_add(offer.bytes) > most).then(|| format!("the folder is full: at most {most} bytes are kept"))
}

/// Bytes of all files below `folder`, but for those that go when there is no room.
fn bytes_in(folder: &Path) -> io::Result<u64> {
    let mut bytes = 0u64;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if is_hidden(&entry.file_name()) {
            continue;
        }
        let kind = entry.file_type()?;
        let more = if kind.is_dir() { bytes_in(&entry.path())? } else { entry.metadata()?.len() };
        bytes = bytes.saturating_add(more);
    }
    Ok(bytes)
}

/// What is offered, in a line.
fn shown(offer: &Offer) -> String {
    let names: Vec<String> = offer.names.iter().map(|name| printable(name)).collect();
    let more = if offer.more_names > 0 { format!(" and {} more", offer.more_names) } else { String::new() };
    format!("{}{more}, {}, {}", names.join(", "), counted(offer.files), Amount(offer.bytes as f64))
}

/// So many files, for people.
fn counted(files: u64) -> String {
    if files == 1 { "1 file".to_owned() } else { format!("{files} files") }
}

/// Shows what is offered and, on a terminal, asks whether it is wanted; why not.
async fn ask_user(args: &Args, offer: &Offer, mailbox: &mut Mailbox) -> Result<Option<String>, Failure> {
    network::say(args.json, &format!("offered: {}", shown(offer)));
    if args.yes || !io::stdin().is_terminal() {
        return Ok(None);
    }
    write!(io::stderr(), "receive into {}? [y/N] ", args.out.display())?;
    let reading = tokio::task::spawn_blocking(|| {
        let mut line = String::new();
        io::stdin().read_line(&mut line).map(|_| line)
    });
    let line = tokio::select! {
        line = reading => line??,
        () = mailbox.other_left() => return Err(not_received(MeetError::Left)),
    };
    let is_yes = matches!(line.trim().to_ascii_lowercase().as_str(), "y" | "yes");
    Ok((!is_yes).then(|| "it is not wanted".to_owned()))
}

fn report(args: &Args, offer: &Offer, names: &[String], seconds: f64) -> Result<(), Failure> {
    let paths: Vec<String> = names.iter().map(|name| args.out.join(name).display().to_string()).collect();
    if args.json {
        let summary = json!({
            "outcome": "received",
            "paths": paths,
            "files": offer.files,
            "bytes": offer.bytes,
            "travelled_bytes": offer.travelling,
            "seconds": seconds,
        });
        print_line!("{summary}")?;
    } else if offer.packing == Packing::Tar {
        let bytes = Amount(offer.bytes as f64);
        print_line!("received {}: {}, {bytes}, hash right", paths.join(", "), counted(offer.files))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use anabranch_net::relay_list;

    use super::*;

    fn named(relays: &[&str]) -> Named {
        let relays = relay_list::collect(relays, &relay_list::numeric).unwrap();
        Named { relays, by: "--relays".to_owned(), by_option: true }
    }

    #[test]
    fn an_address_that_the_relays_cannot_reach_is_refused_before_the_code_is_spent() {
        let (v4, v6) = (named(&["127.0.0.1:4000"]), named(&["[::1]:4000"]));
        let check =
            |address: &str, named| check_address(address.parse().unwrap(), named).map_err(|why| why.words().to_owned());
        for (address, named, says) in [
            ("0.0.0.0:0", &v4, "--address 0.0.0.0:0 has port 0"),
            ("0.0.0.0:7", &v4, "--address 0.0.0.0:7 has the unspecified address"),
            ("[::1]:7", &v4, "--address [::1]:7: the relays of --relays are of the other family"),
            ("127.0.0.1:7", &v6, "of the other family"),
        ] {
            let error = check(address, named).unwrap_err();
            assert!(error.contains(says), "{error}");
        }
        for (address, named) in [("127.0.0.1:7", &v4), ("[::ffff:127.0.0.1]:7", &v4), ("[::1]:7", &v6)] {
            assert_eq!(check(address, named), Ok(()));
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_link_that_leads_nowhere_is_refused_before_the_code_is_spent() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| -> PathBuf { folder.path().join(name) };
        std::os::unix::fs::symlink("missing", path("dang")).unwrap();
        for out in ["dang", "dang/sub"] {
            let error = check_folder(&path(out)).unwrap_err();
            assert!(error.words().contains("dang is a link that leads nowhere"), "{}", error.words());
        }
        std::os::unix::fs::symlink(folder.path(), path("good")).unwrap();
        for out in ["good", "good/sub", "new/sub"] {
            assert!(check_folder(&path(out)).is_ok(), "{out}");
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "nothing is made");
    }

    #[test]
    fn an_address_that_is_taken_is_named_with_its_option() {
        let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
        let listen = taken.local_addr().unwrap();
        let error = not_received(MeetError::Socket(socket_for(Some(listen), listen).unwrap_err()));
        assert!(error.words().contains(&format!("--listen {listen}: ")), "{}", error.words());
    }

    #[test]
    fn one_file_is_not_files() {
        assert_eq!([0, 1, 2].map(counted), ["0 files", "1 file", "2 files"]);
    }
}
