//! A page of several parts in a headless Chromium, through the proxy.

use std::net::SocketAddr;
use std::path::Path;

use super::site::{self, PAGE, PARTS};
use crate::browser::Browser;
use crate::failure::Failure;
use crate::interrupt::Interrupt;

/// The parts' checksums, once all are there.
const WHOLE: &str = "document.body?.dataset.parts ?? null";

/// What a browser has got.
#[derive(Clone, Copy, Debug)]
pub struct Browsed {
    /// Whether all parts came as they were sent.
    pub is_whole: bool,
    /// From the page's beginning until the last of them.
    pub seconds: f64,
}

/// Opens the site's page in the browser at `path`; each of its parts is `part`.
///
/// # Errors
///
/// When the browser cannot be driven, or the page does not come.
pub fn browse(
    path: &Path,
    socks: &str,
    site: SocketAddr,
    part: &[u8],
    interrupt: &Interrupt,
) -> Result<Browsed, Failure> {
    // Loopback addresses go through it, too; and with one proxy there is no way beside it.
    let arguments = [format!("--proxy-server=socks5://{socks}"), "--proxy-bypass-list=<-loopback>".to_owned()];
    let mut browser = Browser::open(path, &format!("http://{site}{PAGE}"), &arguments, interrupt)?;
    let parts = browser.await_value(WHOLE, |parts| parts.is_string(), "the page through the overlay lacks parts")?;
    let parts: Vec<u32> = parts.as_str().and_then(|parts| serde_json::from_str(parts).ok()).unwrap_or_default();
    let last = "Math.max(...performance.getEntriesByType('resource').map((part) => part.responseEnd)) / 1000";
    Ok(Browsed {
        is_whole: parts == [site::checksum(part); PARTS],
        seconds: browser.evaluate(last)?.as_f64().unwrap_or(f64::NAN),
    })
}
