//! Metrics for whoever runs a program of ours: one page of OpenMetrics text over HTTP.
//!
//! It has a thread of its own, so that nobody who asks for metrics delays a datagram. What a client
//! may cost is bounded: this many connections at once, one request each, this many bytes of request, so
//! much time.

use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use tokio::sync::Semaphore;

/// Where the page is.
pub const PATH: &str = "/metrics";

/// OpenMetrics 1.0, which Prometheus asks for first.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Bytes of a request at most: the least that the library can be set to.
const MAX_REQUEST: usize = 8192;

/// Headers of a request at most.
const MAX_HEADERS: usize = 32;

/// After an accept that failed (no descriptor is left), so long nothing is accepted.
const PAUSE: Duration = Duration::from_millis(100);

/// What clients may cost.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Connections at once; more wait in the system's backlog.
    pub connections: usize,
    /// From accept to the last byte of the answer.
    pub time: Duration,
}

impl Default for Bounds {
    /// A few scrapers, each within the 10 s that Prometheus waits by default.
    fn default() -> Bounds {
        Bounds { connections: 8, time: Duration::from_secs(10) }
    }
}

/// Serves `registry` on `listener` for the rest of the process; where it listens.
///
/// # Errors
///
/// When the system has no room for another thread or descriptor.
pub fn serve(listener: TcpListener, registry: Registry, bounds: Bounds) -> io::Result<SocketAddr> {
    let address = listener.local_addr()?;
    listener.set_nonblocking(true)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
    std::thread::Builder::new().name("metrics".into()).spawn(move || {
        runtime.block_on(async move {
            // It was made non-blocking and there is a runtime, which is all that this needs.
            let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
            accept(listener, Arc::new(registry), bounds).await;
        });
    })?;
    Ok(address)
}

async fn accept(listener: tokio::net::TcpListener, registry: Arc<Registry>, bounds: Bounds) {
    let free = Arc::new(Semaphore::new(bounds.connections));
    // Nobody closes the semaphore.
    while let Ok(permit) = Arc::clone(&free).acquire_owned().await {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        let registry = Arc::clone(&registry);
        tokio::spawn(async move {
            let answer = service_fn(move |request| {
                let answer = answer(&request, &registry);
                async move { Ok::<_, Infallible>(answer) }
            });
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(bounds.time)
                .max_buf_size(MAX_REQUEST)
                .max_headers(MAX_HEADERS)
                .keep_alive(false)
                .serve_connection(TokioIo::new(stream), answer);
            // A client that is late or says nonsense is none of ours to complain about.
            let _ = tokio::time::timeout(bounds.time, connection).await;
            drop(permit);
        });
    }
}

fn answer(request: &Request<Incoming>, registry: &Registry) -> Response<Full<Bytes>> {
    let (status, kind, body) = match (request.uri().path(), request.method()) {
        (PATH, &Method::GET | &Method::HEAD) => {
            let mut text = String::new();
            match encode(&mut text, registry) {
                Ok(()) => (StatusCode::OK, OPEN_METRICS, text),
                Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, "text/plain", error.to_string()),
            }
        }
        (PATH, _) => (StatusCode::METHOD_NOT_ALLOWED, "text/plain", "GET only\n".to_owned()),
        _ => (StatusCode::NOT_FOUND, "text/plain", format!("metrics are at {PATH}\n")),
    };
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{Ipv4Addr, TcpStream};
    use std::time::Instant;

    use prometheus_client::metrics::counter::Counter;

    use super::*;

    const BOUNDS: Bounds = Bounds { connections: 2, time: Duration::from_millis(300) };

    fn server() -> SocketAddr {
        let mut registry = Registry::with_prefix("test");
        let counter: Counter = Counter::default();
        counter.inc_by(42);
        registry.register("things", "What there is", counter);
        serve(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap(), registry, BOUNDS).unwrap()
    }

    fn ask(address: SocketAddr, request: &[u8]) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        // It may be closed before all is written.
        let _ = stream.write_all(request);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8(answer).unwrap()
    }

    const GOOD: &[u8] = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";

    #[test]
    fn metrics_are_served_and_nothing_else() {
        let address = server();
        let answer = ask(address, GOOD);
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        assert!(answer.contains("openmetrics-text") && answer.contains("\ntest_things_total 42\n"), "{answer}");
        for (request, status) in [
            (&b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"[..], "404"),
            (b"GET /metrics/../etc HTTP/1.1\r\nHost: x\r\n\r\n", "404"),
            (b"POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello", "405"),
            (b"nonsense\r\n\r\n", "400"),
        ] {
            let answer = ask(address, request);
            assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{status}: {answer}");
        }
    }

    #[test]
    fn a_request_that_is_too_long_is_refused() {
        let address = server();
        let long = format!("GET /metrics HTTP/1.1\r\nHost: {}\r\n\r\n", "x".repeat(2 * MAX_REQUEST));
        assert!(!ask(address, long.as_bytes()).contains("200 OK"));
        let many = format!("GET /metrics HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(MAX_HEADERS + 1));
        assert!(!ask(address, many.as_bytes()).contains("200 OK"));
        assert!(ask(address, GOOD).contains("200 OK"), "and the next one is served");
    }

    #[test]
    fn silent_clients_hold_others_up_no_longer_than_the_bound() {
        let address = server();
        let silent: Vec<TcpStream> = (0..BOUNDS.connections).map(|_| TcpStream::connect(address).unwrap()).collect();
        let drip = TcpStream::connect(address).unwrap();
        (&drip).write_all(b"GET /met").unwrap();
        let began = Instant::now();
        assert!(ask(address, GOOD).contains("200 OK"));
        let took = began.elapsed();
        // The first two, then at most the one that began a request.
        assert!(took >= BOUNDS.time / 2 && took < 4 * BOUNDS.time, "{took:?}");
        drop(silent);
    }
}
