//! Files that change while the service runs: what they say then holds at once, for those who are
//! here, too; and what makes no sense changes nothing.

use std::time::{Duration, Instant};

use nearside::{AttachOptions, LockKind, OpenFlags, Pool};
use rcgen::ExtendedKeyUsagePurpose;
use server::Options;

use crate::authority::{Authority, DAY, LOOKED, Wanted, program, put};
use crate::served::{LONG_LINGER, SOON, Served};

fn reading_and_writing() -> OpenFlags {
    OpenFlags::new().read(true).write(true).create(true)
}

/// What a program is told whose session has ended, and that is not let in again.
fn told(pool: &Pool) -> String {
    let since = Instant::now();
    loop {
        match pool.metadata("/") {
            Err(error) => break error.to_string(),
            Ok(_) => std::thread::sleep(Duration::from_millis(10)),
        }
        assert!(since.elapsed() < SOON, "it is still let in");
    }
}

struct Two {
    served: Served,
    authority: Authority,
    /// Of ben, whose certificate has serial number 21.
    ben: Pool,
}

impl Two {
    fn new() -> Two {
        Two::valid((-DAY, DAY)).unwrap()
    }

    /// His certificate is of use from when to when, in seconds from now.
    fn valid(valid: (i64, i64)) -> nearside::Result<Two> {
        // Long, so that a wait for the revoked client would show.
        let served = Served::lingering(LONG_LINGER, Options::default());
        let authority = Authority::kept(&served.dir().join("authority"));
        let wanted = Wanted { valid, ..program(&["ben"], 21) };
        authority.certify(&wanted, &served.dir().join("ben"));
        let access = served.dir().join("server/access");
        let own = std::fs::read_to_string(&access).unwrap();
        put(&access, &(own.clone() + &own.replace("own", "ben")), 0o644);
        let ben = Pool::attach_with(&served.address, &Two::options(&served))?;
        Ok(Two { served, authority, ben })
    }

    fn options(served: &Served) -> AttachOptions {
        let credentials = Some(served.dir().join("ben"));
        AttachOptions { credentials, ..AttachOptions::default() }
    }

    fn put(&self, name: &str, text: &str) {
        put(&self.served.dir().join("server").join(name), text, 0o644);
    }

    /// Has ben lock a file, and somebody else wait for that; does `act`; how long he waited.
    fn waited(&self, act: impl FnOnce()) -> Duration {
        let own = self.served.attach();
        let theirs = own.open_file("/locked", &reading_and_writing()).unwrap();
        own.set_permissions("/locked", 0o666).unwrap();
        let his = self.ben.open_file("/locked", &reading_and_writing()).unwrap();
        his.lock(LockKind::Write, ..).unwrap();
        assert!(!theirs.try_lock(LockKind::Write, ..).unwrap());
        let since = Instant::now();
        std::thread::scope(|threads| {
            threads.spawn(|| theirs.lock(LockKind::Write, ..).unwrap());
            act();
        });
        theirs.unlock(..).unwrap();
        since.elapsed()
    }
}

#[test]
fn who_is_revoked_is_sent_away_at_once_and_keeps_nothing() {
    let two = Two::new();
    let own = two.served.attach();
    own.write("/file", "still here").unwrap();
    two.put("revoked.pem", &two.authority.revoke(&[99]));
    std::thread::sleep(LOOKED);
    two.ben.metadata("/").unwrap();
    let waited = two.waited(|| two.put("revoked.pem", &two.authority.revoke(&[99, 21])));
    assert!(waited < LONG_LINGER / 2, "{waited:?}: he is not waited for");
    let words = told(&two.ben);
    assert!(words.contains("is revoked") && words.contains("does not trust"), "{words}");
    let error = Pool::attach_with(&two.served.address, &Two::options(&two.served)).unwrap_err();
    assert!(error.to_string().contains("is revoked"), "{error}");
    assert_eq!(own.read("/file").unwrap(), b"still here");
    // with a new certificate he comes again
    two.authority.certify(&program(&["ben"], 22), &two.served.dir().join("ben"));
    let again = Pool::attach_with(&two.served.address, &Two::options(&two.served)).unwrap();
    assert_eq!(again.read("/file").unwrap(), b"still here");
    drop((own, again, two.ben));
    two.served.finish();
}

