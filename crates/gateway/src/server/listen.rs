//! Takes connections, each within its bounds.

use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::error::Error as _;
use std::io;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderValue, Request, header};
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, oneshot};
use tokio_io_timeout::TimeoutStream;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::bounds::{Bounds, MOST_HEAD, MOST_HEADERS};

/// After an accept that failed (no descriptor is left), so long nothing is accepted.
const PAUSE: Duration = Duration::from_millis(100);

/// Connections by the address that they come from.
type Addresses = Arc<Mutex<HashMap<IpAddr, usize>>>;

/// What connections may cost, and what was counted of them.
#[derive(Debug)]
pub struct Door {
    bounds: Bounds,
    connections: Gauge,
    refused: Counter,
    stalled: Counter,
    silent: Counter,
}

impl Door {
    pub fn register(bounds: Bounds, registry: &mut Registry) -> Door {
        let (refused, stalled, silent) = Default::default();
        let door = Door { bounds, connections: Gauge::default(), refused, stalled, silent };
        let http = registry.sub_registry_with_prefix("gateway");
        http.register("connections", "HTTP connections now", door.connections.clone());
        let refused = "HTTP connections closed since their address had too many";
        http.register("refused_connections", refused, door.refused.clone());
        let stalled = "HTTP connections closed since the client took nothing for too long";
        http.register("stalled_connections", stalled, door.stalled.clone());
        let silent = "HTTP connections closed to make room, before anything was asked over them";
        http.register("silent_connections", silent, door.silent.clone());
        door
    }
}

pub async fn accept(listener: TcpListener, app: Router, door: Arc<Door>) {
    let free = Arc::new(Semaphore::new(door.bounds.connections));
    let (addresses, silent) = (Addresses::default(), Arc::new(Silent::default()));
    for number in 0.. {
        let Ok((stream, from)) = listener.accept().await else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        let most = door.bounds.connections_per_address;
        let Some(claim) = Claim::new(&addresses, from.ip().to_canonical(), most) else {
            door.refused.inc();
            continue;
        };
        // Who has asked nothing yet makes room: those who ask cannot be held up by any number of those who do not.
        if free.available_permits() == 0 && silent.close_first() {
            door.silent.inc();
        }
        // Nobody closes the semaphore.
        let Ok(permit) = Arc::clone(&free).acquire_owned().await else { return };
        let (app, door, closed) = (app.clone(), Arc::clone(&door), silent.enter(number));
        let asked = {
            let silent = Arc::clone(&silent);
            move || silent.leave(number)
        };
        tokio::spawn(async move {
            let _places = (permit, claim);
            let connections = door.connections.clone();
            connections.inc();
            tokio::select! {
                () = serve(stream, app, door, &asked) => {}
                Ok(()) = closed => {}
            }
            asked();
            connections.dec();
        });
    }
}

/// Connections over which nothing was asked yet, in the order in which they came, and what closes each.
#[derive(Debug, Default)]
struct Silent(Mutex<BTreeMap<u64, oneshot::Sender<()>>>);

impl Silent {
    fn all(&self) -> MutexGuard<'_, BTreeMap<u64, oneshot::Sender<()>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells when it is to be closed.
    fn enter(&self, number: u64) -> oneshot::Receiver<()> {
        let (close, closed) = oneshot::channel();
        self.all().insert(number, close);
        closed
    }

    /// Something was asked over it, or it is over.
    fn leave(&self, number: u64) {
        self.all().remove(&number);
    }

    /// Closes the first that came; whether there was one.
    fn close_first(&self) -> bool {
        let first = self.all().pop_first();
        first.is_some_and(|(_, close)| close.send(()).is_ok())
    }
}

/// Answers what is asked over a connection until it is over; `asked` is called each time.
async fn serve(stream: TcpStream, app: Router, door: Arc<Door>, asked: &(impl Fn() + Sync)) {
    // What is small (events, a playlist) is not kept back for more.
    let _ = stream.set_nodelay(true);
    let mut stream = pin!(TimeoutStream::new(stream));
    stream.as_mut().set_write_timeout_pinned(Some(door.bounds.patience));
    let requests = AtomicU32::new(0);
    let app = TowerToHyperService::new(app);
    let service = service_fn(|request: Request<hyper::body::Incoming>| {
        asked();
        let is_last = requests.fetch_add(1, Ordering::Relaxed) + 1 >= door.bounds.requests_per_connection;
        let answer = app.call(request.map(Body::new));
        async move {
            let mut response = answer.await?;
            if is_last {
                response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            Ok::<_, Infallible>(response)
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(door.bounds.head)
        .max_buf_size(MOST_HEAD)
        .max_headers(MOST_HEADERS)
        .serve_connection(TokioIo::new(stream), service);
    // A client that is late, gone or says nonsense is none of ours to complain about.
    if let Err(error) = connection.await
        && error.source().and_then(|source| source.downcast_ref()).map(io::Error::kind) == Some(io::ErrorKind::TimedOut)
    {
        door.stalled.inc();
    }
}

/// A place among the connections of one address.
struct Claim {
    addresses: Addresses,
    address: IpAddr,
}

impl Claim {
    fn new(addresses: &Addresses, address: IpAddr, most: usize) -> Option<Claim> {
        let mut counts = addresses.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(address).or_default();
        if *count >= most {
            return None;
        }
        *count += 1;
        Some(Claim { addresses: Arc::clone(addresses), address })
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut counts = self.addresses.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.address);
            }
        }
    }
}
