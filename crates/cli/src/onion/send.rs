//! `anabranch onion send`: a file to whoever has the key that is the address, over the onion overlay.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anabranch_net::onion::file::{PIECE, Sending, SendingState};
use anabranch_net::onion::follow::Found;
use anabranch_net::onion::hidden_edge::{HiddenEdge, HiddenNews, Sender};
use anabranch_onion::hidden::Address;
use anabranch_onion::node::{HiddenSender, SenderEvent};
use anabranch_onion::session::{End, Rates, Reason, StreamEvent, StreamId, Target};
use anabranch_proto::transfer::TransferError;
use clap::ArgMatches;
use clap::error::ErrorKind;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;

use super::hidden::{self, LEAVE, LOOK, PathArgs};
use super::network::{NetworkArg, StateArg};
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::network::{Amount, say};
use crate::printer::print_line;
use crate::send::parcel::{Parcel, ParcelSource};
use crate::transfer_bar::BYTES;

/// A session that ended is begun again after this; who was not found is looked for again.
const AGAIN: Duration = Duration::from_secs(1);

/// Arguments of `onion send`.
#[derive(Debug, clap::Args)]
#[command(after_help = format!("\
The receiver gets the file and does not learn from whom, unless the file tells. Several files, and folders with all \
that is in them, travel as a tar archive. If the session is lost, or either side was killed, the same command goes on \
with what has come.

{}", hidden::PROTECTS), override_usage = "anabranch onion send [OPTIONS] <FILE>... <ADDRESS>")]
pub struct Args {
    #[command(flatten)]
    to: FilesTo,
    /// What one file shall be called at the receiver
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    #[command(flatten)]
    network: NetworkArg,
    #[command(flatten)]
    state: StateArg,
    #[command(flatten)]
    path: PathArgs,
    /// Give up after so long without progress, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 90, value_parser = clap::value_parser!(u32).range(1..=86_400))]
    patience: u32,
    /// Say what became of it as one JSON object on standard output, and all else on standard error
    #[arg(long)]
    json: bool,
}

/// Files and the address behind them.
#[derive(Debug)]
struct FilesTo {
    files: Vec<PathBuf>,
    address: Address,
}

/// As they are given: the library takes all that comes before an option for files if they are two lists.
#[derive(Debug, clap::Args)]
struct Given {
    /// Files and folders to send; - is standard input. Behind them the receiver's address, as `anabranch onion receive`
    /// prints it
    #[arg(required = true, num_args = 1.., value_name = "FILE")]
    files_and_address: Vec<OsString>,
}

impl TryFrom<Given> for FilesTo {
    type Error = clap::Error;

    fn try_from(given: Given) -> Result<FilesTo, clap::Error> {
        let mut files: Vec<PathBuf> = given.files_and_address.into_iter().map(PathBuf::from).collect();
        let address = files.pop().filter(|_| !files.is_empty()).ok_or_else(|| {
            let message = "the following required arguments were not provided:\n  <ADDRESS>\n";
            clap::Error::raw(ErrorKind::MissingRequiredArgument, message)
        })?;
        let text = address.to_string_lossy();
        let address = text.parse().map_err(|why| {
            let message = format!("invalid value '{text}' for '<ADDRESS>': {why}\n");
            clap::Error::raw(ErrorKind::ValueValidation, message)
        })?;
        Ok(FilesTo { files, address })
    }
}

impl clap::FromArgMatches for FilesTo {
    fn from_arg_matches(matches: &ArgMatches) -> Result<FilesTo, clap::Error> {
        <Given as clap::FromArgMatches>::from_arg_matches(matches)?.try_into()
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = <FilesTo as clap::FromArgMatches>::from_arg_matches(matches)?;
        Ok(())
    }
}

impl clap::Args for FilesTo {
    fn augment_args(command: clap::Command) -> clap::Command {
        <Given as clap::Args>::augment_args(command)
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        <Given as clap::Args>::augment_args_for_update(command)
    }
}

/// What goes on.
struct Carrying<'a> {
    args: &'a Args,
    edge: HiddenEdge<Sender>,
    sending: Sending<ParcelSource>,
    stream: Option<StreamId>,
    /// When the receiver is looked for again.
    again: Option<Instant>,
    /// What went wrong last.
    trouble: Option<String>,
    sessions: u32,
}

