//! `anabranch receive`: takes files that others send, by a code or at an address.

pub mod arrivals;
mod by_code;
mod over_relays;
mod resumption;
pub mod taking;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anabranch_control::time::Duration;
use anabranch_net::disk::DiskStore;
use anabranch_net::runtime::Runtime;
use anabranch_proto::overlay::peer::Peer;
use anabranch_proto::overlay::relay_node::RelayNode;
use anabranch_proto::seal::PublicKey;
use anabranch_proto::transfer::{Limits, Receiver};
use anabranch_rendezvous::code::Code;

use self::arrivals::LINGER;
use self::over_relays::OverRelays;
use self::taking::{Manner, take};
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::key::IdentityArg;
use crate::network::{self, socket_address};
use crate::relays::RelaysArg;

/// Arguments of `receive`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
With CODE, as `anabranch send` prints it, what is sent is shown and, on a terminal, asked for; it \
comes from who has printed the code and from nobody else. What was killed goes on: `receive` by the same code, while \
its sender still tries, and on either side when the same is sent again, by any code. Without CODE, one is printed that the \
sender types: `anabranch send FILE --code CODE`. Folders are unpacked when all of them has come.

With --listen and no code, files are taken at an address until Ctrl-C. Whoever gives the public key \
that is printed to `send --key` can be sure to reach this receiver and nobody else; without it, a \
relay that meddles with the first exchange could pose as it. The key stays the same, in the file of \
--identity. Anybody who can reach this address may send files, unless --allow says who.

A file gets its name when all of it has arrived and its BLAKE3 hash is right; a file that is there is \
never replaced.")]
pub struct Args {
    /// The code that the sender has; without it, a code is made
    code: Option<Code>,
    #[command(flatten)]
    relays: RelaysArg,
    /// Address to listen on, IP:PORT; its own IP address if the machine has several
    #[arg(long, value_name = "ADDR", value_parser = socket_address)]
    listen: Option<SocketAddr>,
    /// With a code, the address at which the relays reach this machine, where it is not that from which
    /// they see it: a forwarded port, say
    #[arg(long, value_name = "ADDR", conflicts_with_all = ["once", "allow"])]
    address: Option<SocketAddr>,
    /// Folder to keep files in; it is made if it is missing
    #[arg(long, value_name = "DIR", default_value = ".")]
    out: PathBuf,
    /// With a code, take what is sent without asking
    #[arg(long, short)]
    yes: bool,
    /// End when the first file of which something comes has come, or fails; with a code, always
    #[arg(long, requires = "listen")]
    once: bool,
    /// The longest file that is taken, in bytes
    #[arg(long, value_name = "BYTES", default_value_t = Limits::default().file_bytes)]
    max_bytes: u64,
    /// Take no file with which all files in the folder would have more bytes
    #[arg(long, value_name = "BYTES")]
    max_total: Option<u64>,
    /// Take files only from the holder of this public key, as `anabranch key` prints it; may be given
    /// several times
    #[arg(long, value_name = "KEY", requires = "listen")]
    allow: Vec<PublicKey>,
    #[command(flatten)]
    identity: IdentityArg,
    /// Say what became of it as one JSON object on standard output, and all else on standard error
    #[arg(long)]
    json: bool,
}

/// Receives what the code is for, or until it is interrupted.
pub fn run(args: &Args) -> Result<(), Failure> {
    let listen = where_to_listen(args)?;
    let interrupt = Interrupt::listen()?;
    match listen {
        Some(listen) => at_address(args, listen, &interrupt),
        None => by_code::run(args, &interrupt),
    }
}

