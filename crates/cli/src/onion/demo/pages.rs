//! Pages of the site through a SOCKS proxy, and how long they take.

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use fast_socks5::client::{Config, Socks5Stream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::part::PATIENCE;
use crate::failure::Failure;
use crate::interrupt::Interrupt;

/// Everything is over by then.
pub const LONGEST: Duration = Duration::from_secs(180);

/// Fetches as soon as that is possible.
pub fn fetch_patiently(
    socks: &str,
    site: SocketAddr,
    page: &str,
    interrupt: &Interrupt,
) -> Result<(Vec<u8>, f64), Failure> {
    let begun = Instant::now();
    loop {
        match fetch(socks, site, page) {
            Err(_) if begun.elapsed() < PATIENCE && !interrupt.is_raised() => thread::sleep(Duration::from_millis(200)),
            outcome => return outcome,
        }
    }
}

/// A page through the proxy, and how many seconds it took.
pub fn fetch(socks: &str, site: SocketAddr, page: &str) -> Result<(Vec<u8>, f64), Failure> {
    let begun = Instant::now();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let response = runtime.block_on(async {
        let talk = async {
            let host = site.ip().to_string();
            let mut stream = Socks5Stream::connect(socks.to_owned(), host, site.port(), Config::default())
                .await
                .map_err(|why| Failure::new(format!("the proxy does not connect: {why}")))?;
            stream
                .write_all(format!("GET {page} HTTP/1.1\r\nHost: {site}\r\nConnection: close\r\n\r\n").as_bytes())
                .await?;
            let mut response = Vec::new();
            stream.read_to_end(&mut response).await?;
            Ok::<_, Failure>(response)
        };
        tokio::time::timeout(LONGEST, talk).await.map_err(|_| Failure::new(format!("{page} takes too long")))?
    })?;
    let seconds = begun.elapsed().as_secs_f64();
    let head = response.windows(4).position(|window| window == b"\r\n\r\n");
    let body = head.map(|at| response[at + 4..].to_vec());
    body.map(|body| (body, seconds)).ok_or_else(|| Failure::new(format!("{page} did not come")))
}
