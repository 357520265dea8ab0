//! A link between two machines that goes down, is slow, and loses packets: a namespace of this
//! machine's network is the other one.

use std::cell::RefCell;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};
use std::time::Duration;

use super::Remote;
use super::losses::nothing_is_lost;
use crate::support::has;

/// A namespace with a link to it, which goes away at the end.
struct Link {
    /// What the namespace and the two ends of the link are called.
    name: String,
    /// What the addresses of both ends begin with.
    network: String,
    /// Turns it down and up: a process that this one starts closes files of the mount when it
    /// begins, and so waits for the link.
    shell: Child,
    says: RefCell<(ChildStdin, BufReader<ChildStdout>)>,
}

fn ip(words: &str) -> Output {
    Command::new("ip").args(words.split(' ')).output().unwrap()
}

impl Link {
    /// None where this machine lets nobody make one.
    fn new() -> Option<Link> {
        if ["ip", "tc", "nsenter"].iter().any(|program| !has(program)) {
            return None;
        }
        let number = std::process::id() % 60_000;
        let name = format!("near{number}");
        let network = format!("10.233.{}.", number % 250);
        let mut shell = Command::new("sh");
        shell.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut shell = shell.spawn().unwrap();
        let (hears, says) = (shell.stdin.take().unwrap(), shell.stdout.take().unwrap());
        let says = RefCell::new((hears, BufReader::new(says)));
        let link = Link { name: name.clone(), network: network.clone(), shell, says };
        for words in [
            format!("netns add {name}"),
            format!("link add {name}a type veth peer name {name}b netns {name}"),
            format!("addr add {network}1/24 dev {name}a"),
            format!("link set {name}a up"),
            format!("-n {name} addr add {network}2/24 dev {name}b"),
            format!("-n {name} link set {name}b up"),
        ] {
            let output = ip(&words);
            if !output.status.success() {
                println!("skipped: no namespace of the network can be made: {output:?}");
                return None;
            }
        }
        Some(link)
    }

    fn turn(&self, way: &str) {
        let (hears, says) = &mut *self.says.borrow_mut();
        writeln!(hears, "ip link set {}a {way} && echo done", self.name).unwrap();
        let mut line = String::new();
        says.read_line(&mut line).unwrap();
        assert_eq!(line, "done\n");
    }

    /// Has packets come late, and some not at all. False where the kernel cannot do that.
    fn disturb(&self) -> bool {
        let words = format!("qdisc add dev {}a root netem delay 3ms 2ms loss 3%", self.name);
        Command::new("tc").args(words.split(' ')).output().unwrap().status.success()
    }

    /// Mounts what lies at this address from the other side of the link.
    fn mount(&self, remote: &Remote) -> PathBuf {
        let dir = remote.scratch.mnt();
        let output = Command::new("nsenter")
            .arg(format!("--net=/run/netns/{}", self.name))
            .args(["timeout", "180", env!("CARGO_BIN_EXE_nearside"), "mount", &remote.address])
            .arg(&dir)
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        dir
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        let _ = self.shell.kill();
        let _ = self.shell.wait();
        ip(&format!("link del {}a", self.name));
        ip(&format!("netns del {}", self.name));
    }
}

#[test]
fn programs_wait_for_a_link_that_goes_down() {
    let Some(link) = Link::new() else { return };
    let listen = format!("--listen={}1:0", link.network);
    let Some(remote) = Remote::served_at(&listen, &["--trust-network", "--squash=none"]) else {
        return;
    };
    let mnt = link.mount(&remote);
    if !link.disturb() {
        println!("this kernel disturbs no packets (sch_netem)");
    }
    nothing_is_lost(&mnt, |_| {
        link.turn("down");
        std::thread::sleep(Duration::from_millis(300));
        link.turn("up");
    });
    remote.finish();
}
