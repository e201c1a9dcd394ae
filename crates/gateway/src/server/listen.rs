//! Takes connections, each within its bounds.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::error::Error as _;
use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderValue, Request, header};
use http_body_util::BodyExt as _;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio_io_timeout::TimeoutStream;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::bounds::{Bounds, MOST_HEAD, MOST_HEADERS};
use super::places::{Client, Place, Places};

/// After an accept that failed (no descriptor is left), so long nothing is accepted.
const PAUSE: Duration = Duration::from_millis(100);

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
        let http = registry.sub_registry_with_prefix("anabranch_gateway");
        http.register("connections", "HTTP connections now", door.connections.clone());
        let refused = "HTTP connections closed since their address had too many";
        http.register("refused_connections", refused, door.refused.clone());
        let stalled = "HTTP connections closed since the client took nothing for too long";
        http.register("stalled_connections", stalled, door.stalled.clone());
        let silent = "HTTP connections closed to make room, since nothing went on over them";
        http.register("silent_connections", silent, door.silent.clone());
        door
    }
}

pub async fn accept(listener: TcpListener, app: Router, door: Arc<Door>) {
    let free = Arc::new(Semaphore::new(door.bounds.connections));
    let (places, idle) = (Places::of_each(door.bounds.connections_per_address), Arc::new(Idle::default()));
    // Who asks for nothing makes room: those who ask cannot be held up by any number of those who do not.
    let make_room = |whose: Option<Client>| {
        let closed = idle.close_first(whose);
        if closed {
            door.silent.inc();
        }
        closed
    };
    loop {
        let Ok((stream, from)) = listener.accept().await else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        let client = Client::of(from.ip());
        let place = places.take(client).or_else(|| make_room(Some(client)).then(|| places.take(client)).flatten());
        let Some(place) = place else {
            door.refused.inc();
            continue;
        };
        if free.available_permits() == 0 {
            make_room(None);
        }
        // Nobody closes the semaphore.
        let Ok(permit) = Arc::clone(&free).acquire_owned().await else { return };
        let connection = Arc::new(Connection { client, room: Mutex::new(Some((permit, place))), close: Notify::new() });
        let (app, door, standing) = (app.clone(), Arc::clone(&door), Arc::new(Standing::new(&idle, connection)));
        standing.set_idle(false);
        tokio::spawn(async move {
            let connections = door.connections.clone();
            connections.inc();
            tokio::select! {
                () = serve(stream, app, door, client, &standing) => {}
                () = standing.connection.close.notified() => {}
            }
            standing.set_busy();
            standing.connection.make_room();
            connections.dec();
        });
    }
}

/// A connection as those that need room find it.
#[derive(Debug)]
struct Connection {
    client: Client,
    /// What it takes: free at once when it is closed for another, which need not wait until it is over.
    room: Mutex<Option<(OwnedSemaphorePermit, Place)>>,
    close: Notify,
}

impl Connection {
    fn make_room(&self) {
        drop(self.room.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
}

/// Connections over which nothing goes on: those over which nothing was asked yet first, then in the order in which they
/// became so.
#[derive(Debug, Default)]
struct Idle {
    all: Mutex<BTreeMap<Rank, Arc<Connection>>>,
    next: AtomicU64,
}

/// Whether something was asked over a connection before, and when it became idle.
type Rank = (bool, u64);

impl Idle {
    fn all(&self) -> MutexGuard<'_, BTreeMap<Rank, Arc<Connection>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes the first, or the first of `whose`; whether there was one.
    fn close_first(&self, whose: Option<Client>) -> bool {
        let mut all = self.all();
        let first = all.iter().find(|(_, connection)| whose.is_none_or(|client| connection.client == client));
        let Some(connection) = first.map(|(rank, _)| *rank).and_then(|rank| all.remove(&rank)) else { return false };
        connection.make_room();
        connection.close.notify_one();
        true
    }
}

/// Where a connection stands among those that are idle, while it is.
#[derive(Debug)]
struct Standing {
    idle: Arc<Idle>,
    connection: Arc<Connection>,
    rank: Mutex<Option<Rank>>,
}

impl Standing {
    fn new(idle: &Arc<Idle>, connection: Arc<Connection>) -> Standing {
        Standing { idle: Arc::clone(idle), connection, rank: Mutex::default() }
    }

    fn rank(&self) -> MutexGuard<'_, Option<Rank>> {
        self.rank.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nothing goes on over it.
    fn set_idle(&self, has_asked: bool) {
        let rank = (has_asked, self.idle.next.fetch_add(1, Ordering::Relaxed));
        *self.rank() = Some(rank);
        self.idle.all().insert(rank, Arc::clone(&self.connection));
    }

    /// Something was asked over it, or it is over.
    fn set_busy(&self) {
        if let Some(rank) = self.rank().take() {
            self.idle.all().remove(&rank);
        }
    }
}

/// A request that goes on until this is dropped.
struct Answering(Arc<Standing>);

impl Answering {
    fn begin(standing: &Arc<Standing>) -> Answering {
        standing.set_busy();
        Answering(Arc::clone(standing))
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        self.0.set_idle(true);
    }
}

/// Answers what is asked over a connection until it is over.
async fn serve(stream: TcpStream, app: Router, door: Arc<Door>, client: Client, standing: &Arc<Standing>) {
    // What is small (events, a playlist) is not kept back for more.
    let _ = stream.set_nodelay(true);
    let mut stream = pin!(TimeoutStream::new(stream));
    stream.as_mut().set_write_timeout_pinned(Some(door.bounds.patience));
    let requests = AtomicU32::new(0);
    let app = TowerToHyperService::new(app);
    let service = service_fn(|mut request: Request<hyper::body::Incoming>| {
        let answering = Answering::begin(standing);
        request.extensions_mut().insert(client);
        let is_last = requests.fetch_add(1, Ordering::Relaxed) + 1 >= door.bounds.requests_per_connection;
        let answer = app.call(request.map(Body::new));
        async move {
            let mut response = answer.await?;
            if is_last {
                response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            // It goes on until the last of the answer was taken.
            Ok::<_, Infallible>(response.map(|body| {
                body.map_frame(move |frame| {
                    let _ = &answering;
                    frame
                })
            }))
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
