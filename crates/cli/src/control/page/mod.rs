//! The page for a browser: files that are compiled in, without anything from elsewhere.
//!
//! `page.js` asks for `/sample.json` again and again, `sample.js` tells what happened between two
//! samples, as `sample.rs` does, `chart.js` draws.

/// One of its files.
#[derive(Clone, Copy, Debug)]
pub struct File {
    /// Its media type.
    pub kind: &'static str,
    /// What it holds.
    pub text: &'static str,
}

const SCRIPT: &str = "text/javascript; charset=utf-8";

/// The file at this path, if there is one.
pub fn file(path: &[u8]) -> Option<File> {
    let (kind, text) = match path {
        b"/" => ("text/html; charset=utf-8", include_str!("index.html")),
        b"/style.css" => ("text/css; charset=utf-8", include_str!("style.css")),
        b"/icon.svg" => ("image/svg+xml", include_str!("icon.svg")),
        b"/page.js" => (SCRIPT, include_str!("page.js")),
        b"/sample.js" => (SCRIPT, include_str!("sample.js")),
        b"/chart.js" => (SCRIPT, include_str!("chart.js")),
        _ => return None,
    };
    Some(File { kind, text })
}
