//! `anabranch onion authority`: makes, with others, the list of relays that all believe.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anabranch_net::clock::Clock;
use anabranch_net::onion::authority::AuthorityNode;
use anabranch_net::state::StateError;
use anabranch_onion::directory::{Authority, AuthorityEvent, AuthorityState, SecretKey, WallClock};
use tokio::net::TcpListener;

use super::metrics::{self, AuthorityFigures, Metrics};
use super::network::{self, StateArg, digits};
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::network::{say, socket_address};
use crate::printer::print_line;
use crate::stderr::eprint_line;

/// How often it is looked whether the user has had enough.
const LOOK: Duration = Duration::from_millis(100);

/// The file with its secret.
const KEY: &str = "key";

/// The file with what an authority has seen and signed.
const SEEN: &str = "seen.json";

/// Arguments of `onion authority`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Without --network, the authority's key is printed, and made if there is none: it goes into the network's file. The \
authorities of a network take what relays say of themselves, vote once an epoch, and sign one list of relays. A list \
counts if more than half of them, or the file's `threshold`, have signed it. Nobody but they keeps one person from \
running many relays.")]
pub struct Args {
    /// The file that says of which network: its authorities, and what all have alike
    #[arg(long, value_name = "FILE")]
    network: Option<PathBuf>,
    #[command(flatten)]
    state: StateArg,
    /// Listen here, if that is not the address that the network's file has
    #[arg(long, value_name = "ADDR", requires = "network", value_parser = socket_address)]
    listen: Option<SocketAddr>,
    /// Serve figures for Prometheus at ADDR; they hold no address
    #[arg(long, value_name = "ADDR", requires = "network", value_parser = socket_address)]
    metrics: Option<SocketAddr>,
}

/// Runs until it is interrupted.
pub fn run(args: &Args) -> Result<(), Failure> {
    const VERB: &str = "onion-authority";
    // The key may be asked for while the authority runs.
    let Some(path) = &args.network else {
        let key = SecretKey::from_seed(&args.state.look_into(VERB)?.seed(KEY)?);
        print_line!("{}", digits(&key.public()))?;
        return Ok(());
    };
    let folder = args.state.open(VERB)?;
    let key = SecretKey::from_seed(&folder.seed(KEY)?);
    let config = network::read(path)?.authorities;
    let own = config.authorities.iter().find(|(public, _)| *public == key.public());
    let Some(&(_, address)) = own else {
        return Err(Failure::new(format!(
            "{} has no [[authority]] with the key {}, which is this one's",
            path.display(),
            digits(&key.public())
        )));
    };
    let others = config.authorities.iter().filter(|(public, _)| *public != key.public()).map(|(_, at)| *at).collect();
    let state: AuthorityState = folder.load(SEEN)?;
    let interrupt = Interrupt::listen()?;
    let metrics_at = args.metrics.map(metrics::listen).transpose()?;
    let clock = Clock::start();
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).map_err(|_| "this machine's clock is before 1970")?;
    let wall = WallClock::new(clock.now(), wall);
    let authority = Authority::new(config, key, wall, clock.now(), state)?;
    let listen = args.listen.unwrap_or(address);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener =
            TcpListener::bind(listen).await.map_err(|why| Failure::new(format!("cannot listen at {listen}: {why}")))?;
        print_line!("authority at {}", listener.local_addr()?)?;
        let node = AuthorityNode::new(authority, others, clock, listener);
        let stop = async {
            while !interrupt.is_raised() {
                tokio::time::sleep(LOOK).await;
            }
        };
        let (metrics, mut figures) = (Metrics::default(), AuthorityFigures::default());
        metrics.renew(figures.rows());
        if let Some(listener) = metrics_at {
            metrics.serve(listener, "anabranch_onion_authority")?;
        }
        let on_event = |authority: &Authority, event: AuthorityEvent| -> Result<(), StateError> {
            figures.on_event(authority, &event);
            metrics.renew(figures.rows());
            match event {
                AuthorityEvent::Keep => return folder.save(SEEN, &authority.state()),
                AuthorityEvent::Published { epoch, hash, relays } => {
                    say(false, &format!("epoch {epoch}: {relays} relays, {hash}"));
                }
                AuthorityEvent::NoAgreement { ballot, votes, signed } => eprint_line!(
                    "epoch {}: no list of relays by ballot {}: {votes} votes counted, {signed} signed what this authority \
                     has made of them; it asks the others, and votes again",
                    ballot.epoch, ballot.number
                ),
                AuthorityEvent::Lies(other) => eprint_line!("authority {other} has voted twice: neither counts"),
            }
            Ok(())
        };
        node.run(on_event, stop).await?;
        Ok(())
    })
}