/// Sends the files and waits until the receiver has checked them.
pub fn run(args: &Args) -> Result<(), Failure> {
    let network = args.network.read()?;
    let user = args.path.settings(&network)?;
    let interrupt = Interrupt::listen()?;
    let parcel = Parcel::gather(&args.to.files, args.name.as_deref(), &interrupt)?;
    let folder = args.state.open("onion-send")?;
    let (offer, source) = parcel.offer(PIECE, &interrupt)?;
    let settings = hidden::settings(network, user, &folder)?;
    let address = args.to.address;
    let edge =
        HiddenEdge::start(settings, move |user, _, _, rng| HiddenSender::new(user, address, Rates::default(), rng))?;
    let mut carrying = Carrying {
        args,
        edge,
        sending: Sending::new(offer, source),
        stream: None,
        again: None,
        trouble: None,
        sessions: 0,
    };
    let style = ProgressStyle::with_template(&format!("{{msg:10}} {BYTES}")).expect("the template is valid");
    let display = ProgressBar::new(carrying.sending.length()).with_style(style);
    let (began, mut moved) = (Instant::now(), Instant::now());
    let mut progress = (0, 0);
    let patience = Duration::from_secs(u64::from(args.patience));
    while !carrying.sending.is_over() && !interrupt.is_raised() {
        carrying.edge.turn(carrying.edge.now() + LOOK)?;
        for news in carrying.edge.take_news() {
            display.suspend(|| carrying.on_news(news))?;
        }
        carrying.connect_again();
        display.set_position(carrying.sending.done());
        display.set_message(carrying.phase());
        let now = carrying.progress();
        if now != progress {
            (progress, moved) = (now, Instant::now());
        }
        if moved.elapsed() >= patience {
            break;
        }
    }
    display.finish_and_clear();
    let took = began.elapsed().as_secs_f64();
    carrying.leave(interrupt.is_raised())?;
    let Carrying { sending, trouble, sessions, .. } = carrying;
    let not_sent = |why: &str| Failure::new(format!("{}: {why}", parcel.not_sent()));
    match sending.state() {
        SendingState::Done(name) => {
            let (bytes, resumed) = (parcel.travelling(), sending.resumed());
            let rate = bytes.saturating_sub(resumed) as f64 / took.max(1e-9);
            if args.json {
                let summary = json!({
                    "outcome": "sent",
                    "names": parcel.names,
                    "files": parcel.files,
                    "bytes": parcel.bytes,
                    "travelled_bytes": bytes,
                    "resumed_bytes": resumed,
                    "name": name,
                    "seconds": took,
                    "bytes_per_second": rate,
                    "sessions": sessions,
                });
                print_line!("{summary}")?;
            } else {
                let rate = Amount(rate);
                print_line!("sent {} as {name}: {bytes} bytes in {took:.1} s, {rate}/s", parcel.title)?;
                if resumed > 0 {
                    print_line!("{resumed} bytes of it had come before")?;
                }
            }
            Ok(())
        }
        SendingState::Failed(why) => Err(not_sent(&why.to_string())),
        _ if interrupt.is_raised() => Err(Failure::interrupted(parcel.not_sent())),
        SendingState::Offered | SendingState::Sending => {
            let why = trouble.unwrap_or_else(|| "no relay could be reached".to_owned());
            Err(not_sent(&format!("{why} (nothing moved for {} s)", args.patience)))
        }
    }
}

