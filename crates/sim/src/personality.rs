//! Programs that file systems are measured with, as their authors describe them.
//!
//! All files of one are alike in length, where Filebench draws lengths of that mean. Opening and
//! closing a file takes 2 us; that is assumed, and the same for every file system.

use placement::Kind::{Read, Write};

use crate::workload::{Made, Step, Workload};

/// What opening and closing a file takes, ns.
const FILE_NS: f64 = 2000.0;

const K: u64 = 1 << 10;
const M: u64 = 1 << 20;

/// A program: what it is called, and what so many threads of it do.
#[derive(Clone, Debug)]
pub struct Personality {
    /// Its name.
    pub name: &'static str,
    /// Its threads, or those of a busy machine.
    pub workload: Workload,
}

fn program(
    name: &'static str,
    steps: Vec<Step>,
    (files, file_bytes): (u32, u64),
    threads: u32,
) -> Personality {
    let fio = Workload::fio(Read, 1, threads);
    let made = Made::There;
    let workload = Workload { steps, files, file_bytes, made, file_ns: FILE_NS, ..fio };
    Personality { name, workload }
}

/// So many files are read, by calls of so many bytes.
fn reads(files: usize, bytes: u64) -> Vec<Step> {
    vec![Step::Whole(Read, bytes); files]
}

fn then(mut steps: Vec<Step>, last: Step) -> Vec<Step> {
    steps.push(last);
    steps
}

/// Filebench as Dragonfly ran it: size, files, threads, and reads to writes as its deck has them;
/// the steps, calls of 1 MiB and logs of 16 KiB are Filebench's own.
#[must_use]
pub fn dragonfly(is_heavy: bool) -> Vec<Personality> {
    let pick = |heavy: (u64, u32, u32), light| if is_heavy { heavy } else { light };
    let webserver = pick((160 * K, 10_000, 14), (16 * K, 10_000, 7));
    let webproxy = pick((160 * K, 100_000, 14), (64 * K, 10_000, 7));
    let video = pick((2048 * M, 50, 28), (1024 * M, 50, 14));
    let fileserver = pick((128 * K, 10_000, 14), (128 * K, 1_000, 7));
    let call = |bytes: u64| bytes.min(M);
    let proxy = |bytes| [vec![Step::Make(bytes)], reads(5, bytes)].concat();
    let files = |bytes| vec![Step::Make(bytes), Step::Make(bytes), Step::Whole(Read, bytes)];
    let of = |(bytes, files, _): (u64, u32, u32)| (files, bytes);
    let log = Step::Append(16 * K);
    vec![
        program("webserver", then(reads(10, call(webserver.0)), log), of(webserver), webserver.2),
        program("webproxy", proxy(call(webproxy.0)), of(webproxy), webproxy.2),
        program("videoserver", reads(1, 256 * K), of(video), video.2),
        program("fileserver", files(call(fileserver.0)), of(fileserver), fileserver.2),
    ]
}

/// Filebench as OdinFS ran it, with the sizes of its artifact; so many threads, and as many of the
/// video server's writers as of its readers.
#[must_use]
pub fn odinfs(threads: u32) -> Vec<Personality> {
    let fileserver = vec![Step::Make(512 * K), Step::Append(256 * K), Step::Whole(Read, 512 * K)];
    let mail = vec![
        Step::Make(16 * K),
        Step::Whole(Read, 16 * K),
        Step::Append(16 * K),
        Step::Whole(Read, 16 * K),
    ];
    // who writes reads as well here
    let video = vec![Step::Make(M), Step::Whole(Read, 256 * K)];
    vec![
        program("fileserver", fileserver, (10_000, 2 * M), threads),
        program(
            "webserver",
            then(reads(10, 256 * K), Step::Append(256 * K)),
            (20_000, 4 * M),
            threads,
        ),
        program("videoserver", video, (226, 512 * M), threads),
        program("varmail", mail, (100_000, 16 * K), threads),
    ]
}

/// YCSB's A, B and C as a store of records of 1 KiB does them: in files that all threads use.
#[must_use]
pub fn ycsb(threads: u32) -> Vec<Personality> {
    let mix = |updates: usize, of: usize| {
        let reads = vec![Step::Somewhere(Read, K); of - updates];
        [vec![Step::Somewhere(Write, K); updates], reads].concat()
    };
    let files = (64, 256 * M);
    vec![
        program("ycsb-a", mix(1, 2), files, threads),
        program("ycsb-b", mix(1, 20), files, threads),
        program("ycsb-c", mix(0, 1), files, threads),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes read and written in one round.
    fn bytes(workload: &Workload) -> [u64; 2] {
        let mut sum = [0, 0];
        for step in &workload.steps {
            match *step {
                Step::Whole(Read, _) => sum[0] += workload.file_bytes,
                Step::Make(_) | Step::Whole(Write, _) => sum[1] += workload.file_bytes,
                Step::Append(bytes) | Step::Somewhere(Write, bytes) => sum[1] += bytes,
                Step::Somewhere(Read, bytes) => sum[0] += bytes,
                Step::Round(..) => {}
            }
        }
        sum
    }

    #[test]
    fn reads_and_writes_are_as_the_decks_say() {
        let light = dragonfly(false);
        let named = |name| &light.iter().find(|it| it.name == name).unwrap().workload;
        // 10:1, 5:1, reads alone, 1:2
        assert_eq!(bytes(named("webserver")), [160 * K, 16 * K]);
        assert_eq!(bytes(named("webproxy")), [320 * K, 64 * K]);
        assert_eq!(bytes(named("videoserver"))[1], 0);
        assert_eq!(bytes(named("fileserver")), [128 * K, 256 * K]);
        let heavy = dragonfly(true);
        let threads: Vec<_> = heavy.iter().map(|it| it.workload.threads).collect();
        assert_eq!(threads, [14, 14, 28, 14]);
        assert_eq!(bytes(&ycsb(1)[1].workload), [19 * K, K]);
    }
}
