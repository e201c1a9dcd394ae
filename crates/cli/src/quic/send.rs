//! `anabranch quic send`: sends a file.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use anabranch_control::flow::Bounds;
use anabranch_control::flow::registry::{self, Entry};
use anabranch_control::time::Duration;
use anabranch_control::units::Bytes;
use anabranch_net::quic::identity::{Identity, PublicKey, Trust};
use anabranch_net::quic::transfer::{Done, Progress, Sender};
use anabranch_net::quic::{self, Factory};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;

use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::key::IdentityArg;
use crate::network;
use crate::printer::print_line;
use crate::relays;
use crate::stderr::eprint_line;
use crate::tasks;
use crate::transfer_bar::{BYTES, HASHING};

/// Arguments of `quic send`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Everything is encrypted (TLS 1.3). The receiver prints its public key when it starts, the same that it \
has over relays; with --key the file goes to that receiver or to nobody. Windows are bytes of QUIC packets \
in flight.

Who has a key (see `anabranch key`) shows it to the holder of --key, and to nobody else: some \
receivers take files only from those whom they know.")]
pub struct Args {
    /// File to send
    file: PathBuf,
    /// The receiver's address, HOST:PORT
    #[arg(long, value_name = "ADDR")]
    to: String,
    /// What decides how fast; see `anabranch controllers`
    #[arg(long, value_name = "NAME", default_value = "cubic", value_parser = controller)]
    controller: &'static Entry,
    /// The receiver's public key, as it prints it
    #[arg(long, visible_alias = "fingerprint", value_name = "KEY", conflicts_with = "insecure")]
    key: Option<PublicKey>,
    /// Send to whoever answers
    #[arg(long)]
    insecure: bool,
    #[command(flatten)]
    identity: IdentityArg,
    /// A parameter of the controller, such as beta=0.8
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// No window is smaller
    #[arg(long, value_name = "BYTES")]
    min_window: Option<u64>,
    /// No window is larger
    #[arg(long, value_name = "BYTES")]
    max_window: Option<u64>,
    /// The window, whatever the controller wants
    #[arg(long, value_name = "BYTES", conflicts_with_all = ["min_window", "max_window"])]
    fixed_window: Option<u64>,
    /// Say what became of it as one JSON object on standard output, and all else on standard error
    #[arg(long)]
    json: bool,
}

fn controller(name: &str) -> Result<&'static Entry, String> {
    registry::find(name).map_err(|error| error.to_string())
}

/// Sends the file and waits until the receiver has checked it.
pub fn run(args: &Args) -> Result<(), Failure> {
    let trust = trust(args)?;
    let own: Option<Identity> = args.identity.load()?;
    let factory = Arc::new(factory(args)?);
    let file = args.file.display();
    let to = relays::receiver(&args.to).map_err(|error| Failure::new(format!("--to {error}")))?;
    // Before anybody is disturbed; and what is said is not that of a lost connection.
    match args.file.metadata() {
        Err(error) => return Err(Failure::new(format!("cannot read {file}: {error}"))),
        Ok(meta) if !meta.is_file() => return Err(Failure::new(format!("cannot read {file}: not a plain file"))),
        Ok(_) => {}
    }
    let interrupt = Interrupt::listen()?;
    let progress = Arc::new(Progress::default());
    let style = ProgressStyle::with_template(&format!("{{msg:10}} {BYTES}"));
    let display = ProgressBar::new(0).with_style(style.expect("the template is valid"));
    let mut has_said = false;
    let show = || {
        let counts = [&progress.total, &progress.hashed, &progress.done, &progress.place];
        let [total, hashed, done, place] = counts.map(|count| count.load(Ordering::Relaxed));
        let (what, position) = match place {
            _ if hashed < total => (HASHING.to_owned(), hashed),
            0 => ("sending".to_owned(), done),
            _ => (format!("waiting, place {place}"), done),
        };
        display.set_message(what);
        display.set_length(total);
        display.set_position(position);
        // Where no bar is shown, it is said once.
        if place > 0 && !std::mem::replace(&mut has_said, true) {
            display.suspend(|| network::say(args.json, &network::waiting(place)));
        }
    };
    let runtime = tasks::runtime()?;
    let outcome = runtime.block_on(async {
        let sender = Sender::new(&to, trust, own.as_ref(), factory)?;
        let outcome = tasks::until_interrupted(&interrupt, show, sender.send(&args.file, &progress)).await;
        sender.close().await;
        outcome.transpose()
    });
    // A file that is still being hashed need not be waited for.
    runtime.shutdown_background();
    display.finish_and_clear();
    match outcome {
        Ok(Some(done)) => {
            say(args, &done)?;
            Ok(())
        }
        Ok(None) => Err(Failure::interrupted(format_args!("{file} was not sent"))),
        Err(error) => Err(Failure::new(format!("{file} was not sent: {error}"))),
    }
}

