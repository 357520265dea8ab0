use super::*;

fn next(attached: &Path) -> (Holders, Option<HashMap<u128, Side>>) {
    Holders::open(Some(attached), true)
}

#[test]
fn the_next_service_knows_who_has_locks() {
    let scratch = tempfile::tempdir().unwrap();
    let attached = scratch.path().join("nearside.attached");
    let (first, left) = Holders::open(Some(&attached), false);
    assert_eq!(left, None, "nobody is awaited");
    let (_, left) = next(&attached);
    assert_eq!(left, Some(HashMap::new()));
    for (client, side) in [(1, Side::Here), (u128::MAX, Side::There), (7, Side::There)] {
        assert!(first.add(client, side) && first.add(client, side));
    }
    first.remove_unless(7, |_| false);
    first.remove_unless(8, |_| false);
    first.remove_unless(1, |client| client == 1);
    let all = HashMap::from([(1, Side::Here), (u128::MAX, Side::There)]);
    let (second, left) = next(&attached);
    assert_eq!(left, Some(all), "it is killed");
    second.keep_only(|client| client != 1);
    let (third, left) = next(&attached);
    assert_eq!(left, Some(HashMap::from([(u128::MAX, Side::There)])));
    third.end();
    assert!(!scratch.path().join(NAME).exists());
}

#[test]
fn a_list_that_may_lack_somebody_is_none() {
    let scratch = tempfile::tempdir().unwrap();
    let attached = scratch.path().join("nearside.attached");
    // of services that kept none: nobody knows who was there
    assert_eq!(next(&attached).1, None);
    assert_eq!(next(&attached).1, None, "nor does the one after the next");
    drop(Holders::open(Some(&attached), false));
    let dir = scratch.path().join(NAME);
    for name in ["what", "12.where", ".here", "12", "xyz.here"] {
        std::fs::write(dir.join(name), "").unwrap();
        assert_eq!(left_in(&dir), None, "{name}");
        std::fs::remove_file(dir.join(name)).unwrap();
        assert!(left_in(&dir).is_some());
    }
    // it cannot be written down
    let (holders, _) = Holders::open(Some(&attached), false);
    std::fs::remove_dir_all(&dir).unwrap();
    assert!(!holders.add(3, Side::Here));
    std::fs::create_dir(&dir).unwrap();
    assert!(holders.add(3, Side::Here), "it is tried again");
    holders.keep_only(|_| true);
    assert_eq!(left_in(&dir), None, "there may have been others");
}
