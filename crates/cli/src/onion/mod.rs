//! `anabranch onion`: the overlay in which every packet takes another path.

#[cfg(feature = "research")]
mod attack;
mod authority;
mod demo;
mod family;
mod figures;
mod hidden;
mod metrics;
mod network;
mod observe;
mod proxy;
mod receive;
mod relay;
mod repeats;
mod send;
mod status;

use clap::Subcommand;

use crate::failure::Failure;

/// Arguments of `onion`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    #[cfg(feature = "research")]
    /// Say what somebody sees who runs some of the relays, and how often that is enough
    Attack(attack::Args),
    /// Make, with others, the list of relays that all believe
    Authority(authority::Args),
    /// Run a whole overlay on this machine, fetch through it, and measure
    Demo(demo::Args),
    /// Make the key by which the relays of one operator say that they are
    Family(family::Args),
    /// Serve programs by SOCKS5: their connections leave the overlay at an exit
    Proxy(proxy::Args),
    /// Take files under a key, and be seen by nobody
    Receive(receive::Args),
    /// Carry what others send, and connect to hosts if told so
    Relay(relay::Args),
    /// Send a file to a key, and be seen by nobody
    Send(send::Args),
    /// Say how a running authority, relay or proxy goes
    Status(status::Args),
}

/// Does what is asked.
pub fn run(args: &Args) -> Result<(), Failure> {
    match &args.verb {
        #[cfg(feature = "research")]
        Verb::Attack(args) => attack::run(args),
        Verb::Authority(args) => authority::run(args),
        Verb::Demo(args) => demo::run(args),
        Verb::Family(args) => family::run(args),
        Verb::Proxy(args) => proxy::run(args),
        Verb::Receive(args) => receive::run(args),
        Verb::Relay(args) => relay::run(args),
        Verb::Send(args) => send::run(args),
        Verb::Status(args) => status::run(args),
    }
}
