//! Who may ask. The server may be on a person's machine, and that person's browser runs pages of others,
//! which can send requests here. None of them may read a private stream or put one in:
//!
//! - A page whose name was made to point here (DNS rebinding) sends that name: `Host` is an address, `localhost`
//!   or a name that the user gave, which nobody else can point anywhere.
//! - A page of another site that sends a request says so in `Origin` or `Sec-Fetch-Site`: it is refused, but
//!   for a link to the page and for sites that the user gave.
//! - A page of another site that shows this one in a frame, or its video as its own, is refused by the browser, as the
//!   answer's header fields ask it to.
//!
//! Players and programs send none of these and are let in: whom they belong to is for the address that the
//! server listens at to say.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::{self, HeaderName};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Version};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

/// Who may ask, besides programs and the server's own page.
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// Names by which the server is reached, besides addresses and `localhost`.
    pub names: Vec<String>,
    /// Sites whose pages may read from here, as browsers write them: `https://example.org`.
    pub origins: Vec<String>,
}

/// Why somebody is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum Refusal {
    #[error("the request names no host")]
    NoHost,
    #[error("the name {0:?} is none of this server's: ask by its address, or give it the name")]
    Name(String),
    #[error("pages of other sites may not read or send anything here, unless the server is told their origin")]
    OtherSite,
}

/// What a request says of where it comes from.
struct Asking<'a> {
    method: &'a Method,
    version: Version,
    path: &'a str,
    /// The host in the request's first line.
    target: Option<&'a str>,
    headers: &'a HeaderMap,
}

const SITE: &str = "sec-fetch-site";
const MODE: &str = "sec-fetch-mode";
const DESTINATION: &str = "sec-fetch-dest";

impl Access {
    /// Whether an answer may be given; to a page of which other site.
    fn judge<'a>(&self, asking: &Asking<'a>) -> Result<Option<&'a HeaderValue>, Refusal> {
        let mut hosts = asking.headers.get_all(header::HOST).iter();
        let host = match (asking.target, hosts.next()) {
            (Some(target), _) => Some(target),
            (None, Some(host)) => Some(host.to_str().map_err(|_| Refusal::NoHost)?),
            // Browsers always name one.
            (None, None) if asking.version < Version::HTTP_11 => None,
            (None, None) => return Err(Refusal::NoHost),
        };
        if hosts.next().is_some() {
            return Err(Refusal::NoHost);
        }
        if let Some(host) = host {
            let authority: Authority = host.parse().map_err(|_| Refusal::NoHost)?;
            if !self.is_mine(authority.host()) {
                return Err(Refusal::Name(authority.host().to_owned()));
            }
        }
        let origin = asking.headers.get(header::ORIGIN);
        if let Some(origin) = origin {
            if self.origins.iter().any(|allowed| allowed.as_bytes() == origin.as_bytes())
                && [Method::GET, Method::HEAD, Method::OPTIONS].contains(asking.method)
            {
                return Ok(Some(origin));
            }
            // Behind a proxy the page may have come by TLS.
            let is_mine = |scheme: &str| {
                let rest = origin.as_bytes().strip_prefix(scheme.as_bytes());
                rest.is_some() && rest == host.map(str::as_bytes)
            };
            if !is_mine("http://") && !is_mine("https://") {
                return Err(Refusal::OtherSite);
            }
        }
        let says =
            |name: &str, value: &str| asking.headers.get(name).is_some_and(|said| said.as_bytes() == value.as_bytes());
        let is_link = || {
            *asking.method == Method::GET
                && asking.path == "/"
                && says(MODE, "navigate")
                && says(DESTINATION, "document")
        };
        if asking.headers.contains_key(SITE) && !says(SITE, "same-origin") && !says(SITE, "none") && !is_link() {
            return Err(Refusal::OtherSite);
        }
        Ok(None)
    }

    fn is_mine(&self, host: &str) -> bool {
        let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
        let address = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(&host);
        // No resolver asks others for names below localhost (RFC 6761, 6.3).
        address.parse::<IpAddr>().is_ok()
            || host == "localhost"
            || host.ends_with(".localhost")
            || self.names.iter().any(|name| name.eq_ignore_ascii_case(&host))
    }
}

/// What the page may load: from here alone, and what players make up in it (media sources, workers).
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; media-src 'self' blob:; \
     connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Lets in who may ask, and tells browsers what they may do with the answer.