fn trust(args: &Args) -> Result<Trust, Failure> {
    match args.key {
        Some(key) => Ok(Trust::Only(key)),
        None if args.insecure && args.identity.is_named() => {
            Err(Failure::new("--identity is shown to nobody but the holder of the key that --key gives"))
        }
        None if args.insecure => {
            eprint_line!("anabranch: --insecure: whoever answers at {} gets the file", args.to);
            Ok(Trust::Anybody)
        }
        None => Err(Failure::new(
            "who is the receiver? give the public key that it prints with --key (or --insecure, to send to whoever \
             answers)",
        )),
    }
}

fn factory(args: &Args) -> Result<Factory, Failure> {
    for (name, bytes) in [("min", args.min_window), ("max", args.max_window), ("fixed", args.fixed_window)] {
        if bytes == Some(0) {
            return Err(Failure::new(format!("--{name}-window 0: nothing would leave; expected bytes, from 1 on")));
        }
    }
    if let (Some(least), Some(most)) = (args.min_window, args.max_window)
        && least > most
    {
        return Err(Failure::new(format!("--min-window {least} is more than --max-window {most}")));
    }
    let factory = quic::controller_with(args.controller.name, &network::parameters(args.controller.name, &args.set)?)?;
    factory.steering().set(Bounds {
        minimum: args.min_window.map(Bytes::new),
        maximum: args.max_window.map(Bytes::new),
        fixed: args.fixed_window.map(Bytes::new),
        ..Bounds::default()
    });
    Ok(factory)
}

fn say(args: &Args, done: &Done) -> Result<(), Failure> {
    let seconds = done.took.as_secs_f64();
    if args.json {
        let name = args.file.file_name().unwrap_or(args.file.as_os_str()).to_string_lossy();
        let ms = |span: Option<Duration>| span.map(Duration::as_millis_f64);
        let summary = json!({
            "outcome": "sent",
            "names": [name],
            "files": 1,
            "bytes": done.length,
            "travelled_bytes": done.length,
            "resumed_bytes": done.resumed,
            "name": done.name,
            "to": done.to.to_string(),
            "seconds": seconds,
            "bytes_per_second": done.length.saturating_sub(done.resumed) as f64 / seconds.max(1e-9),
            "controller": args.controller.name,
            "packets": done.packets,
            "lost_packets": done.packets_lost,
            "round_trip_ms": ms(done.flow.smoothed_rtt),
            "least_round_trip_ms": ms(done.flow.min_rtt),
        });
        return print_line!("{summary}");
    }
    let rate = done.length.saturating_sub(done.resumed) as f64 * 8e-6 / seconds.max(1e-9);
    print_line!(
        "sent {} to {} as {}: {} bytes in {seconds:.2} s, {rate:.1} Mbit/s with {}",
        args.file.display(),
        args.to,
        done.name,
        done.length,
        args.controller.name
    )?;
    if done.resumed > 0 {
        print_line!("{} bytes of it had come before", done.resumed)?;
    }
    let ms = |span: Option<Duration>| match span {
        Some(span) => format!("{:.2} ms", span.as_millis_f64()),
        None => "unknown".to_owned(),
    };
    print_line!(
        "{} packets, {} lost; round trip {}, {} at least",
        done.packets,
        done.packets_lost,
        ms(done.flow.smoothed_rtt),
        ms(done.flow.min_rtt)
    )
}
