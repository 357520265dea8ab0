//! The page of `--http`, in a browser: what it draws and tells, and what it makes of a server that
//! goes away and of one that lies.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use nearside::Pool;

use crate::browser::Browser;
use crate::support::{Scratch, binary, can_mount};

/// A pool's name that would run a script, were it taken for HTML.
const HOSTILE: &str = "<img src=x onerror=document.title='run'><script>alert(1)<!script>";
/// What is written and read again and again: over all slices.
const BYTES: usize = 1 << 20;

/// Returns true when each slice has its row in the table, with bytes that are read and written.
const RATES: &str = "
    const rows = [...document.querySelectorAll('#slices tbody tr')]
        .map((row) => [...row.cells].map((cell) => cell.textContent));
    const heads = [...document.querySelectorAll('#slices thead th')].map((it) => it.textContent);
    const columns = ['Read', 'Written'].map((name) => heads.indexOf(name));
    const isRate = (text) => /^[1-9][0-9.,]* [KMG]iB\\/s$/.test(text);
    return rows.map((row) => row[0]).join() === '0,1' &&
        rows.every((row) => columns.every((at) => isRate(row[at])));
";

/// A service of a pool; mounted, where a test can mount.
struct Service<'a> {
    scratch: &'a Scratch,
    name: String,
    mount: Option<tempfile::TempDir>,
}

impl Service<'_> {
    /// Of two slices on nodes of their own, of which it is known what accesses take.
    fn begin(scratch: &Scratch) -> Service<'_> {
        let name = format!("@{HOSTILE}");
        let options = ["--slices=2", "--virtual-nodes=2", "--size=32M", "--durability=process"];
        scratch.ok(&[&["format", &name], &options[..]].concat());
        scratch.ok(&["calibrate", &name, "--seconds=1"]);
        let mount = can_mount().then(|| tempfile::tempdir().unwrap());
        let service = Service { scratch, name, mount };
        service.serve("127.0.0.1:0");
        service
    }

    fn serve(&self, address: &str) {
        let http = format!("--http={address}");
        let mount = self.mount.iter().flat_map(|dir| ["--mount", dir.path().to_str().unwrap()]);
        let words = ["serve", &self.name, &http].into_iter().chain(mount);
        self.scratch.ok(&words.collect::<Vec<_>>());
    }

    fn stop(&self) {
        self.scratch.ok(&["stop", &self.name]);
    }

    fn pool(&self) -> PathBuf {
        self.scratch.root().join(HOSTILE)
    }

    /// Writes and reads, as a process that is attached and through the mount.
    fn work(&self, attached: &Pool, content: &[u8]) {
        attached.write("/file", content).unwrap();
        assert!(attached.read("/file").unwrap() == content);
        if let Some(mount) = &self.mount {
            std::fs::write(mount.path().join("mounted"), content).unwrap();
            assert!(std::fs::read(mount.path().join("mounted")).unwrap() == content);
        }
    }

    /// Does `test` while it works.
    fn while_it_works(&self, test: impl FnOnce()) {
        /// Ends the work also where the test fails.
        struct End<'a>(&'a AtomicBool);
        impl Drop for End<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Release);
            }
        }
        let attached = Pool::attach(self.pool()).unwrap();
        let (content, ended) = (binary(BYTES), AtomicBool::new(false));
        std::thread::scope(|threads| {
            threads.spawn(|| {
                while !ended.load(Ordering::Acquire) {
                    self.work(&attached, &content);
                }
            });
            let _end = End(&ended);
            test();
        });
    }
}

impl Drop for Service<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.scratch.run(&["stop", &self.name]);
        }
    }
}

/// Returns true when the chart has a line of so many points at least, for each of the series.
fn drawn(chart: &str, series: &[&str], points: usize) -> String {
    let each = format!(
        "const lines = [...document.querySelectorAll('[data-chart={chart}] path[data-series]')]; \
         const points = (line) => (line.getAttribute('d').match(/[ML]/g) ?? []).length; \
         const names = lines.map((line) => line.dataset.series); \
         return lines.every((line) => points(line) >= {points})"
    );
    format!("{each} && JSON.stringify(names) === '{}'", serde_json::json!(series))
}

