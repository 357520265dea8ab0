use super::*;

const LOOPBACK: &str = "127.0.0.1:9399";

/// Status, fields and body of the answer to these lines at this address.
fn asked(at: &str, lines: &str) -> (String, String, String) {
    let head = format!("{lines}\r\n\r\n");
    let sample = || crate::sample::tests::sample(1000, 2.0);
    let said = String::from_utf8(answer(head.as_bytes(), at.parse().unwrap(), sample)).unwrap();
    let (head, body) = said.split_once("\r\n\r\n").unwrap();
    let (line, fields) = head.split_once("\r\n").unwrap();
    let status = line.strip_prefix("HTTP/1.1 ").unwrap().split(' ').next().unwrap();
    (status.to_owned(), format!("{fields}\r\n"), body.to_owned())
}

#[test]
fn requests_are_told_apart() {
    for (line, status) in [
        ("GET /metrics HTTP/1.1", "200"),
        ("GET /metrics?x=1 HTTP/1.0", "200"),
        ("HEAD /metrics HTTP/1.1", "200"),
        ("GET / HTTP/1.1", "200"),
        ("GET /?x HTTP/1.1", "200"),
        ("GET /sample.json HTTP/1.1", "200"),
        ("GET /index.html HTTP/1.1", "404"),
        ("GET /../page.js HTTP/1.1", "404"),
        ("GET //metrics HTTP/1.1", "404"),
        ("GET http://x/metrics HTTP/1.1", "404"),
        ("GET  HTTP/1.1", "404"),
        ("HEAD /other HTTP/1.1", "404"),
        ("POST /metrics HTTP/1.1", "405"),
        ("OPTIONS /sample.json HTTP/1.1", "405"),
        ("get / HTTP/1.1", "405"),
        ("GET /metrics", "400"),
        ("GET /metrics HTTP/1.1 x", "400"),
        ("", "400"),
        ("\0\u{ff}", "400"),
    ] {
        let (found, fields, body) = asked(LOOPBACK, &format!("{line}\r\nHost: localhost"));
        assert_eq!(found, status, "{line}: {fields}");
        assert_eq!(body.contains("; there are /, "), status != "200", "{line}: {body}");
    }
}

#[test]
fn each_path_has_its_kind_and_head_tells_the_same_without_the_body() {
    for (path, kind, begins) in [
        ("/metrics", "text/plain; version=0.0.4; charset=utf-8", "# HELP nearside_info"),
        ("/sample.json", "application/json", "{\"pool\":\"/p\","),
        ("/", "text/html; charset=utf-8", "<!doctype html>"),
        ("/style.css", "text/css; charset=utf-8", ""),
        ("/icon.svg", "image/svg+xml", "<svg"),
        ("/page.js", "text/javascript; charset=utf-8", "//"),
        ("/sample.js", "text/javascript; charset=utf-8", "//"),
        ("/chart.js", "text/javascript; charset=utf-8", "//"),
    ] {
        let (_, fields, body) = asked(LOOPBACK, &format!("GET {path} HTTP/1.1\r\nHost: localhost"));
        assert!(fields.contains(&format!("Content-Type: {kind}\r\n")), "{path}: {fields}");
        assert!(fields.contains(&format!("Content-Length: {}\r\n", body.len())), "{path}");
        assert!(body.starts_with(begins) && body.len() > 100, "{path}: {body}");
        let of_head = asked(LOOPBACK, &format!("HEAD {path} HTTP/1.1\r\nHost: localhost"));
        assert_eq!(of_head, ("200".to_owned(), fields, String::new()), "{path}");
    }
}

#[test]
fn the_sample_is_what_stats_prints() {
    let (_, _, body) = asked(LOOPBACK, "GET /sample.json HTTP/1.1");
    let sample: Sample = serde_json::from_str(&body).unwrap();
    assert_eq!(serde_json::to_string(&sample).unwrap() + "\n", body);
    assert_eq!(sample.calls[0].count, 1000);
}

#[test]
fn every_answer_guards_who_reads_it() {
    for line in ["GET / HTTP/1.1", "GET /sample.json HTTP/1.1", "GET /x HTTP/1.1", "x"] {
        let (_, fields, _) = asked(LOOPBACK, line);
        for guard in [
            "Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; ",
            "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\n",
            "X-Content-Type-Options: nosniff\r\n",
            "Cache-Control: no-store\r\n",
            "Referrer-Policy: no-referrer\r\n",
        ] {
            assert!(fields.contains(guard), "{line}: {fields}");
        }
        assert!(!fields.contains("Access-Control"), "{fields}");
        assert!(!fields.contains("  ") && fields.lines().all(|it| it.contains(": ")), "{fields}");
    }
}

#[test]
fn a_name_of_somebody_elses_leads_to_no_loopback_address() {
    let own =
        ["localhost", "LOCALHOST:1", "127.0.0.1:9399", "[::1]:9399", "10.0.0.1", "near.localhost"];
    let others = ["evil.example", "evil.example:9399", "127.0.0.1.evil.example", "[evil.example]"];
    let others =
        [&others[..], &["localhost.evil.example:80", "localhost.", "x.y\u{e4}", "near", ""]]
            .concat();
    let status = |at, host: &str, path: &str| {
        asked(at, &format!("GET {path} HTTP/1.1\r\nAccept: */*\r\nhOST:\t{host} \r\nX: y")).0
    };
    for path in ["/", "/metrics", "/sample.json", "/page.js"] {
        for at in ["127.0.0.1:1", "127.9.9.9:1", "[::1]:1", "[::ffff:127.0.0.1]:1"] {
            assert!(own.iter().all(|host| status(at, host, path) == "200"), "{at} {path}");
            for host in &others {
                assert_eq!(status(at, host, path), "403", "{at} {host} {path}");
            }
        }
        assert_eq!(status("10.0.0.1:1", "near.example:9399", path), "200", "{path}");
    }
    // who says two names is not believed the better one
    let two = "GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example";
    assert_eq!(asked(LOOPBACK, two).0, "403");
    let (_, _, body) = asked(LOOPBACK, "GET / HTTP/1.1\r\nHost: evil.example");
    assert!(body.contains("ask for an address or localhost"), "{body}");
}
