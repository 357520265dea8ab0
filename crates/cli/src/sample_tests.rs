use super::*;

pub fn sample(count: u64, seconds: f64) -> Sample {
    let held = Held { map_bytes: 1 << 20, entry_bytes: 2 << 20, page_bytes: 4 << 20, inodes: 9 };
    Sample {
        pool: "/p".to_owned(),
        dir: "/mnt".to_owned(),
        process: 7,
        serving_seconds: seconds,
        calls: vec![CallSample {
            call: "read".to_owned(),
            count,
            errors: count / 10,
            bytes: count * 4096,
            nanos: count * 1000,
            buckets: vec![(30, count / 2), (60, count - count / 2), (9999, 1)],
        }],
        checkpoints: Checkpoints {
            count: count / 100,
            bytes: count,
            seconds: 0.5,
            last_seconds: 0.25,
            age_seconds: Some(3.0),
            delay_seconds: 0.125,
            waits: count / 1000,
        },
        syncs: 4,
        cache: Cache { limit_bytes: 1 << 30, held: held.clone() },
        counts_copied: true,
        tier: None,
        moves: None,
        slices: vec![SliceSample {
            index: 0,
            log_bytes: 64 << 20,
            log_used_bytes: 16 << 20,
            log_written_bytes: count,
            blocks: 1000,
            blocks_free: 250,
            copies: 1,
            cache: held,
            workers: WorkerFacts::default(),
            copied: CopiedFacts::default(),
            arrived_bytes: 0,
            busy_percent: None,
            calls: vec![SliceCall {
                call: "read".to_owned(),
                count,
                errors: count / 10,
                bytes: count * 4096,
                nanos: count * 1000,
            }],
        }],
    }
}

#[test]
fn an_interval_is_what_happened_in_it() {
    let (first, second) = (sample(1000, 10.0), sample(3000, 14.0));
    let between = second.since(&first);
    let call = &between.calls[0];
    assert_eq!((call.count, call.errors, call.bytes), (2000, 200, 2000 * 4096));
    assert!((between.rate(call.count) - 500.0).abs() < 1e-9);
    assert_eq!(call.buckets[..2], [(30, 1000), (60, 1000)]);
    assert_eq!(between.checkpoints.count, 20);
    assert_eq!(between.slices[0].blocks_free, 250);
    assert_eq!(between.slices[0].calls_and_bytes(), (2000, 2000 * 4096));
    assert_eq!(between.slices[0].log_written_bytes, 2000);
    let none = second.since(&second);
    assert!(none.calls.is_empty() && none.slices[0].calls.is_empty());
    // A server that began anew has counted from 0.
    let other = Sample { process: 8, ..sample(50, 1.0) };
    assert_eq!(other.since(&first).calls[0].count, 50);
}

#[test]
fn bytes_to_the_slices_are_set_against_those_of_programs() {
    let mut sample = sample(1000, 1.0);
    assert_eq!(sample.bytes_per_user_byte(), None, "nobody wrote");
    sample.calls[0].call = "write".to_owned();
    sample.calls[0].bytes = 4096;
    sample.checkpoints.bytes = 1000;
    let slice = &mut sample.slices[0];
    (slice.log_written_bytes, slice.workers.written_bytes) = (96, 1000);
    (slice.copied.local_written_bytes, slice.copied.remote_written_bytes) = (2000, 4096);
    assert_eq!(sample.bytes_per_user_byte(), Some(2.0));
    sample.counts_copied = false;
    assert_eq!(sample.bytes_per_user_byte(), None);
}

#[test]
fn what_an_older_server_says_is_understood() {
    let mut old = serde_json::to_value(sample(1000, 1.0)).unwrap();
    assert_eq!(old["cache"]["page_bytes"], 4 << 20, "beside the limit, not below it");
    let slice = old["slices"][0].as_object_mut().unwrap();
    assert!(slice.remove("cache").is_some() && slice.remove("calls").is_some());
    let read: Sample = serde_json::from_value(old).unwrap();
    assert_eq!(read.slices[0].calls_and_bytes(), (0, 0));
}

#[test]
fn a_quantile_lies_in_its_bucket_whatever_was_sent() {
    let call = &sample(1000, 1.0).calls[0];
    let (half, most) = (call.quantile(0.5).unwrap(), call.quantile(0.99).unwrap());
    assert_eq!(half, nearside::files::meter::bucket_end(30));
    assert_eq!(most, nearside::files::meter::bucket_end(60));
}
