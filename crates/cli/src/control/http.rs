//! As much of HTTP/1.1 (RFC 9112) as a scraper of metrics needs: GET and HEAD of `/metrics`, one
//! request a connection.

/// Longest head of a request, bytes.
pub const HEAD_BYTES_MAX: usize = 8 << 10;
/// What ends it.
pub const HEAD_END: &[u8] = b"\r\n\r\n";

/// The answer to a request with this head; `metrics` is asked for when they are wanted.
pub fn answer(head: &[u8], metrics: impl FnOnce() -> String) -> Vec<u8> {
    let line = head.split(|&byte| byte == b'\r').next().unwrap_or_default();
    let mut words = line.split(|&byte| byte == b' ');
    let (method, target, version) = (words.next(), words.next(), words.next());
    let is_http = version.is_some_and(|it| it.starts_with(b"HTTP/1.")) && words.next().is_none();
    let path = target.and_then(|it| it.split(|&byte| byte == b'?').next());
    match (method, path) {
        _ if !is_http => refuse("400 Bad Request", ""),
        (Some(b"GET"), Some(b"/metrics")) => whole(&metrics(), true),
        (Some(b"HEAD"), Some(b"/metrics")) => whole(&metrics(), false),
        (Some(b"GET" | b"HEAD"), _) => refuse("404 Not Found", ""),
        _ => refuse("405 Method Not Allowed", "Allow: GET, HEAD\r\n"),
    }
}

/// The answer to a head that is too long.
pub fn too_long() -> Vec<u8> {
    refuse("431 Request Header Fields Too Large", "")
}

fn whole(body: &str, shown: bool) -> Vec<u8> {
    let kind = "text/plain; version=0.0.4; charset=utf-8";
    let head = head("200 OK", &format!("Content-Type: {kind}\r\n"), body.len());
    if shown { head + body } else { head }.into_bytes()
}

fn refuse(status: &str, fields: &str) -> Vec<u8> {
    let body = format!("{status}; the metrics are at /metrics\n");
    (head(status, &format!("Content-Type: text/plain\r\n{fields}"), body.len()) + &body).into()
}

fn head(status: &str, fields: &str, bytes: usize) -> String {
    format!("HTTP/1.1 {status}\r\n{fields}Content-Length: {bytes}\r\nConnection: close\r\n\r\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_told_apart() {
        for (line, status) in [
            ("GET /metrics HTTP/1.1", "200"),
            ("GET /metrics?x=1 HTTP/1.0", "200"),
            ("HEAD /metrics HTTP/1.1", "200"),
            ("GET / HTTP/1.1", "404"),
            ("POST /metrics HTTP/1.1", "405"),
            ("GET /metrics", "400"),
            ("GET /metrics HTTP/1.1 x", "400"),
            ("", "400"),
            ("\0\u{ff}", "400"),
        ] {
            let head = format!("{line}\r\nHost: x\r\n\r\n");
            let said = String::from_utf8(answer(head.as_bytes(), || "up 1\n".to_owned())).unwrap();
            assert!(said.starts_with(&format!("HTTP/1.1 {status} ")), "{line}: {said}");
            let body = said.split_once("\r\n\r\n").unwrap().1;
            assert_eq!(body == "up 1\n", status == "200" && line.starts_with("GET"), "{line}");
        }
    }
}
