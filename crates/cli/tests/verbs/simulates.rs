//! `simulate`: what it says, and what it refuses.

use serde_json::Value;

use crate::support::{ok, run};

const FEW: [&str; 7] = ["simulate", "--threads", "1,4", "--bytes", "4K", "--milliseconds", "1"];

fn json(more: &[&str]) -> Value {
    serde_json::from_slice(&ok(run(FEW.iter().chain(more).chain(&["--json"])))).unwrap()
}

#[test]
fn each_system_has_a_column_and_each_number_of_threads_a_line() {
    let pictures = tempfile::tempdir().unwrap();
    let dir = pictures.path().to_str().unwrap();
    let text = String::from_utf8(ok(run(FEW.iter().chain(&["--pictures", dir])))).unwrap();
    let lines: Vec<Vec<&str>> =
        text.lines().map(|line| line.split_whitespace().collect()).collect();
    assert!(text.starts_with("eight sockets of Optane, writes of 4 KiB: MiB/s\n"), "{text}");
    let systems = [
        "THREADS",
        "ext4-dax",
        "ext4-raid0",
        "nova",
        "nthread",
        "jericho",
        "dragonfly",
        "odinfs",
        "nearside",
    ];
    assert_eq!(lines[1], systems);
    assert_eq!((lines.len(), lines[2][0], lines[3][0]), (4, "1", "4"));
    for (one, four) in lines[2][1..].iter().zip(&lines[3][1..]) {
        let [one, four] = [one, four].map(|rate| rate.parse::<u32>().unwrap());
        assert!(one > 100 && four > one, "{text}");
    }
    let picture = std::fs::read_to_string(pictures.path().join("simulate-writes-4096.svg"));
    assert!(picture.unwrap().contains("odinfs"));
}

#[test]
fn what_it_says_follows_from_the_seed_and_from_where_threads_run() {
    let told = json(&["--system", "ext4-dax"]);
    assert_eq!(told, json(&["--system", "ext4-dax"]));
    assert_ne!(told["runs"], json(&["--system", "ext4-dax", "--seed", "2"])["runs"]);
    let runs = told["runs"].as_array().unwrap();
    assert_eq!(
        (runs.len(), &runs[1]["threads"], &runs[1]["remote_part"]),
        (2, &4.into(), &0.0.into())
    );
    // half of four threads, one on each node in turn, are not where the data is
    let spread = json(&["--system", "ext4-dax", "--spread", "--on-nodes", "2"]);
    let remote = spread["runs"][1]["remote_part"].as_f64().unwrap();
    assert!((0.4..0.5).contains(&remote), "{remote}");
    let calls = runs[0]["calls"].as_u64().unwrap();
    let rate = runs[0]["mib_per_s"].as_f64().unwrap();
    assert!((rate - calls as f64 * 4096.0 / 1048576.0 * 1000.0).abs() < 1e-6, "{told}");
}

#[test]
fn what_is_not_known_and_makes_no_sense_is_refused() {
    let refused = |more: &[&str]| {
        let said = run(["simulate", "--milliseconds", "1"].iter().chain(more));
        assert_eq!(said.status.code(), Some(2), "{more:?}");
        String::from_utf8(said.stderr).unwrap()
    };
    let said = refused(&["--system", "zfs"]);
    assert!(said.contains("no file system zfs") && said.contains("nearside"), "{said}");
    let machine = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(machine.path(), "nodes = \n").unwrap();
    let said = refused(&["--machine", machine.path().to_str().unwrap()]);
    assert!(said.contains("not a description: ") && said.contains("line 1"), "{said}");
    assert!(refused(&["--paper", "zfs"]).contains("odinfs, jericho, dragonfly, nearside"));
    assert!(refused(&["--out", "figures"]).contains("--paper"));
    assert!(refused(&["--fit", "--published"]).contains("cannot be used with"));
    assert!(refused(&["--threads", "0"]).contains("1 to 16384 threads"));
    assert!(refused(&["--bytes", "2G"]).contains("1 byte to 1 GiB"));
    assert!(refused(&["--on-nodes", "0"]).contains("one node at least"));
    let listed = String::from_utf8(ok(run(["simulate", "--list"]))).unwrap();
    assert!(
        listed.contains("  odinfs: OdinFS (OSDI'22)") && listed.contains("  optane-2-sockets: ")
    );
}

