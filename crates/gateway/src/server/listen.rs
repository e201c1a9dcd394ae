//! Takes connections, each within its bounds.

use std::collections::HashMap;
use std::convert::Infallible;
use std::error::Error as _;
use std::io;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderValue, Request, header};
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
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
}

impl Door {
    pub fn register(bounds: Bounds, registry: &mut Registry) -> Door {
        let door =
            Door { bounds, connections: Gauge::default(), refused: Counter::default(), stalled: Counter::default() };
        let http = registry.sub_registry_with_prefix("gateway");
        http.register("connections", "HTTP connections now", door.connections.clone());
        let refused = "HTTP connections closed since their address had too many";
        http.register("refused_connections", refused, door.refused.clone());
        let stalled = "HTTP connections closed since the client took nothing for too long";
        http.register("stalled_connections", stalled, door.stalled.clone());
        door
    }
}

pub async fn accept(listener: TcpListener, app: Router, door: Arc<Door>) {
    let free = Arc::new(Semaphore::new(door.bounds.connections));
    let addresses = Addresses::default();
    // Nobody closes the semaphore.
    while let Ok(permit) = Arc::clone(&free).acquire_owned().await {
        let Ok((stream, from)) = listener.accept().await else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        let most = door.bounds.connections_per_address;
        let Some(claim) = Claim::new(&addresses, from.ip().to_canonical(), most) else {
            door.refused.inc();
            continue;
        };
        let (app, door) = (app.clone(), Arc::clone(&door));
        tokio::spawn(async move {
            let _places = (permit, claim);
            let connections = door.connections.clone();
            connections.inc();
            serve(stream, app, door).await;
            connections.dec();
        });
    }
}

async fn serve(stream: TcpStream, app: Router, door: Arc<Door>) {
    // What is small (events, a playlist) is not kept back for more.
    let _ = stream.set_nodelay(true);
    let mut stream = pin!(TimeoutStream::new(stream));
    stream.as_mut().set_write_timeout_pinned(Some(door.bounds.patience));
    let requests = AtomicU32::new(0);
    let app = TowerToHyperService::new(app);
    let service = service_fn(|request: Request<hyper::body::Incoming>| {
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
