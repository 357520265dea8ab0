//! Devices in object stores: in this process, in a directory, and at a server that speaks S3.
#![cfg(feature = "object-store")]
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod battery;
#[path = "../common/mod.rs"]
mod common;
mod lease;
mod server;

use battery::battery;
use server::on_s3;

#[test]
fn a_store_in_this_process() {
    battery("memory:///battery", 400);
}

#[test]
fn a_directory() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("above").join("objects");
    battery(&format!("file://{}", dir.display()), 40);
    let names = std::fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
    names.sort();
    assert_eq!(names[0], "00000000", "{names:?}");
    assert!(names.ends_with(&["layout".to_owned(), "lock".to_owned()]), "{names:?}");
}

#[test]
fn a_server() {
    on_s3("a_server", || battery("s3://bucket/some/prefix", 20));
}

/// A bucket may hold devices beside each other, and one in its root.
#[test]
fn several_devices_in_a_bucket() {
    on_s3("several_devices_in_a_bucket", || battery::beside("s3://bucket"));
}

#[test]
fn a_place_that_makes_no_sense_is_refused() {
    for url in ["s3://", "s3:///x", "file://x", "file:///", "memory://x", "gs://bucket/x", "x"] {
        let error = tier::make_object_device(url, 1 << 20).unwrap_err().to_string();
        assert!(error.contains(url), "{error}");
    }
}

/// Nobody answers: an error comes, and not never.
#[test]
fn a_server_that_is_not_there_is_an_error() {
    let name = "a_server_that_is_not_there_is_an_error";
    // a port that nobody has any more
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    if !server::is_inner() {
        return server::show(&server::inner(name, port));
    }
    let error = tier::open_object_device("s3://bucket/x", false).unwrap_err().to_string();
    assert!(error.contains("s3://bucket/x") && error.contains("error"), "{error}");
}
