//! Users of one device at a server: killed ones, and ones that stand still and go on.

use crate::battery::{LEASE, make, open, read, write};
use crate::common::filled;
use crate::server::on_s3;
use pool::{Device, Transfer};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tier::ObjectDevice;

const URL: &str = "s3://bucket/leased";
const IS_USER: &str = "NEARSIDE_TEST_USER";

/// A process that has the device, and writes to it until that fails.
struct User(Child);

impl Drop for User {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

impl User {
    /// Runs this very test again.
    fn start(test: &str) -> User {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", test, "--nocapture"]).env(IS_USER, "1");
        let mut user = User(command.stdout(Stdio::piped()).spawn().unwrap());
        user.says("has it");
        user
    }

    fn signal(&self, name: &str) {
        let kill = Command::new("kill").args(["-s", name, &self.0.id().to_string()]).status();
        assert!(kill.unwrap().success());
    }

    /// Waits for a line with these words.
    fn says(&mut self, words: &str) -> String {
        let mut out = BufReader::with_capacity(1, self.0.stdout.as_mut().unwrap());
        loop {
            let mut line = String::new();
            assert!(out.read_line(&mut line).unwrap() > 0, "it ended without \"{words}\"");
            if line.contains(words) {
                return line;
            }
        }
    }
}

/// What the other process does.
fn use_it() {
    let device = open(URL);
    println!("has it");
    loop {
        let written = device.transfer(&mut [Transfer::Write(20, &filled(1, 1))]);
        if let Err(error) = written {
            println!("stopped: {error}");
            let mut room = filled(0, 1);
            assert!(device.transfer(&mut [Transfer::Read(20, &mut room)]).is_err());
            return;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Kills a user of the device and takes its lease over. Returns whether the next `open` after that
/// waits for no lease.
fn is_given_back_after_a_kill(name: &str) -> bool {
    let user = User::start(name);
    let error = ObjectDevice::open(URL, false, LEASE).unwrap_err();
    assert!(matches!(error, pool::Error::DeviceInUse(_)), "{error}");
    drop(user);
    let started = Instant::now();
    let device = open(URL);
    assert!(started.elapsed() >= LEASE * 9 / 10, "{:?}", started.elapsed());
    assert!(read(&device, 20, 1) == filled(1, 1));
    drop(device);
    let started = Instant::now();
    drop(open(URL));
    started.elapsed() < LEASE
}

#[test]
fn a_device_whose_user_was_killed_can_be_had_when_its_lease_is_stale() {
    let name = "lease::a_device_whose_user_was_killed_can_be_had_when_its_lease_is_stale";
    on_s3(name, || {
        if std::env::var_os(IS_USER).is_some() {
            return use_it();
        }
        drop(make(URL));
        // A busy machine delays some of the last opens. A lease that is not given back delays all.
        assert!((0..5).any(|_| is_given_back_after_a_kill(name)), "the lease is not given back");
    });
}

#[test]
fn a_user_that_stood_still_while_another_took_over_writes_nothing_more() {
    let name = "lease::a_user_that_stood_still_while_another_took_over_writes_nothing_more";
    on_s3(name, || {
        if std::env::var_os(IS_USER).is_some() {
            return use_it();
        }
        drop(make(URL));
        let mut user = User::start(name);
        user.signal("STOP");
        let device = open(URL);
        write(&device, 20, &filled(9, 1));
        user.signal("CONT");
        let said = user.says("stopped");
        assert!(said.contains("lease"), "{said}");
        assert!(user.0.wait().unwrap().success());
        assert!(read(&device, 20, 1) == filled(9, 1), "what the new user wrote");
        write(&device, 21, &filled(3, 1));
    });
}
