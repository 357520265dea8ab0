//! A headless Chromium, as its driver lets a test have one: WebDriver (W3C), JSON over HTTP/1.1.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serde_json::{Value, json};

/// What it is started with; it talks to nobody but the server that it is sent to. The sandbox takes
/// rights that a container does not give, and pages here are our own.
const FLAGS: [&str; 9] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
];
/// The driver, and who has it end when a test is killed.
const CONFINED: [&str; 8] = [
    "setpriv",
    "--pdeathsig=KILL",
    "unshare",
    "--pid",
    "--fork",
    "--kill-child",
    "--mount-proc",
    "chromedriver",
];
/// Longest time for one command: a browser that begins, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// A browser with one window. All its processes end with it, and what it kept.
pub struct Browser {
    driver: Driver,
    session: String,
}

/// The driver, in a process group of its own, to which the browser belongs, too.
struct Driver {
    process: Child,
    port: u16,
    home: tempfile::TempDir,
}

impl Browser {
    /// Starts one.
    pub fn start() -> Browser {
        let driver = Driver::start();
        let data = format!("--user-data-dir={}", driver.home.path().join("data").display());
        let flags: Vec<&str> = FLAGS.into_iter().chain([data.as_str()]).collect();
        let wanted = json!({
            "goog:chromeOptions": { "args": flags },
            "goog:loggingPrefs": { "browser": "ALL" },
        });
        let wanted = json!({ "capabilities": { "alwaysMatch": wanted } });
        let begun = driver.ask("POST", "/session", &wanted);
        let session = format!("/session/{}", begun["sessionId"].as_str().unwrap());
        Browser { driver, session }
    }

    fn command(&self, name: &str, about: &Value) -> Value {
        self.driver.ask("POST", &format!("{}/{name}", self.session), about)
    }

    /// Goes to a page.
    pub fn go(&self, url: &str) {
        self.command("url", &json!({ "url": url }));
    }

    /// What the body of a function returns in the page; a promise is waited for.
    pub fn run(&self, script: &str) -> Value {
        self.command("execute/sync", &json!({ "script": script, "args": [] }))
    }

    /// The text of what a selector finds first.
    pub fn text(&self, selector: &str) -> String {
        let found = self.run(&format!("return document.querySelector('{selector}')?.textContent"));
        found.as_str().unwrap_or_default().to_owned()
    }

    /// Waits until the body of a function returns true in the page.
    pub fn wait_until(&self, what: &str, script: &str) {
        let until = Instant::now() + PATIENCE;
        while self.run(script) != true {
            let body = || self.text("body");
            assert!(Instant::now() < until, "waited until {what}: {}\n{:?}", body(), self.said());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// What the console was told since the last time: faults, and what the page may not do.
    pub fn said(&self) -> Vec<String> {
        let log = self.command("se/log", &json!({ "type": "browser" }));
        let entries = log.as_array().unwrap().iter();
        entries.map(|entry| entry["message"].as_str().unwrap().to_owned()).collect()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // In order, so that nothing is written any more to what is then removed. What is left after
        // that is killed with the driver.
        let _ = self.driver.try_ask("DELETE", &self.session, &Value::Null);
    }
}

impl Driver {
    fn start() -> Driver {
        let home = tempfile::tempdir().unwrap();
        // where that is allowed: in a namespace of processes, which ends with this one, however
        // that ends
        let mut probe = Command::new("unshare");
        probe.args(["--pid", "--fork", "--mount-proc", "true"]).stderr(Stdio::null());
        let words: &[&str] = match probe.status().is_ok_and(|status| status.success()) {
            true => &CONFINED,
            false => &["chromedriver"],
        };
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).arg("--port=0").env("HOME", home.path()).process_group(0);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let why = "chromedriver does not start; scripts/setup tests installs it, and Chromium";
        let process = command.spawn().expect(why);
        let mut driver = Driver { process, port: 0, home };
        let mut lines = BufReader::new(driver.process.stdout.take().unwrap()).lines();
        let port = lines.find_map(|line| {
            let line = line.ok()?;
            let (_, port) = line.rsplit_once("started successfully on port ")?;
            port.trim_end_matches('.').parse().ok()
        });
        driver.port = port.expect(why);
        driver
    }

    fn ask(&self, method: &str, path: &str, about: &Value) -> Value {
        let (status, value) = self.try_ask(method, path, about).unwrap();
        assert_eq!(status, 200, "{method} {path} {about}: {value:#}");
        value
    }

    /// Status and value of its answer.
    fn try_ask(&self, method: &str, path: &str, about: &Value) -> std::io::Result<(u16, Value)> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let body = if about.is_null() { String::new() } else { about.to_string() };
        let bytes = body.len();
        let head = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n");
        stream.write_all(format!("{head}Content-Length: {bytes}\r\n\r\n{body}").as_bytes())?;
        let mut answer = BufReader::new(stream);
        let (mut first, mut length) = (String::new(), 0);
        answer.read_line(&mut first)?;
        loop {
            let mut line = String::new();
            answer.read_line(&mut line)?;
            match line.trim_end().split_once(':') {
                Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                    length = value.trim().parse().unwrap();
                }
                Some(_) => {}
                None => break,
            }
        }
        let mut said = vec![0; length];
        answer.read_exact(&mut said)?;
        let status = first.split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap_or(0);
        let mut value: Value = serde_json::from_slice(&said)?;
        Ok((status, value["value"].take()))
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        let _ = killpg(Pid::from_raw(self.process.id() as i32), Signal::SIGKILL);
        let _ = self.process.wait();
    }
}
