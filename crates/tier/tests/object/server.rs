//! A server that speaks S3, for a test: SeaweedFS, which scripts/run-tests installs.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Where its program is.
const PROGRAM: &str = "NEARSIDE_WEED";
const IS_INNER: &str = "NEARSIDE_TEST_INNER";
const KEY: &str = "near";
const SECRET: &str = "side";

/// A server, which ends when this goes, or the thread that started it.
struct Server {
    child: Child,
    port: u16,
    dir: tempfile::TempDir,
    /// Sockets that it makes elsewhere.
    sockets: [String; 4],
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
        for socket in &self.sockets {
            drop(std::fs::remove_file(socket));
        }
    }
}

/// Ports that nobody has just now.
fn free_ports<const N: usize>() -> [u16; N] {
    let listeners: Vec<TcpListener> =
        (0..N).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    std::array::from_fn(|index| listeners[index].local_addr().unwrap().port())
}

impl Server {
    /// Starts it; gives none where it ended before it answered, for another process may take a port
    /// between the choice and the start.
    fn start(program: &Path) -> Option<Server> {
        let dir = tempfile::tempdir().unwrap();
        let identities = format!(
            r#"{{"identities":[{{"name":"{KEY}","credentials":
            [{{"accessKey":"{KEY}","secretKey":"{SECRET}"}}],"actions":["Admin"]}}]}}"#
        );
        std::fs::write(dir.path().join("s3.json"), identities).unwrap();
        let [s3, s3_grpc, master, master_grpc, volume, volume_grpc, filer, filer_grpc] =
            free_ports();
        // it is told to die with this thread: a test that is killed leaves nothing behind
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]).arg(program).arg("-logdir=.");
        command.args(["server", "-dir=.", "-ip=127.0.0.1", "-ip.bind=127.0.0.1"]);
        command.args(["-master.telemetry=false", "-master.volumeSizeLimitMB=64", "-volume.max=8"]);
        command.args(["-filer", "-s3", "-s3.config=s3.json", "-s3.iam=false"]);
        command.args(["-s3.port.iceberg=0", "-s3.port.lance=0"]);
        command.args(["-filer.localSocket=filer.sock", "-s3.localSocket=s3.sock"]);
        for (name, port) in [
            ("s3.port", s3),
            ("s3.port.grpc", s3_grpc),
            ("master.port", master),
            ("master.port.grpc", master_grpc),
            ("volume.port", volume),
            ("volume.port.grpc", volume_grpc),
            ("filer.port", filer),
            ("filer.port.grpc", filer_grpc),
        ] {
            command.arg(format!("-{name}={port}"));
        }
        let log = std::fs::File::create(dir.path().join("log")).unwrap();
        command.current_dir(dir.path()).stdin(Stdio::null());
        command.stdout(log.try_clone().unwrap()).stderr(log);
        let child = command.spawn().unwrap();
        let sockets = [
            ("s3", s3_grpc),
            ("master", master_grpc),
            ("volume", volume_grpc),
            ("filer", filer_grpc),
        ]
        .map(|(of, port)| format!("/tmp/seaweedfs-{of}-grpc-{port}.sock"));
        let mut server = Server { child, port: s3, dir, sockets };
        server.answers().then_some(server)
    }

    /// Waits until it does.
    fn answers(&mut self) -> bool {
        let started = Instant::now();
        while started.elapsed() < Duration::from_secs(120) && !self.has_ended() {
            if std::net::TcpStream::connect(("127.0.0.1", self.port)).is_ok() {
                return true;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        false
    }

    /// Whether it ended by itself, which is said: one of its parts may find its port taken only
    /// after the part that speaks S3 answers.
    fn has_ended(&mut self) -> bool {
        let ended = self.child.try_wait().unwrap();
        if let Some(status) = ended {
            let log = std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default();
            println!("the server ended, {status}: {log}");
        }
        ended.is_some()
    }
}

/// Whether this is the process that runs the body.
pub fn is_inner() -> bool {
    std::env::var_os(IS_INNER).is_some()
}

/// Runs the body of the test `name` with a server that the environment names.
pub fn on_s3(name: &str, body: impl FnOnce()) {
    if is_inner() {
        return body();
    }
    let Some(program) = std::env::var_os(PROGRAM) else {
        println!("skipped: {PROGRAM} names no program of SeaweedFS");
        return;
    };
    for _ in 0..3 {
        let Some(mut server) = Server::start(Path::new(&program)) else { continue };
        let output = inner(name, server.port);
        if has_passed(&output) || !server.has_ended() {
            return show(&output);
        }
    }
    panic!("{} does not stay", program.display());
}

/// What the body of the test `name` said, in a process of its own whose environment says that S3 is
/// at that port.
pub fn inner(name: &str, port: u16) -> Output {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", name, "--nocapture"]).env(IS_INNER, "1");
    command.env("AWS_ENDPOINT_URL", format!("http://127.0.0.1:{port}"));
    command.env("AWS_ALLOW_HTTP", "true").env("AWS_REGION", "us-east-1");
    command.env("AWS_ACCESS_KEY_ID", KEY).env("AWS_SECRET_ACCESS_KEY", SECRET);
    command.stdin(Stdio::null()).output().unwrap()
}

fn has_passed(output: &Output) -> bool {
    output.status.success() && String::from_utf8_lossy(&output.stdout).contains("1 passed")
}

/// Fails unless it passed.
pub fn show(output: &Output) {
    println!("{}", String::from_utf8_lossy(&output.stdout));
    println!("{}", String::from_utf8_lossy(&output.stderr));
    assert!(has_passed(output), "see above");
}
