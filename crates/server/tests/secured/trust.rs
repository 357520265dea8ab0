//! Who is let in, who is not, and what each side is told.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use nearside::{AttachOptions, Pool};
use rcgen::ExtendedKeyUsagePurpose;

use crate::authority::{Authority, DAY, Wanted, program, put};
use crate::peer::Peer;
use crate::served::{SOON, Served};

/// What is said to who attaches with these credentials, and is not let in.
fn refused(address: &str, credentials: &Path) -> String {
    let options =
        AttachOptions { credentials: Some(credentials.into()), ..AttachOptions::default() };
    let error = Pool::attach_with(address, &options).unwrap_err();
    assert_eq!(error.errno(), rustix::io::Errno::ACCESS.raw_os_error(), "{error}");
    let words = error.to_string();
    assert!(words.starts_with(address) && !words.contains('\n'), "{words}");
    words
}

fn says(words: &str, parts: &[&str]) {
    for part in parts {
        assert!(words.contains(part), "{words}\nsays nothing of {part:?}");
    }
}

#[test]
fn names_and_addresses_of_the_service_are_taken_as_its_certificate_has_them() {
    let served = Served::new();
    let port = served.address.rsplit_once(':').unwrap().1;
    let localhost = served.attach_at(&format!("near://localhost:{port}"));
    localhost.write("/file", "by name").unwrap();
    assert_eq!(served.attach().read("/file").unwrap(), b"by name");
    drop(localhost);
    let dir = served.dir().join("server");
    let usage = ExtendedKeyUsagePurpose::ServerAuth;
    let other = Wanted { usage, ..program(&["near.example", "10.9.8.7"], 9) };
    Authority::kept(&served.dir().join("authority")).certify(&other, &dir);
    let words = refused(&served.address, &served.dir().join("own"));
    says(&words, &["certificate is for near.example, 10.9.8.7, not for 127.0.0.1"]);
    served.finish();
}

#[test]
fn both_sides_believe_their_own_authorities_alone() {
    let served = Served::new();
    let (stranger, dir) = (Authority::new(), served.dir().join("stranger"));
    stranger.program("own", &dir);
    says(&refused(&served.address, &dir), &["is not trusted", "of no authority in ca.pem here"]);
    // one that believes the service, which does not believe it
    let own = Authority::kept(&served.dir().join("authority"));
    put(&dir.join("ca.pem"), own.pem(), 0o644);
    says(&refused(&served.address, &dir), &["does not trust this program", "knows no authority"]);
    served.finish();
}

#[test]
fn certificates_are_of_use_at_their_time_and_for_their_side() {
    let served = Served::new();
    let (authority, dir) =
        (Authority::kept(&served.dir().join("authority")), served.dir().join("theirs"));
    for valid in [(-2 * DAY, -DAY), (DAY, 2 * DAY)] {
        authority.certify(&Wanted { valid, ..program(&["own"], 3) }, &dir);
        let words = refused(&served.address, &dir);
        says(&words, &["has expired or is not valid yet", "the clock here says 20", " UTC"]);
    }
    let usage = ExtendedKeyUsagePurpose::ServerAuth;
    authority.certify(&Wanted { usage, ..program(&["own"], 3) }, &dir);
    says(&refused(&served.address, &dir), &["does not trust this program"]);
    // and the service's
    let (own, server) = (served.dir().join("own"), served.dir().join("server"));
    let usage = ExtendedKeyUsagePurpose::ServerAuth;
    for (valid, word) in [((-2 * DAY, -DAY), "was valid until"), ((DAY, 2 * DAY), "valid from")] {
        let wanted =
            Wanted { valid, usage: usage.clone(), ..program(&["localhost", "127.0.0.1"], 4) };
        authority.certify(&wanted, &server);
        let words = refused(&served.address, &own);
        says(&words, &["is not trusted", word, "the clock here says", "set the clock"]);
    }
    served.finish();
}

#[test]
fn who_has_no_line_in_the_access_file_or_no_name_is_told_so() {
    let served = Served::new();
    let authority = Authority::kept(&served.dir().join("authority"));
    let dir = served.dir().join("theirs");
    let attach = |names: &[&str]| {
        authority.certify(&program(names, 5), &dir);
        let options = AttachOptions { credentials: Some(dir.clone()), ..AttachOptions::default() };
        Pool::attach_with(&served.address, &options)
    };
    says(&attach(&["ben"]).unwrap_err().to_string(), &["no line for ben", "ben 1000:1000"]);
    says(&attach(&["10.1.2.3"]).unwrap_err().to_string(), &["no DNS name"]);
    // not what it says besides
    says(&attach(&["ben", "own"]).unwrap_err().to_string(), &["no line for ben"]);
    attach(&["OWN", "ben"]).unwrap().metadata("/").unwrap();
    served.finish();
}

#[test]
fn a_key_that_others_can_read_is_no_secret() {
    let served = Served::new();
    let key = served.dir().join("own/key.pem");
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o644)).unwrap();
    let error = Pool::attach_with(&served.address, &served.options()).unwrap_err();
    says(&error.to_string(), &["own/key.pem", "others can read this private key", "chmod 600"]);
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
    drop(served.attach());
    std::fs::remove_file(&key).unwrap();
    let error = Pool::attach_with(&served.address, &served.options()).unwrap_err();
    says(&error.to_string(), &["own/key.pem: No such file"]);
    served.finish();
}

