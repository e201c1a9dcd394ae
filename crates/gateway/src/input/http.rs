//! Reads a URL: a transport stream that a server sends without end. When it breaks off, it is asked for again.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::http::uri::{PathAndQuery, Scheme};
use axum::http::{HeaderValue, Request, Response, StatusCode, Uri, header};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto};

use super::InputError;
use super::backoff::Backoff;
use super::feed::{Ending, Feed, Read};
use super::source::port;

/// A server has so long for each of connecting, its part of TLS, and the head of its answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// A server sends elsewhere so often at most.
const MOST_REDIRECTS: usize = 5;

const USER_AGENT: &str = concat!("anabranch/", env!("CARGO_PKG_VERSION"));

/// Reads one URL.
pub struct Pull {
    url: Uri,
    stall: Duration,
    tls: TlsConnector,
}

/// Why a URL cannot be read.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("{0} does not answer: nothing within {patience} s", patience = PATIENCE.as_secs())]
    Silent(String),
    #[error("{host} cannot be reached: {error}")]
    Unreachable { host: String, error: io::Error },
    #[error("the server speaks no HTTP as expected: {0}")]
    Http(#[from] hyper::Error),
    #[error("the server answers {0}")]
    Status(StatusCode),
    #[error("the server sends elsewhere more than {MOST_REDIRECTS} times")]
    Redirects,
    #[error("the server sends to {0:?}, which is no URL that can be read")]
    Location(String),
    #[error(
        "that is a playlist (HTTP Live Streaming), no transport stream: let your ffmpeg read it, with --via-ffmpeg"
    )]
    Playlist,
}

impl Failure {
    /// Whether trying again may help.
    fn may_pass(&self) -> bool {
        match self {
            Failure::Silent(_) | Failure::Unreachable { .. } | Failure::Http(_) => true,
            Failure::Status(status) => status.is_server_error() || *status == StatusCode::TOO_MANY_REQUESTS,
            Failure::Redirects | Failure::Location(_) | Failure::Playlist => false,
        }
    }
}

impl Pull {
    /// Will read `url`.
    pub fn new(url: Uri, stall: Duration) -> Result<Pull, InputError> {
        let mut roots = RootCertStore::empty();
        let found = rustls_native_certs::load_native_certs();
        roots.add_parsable_certificates(found.certs);
        if roots.is_empty() && url.scheme() == Some(&Scheme::HTTPS) {
            let words: Vec<String> = found.errors.iter().map(ToString::to_string).collect();
            return Err(InputError::NoCertificates(words.join(", ")));
        }
        Ok(Pull { url, stall, tls: TlsConnector::from(Arc::new(tls(roots))) })
    }

    /// Reads, again and again.
    pub async fn run(self, mut feed: Feed) {
        let mut backoff = Backoff::default();
        while !feed.is_unwanted() {
            let began = Instant::now();
            let (words, may_pass) = match self.open().await {
                Ok(mut answer) => {
                    feed.begin("the server has answered, and nothing has come yet");
                    let ending = match feed.pump(&mut answer, self.stall).await {
                        Ending::Over if !feed.has_video() => Ending::NothingInIt,
                        ending => ending,
                    };
                    // A file that is over comes again, as fast.
                    let too_fast = feed.too_fast().filter(|_| matches!(ending, Ending::Over));
                    let words = too_fast.map_or(ending.to_string(), |too_fast| format!("{ending}: {too_fast}"));
                    (words, !matches!(ending, Ending::NoTransportStream(_) | Ending::NothingInIt))
                }
                Err(failure) => (failure.to_string(), failure.may_pass()),
            };
            let wait = backoff.on_failure(began.elapsed());
            let words = format!("{words}; it is asked again in {} s", wait.as_secs_f64());
            if may_pass {
                feed.note_waiting(words)
            } else {
                feed.note_failed(words)
            }
            sleep(wait).await;
        }
    }