pub async fn guard(State(access): State<Arc<Access>>, request: Request, next: Next) -> Response {
    let asking = Asking {
        method: request.method(),
        version: request.version(),
        path: request.uri().path(),
        target: request.uri().authority().map(Authority::as_str),
        headers: request.headers(),
    };
    let (mut response, origin) = match access.judge(&asking) {
        Err(refusal) => (super::answer(request.uri(), StatusCode::FORBIDDEN, refusal), None),
        Ok(origin) => {
            let origin = origin.cloned();
            if origin.is_some() && request.method() == Method::OPTIONS {
                (preflight(), origin)
            } else {
                (next.run(request).await, origin)
            }
        }
    };
    let headers = response.headers_mut();
    let shared = if origin.is_some() { "cross-origin" } else { "same-origin" };
    for (name, value) in [
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (HeaderName::from_static("cross-origin-resource-policy"), shared),
        (header::VARY, "origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    if let Some(origin) = origin {
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    }
    response
}

/// A browser asks whether a page of another site may ask.
fn preflight() -> Response {
    let allowed = [
        (header::ACCESS_CONTROL_ALLOW_METHODS, "GET, HEAD"),
        (header::ACCESS_CONTROL_ALLOW_HEADERS, "range, cache-control"),
        (header::ACCESS_CONTROL_MAX_AGE, "600"),
    ];
    (StatusCode::NO_CONTENT, allowed).into_response()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn judge(access: &Access, method: Method, path: &str, fields: &[(&str, &str)]) -> Result<bool, Refusal> {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(HeaderName::try_from(*name).unwrap(), value.parse().unwrap());
        }
        let asking = Asking { method: &method, version: Version::HTTP_11, path, target: None, headers: &headers };
        access.judge(&asking).map(|origin| origin.is_some())
    }

    fn get(fields: &[(&str, &str)]) -> Result<bool, Refusal> {
        let access = Access { names: vec!["tv.example".into()], origins: vec!["https://friend.example".into()] };
        judge(&access, Method::GET, "/stream.ts", fields)
    }

    #[test]
    fn a_name_that_somebody_pointed_here_is_refused() {
        for host in
            ["127.0.0.1:8080", "[::1]:8080", "192.0.2.1", "localhost:80", "LOCALHOST.", "a.localhost", "TV.example:9"]
        {
            assert_eq!(get(&[("host", host)]), Ok(false), "{host}");
        }
        for host in
            ["evil.example:8080", "localhost.evil.example", "127.0.0.1.evil.example", "xlocalhost", "tv.example.evil"]
        {
            assert!(matches!(get(&[("host", host)]), Err(Refusal::Name(_))), "{host}");
        }
        assert_eq!(get(&[]), Err(Refusal::NoHost));
        assert_eq!(get(&[("host", "localhost"), ("host", "evil.example")]), Err(Refusal::NoHost));
    }

    #[test]
    fn pages_of_other_sites_are_refused_unless_they_are_given() {
        let host = ("host", "127.0.0.1:8080");
        let origin = |origin| get(&[host, ("origin", origin)]);
        assert_eq!(origin("http://127.0.0.1:8080"), Ok(false), "the page itself");
        assert_eq!(origin("https://friend.example"), Ok(true));
        for other in ["http://127.0.0.1:9090", "https://evil.example", "null", "https://friend.example.evil", "http://"]
        {
            assert_eq!(origin(other), Err(Refusal::OtherSite), "{other}");
        }
        let site = |site| get(&[host, ("sec-fetch-site", site), ("sec-fetch-mode", "no-cors")]);
        assert_eq!((site("same-origin"), site("none")), (Ok(false), Ok(false)));
        assert_eq!((site("cross-site"), site("same-site")), (Err(Refusal::OtherSite), Err(Refusal::OtherSite)));
    }

    #[test]
    fn a_friendly_page_reads_and_does_not_write() {
        let access = Access { origins: vec!["https://friend.example".into()], ..Access::default() };
        let fields = [("host", "127.0.0.1"), ("origin", "https://friend.example")];
        assert_eq!(judge(&access, Method::GET, "/stream.ts", &fields), Ok(true));
        assert_eq!(judge(&access, Method::POST, "/ingest", &fields), Err(Refusal::OtherSite));
    }

    #[test]
    fn a_link_to_the_page_is_followed_and_no_other() {
        let follow = |path, method, destination| {
            let fields = [
                ("host", "127.0.0.1"),
                ("sec-fetch-site", "cross-site"),
                ("sec-fetch-mode", "navigate"),
                ("sec-fetch-dest", destination),
            ];
            judge(&Access::default(), method, path, &fields)
        };
        assert_eq!(follow("/", Method::GET, "document"), Ok(false));
        assert_eq!(follow("/stream.ts", Method::GET, "document"), Err(Refusal::OtherSite));
        assert_eq!(follow("/", Method::GET, "iframe"), Err(Refusal::OtherSite));
        assert_eq!(follow("/", Method::POST, "document"), Err(Refusal::OtherSite));
    }

    proptest! {
        #[test]
        fn whatever_a_client_says_is_judged(host in "[ -~]{0,40}", origin in "[ -~]{0,40}") {
            let judged = get(&[("host", &host), ("origin", &origin)]);
            let own = origin == format!("http://{host}") || origin == format!("https://{host}");
            prop_assert!(judged.is_err() || own || origin == "https://friend.example");
        }
    }
}