/// The address of a receiver at an address, none of one by a code; what would be ignored is refused.
fn where_to_listen(args: &Args) -> Result<Option<SocketAddr>, Failure> {
    match args.listen {
        Some(_) if args.code.is_none() && args.address.is_none() => match (args.yes, args.relays.is_given()) {
            (false, false) => Ok(args.listen),
            _ => Err(Failure::new(
                "--yes and --relays are for a receiver by a code: expected CODE beside --listen, or neither of them",
            )),
        },
        _ if args.once || !args.allow.is_empty() => {
            Err(Failure::new("--once and --allow are for a receiver at an address: expected --listen and no code"))
        }
        _ => Ok(None),
    }
}

/// The folder, which takes no more than it may have and `more` bytes.
fn store(args: &Args, more: u64) -> Result<DiskStore, Failure> {
    store_in(&args.out, args.max_total.map(|most| most.saturating_add(more)))
}

/// Keeps files in `folder`, of all of them no more than `max_total` bytes.
pub fn store_in(folder: &Path, max_total: Option<u64>) -> Result<DiskStore, Failure> {
    let opened = DiskStore::open(folder)
        .map_err(|error| Failure::new(format!("cannot keep files in {}: {error}", folder.display())))?;
    Ok(opened.with_max_total(max_total.unwrap_or(u64::MAX)))
}

fn at_address(args: &Args, listen: SocketAddr, interrupt: &Interrupt) -> Result<(), Failure> {
    let store = store(args, 0)?;
    let socket = network::listen(listen)?;
    let limits = Limits { file_bytes: args.max_bytes, ..Limits::default() };
    let receiver = Receiver::new(args.identity.load_or_make()?, limits).with_kept(store.kept()?);
    let receiver = receiver.only_from(args.allow.clone().into());
    network::say(args.json, &format!("receiving on {}", socket.local_addr()?));
    network::say(args.json, &format!("public key {}", receiver.public_key()));
    let mut runtime = Runtime::new(store)?;
    let number = runtime.add_gathering(socket, Peer::new(RelayNode::end(), Some(receiver), None))?;
    let mut carrier = OverRelays::new(runtime, number, Duration::ZERO);
    let manner = Manner::at_address(args.once, LINGER, &args.out, args.json);
    let taken = take(&mut carrier, manner, interrupt, |_, _, _| true)?;
    let counters = carrier.peer().receiver().map(|receiver| *receiver.counters()).unwrap_or_default();
    let line = format!(
        "{} blocks taken, {} more than once, {} datagrams that did not open; {}",
        counters.blocks,
        counters.duplicates,
        counters.unreadable + counters.unknown_session,
        network::discarded(carrier.peer().relay().counters(), &carrier.runtime().counters().unreadable)
    );
    network::say(args.json, &line);
    let more = [("blocks", counters.blocks), ("duplicate_blocks", counters.duplicates)];
    taken.end(manner, more.map(|(key, count)| (key.to_owned(), count.into())).into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::said;

    #[test]
    fn what_one_kind_of_receiver_would_ignore_is_refused() {
        let listen = |line: &str| {
            where_to_listen(&said::parse(line.split_whitespace()).unwrap()).map_err(|why| why.words().to_owned())
        };
        let at = Some("127.0.0.1:7".parse().unwrap());
        for (line, is) in [
            ("receive --listen 127.0.0.1:7", at),
            ("receive --listen 127.0.0.1:7 --once", at),
            ("receive --yes --relays 127.0.0.1:1", None),
            ("receive 7-crowfoot-orlando --listen 127.0.0.1:7 --yes --relays 127.0.0.1:1", None),
            ("receive --listen 127.0.0.1:7 --address 127.0.0.1:8 --yes", None),
        ] {
            assert_eq!(listen(line), Ok(is), "{line}");
        }
        for (line, says) in [
            ("receive --listen 127.0.0.1:7 --yes", "--yes"),
            ("receive --listen 127.0.0.1:7 --relays 127.0.0.1:1", "--relays"),
            ("receive 7-crowfoot-orlando --listen 127.0.0.1:7 --once", "--once"),
        ] {
            assert!(listen(line).unwrap_err().contains(says), "{line}");
        }
    }
}