impl Carrying<'_> {
    fn on_news(&mut self, news: HiddenNews<SenderEvent>) -> Result<(), Failure> {
        let json = self.args.json;
        match news {
            HiddenNews::Epoch { epoch, relays } => {
                say(json, &format!("epoch {epoch}: {relays} relays"));
                self.edge.act(|machine, now| machine.connect(now));
            }
            HiddenNews::Directory(found) => match found {
                Found::NotKept(why) => {
                    return Err(Failure::new(format!("what was seen of the directory is not kept: {why}")));
                }
                Found::OtherTerms(other) => return Err(Failure::new(other.to_string())),
                Found::Disbelieved(why) => self.trouble = Some(why.to_string()),
                Found::NoAnswer(why) if self.sessions == 0 => self.trouble = Some(why.to_string()),
                _ => {}
            },
            HiddenNews::GuardsNotKept(why) => {
                return Err(Failure::new(format!("no new guard is used, since it cannot be written down: {why}")));
            }
            HiddenNews::Machine(event) => self.on_event(event),
        }
        Ok(())
    }

    fn on_event(&mut self, event: SenderEvent) {
        match event {
            SenderEvent::Found => say(self.args.json, "the receiver was found"),
            SenderEvent::Connected => {
                self.sessions += 1;
                self.sending.begin();
                let Carrying { edge, sending, stream, .. } = self;
                edge.act(|machine, now| {
                    let Some(client) = machine.session() else { return };
                    *stream = client.open_stream(now, Target::Itself);
                    if let Some(stream) = *stream {
                        sending.drive(client, stream);
                    }
                });
            }
            SenderEvent::Stream(StreamEvent::Readable(of) | StreamEvent::Writable(of)) if Some(of) == self.stream => {
                let Carrying { edge, sending, .. } = self;
                edge.act(|machine, _| {
                    if let Some(client) = machine.session() {
                        sending.drive(client, of);
                    }
                });
            }
            SenderEvent::Stream(StreamEvent::Reset(of, reason)) if Some(of) == self.stream => {
                self.stream = None;
                self.sending.fail(match reason {
                    Reason::Busy => TransferError::Refused("too many files come at once; try again later".into()),
                    _ => TransferError::Failed("it has stopped; send it again, and it goes on".into()),
                });
            }
            SenderEvent::Ended(end) => {
                self.stream = None;
                self.trouble = Some(words(end).to_owned());
                self.again = Some(Instant::now() + AGAIN);
                if !self.sending.is_over() {
                    say(self.args.json, &format!("{}; it is tried again", words(end)));
                }
            }
            SenderEvent::NotFound(why) => {
                self.trouble = Some(why.to_string());
                self.again = Some(Instant::now() + AGAIN);
            }
            SenderEvent::NoPath(why) => self.trouble = Some(why.to_string()),
            SenderEvent::Stream(_) | SenderEvent::Guards => {}
        }
    }

    fn connect_again(&mut self) {
        if self.again.is_some_and(|at| at <= Instant::now()) {
            self.again = None;
            self.edge.act(|machine, now| machine.connect(now));
        }
    }

    fn phase(&self) -> &'static str {
        match (self.sending.state(), self.stream) {
            (_, None) => "looking",
            (SendingState::Offered, _) => "offering",
            _ if self.sending.done() == self.sending.length() => "finishing",
            _ => "sending",
        }
    }

    /// What grows as long as something moves: bytes handed over and, in a session, packets that arrived.
    fn progress(&self) -> (u64, u64) {
        let delivered = self.edge.machine().map_or(0, |machine| machine.user().counts().delivered);
        (self.sending.done(), if self.stream.is_some() { delivered } else { 0 })
    }

    /// Takes leave: the receiver learns at once that nothing more comes, or, if it was given up, that nothing of it
    /// is to be kept.
    fn leave(&mut self, is_given_up: bool) -> Result<(), Failure> {
        let stream = self.stream.filter(|_| is_given_up);
        if let Some(stream) = stream {
            let reset = |machine: &mut Sender, _| machine.session().map(|client| client.reset(stream, Reason::Stopped));
            self.edge.act(reset);
            hidden::await_heard(&mut self.edge, |machine| {
                machine.session().is_none_or(|client| client.streams().are_resets_heard())
            })?;
        }
        let has_session = self.edge.act(|machine, _| machine.session().map(|client| client.close()).is_some());
        let end = self.edge.now() + LEAVE;
        while has_session == Some(true) && self.edge.now() < end {
            self.edge.turn(end)?;
            self.edge.take_news();
        }
        Ok(())
    }
}

fn words(end: End) -> &'static str {
    match end {
        End::Unanswered => "the receiver was found, but does not answer at its mailboxes: it may have gone just now",
        End::Silent => "nothing was heard of the receiver for a minute",
        End::ClosedByPeer => "the receiver has ended the session",
        End::Broken(_) => "what the receiver sends makes no sense",
        End::Closed | End::Idle => "the session ended with its mailboxes",
    }
}

#[cfg(test)]
mod tests {
    use anabranch_onion::hidden::ReceiverSecret;

    use super::*;
    use crate::said;

    fn read(arguments: &[&str]) -> Result<Args, clap::Error> {
        said::parse([&["send", "--network", "network.toml"], arguments].concat())
    }

    #[test]
    fn the_address_is_the_last_of_what_is_given_wherever_options_stand() {
        let address = ReceiverSecret::from_seed(&[1; 32]).address().to_string();
        let address = address.as_str();
        for arguments in [
            &["a", "b", address][..],
            &["a", "b", address, "--json"],
            &["a", "--name", "c", "b", address],
            &["a", "b", "--name", "c", address],
            &["--json", "a", "--name", "c", "b", "--patience", "3", address],
        ] {
            let args = read(arguments).unwrap();
            assert_eq!(args.to.files, [PathBuf::from("a"), PathBuf::from("b")], "{arguments:?}");
            assert_eq!(args.to.address.to_string(), address);
        }
        let wrong = |arguments: &[&str]| read(arguments).unwrap_err();
        assert_eq!(wrong(&["a"]).kind(), ErrorKind::MissingRequiredArgument);
        assert_eq!(wrong(&[]).kind(), ErrorKind::MissingRequiredArgument);
        let error = wrong(&["a", "abc", "--json"]);
        assert!(error.to_string().contains("'abc' for '<ADDRESS>': an address has 68"), "{error}");
        assert_eq!((error.kind(), error.exit_code()), (ErrorKind::ValueValidation, 2));
    }
}