#[test]
fn what_others_measured_stands_beside_it() {
    let text = String::from_utf8(ok(run(["simulate", "--published"]))).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 1 + 50 + 2, "{text}");
    let fitted = lines.iter().filter(|line| line.ends_with("  fitted")).count();
    assert_eq!(fitted, 18, "{text}");
    assert!(lines[51].starts_with("fitted: 18 rows, off by "), "{text}");
    assert!(lines[52].starts_with("held out: 32 rows, off by "), "{text}");
    let told: Value =
        serde_json::from_slice(&ok(run(["simulate", "--published", "--json"]))).unwrap();
    for row in told.as_array().unwrap() {
        let number = |name: &str| row[name].as_f64().unwrap();
        let ratio = number("simulated_mib_per_s") / number("measured_mib_per_s");
        assert!((number("ratio") - ratio).abs() < 1e-9 && ratio > 0.4, "{row}");
    }
}

#[test]
fn the_fit_says_its_numbers_and_every_error() {
    let text = String::from_utf8(ok(run(["simulate", "--fit"]))).unwrap();
    let told: Value = serde_json::from_slice(&ok(run(["simulate", "--fit", "--json"]))).unwrap();
    let array = |name: &str| told[name].as_array().unwrap().clone();
    let number = |it: &Value, name: &str| it[name].as_f64().unwrap();
    // what is in the machine's file, and from where
    let numbers = array("numbers");
    let of = |name: &str| numbers.iter().find(|it| it["name"] == name).unwrap();
    let lock = of("OdinFS's journal, locked for a write");
    assert_eq!((number(lock, "value"), &lock["fitted"]), (880.0, &true.into()));
    let point = of("writes of 32 KiB by 2");
    assert_eq!((number(point, "value"), &point["from"]), (7650.0, &"one node: 32K writes".into()));
    let alone = of("writes of 4 KiB by 1");
    assert_eq!((&alone["fitted"], &alone["from"]), (&false.into(), &"assumed".into()));
    // each row has both errors, and the medians are theirs
    let rows = array("rows");
    assert_eq!(rows.len(), 50, "{text}");
    for (of, fitted, name) in [
        ("fitted", true, "error"),
        ("fitted_without_their_tables", true, "error_without_its_table"),
        ("held_out", false, "error"),
    ] {
        let its = rows.iter().filter(|row| row["fitted"] == fitted);
        let mut errors: Vec<f64> = its.map(|row| number(row, name)).collect();
        errors.sort_by(f64::total_cmp);
        assert_eq!(told[of]["rows"], errors.len());
        assert_eq!(number(&told[of], "median"), errors[errors.len() / 2], "{of}");
    }
    assert!(number(&told["fitted"], "median") < 0.15, "{text}");
    for row in &rows {
        let off = (number(row, "ratio") - 1.0).abs();
        assert!((number(row, "error") - off).abs() < 1e-9, "{row}");
    }
    for table in array("tables") {
        let is_same = table["with"] == table["without"];
        assert!(is_same || table["used"] == true, "{table}");
        let name = table["table"].as_str().unwrap();
        let line = text.lines().rfind(|line| line.starts_with(name)).unwrap();
        assert_eq!(line.ends_with("  nothing follows from it"), table["used"] == false, "{line}");
    }
    assert!(text.contains("\nfitted: 18 rows, off by ") && text.contains("\nheld out: 32 rows"));
}

#[test]
fn programs_are_played_by_their_names_and_from_files() {
    let few = ["simulate", "--milliseconds", "2", "--system", "nearside", "--json", "--workload"];
    let json = |more: &[&str]| -> Value {
        serde_json::from_slice(&ok(run(few.iter().chain(more)))).unwrap()
    };
    let threads = |told: &Value| -> Vec<u64> {
        let runs = told["runs"].as_array().unwrap();
        assert!(runs.iter().all(|run| run["mib_per_s"].as_f64().unwrap() > 0.0), "{told}");
        runs.iter().map(|run| run["threads"].as_u64().unwrap()).collect()
    };
    assert_eq!(threads(&json(&["webserver"])), [14]);
    assert_eq!(threads(&json(&["ycsb-a", "--threads", "2,4"])), [2, 4]);
    let scratch = tempfile::tempdir().unwrap();
    let file = scratch.path().join("index");
    let text = "threads = 3\nfile_bytes = 65536\n[[step]]\ndoes = \"whole\"\nkind = \"read\"\nbytes = 4096\n";
    std::fs::write(&file, text).unwrap();
    let told = json(&[file.to_str().unwrap()]);
    assert_eq!((threads(&told), told["bytes"].as_u64()), (vec![3], Some(4096)));
    std::fs::write(&file, text.replace("4096", "-4096")).unwrap();
    for (name, says) in [
        (file.to_str().unwrap(), "line 6, column 9"),
        ("mailserver", "no program mailserver is known, and no file; there are webserver,"),
        ("/nowhere/index", "No such file"),
    ] {
        let failed = run(few.iter().chain(&[name]));
        let said = String::from_utf8(failed.stderr).unwrap();
        assert!(failed.status.code() != Some(0) && said.contains(says), "{said}");
    }
}
