//! The `anabranch` command. One file for each verb; this one only names them.

#![deny(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "they panic on a full disk: `print_line!` fails instead, and `eprint_line!` goes on"
)]

mod browser;
mod controllers;
mod demo;
mod failure;
mod interrupt;
mod key;
mod manual;
mod meeting;
mod network;
mod number;
mod onion;
mod printer;
mod quic;
mod receive;
mod relay;
mod relays;
#[cfg(test)]
mod said;
mod send;
mod stderr;
mod stream;
mod table;
mod tasks;
mod transfer_bar;

#[cfg(feature = "research")]
mod research;

use std::num::{IntErrorKind, ParseFloatError, ParseIntError};
use std::process::ExitCode;

use clap::error::{ContextKind, Error};
use clap::{Command, CommandFactory, FromArgMatches, Parser, Subcommand};

/// Congestion control that learns, for networks with many parallel paths.
#[derive(Debug, Parser)]
#[command(version, propagate_version = true)]
#[cfg_attr(
    not(feature = "research"),
    command(
        after_help = "Built without `research`: what runs scenarios and experiments and coordinates links is left out."
    )
)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Send a file over relays on loopback and measure, or let all peers send
    Demo(demo::Args),
    /// Forward what others send, up to a limit
    Relay(relay::Args),
    /// Send or take a file over QUIC, with any flow controller
    Quic(quic::Args),
    /// Print the public key by which others know you; it is made if there is none
    Key(key::Args),
    /// Take files that others send, by a code or at an address
    Receive(receive::Args),
    /// Send files over relays, by a code or to an address
    Send(send::Args),
    /// Serve or watch live video, over the viewers themselves
    Stream(stream::Args),
    /// An onion overlay: browse, send and receive over relays that each see a part, and show what colluding
    /// relays see all the same
    Onion(onion::Args),
    #[cfg(feature = "research")]
    #[command(flatten)]
    Research(research::Verb),
    /// List the controllers, what each does and where it comes from
    Controllers(controllers::Args),
    /// Print what completes commands in a shell
    Completions(manual::Completions),
    /// Print the manual's page, or write all of its pages
    Man(manual::Man),
}

/// A negative number is a value, which an option refuses in its own words, and no option that nobody knows.
fn with_negative_numbers(command: Command) -> Command {
    let of = |arg: clap::Arg| if arg.get_action().takes_values() { arg.allow_negative_numbers(true) } else { arg };
    command.mut_args(of).mut_subcommands(with_negative_numbers)
}

/// The library's words for what is no number are of strings and digits.
fn about_numbers(error: Error, command: &Command) -> Error {
    let expected = {
        let Some(source) = std::error::Error::source(&error) else { return error };
        match source.downcast_ref::<ParseIntError>().map(ParseIntError::kind) {
            Some(IntErrorKind::Zero) => "a whole number above 0",
            Some(IntErrorKind::PosOverflow) => "a smaller number",
            Some(IntErrorKind::NegOverflow) => "a larger number",
            Some(_) => "a whole number, not below 0",
            None if source.is::<ParseFloatError>() => "a number",
            None => return error,
        }
    };
    let said = |kind| error.get(kind).map(ToString::to_string).unwrap_or_default();
    let (argument, value) = (said(ContextKind::InvalidArg), said(ContextKind::InvalidValue));
    let message = format!("invalid value '{value}' for '{argument}': expected {expected}\n");
    Error::raw(error.kind(), message).with_cmd(command)
}

fn main() -> ExitCode {
    let mut command = with_negative_numbers(Cli::command());
    let cli = command.try_get_matches_from_mut(std::env::args_os()).and_then(|matches| Cli::from_arg_matches(&matches));
    let cli = cli.unwrap_or_else(|error| about_numbers(error.format(&mut command), &command).exit());
    let result = match cli.verb {
        Verb::Demo(args) => demo::run(&args),
        Verb::Relay(args) => relay::run(&args),
        Verb::Quic(args) => quic::run(&args),
        Verb::Key(args) => key::run(&args),
        Verb::Receive(args) => receive::run(&args),
        Verb::Send(args) => send::run(&args),
        Verb::Stream(args) => stream::run(&args),
        Verb::Onion(args) => onion::run(&args),
        #[cfg(feature = "research")]
        Verb::Research(verb) => verb.run(),
        Verb::Controllers(args) => controllers::run(&args),
        Verb::Completions(args) => manual::completions(&args),
        Verb::Man(args) => manual::man(&args),
    };
    result.map_or_else(|failure| failure.report(), |()| ExitCode::SUCCESS)
}