#[test]
fn who_encrypts_and_who_does_not_are_told_that_the_other_does() {
    let mut served = Served::new();
    let plain = served.address.replace("near://", "near+insecure://");
    let error = Pool::attach(&plain).unwrap_err().to_string();
    says(&error, &[&plain, "speaks TLS", "say near://"]);
    let door = TcpListener::bind("127.0.0.1:0").unwrap();
    let insecure = format!("near://{}", door.local_addr().unwrap());
    served.service.listen(door, server::Rights::new(0, 0)).unwrap();
    let words = refused(&insecure, &served.dir().join("own"));
    says(&words, &["does not speak TLS 1.3", "--insecure"]);
    // one that is no service at all
    let stranger = TcpListener::bind("127.0.0.1:0").unwrap();
    let http = format!("near://{}", stranger.local_addr().unwrap());
    let speaks = std::thread::spawn(move || {
        let (mut stream, _) = stranger.accept().unwrap();
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap();
        let _ = stream.read(&mut [0; 4096]);
    });
    says(&refused(&http, &served.dir().join("own")), &["does not speak TLS"]);
    speaks.join().unwrap();
    served.finish();
}

#[test]
fn a_program_without_a_certificate_is_sent_away() {
    let served = Served::new();
    let mut believed = rustls::RootCertStore::empty();
    use rustls::pki_types::{CertificateDer, pem::PemObject};
    believed.add(CertificateDer::from_pem_file(served.dir().join("own/ca.pem")).unwrap()).unwrap();
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(believed)
        .with_no_client_auth();
    let name = "127.0.0.1".try_into().unwrap();
    let mut begun = rustls::ClientConnection::new(config.into(), name).unwrap();
    let mut stream = TcpStream::connect(served.address.strip_prefix("near://").unwrap()).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    let error = loop {
        match begun.complete_io(&mut stream).and_then(|_| begun.read_tls(&mut stream)) {
            Ok(_) => match begun.process_new_packets() {
                Ok(_) => {}
                Err(error) => break error,
            },
            Err(error) => break error.downcast::<rustls::Error>().unwrap(),
        }
    };
    assert_eq!(error, rustls::Error::AlertReceived(rustls::AlertDescription::CertificateRequired));
    assert_eq!(served.service.sessions(), 0);
    served.finish();
}

/// One that shows somebody's secret, but not his certificate.
#[test]
fn nobody_comes_back_as_another_identity() {
    let served = Served::new();
    let authority = Authority::kept(&served.dir().join("authority"));
    let (theirs, access) = (served.dir().join("theirs"), served.dir().join("server/access"));
    authority.program("ben", &theirs);
    let all = std::fs::read_to_string(&access).unwrap();
    // of the same user
    put(&access, &(all.clone() + &all.replace("own", "ben")), 0o644);
    let own = served.dir().join("own");
    let (mut first, identity) = Peer::attach(&served.address, &own);
    let flags = wire::Flags { read: true, write: true, create: true, ..wire::Flags::default() };
    let (number, ino, proof) = first.open("/file", flags);
    let mut ben = Peer::connect(&served.address, &theirs);
    let said = ben.greet(Some(identity.clone()));
    assert!(matches!(said, wire::Welcome::Stranger(_)), "{said:?}");
    assert_eq!(served.service.sessions(), 1, "the first one has not gone");
    // its certificate may be another one
    authority.certify(&program(&["own"], 77), &own);
    let mut again = Peer::connect(&served.address, &own);
    let said = again.greet(Some(identity));
    assert!(matches!(said, wire::Welcome::Attached { knows: true, .. }), "{said:?}");
    let (flags, locks) = (Some(flags), Vec::new());
    let restored = again.ask(&wire::Request::Restore { number, ino, flags, proof, locks }, &[]);
    assert_eq!(restored.0, wire::Reply::Done);
    drop((first, ben, again));
    served.wait_for_sessions(0);
    served.finish();
}

#[test]
fn who_hangs_up_as_a_service_that_dies_does_is_tried_again() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("near://{}", silent.local_addr().unwrap());
    let served = Served::new();
    let since = std::time::Instant::now();
    let options = served.options();
    // it hangs up, as one that dies does; the program tries again
    let dies = std::thread::spawn(move || {
        for _ in 0..3 {
            drop(silent.accept().unwrap());
        }
        let (mut stream, _) = silent.accept().unwrap();
        stream.write_all(b"no").unwrap();
        std::thread::sleep(Duration::from_millis(50));
        stream.write_all(b"nsense").unwrap();
        let _ = stream.read(&mut [0; 4096]);
    });
    let error = Pool::attach_with(&address, &options).unwrap_err().to_string();
    says(&error, &["does not speak TLS"]);
    // A client that went on trying would do so for 30 s.
    assert!(since.elapsed() < Duration::from_secs(25));
    dies.join().unwrap();
    served.finish();
}
