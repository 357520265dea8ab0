//! As much of HTTP/1.1 (RFC 9112) as a browser with our page and a scraper of metrics need: GET and
//! HEAD of a few paths, one request a connection.
//!
//! Who can reach the port may read all of it, and change nothing. Of a browser that reads it only
//! our own page learns anything: no other origin is let in (no CORS, and see `is_for_us`), and the
//! page itself runs and loads nothing but what we serve (`GUARDS`).

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use super::page;
use crate::metrics;
use crate::sample::Sample;

/// Longest head of a request, bytes.
pub const HEAD_BYTES_MAX: usize = 8 << 10;
/// What ends it.
pub const HEAD_END: &[u8] = b"\r\n\r\n";

/// What every answer tells a browser: it runs and loads only files of this server, takes none for
/// something else than it is, shows none in somebody else's page, keeps none, and tells nobody
/// where it has been.
const GUARDS: &str = "Content-Security-Policy: default-src 'none'; script-src 'self'; \
    style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; \
    frame-ancestors 'none'\r\n\
    Cross-Origin-Resource-Policy: same-origin\r\n\
    X-Content-Type-Options: nosniff\r\n\
    Referrer-Policy: no-referrer\r\n\
    Cache-Control: no-store\r\n";

/// The answer to a request with this head that came to the address `at`; `sample` is asked for when
/// numbers are wanted.
pub fn answer(head: &[u8], at: SocketAddr, sample: impl FnOnce() -> Sample) -> Vec<u8> {
    let line = head.split(|&byte| byte == b'\r').next().unwrap_or_default();
    let mut words = line.split(|&byte| byte == b' ');
    let (method, target, version) = (words.next(), words.next(), words.next());
    let is_http = version.is_some_and(|it| it.starts_with(b"HTTP/1.")) && words.next().is_none();
    let path = target.and_then(|it| it.split(|&byte| byte == b'?').next());
    let shown = match (method, path) {
        _ if !is_http => return refuse("400 Bad Request", ""),
        (Some(b"GET"), Some(_)) => true,
        (Some(b"HEAD"), Some(_)) => false,
        _ => return refuse("405 Method Not Allowed", "Allow: GET, HEAD\r\n"),
    };
    if !is_for_us(head, at) {
        return refuse("403 Forbidden", "");
    }
    match path.unwrap_or_default() {
        b"/metrics" => {
            let kind = "text/plain; version=0.0.4; charset=utf-8";
            whole(kind, metrics::text(&sample()).as_bytes(), shown)
        }
        b"/sample.json" => match serde_json::to_vec(&sample()) {
            Ok(json) => whole("application/json", &[json.as_slice(), b"\n"].concat(), shown),
            Err(_) => refuse("500 Internal Server Error", ""),
        },
        path => match page::file(path) {
            Some(file) => whole(file.kind, file.text.as_bytes(), shown),
            None => refuse("404 Not Found", ""),
        },
    }
}

/// The answer to a head that is too long.
pub fn too_long() -> Vec<u8> {
    refuse("431 Request Header Fields Too Large", "")
}

/// Whether a request was meant for this server, as far as its `Host` says.
///
/// Who listens on a loopback address shows the numbers to this machine only. A page from anywhere
/// that a browser on it has open could read them all the same, by having its own name lead to
/// 127.0.0.1 (DNS rebinding): the browser takes both for one origin, but still says the name. So
/// there only addresses, `localhost` and names below it, which nobody outside can have, are
/// answered, whatever the path: `/metrics` tells no less than the page. On other addresses anybody
/// may ask who reaches them, and they have names of their network's choice. What says no name
/// is no browser.
fn is_for_us(head: &[u8], at: SocketAddr) -> bool {
    let fields = head.split(|&byte| byte == b'\n').skip(1);
    let mut hosts = fields.filter_map(|field| {
        let colon = field.iter().position(|&byte| byte == b':')?;
        let (name, value) = (field.get(..colon)?, field.get(colon + 1..)?);
        name.trim_ascii().eq_ignore_ascii_case(b"host").then(|| value.trim_ascii())
    });
    !at.ip().to_canonical().is_loopback() || hosts.all(is_local_name)
}

/// Whether nobody on other networks can have this name, which may have a port.
fn is_local_name(host: &[u8]) -> bool {
    let Ok(host) = std::str::from_utf8(host) else { return false };
    if let Some(rest) = host.strip_prefix('[') {
        return rest.split(']').next().is_some_and(|it| it.parse::<Ipv6Addr>().is_ok());
    }
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name).to_ascii_lowercase();
    let is_local = name == "localhost" || name.ends_with(".localhost");
    is_local || name.parse::<IpAddr>().is_ok()
}

fn whole(kind: &str, body: &[u8], shown: bool) -> Vec<u8> {
    let mut answer = head("200 OK", &format!("Content-Type: {kind}\r\n"), body.len());
    if shown {
        answer.extend_from_slice(body);
    }
    answer
}

fn refuse(status: &str, fields: &str) -> Vec<u8> {
    let advice = match status.starts_with("403") {
        true => "at a loopback address ask for an address or localhost, not for a name",
        false => "there are /, /metrics and /sample.json",
    };
    let body = format!("{status}; {advice}\n");
    let mut answer = head(status, &format!("Content-Type: text/plain\r\n{fields}"), body.len());
    answer.extend_from_slice(body.as_bytes());
    answer
}

fn head(status: &str, fields: &str, bytes: usize) -> Vec<u8> {
    let ends = format!("Content-Length: {bytes}\r\nConnection: close\r\n\r\n");
    format!("HTTP/1.1 {status}\r\n{fields}{GUARDS}{ends}").into_bytes()
}

#[cfg(test)]
#[path = "http_tests.rs"]
mod tests;