    async fn open(&self) -> Result<Answer, Failure> {
        let mut url = self.url.clone();
        for _ in 0..=MOST_REDIRECTS {
            let (response, connection) = self.ask(&url).await?;
            let status = response.status();
            if status.is_redirection() {
                let location = response.headers().get(header::LOCATION).map(HeaderValue::as_bytes).unwrap_or_default();
                let location = String::from_utf8_lossy(location);
                url = redirect(&url, &location).ok_or_else(|| Failure::Location(location.into_owned()))?;
                continue;
            }
            if !status.is_success() {
                return Err(Failure::Status(status));
            }
            let kind = response.headers().get(header::CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
            if String::from_utf8_lossy(kind).to_ascii_lowercase().contains("mpegurl") {
                return Err(Failure::Playlist);
            }
            return Ok(Answer { body: response.into_body(), _connection: connection });
        }
        Err(Failure::Redirects)
    }

    async fn ask(&self, url: &Uri) -> Result<(Response<Incoming>, Connection), Failure> {
        let is_secure = url.scheme() == Some(&Scheme::HTTPS);
        let authority = url.authority().expect("it was checked where it came from");
        let host = authority.host().trim_start_matches('[').trim_end_matches(']');
        let port = port(url).expect("it was checked where it came from");
        let silent = || Failure::Silent(authority.to_string());
        let unreachable = |error| Failure::Unreachable { host: authority.to_string(), error };

        let stream = timeout(PATIENCE, TcpStream::connect((host, port)));
        let stream = stream.await.map_err(|_| silent())?.map_err(unreachable)?;
        if !is_secure {
            return request(stream, url).await;
        }
        let name = ServerName::try_from(host.to_owned()).map_err(|error| unreachable(io::Error::other(error)))?;
        let stream = timeout(PATIENCE, self.tls.connect(name, stream));
        request(stream.await.map_err(|_| silent())?.map_err(unreachable)?, url).await
    }
}

async fn request<S>(stream: S, url: &Uri) -> Result<(Response<Incoming>, Connection), Failure>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    // What is wrong with it, the body says.
    let connection = Connection(tokio::spawn(async { _ = connection.await }));
    let request = Request::get(url.path_and_query().map_or("/", PathAndQuery::as_str))
        .header(header::HOST, url.authority().map_or("", |authority| authority.as_str()))
        .header(header::USER_AGENT, USER_AGENT)
        .header(header::ACCEPT, "*/*")
        .body(Empty::<Bytes>::new())
        .expect("a URL's parts are those of a request");
    let answer = timeout(PATIENCE, sender.send_request(request)).await;
    Ok((
        answer.map_err(|_| Failure::Silent(url.authority().map(ToString::to_string).unwrap_or_default()))??,
        connection,
    ))
}

/// Moves the bytes of a connection, until it is dropped.
struct Connection(JoinHandle<()>);

