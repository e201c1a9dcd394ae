//! Pages of the site through a SOCKS proxy, and how long they take.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use fast_socks5::client::{Config, Socks5Stream};
use serde::Serialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::part::PATIENCE;
use crate::failure::Failure;
use crate::interrupt::Interrupt;

/// Everything is over by then.
pub const LONGEST: Duration = Duration::from_secs(180);

/// Pages after the first, of whose times the median counts.
const REPEATED: usize = 5;

/// While a page comes, it is looked so often whether the user has had enough.
const LOOK: Duration = Duration::from_millis(100);

/// What there is to fetch, and where.
#[derive(Clone, Debug)]
pub struct Site {
    pub address: SocketAddr,
    pub small: Arc<[u8]>,
    pub large: Arc<[u8]>,
}

/// What was measured through one proxy.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Pages {
    /// The first page: with what the proxy has to do before, as a session's handshake.
    pub first_page_s: f64,
    /// A page of 50 KiB, the median of five.
    pub small_page_s: f64,
    pub large_bytes: usize,
    pub large_s: f64,
    pub mb_per_s: f64,
    /// Processor time of all parts while the large file came; null where the system does not tell.
    pub large_processor_s: Option<f64>,
}

/// Fetches all through the proxy at `socks`; `processor_s` is what the parts behind it have taken so far.
///
/// # Errors
///
/// When something does not come as it was sent, or the user has had enough.
pub fn measure(
    socks: &str,
    site: &Site,
    processor_s: impl Fn() -> Option<f64>,
    interrupt: &Interrupt,
) -> Result<Pages, Failure> {
    let whole = |what: &str, came: &[u8], sent: &[u8]| {
        if came == sent { Ok(()) } else { Err(Failure::new(format!("{what} did not come as it was sent"))) }
    };
    let (first, first_page_s) = fetch_patiently(socks, site.address, "/small", interrupt)?;
    whole("the first page", &first, &site.small)?;
    let mut times = Vec::new();
    for _ in 0..REPEATED {
        let (page, seconds) = fetch(socks, site.address, "/small", interrupt)?;
        whole("a page", &page, &site.small)?;
        times.push(seconds);
    }
    times.sort_by(f64::total_cmp);
    let before = processor_s();
    let (file, large_s) = fetch(socks, site.address, "/large", interrupt)?;
    let large_processor_s = processor_s().zip(before).map(|(after, before)| after - before);
    whole("the large file", &file, &site.large)?;
    Ok(Pages {
        first_page_s,
        small_page_s: times[times.len() / 2],
        large_bytes: site.large.len(),
        large_s,
        mb_per_s: site.large.len() as f64 / 1e6 / large_s,
        large_processor_s,
    })
}

/// Fetches as soon as that is possible.
fn fetch_patiently(
    socks: &str,
    site: SocketAddr,
    page: &str,
    interrupt: &Interrupt,
) -> Result<(Vec<u8>, f64), Failure> {
    let begun = Instant::now();
    loop {
        match fetch(socks, site, page, interrupt) {
            Err(_) if begun.elapsed() < PATIENCE && !interrupt.is_raised() => thread::sleep(Duration::from_millis(200)),
            outcome => return outcome,
        }
    }
}

/// A page through the proxy, and how many seconds it took.
pub fn fetch(socks: &str, site: SocketAddr, page: &str, interrupt: &Interrupt) -> Result<(Vec<u8>, f64), Failure> {
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
        let mut talk = pin!(talk);
        loop {
            match tokio::time::timeout(LOOK, talk.as_mut()).await {
                Ok(outcome) => return outcome,
                Err(_) if interrupt.is_raised() => return Err(Failure::interrupted("nothing is left")),
                Err(_) if begun.elapsed() > LONGEST => return Err(Failure::new(format!("{page} takes too long"))),
                Err(_) => {}
            }
        }
    })?;
    let seconds = begun.elapsed().as_secs_f64();
    let head = response.windows(4).position(|window| window == b"\r\n\r\n");
    let body = head.map(|at| response[at + 4..].to_vec());
    body.map(|body| (body, seconds)).ok_or_else(|| Failure::new(format!("{page} did not come")))
}
