//! The demo's site: a small page, a large file, and a page for a browser, whose parts come side by side.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;

/// The page for a browser, and how many parts it has.
pub const PAGE: &str = "/page";
pub const PARTS: usize = 6;

/// Fetches the parts, and leaves a checksum of each, as [`checksum`] has it, in the body's `data-parts`.
const HTML: &str = "<!doctype html><meta charset=\"utf-8\"><title>A page through the overlay</title>
<h1>A page through the overlay</h1><ol></ol><script>
const part = async (number) => {
  const answer = await fetch('/small?part=' + number)
  const bytes = new Uint8Array(await answer.arrayBuffer())
  const checksum = bytes.reduce((sum, byte) => (Math.imul(sum, 31) + byte) >>> 0, 0)
  document.querySelector('ol').append(Object.assign(document.createElement('li'), { textContent: bytes.length + ' bytes' }))
  return checksum
}
Promise.all(Array.from({ length: 6 }, (_, number) => part(number))).then((parts) => {
  document.body.dataset.parts = JSON.stringify(parts)
})
</script>";

/// Of `bytes`, a sum whose order matters.
pub fn checksum(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0, |sum: u32, &byte| sum.wrapping_mul(31).wrapping_add(u32::from(byte)))
}

/// Serves at a free port of loopback until this process ends.
pub fn serve(small: Arc<[u8]>, large: Arc<[u8]>) -> std::io::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let (small, large) = (Arc::clone(&small), Arc::clone(&large));
            // Who breaks off wants no more.
            thread::spawn(move || drop(answer(stream, &small, &large)));
        }
    });
    Ok(address)
}

fn answer(mut stream: TcpStream, small: &[u8], large: &[u8]) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    let first = lines.next().transpose()?.unwrap_or_default();
    while lines.next().transpose()?.is_some_and(|line| !line.is_empty()) {}
    let (kind, page) = match first.split(' ').nth(1) {
        Some("/large") => ("application/octet-stream", large),
        Some(PAGE) => ("text/html", HTML.as_bytes()),
        _ => ("application/octet-stream", small),
    };
    let length = page.len();
    write!(stream, "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n")?;
    stream.write_all(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checksum_is_of_bytes_and_their_order() {
        assert_eq!(checksum(&[1, 2, 3]), (31 + 2) * 31 + 3);
        assert_ne!(checksum(&[1, 2]), checksum(&[2, 1]));
        assert_eq!(checksum(&[255; 9]), [255u64; 9].iter().fold(0, |sum, byte| (sum * 31 + byte) % (1 << 32)) as u32);
        assert!(HTML.contains(&format!("length: {PARTS} ")), "the page fetches as many parts as are expected");
    }
}
