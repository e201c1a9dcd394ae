//! `anabranch bench`: how fast we are on this machine, as figures.

mod coordination;
mod dumbbell;
mod emulator;
mod env;
mod onion;
mod overlay;
mod processor_time;
mod quic;
mod relays;
mod streams;
mod transfer;
mod udp;
mod world;

use clap::Subcommand;

use crate::failure::Failure;

/// Arguments of `bench`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Packet-hops a second of the overlay simulator, over the number of peers
    Overlay(overlay::Args),
    /// Reset, step, observation and snapshot of a world of flows, as an agent waits for them
    World(world::Args),
    /// Steps a second of learning environments, many at once
    Env(env::Args),
    /// Data packets a CPU second over the bottleneck of a dumbbell, for each flow controller
    Dumbbell(dumbbell::Args),
    /// Processor time of a coordinator, over the number of hosts
    Coordination(coordination::Args),
    /// Packets a second that a relay of the onion passes on, for each number of packets a key
    Onion(onion::Args),
    /// Accuracy and speed of the link emulator on real packets
    Emulator(emulator::Args),
    /// Where the time of a file over relays goes, in simulated time
    Transfer(transfer::Args),
    /// Processor time of a file over relays on real sockets, against what `bench udp` gives
    Relays(relays::Args),
    /// Datagrams a second over real sockets: flows and a relay against plain senders
    Udp(udp::Args),
    /// Processor time of a simulated stream, over the number of viewers
    Streams(streams::Args),
    /// Goodput and processor time of QUIC on loopback, for each flow controller
    Quic(quic::Args),
}

/// Runs the benchmark that was asked for.
pub fn run(args: &Args) -> Result<(), Failure> {
    match &args.what {
        What::Overlay(args) => overlay::run(args),
        What::World(args) => world::run(args),
        What::Env(args) => env::run(args),
        What::Dumbbell(args) => dumbbell::run(args),
        What::Coordination(args) => coordination::run(args),
        What::Onion(args) => onion::run(args),
        What::Emulator(args) => emulator::run(args),
        What::Transfer(args) => transfer::run(args),
        What::Relays(args) => relays::run(args),
        What::Udp(args) => udp::run(args),
        What::Streams(args) => streams::run(args),
        What::Quic(args) => quic::run(args),
    }
}
