//! `calibrate`: what it measures, keeps and refuses.

use serde_json::Value;

use crate::support::Scratch;

fn points(told: &Value, kind: &str, place: &str) -> Vec<(u64, u64)> {
    let of = |it: &&Value| it["kind"] == kind && it["place"] == place;
    let number = |it: &Value, name: &str| it[name].as_u64().unwrap();
    let all = told["points"].as_array().unwrap().iter();
    all.filter(of).map(|it| (number(it, "bytes"), number(it, "threads"))).collect()
}

#[test]
fn a_pool_is_calibrated_and_keeps_it() {
    let scratch = Scratch::new();
    let pictures = tempfile::tempdir().unwrap();
    let dir = pictures.path().to_str().unwrap();
    let dry = ["calibrate", "@pool", "--seconds", "1", "--dry-run", "--json", "--pictures", dir];
    let told = scratch.json(&dry);
    assert_eq!(told["kept"], false);
    for kind in ["read", "write"] {
        for place in ["local", "delegated"] {
            let points = points(&told, kind, place);
            let sizes: Vec<u64> =
                points.iter().filter(|it| it.1 == 1).map(|point| point.0).collect();
            assert_eq!(sizes, [4 << 10, 32 << 10, 256 << 10], "{kind} {place}");
        }
        let picture =
            std::fs::read_to_string(pictures.path().join(format!("calibrate-{kind}.svg"))).unwrap();
        assert!(picture.starts_with("<svg") && picture.contains("256 KiB delegated"), "{picture}");
        let from = told["thresholds"][kind]["delegate_remote_bytes"].as_u64().unwrap();
        assert!((4 << 10..=512 << 10).contains(&from) && from.is_power_of_two(), "{told}");
    }
    let text = scratch.ok(&["calibrate", "@pool", "--seconds", "1"]);
    assert!(text.contains("write 256 KiB local") && text.contains("reads: "), "{text}");
    assert!(text.contains(": kept; it counts from the next time on"), "{text}");
    scratch.check();
    let text = scratch.ok(&["calibrate", "@pool", "--forget"]);
    assert!(text.contains("nothing that was measured is kept any more"), "{text}");
}

#[test]
fn a_pool_is_left_closed_whatever_was_refused() {
    let scratch = Scratch::synced();
    scratch.fails(&["calibrate", "@pool"], 1, &["there is nothing to calibrate"]);
    // the state says that nobody has it open (FORMAT.md)
    let slice = std::fs::read(scratch.pool().join("slice.0")).unwrap();
    let state = &slice[3 * 4096..][..32];
    assert_eq!((&state[..8], &state[24..28]), (&b"NSSTATE1"[..], &[0; 4][..]));
    let missing = ["calibrate", "@pool", "--pictures", "@missing"];
    Scratch::new().fails(&missing, 1, &["is no directory for pictures"]);
    if let Some(mounted) = Scratch::mounted() {
        mounted.fails(&["calibrate", "@pool"], 1, &["unmount it before it is calibrated"]);
        mounted.umount();
    }
}

#[test]
fn a_machine_that_is_played_is_measured_and_nothing_is_kept() {
    let scratch = Scratch::new();
    let machine = tempfile::NamedTempFile::new().unwrap();
    // one CPU a node: as little as can be measured
    let text = include_str!("../../../sim/machines/cxl-expander.toml");
    std::fs::write(machine.path(), text.replace("cpus = 28", "cpus = 1")).unwrap();
    let path = machine.path().to_str().unwrap();
    let told = scratch.json(&["calibrate", "@pool", "--seconds", "1", "--json", "--emulate", path]);
    assert_eq!(
        (&told["nodes"], &told["cpus"], &told["kept"]),
        (&2.into(), &2.into(), &false.into())
    );
    assert_eq!(points(&told, "write", "remote").len(), 3);
    // never faster than it is described: 4 KiB at 6000 MiB/s, and with 500 ns to hand it over
    let rate = |place: &str| {
        let of = |it: &&Value| it["kind"] == "write" && it["place"] == place && it["bytes"] == 4096;
        let found = told["points"].as_array().unwrap().iter().find(of).unwrap();
        found["mib_per_s"].as_f64().unwrap()
    };
    assert!(rate("local") <= 6000.0 * 1.01 && rate("delegated") <= 3394.0 * 1.01, "{told}");
    std::fs::write(machine.path(), "nodes = 0").unwrap();
    scratch.fails(&["calibrate", "@pool", "--emulate", path], 2, &["not a description: "]);
}

#[test]
fn where_nothing_is_to_be_measured_it_is_said() {
    let scratch = Scratch::synced();
    scratch.fails(&["calibrate", "@missing", "--seconds", "1"], 1, &["missing"]);
    scratch.fails(&["calibrate", "@pool", "--seconds", "1"], 1, &["there is nothing to calibrate"]);
}