#[test]
fn a_browser_shows_what_the_slices_do_also_after_their_server_was_away() {
    let scratch = Scratch::new();
    let service = Service::begin(&scratch);
    let address = scratch.http_address_of(&service.pool());
    let browser = Browser::start();
    browser.go(&format!("http://{address}/"));
    service.while_it_works(|| {
        let slices = ["slice 0", "slice 1"];
        for chart in ["read", "written", "remote", "busy", "log", "cache"] {
            browser.wait_until(chart, &drawn(chart, &slices, 3));
        }
        browser.wait_until("calls", &drawn("calls", &["all calls"], 3));
        browser.wait_until("moves", &drawn("moves", &["parts of files", "threads"], 3));
        browser.wait_until("gain", &drawn("gain", &["since the server began"], 3));
        if service.mount.is_some() {
            browser.wait_until("p99", &drawn("p99", &["all calls"], 3));
            let calls = "const names = [...document.querySelectorAll('#calls tbody th')]\
                 .map((cell) => cell.textContent); \
                 return names.includes('write') && names.includes('read')";
            browser.wait_until("the calls are told", calls);
        }
        browser.wait_until("the table has rates of each slice", RATES);
        assert_eq!(browser.text("[data-chart=read] .value"), "0 B/s");
    });
    assert!(browser.text("#pool").ends_with(HOSTILE), "{}", browser.text("#pool"));
    let injected = "return document.querySelectorAll('img, #pool *, script:not([src])').length";
    assert_eq!(browser.run(injected), 0);
    assert!(browser.run("return document.title").as_str().unwrap().starts_with("nearside "));
    assert_eq!(browser.said(), Vec::<String>::new());

    service.stop();
    let says = |words: &str| format!("return document.body.textContent.includes('{words}')");
    browser.wait_until("it says so", &says("The server does not answer"));
    assert!(browser.text("#pool").ends_with(HOSTILE), "what it said last stays");
    service.serve(&address.to_string());
    let back = "return !document.body.textContent.includes('The server does not answer')";
    browser.wait_until("it goes on by itself", back);
    // one before, the other from the second sample of the new server on
    let lines = "return document.querySelector('[data-chart=read] path').getAttribute('d')\
         .match(/M/g).length >= 2";
    browser.wait_until("there are two lines", lines);
    for said in browser.said() {
        assert!(said.contains("/sample.json - Failed to load resource: net::ERR_"), "{said}");
    }
    drop(browser);
    service.stop();
}

#[test]
fn counts_that_go_backwards_are_of_a_new_server_and_no_rates() {
    let scratch = Scratch::new();
    let service = Service { scratch: &scratch, name: "@pool".to_owned(), mount: None };
    service.serve("127.0.0.1:0");
    let browser = Browser::start();
    browser.go(&format!("http://{}/", scratch.http_address()));
    let told = browser.run(
        "const { since, quantile, bucketEnd } = await import('./sample.js'); \
         const before = await (await fetch('sample.json')).json(); \
         before.serving_seconds = 1; \
         const later = (change) => { \
             const now = structuredClone(before); \
             now.serving_seconds += 2; \
             change(now); \
             return since(now, before); \
         }; \
         const [slice, call] = [before.slices[0], before.calls[0]]; \
         const more = later((now) => { \
             now.slices[0].copied.remote_read_bytes += 300; \
             now.slices[0].workers.written_bytes += 100; \
             now.slices[1].log_written_bytes += 50; \
         }); \
         const less = later((now) => { \
             now.slices[0].log_written_bytes -= 1; \
             now.slices[0].copied.local_written_bytes = -5; \
             now.calls = now.calls.map((call) => ({ ...call, count: 0, buckets: [] })); \
         }); \
         return { \
             more: more.slices, less, \
             first: since(before, null), \
             other: later((now) => { now.process += 1; }), \
             restarted: later((now) => { now.serving_seconds = 0.001; }), \
             same: later((now) => { now.serving_seconds -= 2; }), \
             ends: [0, 3, 4, 30, 60].map(bucketEnd), \
             half: quantile([[60, 500], [30, 500]], 0.5), \
             most: quantile([[60, 500], [30, 500]], 0.99), \
             none: quantile([[30, 0]], 0.99), \
         };",
    );
    let (slice, other) = (&told["more"][0], &told["more"][1]);
    assert_eq!((&slice["readPerSecond"], &slice["writtenPerSecond"]), (&150.into(), &50.into()));
    assert_eq!(slice["remotePercent"], 75);
    assert_eq!(
        (&other["writtenPerSecond"], &other["remotePercent"].is_null()),
        (&25.into(), &true)
    );
    let less = &told["less"];
    assert_eq!(less["slices"][0]["writtenPerSecond"], 0, "{less}");
    assert_eq!((&less["callsPerSecond"], less["p99"].is_null()), (&0.into(), true), "{less}");
    for unknown in ["first", "other", "restarted", "same", "none"] {
        assert!(told[unknown].is_null(), "{unknown}: {told}");
    }
    // as the server has them
    let ends = [0, 3, 4, 30, 60].map(nearside::files::meter::bucket_end);
    assert_eq!(told["ends"], serde_json::json!(ends));
    assert_eq!((&told["half"], &told["most"]), (&ends[3].into(), &ends[4].into()));
    drop(browser);
    service.stop();
}