/// Who is here stays so when the certificate by which he came expires; not when it is revoked then.
#[test]
fn who_is_revoked_is_sent_away_also_when_his_certificate_has_expired() {
    // On a busy machine ben may attach after the certificate has expired; the next one is valid for
    // longer.
    let come = [3, 12, 48].into_iter().find_map(|seconds| match Two::valid((-DAY, seconds)) {
        Ok(two) => Some((two, seconds)),
        Err(error) => {
            assert!(error.to_string().contains("expired"), "{error}");
            None
        }
    });
    let (two, seconds) = come.expect("ben attaches while the certificate is valid");
    std::thread::sleep(Duration::from_secs(seconds as u64 + 1));
    two.put("revoked.pem", &two.authority.revoke(&[99]));
    std::thread::sleep(LOOKED);
    two.ben.metadata("/").unwrap();
    two.put("revoked.pem", &two.authority.revoke(&[99, 21]));
    let words = told(&two.ben);
    assert!(words.contains("expired") || words.contains("is revoked"), "{words}");
    drop(two.ben);
    two.served.finish();
}

#[test]
fn who_loses_his_line_is_sent_away_at_once_and_another_line_is_another_session() {
    let two = Two::new();
    let own = two.served.attach();
    let access = std::fs::read_to_string(two.served.dir().join("server/access")).unwrap();
    let without: String = access.split_inclusive('\n').take(1).collect();
    let waited = two.waited(|| two.put("access", &without));
    assert!(waited < LONG_LINGER / 2, "{waited:?}");
    let words = told(&two.ben);
    assert!(words.contains("no line for ben"), "{words}");
    two.put("access", &(without.clone() + "ben 4000:4000\n"));
    let ben = Pool::attach_with(&two.served.address, &Two::options(&two.served)).unwrap();
    own.set_permissions("/", 0o777).unwrap();
    ben.write("/his", "x").unwrap();
    assert_eq!(own.metadata("/his").unwrap().attr().uid, 4000);
    two.put("access", &(without + "ben 4001:4000\n"));
    let words = told(&ben);
    assert!(words.contains("its user or rights have changed"), "{words}");
    own.metadata("/").unwrap();
    drop((own, ben, two.ben));
    two.served.finish();
}

#[test]
fn what_makes_no_sense_changes_nothing() {
    let two = Two::new();
    let own = two.served.attach();
    let server = two.served.dir().join("server");
    let read = |name: &str| std::fs::read_to_string(server.join(name)).unwrap();
    let access = read("access");
    for (name, text) in [
        ("access", "own 0:0\nben x:y\n"),
        ("access", "\u{0}\u{1}"),
        ("ca.pem", "nobody"),
        ("ca.pem", ""),
        ("revoked.pem", "-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----\n"),
        ("cert.pem", two.authority.pem()),
        ("key.pem", "none"),
    ] {
        let before = std::fs::read_to_string(server.join(name));
        two.put(name, text);
        std::thread::sleep(LOOKED);
        two.ben.metadata("/").unwrap();
        let another = two.served.attach();
        another.metadata("/").unwrap();
        match before {
            Ok(before) => {
                put(&server.join(name), &before, if name == "key.pem" { 0o600 } else { 0o644 })
            }
            Err(_) => std::fs::remove_file(server.join(name)).unwrap(),
        }
    }
    // and what is right again holds again
    two.put("access", access.split_inclusive('\n').next().unwrap());
    assert!(told(&two.ben).contains("no line for ben"));
    drop((own, two.ben));
    two.served.finish();
}

#[test]
fn a_certificate_is_replaced_while_programs_work() {
    let two = Two::new();
    let file = two.ben.open_file("/file", &reading_and_writing().append(true));
    let own = two.served.attach();
    own.set_permissions("/", 0o777).unwrap();
    let file = file.or_else(|_| two.ben.open_file("/file", &reading_and_writing().append(true)));
    let file = file.unwrap();
    // a second authority, which both sides believe before anything of it is shown
    let next = Authority::new();
    let both = two.authority.pem().to_owned() + next.pem();
    for dir in ["server", "ben", "own"] {
        put(&two.served.dir().join(dir).join("ca.pem"), &both, 0o644);
    }
    file.append(b"1").unwrap();
    let usage = ExtendedKeyUsagePurpose::ServerAuth;
    let names = ["127.0.0.1"];
    next.certify(&Wanted { usage, ..program(&names, 1) }, &two.served.dir().join("server"));
    put(&two.served.dir().join("server/ca.pem"), &both, 0o644);
    file.append(b"2").unwrap();
    let after = Pool::attach_with(&two.served.address, &Two::options(&two.served)).unwrap();
    assert_eq!(after.read("/file").unwrap(), b"12");
    next.certify(&program(&["ben"], 5), &two.served.dir().join("ben"));
    let again = Pool::attach_with(&two.served.address, &Two::options(&two.served)).unwrap();
    assert_eq!(again.read("/file").unwrap(), b"12");
    // the first authority is believed no more: who came by it goes
    put(&two.served.dir().join("server/ca.pem"), next.pem(), 0o644);
    own.set_permissions("/", 0o755).err();
    assert!(told(&own).contains("knows no authority"));
    again.metadata("/").unwrap();
    drop((own, file, after, again, two.ben));
    two.served.finish();
}
