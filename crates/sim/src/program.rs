//! Programs as people describe them, in TOML, and those that are known by their names.

use placement::Kind;
use serde::Deserialize;
use toml::Spanned;

use crate::description::{Error, Text};
use crate::personality::{dragonfly, odinfs, ycsb};
use crate::setting::{CALL_BYTES_MAX, FILE_BYTES_MAX, FILES_MAX, THREADS_MAX};
use crate::workload::{Made, Step, Workload};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Described {
    threads: Spanned<u32>,
    /// Files that all use; none: each thread has one of its own.
    files: Option<Spanned<u32>>,
    file_bytes: Spanned<u64>,
    made: Option<Spanned<DescribedMade>>,
    file_ns: Option<Spanned<f64>>,
    thinks_ns: Option<Spanned<f64>>,
    step: Spanned<Vec<DescribedStep>>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum DescribedMade {
    There,
    Beside,
    Anywhere,
    /// `{ on = 3 }`
    On(u32),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DescribedStep {
    does: Spanned<Does>,
    kind: Option<Spanned<DescribedKind>>,
    bytes: Spanned<u64>,
    times: Option<Spanned<u32>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Does {
    Round,
    Somewhere,
    Whole,
    Make,
    Append,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum DescribedKind {
    Read,
    Write,
}

/// Most steps of a thread.
const STEPS_MAX: usize = 10_000;

/// The program that a text describes.
///
/// # Errors
/// Why it is none.
pub fn parse_workload(text: &str) -> Result<Workload, Error> {
    let (it, text): (Described, _) = (toml::from_str(text)?, Text(text));
    let why = "there are 1 to 16384 threads";
    let threads =
        text.checked(&it.threads, "threads", why, |it| (1..=THREADS_MAX).contains(&it))?;
    let why = "there are 4194304 files at most";
    let files = (it.files.as_ref())
        .map_or(Ok(0), |it| text.checked(it, "files", why, |files| files <= FILES_MAX))?;
    let why = "a file has 1 byte to 1 PiB";
    let is_length = |bytes: u64| (1..=FILE_BYTES_MAX).contains(&bytes);
    let file_bytes = text.checked(&it.file_bytes, "file_bytes", why, is_length)?;
    let time = |said: &Option<Spanned<f64>>, field| {
        said.as_ref().map_or(Ok(0.0), |said| text.time(said, field))
    };
    let (file_ns, thinks_ns) = (time(&it.file_ns, "file_ns")?, time(&it.thinks_ns, "thinks_ns")?);
    let made = match it.made.map(Spanned::into_inner) {
        None | Some(DescribedMade::There) => Made::There,
        Some(DescribedMade::Beside) => Made::Beside,
        Some(DescribedMade::Anywhere) => Made::Anywhere,
        Some(DescribedMade::On(node)) => Made::On(node),
    };
    let mut steps = Vec::new();
    for step in it.step.as_ref() {
        let times = (step.times.as_ref())
            .map_or(Ok(1), |it| text.checked(it, "times", "once at least", |times| times > 0))?;
        let made = described(&text, step, file_bytes)?;
        if steps.len() + times as usize > STEPS_MAX {
            return Err(text.wrong(&step.bytes, "step", "a thread has 10000 steps at most"));
        }
        steps.extend(std::iter::repeat_n(made, times as usize));
    }
    if steps.is_empty() {
        return Err(text.wrong(&it.step, "step", "a thread does something"));
    }
    let fio = Workload::fio(Kind::Read, 1, threads);
    Ok(Workload { steps, files, file_bytes, made, file_ns, thinks_ns, ..fio })
}

fn described(text: &Text<'_>, step: &DescribedStep, length: u64) -> Result<Step, Error> {
    let does = *step.does.as_ref();
    let most = if does == Does::Append { CALL_BYTES_MAX } else { CALL_BYTES_MAX.min(length) };
    let why = "a call has 1 byte to 1 GiB, and no more than its file";
    let bytes = text.checked(&step.bytes, "bytes", why, |bytes| (1..=most).contains(&bytes))?;
    let kind = match step.kind.as_ref().map(|kind| *kind.as_ref()) {
        Some(DescribedKind::Read) => Some(Kind::Read),
        Some(DescribedKind::Write) => Some(Kind::Write),
        None => None,
    };
    match (does, kind) {
        (Does::Round, Some(kind)) => Ok(Step::Round(kind, bytes)),
        (Does::Somewhere, Some(kind)) => Ok(Step::Somewhere(kind, bytes)),
        (Does::Whole, Some(kind)) => Ok(Step::Whole(kind, bytes)),
        (Does::Make, None | Some(Kind::Write)) => Ok(Step::Make(bytes)),
        (Does::Append, None | Some(Kind::Write)) => Ok(Step::Append(bytes)),
        (Does::Make | Does::Append, Some(Kind::Read)) => {
            Err(text.wrong(&step.does, "does", "what makes or appends writes"))
        }
        (_, None) => Err(text.wrong(&step.does, "kind", "it is missing: read or write")),
    }
}

/// Programs that are known, for so many threads, or as many as their authors had: Filebench's as
/// Dragonfly ran them (heavy), its varmail as OdinFS did, and YCSB's.
#[must_use]
pub fn known_workloads(threads: Option<u32>) -> Vec<(&'static str, Workload)> {
    let ours = threads.unwrap_or(28);
    let varmail = odinfs(ours).into_iter().filter(|it| it.name == "varmail");
    let all = dragonfly(true).into_iter().chain(varmail).chain(ycsb(ours));
    let named = |it: crate::personality::Personality| {
        let threads = threads.unwrap_or(it.workload.threads);
        (it.name, Workload { threads, ..it.workload })
    };
    all.map(named).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FINE: &str = r#"threads = 16
files = 64
file_bytes = 1048576
made = { on = 1 }
thinks_ns = 500

[[step]]
does = "somewhere"
kind = "read"
bytes = 4096
times = 3

[[step]]
does = "append"
bytes = 100
"#;

    #[test]
    fn what_is_described_is_done() {
        let it = parse_workload(FINE).unwrap();
        let read = Step::Somewhere(Kind::Read, 4096);
        assert_eq!(it.steps, [read, read, read, Step::Append(100)]);
        assert_eq!((it.threads, it.files, it.made), (16, 64, Made::On(1)));
        assert_eq!((it.file_bytes, it.thinks_ns, it.file_ns), (1 << 20, 500.0, 0.0));
        let there = parse_workload(&FINE.replace("{ on = 1 }", "\"there\"")).unwrap();
        assert_eq!(there.made, Made::There);
    }

    #[test]
    fn what_makes_no_sense_is_said_with_its_line_and_field() {
        for (from, to, says) in [
            ("threads = 16", "threads = 0", "threads: there are 1 to 16384"),
            ("threads = 16", "threads = -1", "invalid value: integer `-1`"),
            ("files = 64", "files = 4194305", "files: there are 4194304"),
            ("file_bytes", "file_byte", "unknown field `file_byte`"),
            ("file_bytes = 1048576", "file_bytes = 0", "file_bytes: a file has 1 byte"),
            ("file_bytes = 1048576", "file_bytes = 4000", "line 10, bytes: a call has"),
            ("made = { on = 1 }", "made = \"far\"", "unknown variant `far`"),
            ("thinks_ns = 500", "thinks_ns = -500", "thinks_ns: a time is"),
            ("does = \"somewhere\"", "does = \"nothing\"", "unknown variant `nothing`"),
            ("kind = \"read\"\n", "", "line 8, kind: it is missing"),
            ("bytes = 100", "kind = \"read\"\nbytes = 100", "line 14, does: what makes"),
            ("bytes = 100", "bytes = 1073741825", "bytes: a call has 1 byte"),
            ("times = 3", "times = 0", "times: once"),
            ("times = 3", "times = 4000000000", "step: a thread has 10000"),
            ("bytes = 100\n", "bytes = 10", "not a description"),
        ] {
            let text = FINE.replacen(from, to, 1);
            let text = if says == "not a description" { &text[..text.len() - 4] } else { &text };
            let said = parse_workload(text).unwrap_err().to_string();
            assert!(said.contains(says) && said.contains("line "), "{to}: {said}");
        }
        let none = &FINE[..FINE.find("[[step]]").unwrap()];
        assert!(parse_workload(none).unwrap_err().to_string().contains("missing field `step`"));
        let none = format!("{none}step = []\n");
        assert!(parse_workload(&none).unwrap_err().to_string().contains("line 7, step: a thread"));
    }

    #[test]
    fn known_ones_have_as_many_threads_as_are_asked_for() {
        let names: Vec<_> = known_workloads(None).iter().map(|it| it.0).collect();
        let wanted = [
            "webserver",
            "webproxy",
            "videoserver",
            "fileserver",
            "varmail",
            "ycsb-a",
            "ycsb-b",
            "ycsb-c",
        ];
        assert_eq!(names, wanted);
        assert!(known_workloads(Some(3)).iter().all(|it| it.1.threads == 3));
        assert_eq!(known_workloads(None)[2].1.threads, 28);
    }
}
