//! `anabranch send`: sends files over relays, to who has the code or to who is at an address.

mod by_code;
pub mod parcel;
mod transfer;

use std::path::PathBuf;

use anabranch_control::path::registry::Entry;
use anabranch_control::units::Rate;
use anabranch_net::relay_list;
use anabranch_proto::seal::PublicKey;
use anabranch_rendezvous::code::Code;

use self::parcel::Parcel;
use self::transfer::Plan;
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::key::IdentityArg;
use crate::network::{self, PacingArg};
use crate::relays::{self, RelaysArg};
use crate::stderr::eprint_line;

/// Relays for each packet, if this many are known and nothing else is said.
const HOPS: usize = 3;

/// Arguments of `send`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Without --to, a code is printed that the other person types: `anabranch receive CODE`. The \
code is good for one try: a wrong guess burns it. Its number names a mailbox at the first relay \
that answers; its words prove to each side that the other one has them, and agree on keys \
that the relays never see (SPAKE2).

RELAYS.toml lists relays:

  [[relay]]
  address = \"relay.example:4000\"

Everything is encrypted (Noise, 25519 and ChaCha20-Poly1305): relays see who sends to whom \
and how much, not what. With a code, or with --to and --key, nobody but the receiver can \
read or answer. With --insecure in place of --key, whoever only listens still learns nothing, but \
a relay that meddles with the first exchange could pose as the receiver.

Several files, and folders with all that is in them, travel as a tar archive, which a receiver \
by code unpacks and a receiver at an address (--to) keeps. Links and devices are left out.

Who has a key (see `anabranch key`) shows it to the holder of --key, and to nobody else: some \
receivers take files only from those whom they know.")]
pub struct Args {
    /// Files and folders to send; - is standard input
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// What one file shall be called at the receiver
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    #[command(flatten)]
    relays: RelaysArg,
    /// Use this code, which the other side has or will have, instead of a new one
    #[arg(long, value_name = "CODE", conflicts_with = "to")]
    code: Option<Code>,
    /// The receiver's address, HOST:PORT, instead of a code
    #[arg(long, value_name = "ADDR")]
    to: Option<String>,
    /// Relays for each packet [default: 3, or as many as there are]
    #[arg(long, value_name = "H")]
    hops: Option<usize>,
    /// What learns the relays' rates; see `anabranch controllers`
    #[arg(long, value_name = "NAME", default_value = "explicit-rate", value_parser = network::controller)]
    controller: &'static Entry,
    /// The receiver's public key, as it prints it
    #[arg(long, visible_alias = "fingerprint", value_name = "KEY", conflicts_with = "insecure", requires = "to")]
    key: Option<PublicKey>,
    /// Send to whoever answers
    #[arg(long, requires = "to")]
    insecure: bool,
    #[command(flatten)]
    identity: IdentityArg,
    /// How rates become sending times
    #[arg(long, value_name = "HOW", default_value = "burst")]
    pacing: PacingArg,
    /// The most to send in all, headers included; a controller that limits nothing needs it
    #[arg(long, value_name = "RATE", value_parser = network::limit)]
    upload: Option<Rate>,
    /// Bytes of a packet, without headers; what the paths carry is tried if nothing is said
    #[arg(long, value_name = "BYTES", value_parser = network::packet)]
    packet: Option<usize>,
    /// A parameter of the controller, such as epsilon=0.05
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Say what became of it as one JSON object on standard output, and all else on standard error
    #[arg(long)]
    json: bool,
}

/// Sends the files and waits until the receiver has checked them.
pub fn run(args: &Args) -> Result<(), Failure> {
    let interrupt = Interrupt::listen()?;
    match &args.to {
        Some(to) => to_address(args, to, &interrupt),
        None => by_code::run(args, &interrupt),
    }
}

fn to_address(args: &Args, to: &str, interrupt: &Interrupt) -> Result<(), Failure> {
    check_trust(args, to)?;
    let identity = args.identity.load()?;
    let named = args.relays.load()?;
    let found = relays::receiver(to).map_err(|error| Failure::new(format!("--to {error}")))?;
    let fits = found.iter().find_map(|&to| Some((to, named.relays.like(to)?)));
    let Some((to, known)) = fits else {
        let (to, preferred) = (found[0], named.relays.preferred()[0]);
        let (its, theirs) = (relay_list::family(to), relay_list::family(preferred));
        return Err(Failure::new(format!(
            "--to {to} is {its}, but the relays of {} are {theirs}: expected one family",
            named.by
        )));
    };
    let plan = Plan::new(args, known, to)?;
    let parcel = Parcel::gather(&args.files, args.name.as_deref(), interrupt)?;
    let done = plan.prepare(&parcel, interrupt)?.carry(&parcel, to, args.key, identity.as_ref(), interrupt)?;
    done.report(args.json, &parcel, to)
}

/// To somebody or, if that is what is wanted, to anybody.
fn check_trust(args: &Args, to: &str) -> Result<(), Failure> {
    match args.key {
        Some(_) => {}
        None if args.insecure && args.identity.is_named() => {
            return Err(Failure::new("--identity is shown to nobody but the holder of the key that --key gives"));
        }
        None if args.insecure => {
            eprint_line!("anabranch: --insecure: a relay in the middle could pose as {to} and get the file");
        }
        None => {
            return Err(Failure::new(
                "who is the receiver? give the public key that it prints with --key (or --insecure, to send to whoever \
                 answers), or leave --to out and send by code",
            ));
        }
    }
    Ok(())
}