impl Drop for Connection {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// What a server sends.
struct Answer {
    body: Incoming,
    _connection: Connection,
}

impl Read for Answer {
    async fn read(&mut self) -> io::Result<Option<Bytes>> {
        while let Some(frame) = self.body.frame().await {
            if let Ok(data) = frame.map_err(io::Error::other)?.into_data() {
                return Ok(Some(data));
            }
        }
        Ok(None)
    }
}

/// Where `location` is, said by `base` (RFC 9110, 10.2.2; RFC 3986, 5.2, but for paths with dots, which are
/// the server's to read). Nobody is sent from `https` to where everybody reads along.
fn redirect(base: &Uri, location: &str) -> Option<Uri> {
    let location = location.split('#').next()?;
    let (scheme, authority) = (base.scheme_str()?, base.authority()?);
    let url = if location
        .split_once("://")
        .is_some_and(|(scheme, _)| scheme.chars().all(|letter| letter.is_ascii_alphabetic()))
    {
        location.to_owned()
    } else if location.starts_with("//") {
        format!("{scheme}:{location}")
    } else if location.starts_with('/') {
        format!("{scheme}://{authority}{location}")
    } else if location.is_empty() {
        return None;
    } else {
        let path = base.path();
        let folder = if location.starts_with('?') { path } else { &path[..=path.rfind('/')?] };
        format!("{scheme}://{authority}{folder}{location}")
    };
    let url: Uri = url.parse().ok()?;
    let is_readable = match url.scheme_str()? {
        "https" => true,
        "http" => scheme == "http",
        _ => false,
    };
    let (authority, _) = (url.authority()?, port(&url)?);
    (is_readable && !authority.host().is_empty() && !authority.as_str().contains('@')).then_some(url)
}

/// Servers are believed whom the system's authorities vouch for.
fn tls(roots: RootCertStore) -> ClientConfig {
    ClientConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("the provider knows TLS 1.2 and 1.3")
        .with_root_certificates(roots)
        .with_no_client_auth()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sent_to(base: &str, location: &str) -> Option<String> {
        redirect(&base.parse().unwrap(), location).map(|url| url.to_string())
    }

    #[test]
    fn a_server_sends_elsewhere() {
        let base = "http://host:81/a/b?c";
        for (location, expected) in [
            ("https://other/x", Some("https://other/x")),
            ("//other/x", Some("http://other/x")),
            ("/x?y", Some("http://host:81/x?y")),
            ("x", Some("http://host:81/a/x")),
            ("?y", Some("http://host:81/a/b?y")),
            ("x?to=http://z", Some("http://host:81/a/x?to=http://z")),
            ("", None),
            ("ftp://other/", None),
            ("http://user@other/", None),
            ("http://other:99999/", None),
            ("http://other:0/", None),
        ] {
            assert_eq!(sent_to(base, location).as_deref(), expected, "{location}");
        }
        assert_eq!(sent_to("https://host/", "http://host/"), None, "where everybody reads along");
    }

    #[tokio::test]
    async fn a_server_is_believed_if_an_authority_vouches_for_its_name() {
        let authority = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let (certificate, key) = (authority.cert.der().clone(), authority.signing_key.serialize_der());
        let config =
            tokio_rustls::rustls::ServerConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()))
                .with_safe_default_protocol_versions()
                .unwrap()
                .with_no_client_auth()
                .with_single_cert(vec![certificate.clone()], key.try_into().unwrap())
                .unwrap();
        let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let Ok(mut stream) = acceptor.accept(stream).await else { continue };
                let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nvideo";
                tokio::io::AsyncWriteExt::write_all(&mut stream, answer).await.unwrap();
                let _ = tokio::io::AsyncReadExt::read(&mut stream, &mut [0; 1000]).await;
            }
        });
        let pull = |host: &str, roots| Pull {
            url: format!("https://{host}:{port}/").parse().unwrap(),
            stall: PATIENCE,
            tls: TlsConnector::from(Arc::new(tls(roots))),
        };
        let mut known = RootCertStore::empty();
        known.add(certificate).unwrap();
        let mut answer = pull("localhost", known.clone()).open().await.unwrap();
        assert_eq!(answer.read().await.unwrap().unwrap(), "video");
        for (host, roots, words) in
            [("localhost", RootCertStore::empty(), "UnknownIssuer"), ("127.0.0.1", known, "not valid for name")]
        {
            let failure = pull(host, roots).open().await.err().unwrap();
            assert!(failure.to_string().contains(words), "{failure}");
        }
        server.abort();
    }

    proptest! {
        #[test]
        fn wherever_a_server_sends_is_a_url_or_refused(location in "[ -~]{0,60}") {
            if let Some(url) = redirect(&"http://host/a/b".parse().unwrap(), &location) {
                prop_assert!(url.authority().is_some() && url.scheme().is_some());
            }
        }
    }
}
