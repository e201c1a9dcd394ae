//! The page, as it was built into the program, and plain words where there is none.

use std::path::Path;

use axum::extract;
use axum::http::{StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use include_dir::{Dir, File, include_dir};

use super::answer;

static PAGE: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/page");

/// What there is, where no page was built in.
const PATHS: &str = "\
Anabranch: a live stream\n\
\n\
/stream.ts      the stream, for players: mpv, VLC, ffplay\n\
/index.m3u8     the stream as HTTP Live Streaming\n\
/api/overview   how things stand, as JSON\n\
/events         the same each second, as server-sent events\n\
/metrics        figures for Prometheus\n\
/ingest         takes a stream by PUT or POST, if the source is to come in here\n";

/// `GET /`.
pub async fn index() -> Response {
    front("index.html", PATHS)
}

/// The page of this name, or `paths` where none was built in.
pub fn front(name: &str, paths: &'static str) -> Response {
    match PAGE.get_file(name) {
        Some(file) => serve(file, "no-cache"),
        None => ([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], paths).into_response(),
    }
}

/// `GET /assets/*`: most names end in a hash of what is in them, and browsers may keep those.
pub async fn asset(uri: Uri, extract::Path(path): extract::Path<String>) -> Response {
    match PAGE.get_file(format!("assets/{path}")) {
        Some(file) if is_hashed(file.path()) => serve(file, "public, max-age=31536000, immutable"),
        Some(file) => serve(file, "no-cache"),
        None => other(uri).await,
    }
}

/// Any other path: a file beside the page (its icon), or nothing. Pages of other programs are none of this one's.
pub async fn other(uri: Uri) -> Response {
    let path = uri.path().strip_prefix('/').filter(|path| !path.is_empty() && !path.ends_with(".html"));
    match path.and_then(|path| PAGE.get_file(path)) {
        Some(file) => serve(file, "no-cache"),
        None => answer(&uri, StatusCode::NOT_FOUND, "there is nothing at this path; / says what there is"),
    }
}

fn serve(file: &'static File<'static>, keep: &'static str) -> Response {
    let headers = [(header::CONTENT_TYPE, kind(file.path())), (header::CACHE_CONTROL, keep)];
    (headers, file.contents()).into_response()
}

/// Whether a name is that of a bundler: `index-BkL2x_9d.js`.
fn is_hashed(path: &Path) -> bool {
    const DIGITS: usize = 8;
    let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    stem.len() > DIGITS && stem.is_char_boundary(stem.len() - DIGITS) && stem[..stem.len() - DIGITS].ends_with('-')
}

/// Of the kinds of files that pages are built of.
fn kind(path: &Path) -> &'static str {
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("html") => "text/html; charset=utf-8",
        Some("js" | "mjs") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("json" | "map") => "application/json",
        Some("svg") => "image/svg+xml",
        Some("png") => "image/png",
        Some("ico") => "image/x-icon",
        Some("woff2") => "font/woff2",
        Some("wasm") => "application/wasm",
        Some("txt" | "md") => "text/plain; charset=utf-8",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn browsers_keep_what_can_only_change_with_its_name() {
        assert!(is_hashed(Path::new("assets/index-BkL2x_9d.js")) && is_hashed(Path::new("hls-D1x--9dZ.js")));
        for name in ["assets/icon.svg", "index.js", "12345678.js", "a-b.js", "größe-é.js"] {
            assert!(!is_hashed(Path::new(name)), "{name}");
        }
    }

    #[tokio::test]
    async fn pages_of_other_programs_are_not_served() {
        for (path, expected) in [
            ("/coordinator.html", StatusCode::NOT_FOUND),
            ("/onion.html", StatusCode::NOT_FOUND),
            ("/assets/icon.svg", StatusCode::OK),
        ] {
            assert_eq!(other(path.parse().unwrap()).await.status(), expected, "{path}");
        }
    }

    #[test]
    fn files_of_the_page_have_kinds_that_browsers_take() {
        for (name, expected) in [
            ("index.html", "text/html; charset=utf-8"),
            ("a/b.js", "text/javascript; charset=utf-8"),
            ("x", "application/octet-stream"),
        ] {
            assert_eq!(kind(Path::new(name)), expected);
        }
    }
}
