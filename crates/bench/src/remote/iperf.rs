//! iperf3: bytes that go over a connection, and that nobody looks at.

use super::peers::{Ended, free_port, program};
use crate::error::{Result, io};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Time in which its server is ready.
const READY_MAX: Duration = Duration::from_secs(10);

/// How many bytes a second it sends, of so many; or why it is not known. `cpus`: of who sends, and
/// of who receives.
pub fn rate(
    bytes: u64,
    cpus: Option<(u32, u32)>,
) -> Result<std::result::Result<f64, &'static str>> {
    let port = free_port()?.to_string();
    let mut serves = program("iperf3", cpus.map(|(_, server)| server));
    serves.args(["--server", "--one-off", "--bind", "127.0.0.1", "--port", &port]);
    let Ok(server) = serves.spawn() else { return Ok(Err("there is no setpriv(1)")) };
    let mut server = Ended(server);
    let start = Instant::now();
    loop {
        let mut sends = program("iperf3", cpus.map(|(client, _)| client));
        sends.args(["--client", "127.0.0.1", "--port", &port, "--json"]);
        sends.args(["--length", "1M", "--bytes", &bytes.to_string()]);
        let said = output(&mut sends)?;
        if let Some(rate) = said.status.success().then(|| received(&said.stdout)).flatten() {
            return Ok(Ok(rate / 8.0));
        }
        let has_ended = server.0.try_wait().map_err(io(Path::new("iperf3")))?.is_some();
        if has_ended || start.elapsed() > READY_MAX {
            return Ok(Err("not installed, or it does not work (iperf3)"));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn output(command: &mut Command) -> Result<Output> {
    command.stdout(Stdio::piped()).output().map_err(io(Path::new("iperf3")))
}

/// Bits a second, by what it says as JSON.
fn received(said: &[u8]) -> Option<f64> {
    let said: serde_json::Value = serde_json::from_slice(said).ok()?;
    said.pointer("/end/sum_received/bits_per_second")?.as_f64()
}

#[cfg(test)]
mod tests {
    use super::received;

    #[test]
    fn what_was_received_is_what_counts() {
        let said = br#"{"end": {"sum_sent": {"bits_per_second": 9.0},
                                "sum_received": {"bits_per_second": 8.0}}}"#;
        assert_eq!(received(said), Some(8.0));
        assert_eq!(received(br#"{"error": "unable to connect to server"}"#), None);
        assert_eq!(received(b""), None);
    }
}
